"""A message: a role, ordered blocks, and where they came from. Frozen."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal

import msgspec
from msgspec.structs import force_setattr, replace

from evener.errors import BadValue
from evener.transcript.blocks import Block, ReasoningBlock, ResultContent, TextBlock, ToolCall, ToolResult
from evener.transcript.mint import new_id, now
from evener.transcript.origin import Origin, Seal
from evener.transcript.reply import Reply
from evener.transcript.usage import Usage

__all__ = ["Message", "Role"]

Role = Literal["user", "assistant", "system"]
ROLES = ("user", "assistant", "system")
BLOCKS: tuple[type, ...] = Block.__args__


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One turn's contribution. Tool results live in a user message; adapters remap (the block's kind is the meaning).

    `id` names the message for ever, also after compaction has dropped it. `parent_id` is the message before it, set when it
    is appended to a transcript. A message never holds a turn that did not finish.
    """

    role: Role
    blocks: tuple[Block, ...]
    id: str = msgspec.field(default_factory=new_id)
    parent_id: str = ""
    created_at: datetime | None = msgspec.field(default_factory=now)
    origin: Origin | None = None
    usage: Usage | None = None

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise BadValue(f"Unknown role {self.role!r}. A message is one of {', '.join(ROLES)}; a tool's result is a block.")
        if isinstance(self.blocks, str):
            raise BadValue("Message.blocks must be blocks, not a str. Use Message.user_text(...) or TextBlock(...).")
        if type(self.blocks) is not tuple:
            force_setattr(self, "blocks", tuple(self.blocks))
        for block in self.blocks:
            if not isinstance(block, BLOCKS):
                raise BadValue(f"Message.blocks holds a {type(block).__name__}. Use the block types of evener.transcript.")

    @classmethod
    def user_text(cls, text: str) -> "Message":
        """A user message of one text."""
        return cls("user", (TextBlock(text),))

    @classmethod
    def system_text(cls, text: str) -> "Message":
        """An instruction in mid-conversation. The system prompt itself belongs to the transcript."""
        return cls("system", (TextBlock(text),))

    @classmethod
    def assistant_text(cls, text: str, *, reasoning: ReasoningBlock | None = None) -> "Message":
        """An assistant message of one text; reasoning stands before it."""
        return cls("assistant", _led_by(reasoning, (TextBlock(text),)))

    @classmethod
    def assistant_tool_call(cls, *calls: ToolCall, reasoning: ReasoningBlock | None = None) -> "Message":
        """An assistant message that calls tools; reasoning stands before the calls."""
        return cls("assistant", _led_by(reasoning, calls))

    @classmethod
    def tool_result(cls, call_id: str, content: str | Sequence[ResultContent], *, is_error: bool = False) -> "Message":
        """A user message with the result of one call."""
        blocks: Sequence[ResultContent]
        if isinstance(content, str):
            blocks = (TextBlock(content),) if content else ()
        else:
            blocks = content
        return cls("user", (ToolResult(call_id, tuple(blocks), is_error),))

    @classmethod
    def from_assistant_response(cls, reply: Reply, *, origin: Origin | None = None, binding: str = "") -> "Message":
        """The reply as a message: all its blocks in order, seals stamped with who made them and under which prefix."""
        origin = origin or Origin()
        blocks = tuple(_stamped(block, origin, binding) for block in reply.blocks) or (TextBlock(""),)
        return cls("assistant", blocks, origin=origin, usage=reply.usage)

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return "".join(block.text for block in self.blocks if isinstance(block, TextBlock))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls, in order."""
        return tuple(block for block in self.blocks if isinstance(block, ToolCall))


def _led_by(reasoning: ReasoningBlock | None, blocks: Iterable[Block]) -> tuple[Block, ...]:
    return (reasoning, *blocks) if reasoning else tuple(blocks)


def _stamped(block: Block, origin: Origin, binding: str) -> Block:
    match block:
        case TextBlock(seal=Seal() as seal) | ReasoningBlock(seal=Seal() as seal) | ToolCall(seal=Seal() as seal):
            return replace(block, seal=Seal(seal.data, origin, binding))
        case _:
            return block
