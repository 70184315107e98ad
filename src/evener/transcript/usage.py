"""Exact, additive token counts. Who includes what in what is the codecs' business, not ours. Pure values."""

import msgspec

from evener.transcript.checks import check_type

__all__ = ["Usage"]


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
        if type(self.input_total) is type(self.uncached) is type(self.cache_read) is type(self.cache_write) is int and (
            type(self.output_total) is type(self.reasoning) is int
        ):
            return  # at a glance: a usage is made for every sum
        check_type(self.input_total, (int,), "Usage.input_total")
        check_type(self.uncached, (int,), "Usage.uncached")
        check_type(self.cache_read, (int,), "Usage.cache_read")
        check_type(self.cache_write, (int,), "Usage.cache_write")
        check_type(self.output_total, (int,), "Usage.output_total")
        check_type(self.reasoning, (int,), "Usage.reasoning")

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
