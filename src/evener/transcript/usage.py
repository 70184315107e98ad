"""Exact, additive token counts. Who includes what in what is the codecs' business, not ours. Pure values."""

import msgspec
from msgspec.structs import astuple

from evener.transcript.checks import check_type

__all__ = ["Usage"]

WHOLE = {int}
"""The types of all counts."""


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
        counts = astuple(self)
        if set(map(type, counts)) != WHOLE:
            for name, count in zip(self.__struct_fields__, counts, strict=True):
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
