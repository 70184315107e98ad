"""What a caller sees of a run: events with their place and number. Costs nothing when nobody looks."""

from collections.abc import Callable
from time import monotonic

from evener import streaming as st
from evener.tools.outputs import OutputShape, PartialReader
from evener.transcript.ask import OutputForm
from evener.transcript.delta import ArgumentsDelta, CallStarted, Delta, ReasoningDelta, Stopped, TextDelta

__all__ = ["Show", "Teller", "Turn"]

PERIOD = 0.05
"""Seconds between two looks at a structured answer while it comes: each copies what is there."""

Show = Callable[[st.StreamEvent], None]


class Teller:
    """Numbers events and hands them on. `show` is None when nobody looks."""

    def __init__(self, place: st.Place, show: Show | None) -> None:
        self.place = place
        self.show = show
        self.told = 0
        """How many there were."""

    def tell(self, kind: Callable[..., st.StreamEvent], **fields: object) -> None:
        """Show something, if somebody looks."""
        if self.show is not None:
            self.told += 1
            self.show(kind(place=self.place, sequence=self.told, **fields))


class Turn:
    """One answer while it comes. Give it the deltas."""

    def __init__(self, teller: Teller, shape: OutputShape | None) -> None:
        self._tell = teller.tell
        self._shape = shape
        self._names: dict[int, tuple[str, str]] = {}
        self._reader: PartialReader | None = None
        self._last = 0.0
        self._changed = False

    def show(self, deltas: list[Delta], form: OutputForm) -> None:
        """Tell of them. `form` is how a structured answer was asked for."""
        for delta in deltas:
            match delta:
                case TextDelta(_, text):
                    self._tell(st.TextStreamed, text=text)
                case ReasoningDelta(_, text):
                    self._tell(st.ReasoningStreamed, text=text)
                case ArgumentsDelta(index, text):
                    call, tool = self._names.get(index, ("", ""))
                    self._tell(st.ArgumentsStreamed, call=call, tool=tool, text=text)
                case CallStarted(index, call, tool):
                    self._names[index] = (call, tool)
                    self._tell(st.ArgumentsStreamed, call=call, tool=tool, text="")
                case _:
                    pass
        if self._shape is not None:
            self._show_output(self._shape, deltas, form)

    def _show_output(self, shape: OutputShape, deltas: list[Delta], form: OutputForm) -> None:
        """The answer so far, if it has changed and it is time; at the end of the turn in any case."""
        reader = self._reader = self._reader or PartialReader(shape, form=form)
        self._changed = reader.add(deltas) or self._changed
        over = bool(deltas) and isinstance(deltas[-1], Stopped)
        now = monotonic()
        if self._changed and reader.begun and (over or now - self._last > PERIOD):
            self._last, self._changed = now, False
            self._tell(st.OutputStreamed, value=reader.snapshot())
