"""A structured answer while it comes: now and then what is there of it, so that showing it costs little. Reads the clock."""

from collections.abc import Iterator
from time import monotonic

from evener.tools.outputs import OutputShape, PartialReader
from evener.transcript.ask import OutputForm
from evener.transcript.delta import Delta, Stopped

__all__ = ["Partial"]

PERIOD = 0.05
"""Seconds between two looks: each copies what is there."""


class Partial:
    """Give it the deltas of a turn; it gives values worth showing."""

    def __init__(self, shape: OutputShape, form: OutputForm) -> None:
        self._reader = PartialReader(shape, form=form)
        self._last = 0.0
        self._changed = False

    def add(self, deltas: list[Delta]) -> Iterator[object]:
        """The answer so far, if it has changed and it is time; at the end of the turn in any case."""
        self._changed = self._reader.add(deltas) or self._changed
        over = bool(deltas) and isinstance(deltas[-1], Stopped)
        now = monotonic()
        if self._changed and self._reader.begun and (over or now - self._last > PERIOD):
            self._last, self._changed = now, False
            yield self._reader.snapshot()
