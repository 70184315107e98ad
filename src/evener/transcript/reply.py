"""A complete answer of a model. Frozen; the loop never branches on reasoning. Pure values."""

from typing import Literal

import msgspec
from msgspec.structs import asdict, astuple

from evener.transcript.blocks import Block, HostedBlock, ReasoningBlock, TextBlock, ToolCall, check_type

WHOLE = frozenset({int})


class Usage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Tokens of one model call, or of many.

    input_total = uncached + cache_read + cache_write (when the provider states them);
    output_total includes reasoning.
    """

    input_total: int = 0
    uncached: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output_total: int = 0
    reasoning: int = 0

    def __post_init__(self) -> None:
        if not WHOLE.issuperset(map(type, astuple(self))):  # at a glance: a usage is made for every sum
            for name, count in asdict(self).items():
                check_type(count, (int,), f"Usage.{name}")

    def __add__(self, other: "Usage") -> "Usage":
        if not isinstance(other, Usage):
            return NotImplemented
        return Usage(
            self.input_total + other.input_total,
            self.uncached + other.uncached,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.output_total + other.output_total,
            self.reasoning + other.reasoning,
        )

    @property
    def total(self) -> int:
        """All tokens in and out."""
        return self.input_total + self.output_total

    @property
    def hit_rate(self) -> float:
        """The share of the input that was read from the provider's prompt cache."""
        return self.cache_read / self.input_total if self.input_total else 0.0


StopReason = Literal[
    "done",  # the model finished its turn
    "tools",  # it waits for tool results
    "length",  # the output limit was hit: the last call may be cut off
    "context_full",  # the window is full
    "stop_sequence",
    "refusal",  # the model or a filter declined; not an error
    "paused",  # the provider wants the turn sent back to go on
    "compacted",  # the provider answered with a compaction only
    "pending",  # a background answer that is not ready
    "cancelled",
    "other",
]


class Stop(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """The reason why the model stopped: in our word, in the provider's word, and the provider's explanation if it gave one."""

    reason: StopReason
    raw: str = ""
    detail: str = ""


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """One answer. It may contain text, reasoning and several calls, in the order in which they came.

    `notices` are events of an unknown form, as (name, JSON text): they are kept, and never raise an error.
    """

    blocks: tuple[Block, ...]
    stop: Stop
    usage: Usage = Usage()
    id: str = ""
    model: str = ""
    notices: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return "".join(block.text for block in self.blocks if isinstance(block, TextBlock))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Every call of the turn, in order."""
        return tuple(block for block in self.blocks if isinstance(block, ToolCall))

    @property
    def reasoning_text(self) -> str:
        """The readable reasoning, joined by blank lines."""
        return "\n\n".join(block.text for block in self.blocks if isinstance(block, ReasoningBlock) and block.text)

    @property
    def reasoning_metadata(self) -> tuple[dict[str, object], ...]:
        """The opaque fields of each reasoning block."""
        return tuple(block.metadata for block in self.blocks if isinstance(block, ReasoningBlock))

    @property
    def is_tool_call(self) -> bool:
        """True if tools must run before the model goes on."""
        return bool(self.calls)

    @property
    def is_final(self) -> bool:
        """True if this ends the turn."""
        return not self.calls and not self.awaited and self.stop.reason not in ("paused", "pending")

    @property
    def awaited(self) -> frozenset[str]:
        """The ids of the wire's own calls that the client must still answer."""
        hosted = [block for block in self.blocks if isinstance(block, HostedBlock)]
        return frozenset(block.opens for block in hosted) - {block.closes for block in hosted} - {""}

    @property
    def input_tokens(self) -> int:
        return self.usage.input_total

    @property
    def output_tokens(self) -> int:
        return self.usage.output_total

    @property
    def reasoning_tokens(self) -> int:
        """A subset of the output tokens; 0 when the provider does not say."""
        return self.usage.reasoning
