"""A message: a role, ordered blocks, and their origin. Frozen."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Literal, get_args

import msgspec
from msgspec.structs import asdict, force_setattr, replace

from evener.errors import BadValue
from evener.transcript.blocks import (
    Block,
    HostedBlock,
    Origin,
    ReasoningBlock,
    ResultContent,
    Seal,
    TextBlock,
    ToolCall,
    ToolResult,
    as_tuple,
    check_text,
    check_type,
)
from evener.transcript.mint import new_id, now
from evener.transcript.reply import Reply, Usage

Role = Literal["user", "assistant", "system"]
ROLES: tuple[str, ...] = get_args(Role)
BLOCKS: tuple[type, ...] = get_args(Block)
ORIGINS = (Origin, type(None))
USAGES = (Usage, type(None))


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """The contribution of one turn. Tool results are in a user message; codecs move them (the kind of a block gives its
    meaning).

    `id` names the message permanently, also after a compaction has removed it from requests. `parent_id` is the message
    before it, set when it is appended to a transcript. `created_at` is stored in UTC. A message never contains an unfinished
    turn.
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
            raise BadValue(
                f"Unknown role {self.role!r:.80}. A message is one of {', '.join(ROLES)}; a tool's result is a block."
            )
        if type(self.blocks) is not tuple:
            if isinstance(self.blocks, str):
                raise BadValue("Message.blocks must be blocks, not a str. Use Message.user_text(...) or TextBlock(...).")
            force_setattr(self, "blocks", as_tuple(self.blocks, "Message.blocks"))
        for block in self.blocks:
            if type(block) not in BLOCKS:
                check_type(block, BLOCKS, "Each of Message.blocks")
        self._check_facts()

    def _check_facts(self) -> None:
        if type(self.id) is not str or not self.id.isascii():
            check_text(self.id, "Message.id")
        if self.parent_id != "":
            check_text(self.parent_id, "Message.parent_id")
        if not self.id:
            raise BadValue("Message.id must name the message; it is empty. Leave it out to have one made.")
        made = self.created_at
        if made is not None and (type(made) is not datetime or made.tzinfo is not UTC):
            force_setattr(self, "created_at", _convert_to_utc(made))
        if type(self.origin) not in ORIGINS:
            check_type(self.origin, ORIGINS, "Message.origin")
        if type(self.usage) not in USAGES:
            check_type(self.usage, USAGES, "Message.usage")

    def after(self, parent: str) -> "Message":
        """Return the same message with another one before it."""
        if self.parent_id == parent:
            return self
        if type(parent) is not str or not parent.isascii():
            check_text(parent, "Message.parent_id")
        made: Message = self.__copy__()  # type: ignore[attr-defined]  # every Struct has one; it checks nothing again
        force_setattr(made, "parent_id", parent)
        return made

    @classmethod
    def user_text(cls, text: str) -> "Message":
        """Return a user message of one text."""
        return cls("user", (TextBlock(text),))

    @classmethod
    def system_text(cls, text: str) -> "Message":
        """Return an instruction in mid-conversation. The system prompt itself belongs to the transcript."""
        return cls("system", (TextBlock(text),))

    @classmethod
    def assistant_text(cls, text: str, *, reasoning: ReasoningBlock | None = None) -> "Message":
        """Return an assistant message of one text; reasoning stands before it."""
        return cls("assistant", _lead_with(reasoning, (TextBlock(text),)))

    @classmethod
    def assistant_tool_call(cls, *calls: ToolCall, reasoning: ReasoningBlock | None = None) -> "Message":
        """Return an assistant message that calls tools; reasoning stands before the calls."""
        return cls("assistant", _lead_with(reasoning, calls))

    @classmethod
    def tool_result(cls, call_id: str, content: str | Sequence[ResultContent], *, is_error: bool = False) -> "Message":
        """Return a user message with the result of one call."""
        return cls("user", (ToolResult(call_id, content, is_error),))  # type: ignore[arg-type] # it takes a str, too

    @classmethod
    def from_assistant_response(
        cls, reply: Reply, *, origin: Origin | None = None, binding: str = "", at: datetime | None = None
    ) -> "Message":
        """Return the reply as a message: all its blocks in order, seals stamped with who made them and under which prefix.

        Reasoning with neither text nor seal is nothing and is left out; an empty reply is one empty text. `at` is when it was
        given; now, if that is not said.
        """
        origin = origin or Origin()
        said: list[Block] = []
        for block in reply.blocks:
            if type(block) is HostedBlock:
                said.append(block if block.provider else replace(block, provider=origin.provider))
            elif block.seal is not None and type(block) is not ToolResult:
                said.append(_stamp(block, block.seal, origin, binding))
            elif type(block) is not ReasoningBlock or block.text:
                said.append(block)
        blocks = tuple(said) or (TextBlock(""),)
        if reply.usage.reasoning:
            blocks = _with_tokens(blocks, reply.usage.reasoning)
        return cls("assistant", blocks, created_at=at or now(), origin=origin, usage=reply.usage)

    @property
    def metadata(self) -> dict[str, object]:
        """The provider's statements about the message: its own counts as `provider_tokens`, and opaque fields of reasoning."""
        found: dict[str, object] = {}
        for block in self.blocks:
            if type(block) is ReasoningBlock:
                found |= block.metadata
        return found if self.usage is None else found | {"provider_tokens": asdict(self.usage)}

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return "".join(block.text for block in self.blocks if isinstance(block, TextBlock))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls, in order."""
        found: list[ToolCall] = []
        for block in self.blocks:
            if type(block) is ToolCall:
                found.append(block)
        return tuple(found)


def _lead_with(reasoning: ReasoningBlock | None, blocks: Iterable[Block]) -> tuple[Block, ...]:
    return (reasoning, *blocks) if reasoning else tuple(blocks)


def _with_tokens(blocks: tuple[Block, ...], tokens: int) -> tuple[Block, ...]:
    """Return the blocks with the provider's count of reasoning tokens on the first reasoning among them."""
    place = next((place for place, block in enumerate(blocks) if type(block) is ReasoningBlock), None)
    if place is None:
        return blocks
    return (*blocks[:place], replace(blocks[place], tokens=tokens), *blocks[place + 1 :])


def _stamp(block: Block, seal: Seal, origin: Origin, binding: str) -> Block:
    """Return the block, its seal stamped. Both are copied: what they hold beside that was checked when they were made."""
    check_type(origin, (Origin,), "Seal.origin")
    check_text(binding, "Seal.binding")
    stamped: Seal = seal.__copy__()  # type: ignore[attr-defined]
    force_setattr(stamped, "origin", origin)
    force_setattr(stamped, "binding", binding)
    made: Block = block.__copy__()  # type: ignore[union-attr]
    force_setattr(made, "seal", stamped)
    return made


def _convert_to_utc(moment: datetime) -> datetime:
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise BadValue(f"Message.created_at must be a datetime with a time zone, not {moment!r:.80}. Use datetime.now(UTC).")
    try:
        return moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    except OverflowError:
        raise BadValue(
            f"Message.created_at {moment} lies outside the years 1 to 9999 in UTC. Use a time within them."
        ) from None
