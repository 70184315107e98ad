"""The recording, with the place that the replay has come to. What the driver writes is held against it, event by event.

It is also the driver's clock: events get the times and ids that they were recorded with, and nothing waits.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from evener import events as ev
from evener.encodings.forms import FINAL_RESULT
from evener.replay.difference import Difference, compared, kind_of
from evener.result import ONCE_BY_HOOK

__all__ = ["Inbox", "RecordingEnded", "Strayed", "Tape", "begins"]

Inbox = ev.Steered | ev.Cancelled | ev.ApprovalDecided
"""What somebody said to the log."""

Beginning = ev.Opened | ev.Configured | ev.Imported | ev.Prompted | ev.Continued | ev.Resumed
"""What a driver is given when it begins; only the plan may go on by itself beyond a limit."""

PATIENCE = 1000
"""Rounds of the event loop."""

OUT_OF_TIME = "and the model had not answered."


class RecordingEnded(Exception):
    """The recording ends here: its process died, or was told to stop."""


class Strayed(Exception):
    """The replay does something else than the recording."""

    def __init__(self, *differences: Difference) -> None:
        super().__init__("; ".join(map(str, differences)))
        self.differences = differences


def begins(event: ev.Event | None) -> bool:
    """Whether nothing that a driver does leads to this: it is where another one took over, or where the recording ends."""
    return event is None or isinstance(event, Beginning)


class Tape:
    """Plays the part of the clock for one driver after another. `keyed`: the keys of calls are known, as the log's name is."""

    def __init__(self, recorded: Sequence[ev.Event]) -> None:
        self.recorded = tuple(recorded)
        self.at = 0
        """How many events have happened again."""
        self.made: list[ev.Event] = []
        self.keyed = True
        self.knows_shape = False
        """Whether the shape of the final answer is known; else what was made of an answer is taken from the recording."""
        self.nudge: Callable[[], None] = _nobody
        """Tells the driver that somebody has spoken."""
        self.late = False
        """Whether the present request will run out of time."""

    @property
    def next(self) -> ev.Event | None:
        """The event that comes next in the recording."""
        return self.recorded[self.at] if self.at < len(self.recorded) else None

    def ahead(self) -> Iterator[ev.Event]:
        """What is still to come, from the next event on."""
        return (self.recorded[place] for place in range(self.at, len(self.recorded)))

    def accept(self, event: ev.Event) -> None:
        """The next event has happened again."""
        self.made.append(event)
        self.at += 1

    # The clock.

    def now(self) -> float:
        """A question is asked again when its time is over: then the recording says when that was."""
        if isinstance(self.next, ev.ApprovalAsked):
            return self.next.at
        return self.recorded[self.at - 1].at if self.at else 0.0

    async def pause(self, seconds: float) -> bool:
        """Nobody waits for what has happened already."""
        del seconds
        return True

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """No time at all where the recording says that it ran out."""
        over = self.next
        self.late = seconds is not None and isinstance(over, ev.Finished) and over.detail.endswith(OUT_OF_TIME)
        return asyncio.timeout(0 if self.late else None)

    def dated(self, events: tuple[ev.Event, ...]) -> tuple[ev.Event, ...]:
        """The events with recorded times and ids. Raises when they are not those of the recording."""
        if not events:
            return ()
        found: list[ev.Event] = []
        for place, event in enumerate((*events, *self._known_of(events[-1]))):
            number = self.at + place
            recorded = self.recorded[number] if number < len(self.recorded) else None
            if place and (recorded is None or isinstance(recorded, ev.Opened)):
                break  # cut in the middle of what was written at once: by a fork, or by whoever reads a part only
            if recorded is None or (not place and begins(recorded) and not isinstance(event, ev.Continued)):
                raise RecordingEnded
            made = self._stamped(event, recorded)
            differences = compared(recorded, made, number=number + 1)
            if differences:
                raise Strayed(*differences)
            found.append(made)
        for made in found:
            self.accept(made)
        return tuple(found)

    def _known_of(self, event: ev.Event) -> Iterator[ev.CallFinished]:
        """What was told at once of the calls of a final answer that did not fit, where only the recording knows why."""
        if not isinstance(event, ev.Replied) or self.knows_shape or not event.problems:
            return
        finals = {call.id for call in event.message.calls if call.name == FINAL_RESULT}
        for place in range(self.at + 1, len(self.recorded)):
            recorded = self.recorded[place]
            if not isinstance(recorded, ev.CallFinished) or recorded.call not in finals:
                return
            yield recorded

    def _stamped(self, event: ev.Event, recorded: ev.Event) -> ev.Event:
        """With what is minted when an event is made, and with what the log does not hold where nobody told us."""
        match event, recorded:
            case ev.ModelCalled(), ev.ModelCalled():
                return replace(event, at=recorded.at, id=recorded.id)
            case ev.ApprovalAsked(), ev.ApprovalAsked():
                expires = recorded.expires if event.expires and recorded.expires else event.expires
                return replace(event, at=recorded.at, id=recorded.id, expires=expires)
            case ev.Steered(), ev.Steered():  # the note was made from it, without what hooks made of it
                return replace(event, at=recorded.at, message=recorded.message, refused=recorded.refused)
            case ev.CallStarted(), ev.CallStarted():
                return replace(event, at=recorded.at, key=event.key if self.keyed else recorded.key)
            case ev.CallFinished(), ev.CallFinished(metadata=metadata) if metadata in _older(event):
                return replace(event, at=recorded.at, metadata=metadata, rule="", by_hook=False)
            case ev.Replied(), ev.Replied() if not self.knows_shape:
                return replace(event, at=recorded.at, output=recorded.output, ended=recorded.ended)
            case _:
                return replace(event, at=recorded.at)

    # Taking turns.

    async def turn(self, mine: Callable[[ev.Event], bool], others: Callable[[ev.Event], bool], *, wanted: str) -> ev.Event:
        """Wait until the next event is `mine`, while it is one of `others`; what somebody said meanwhile is heard first."""
        while True:
            event = self.next
            if event is None or begins(event):
                raise RecordingEnded
            if mine(event):
                return event
            if isinstance(event, Inbox):
                self.nudge()
            elif not others(event):
                raise Strayed(Difference(self.at + 1, "kind", kind_of(event), wanted))
            try:
                await self._moved(event, wanted)
            except asyncio.CancelledError:
                event = self.next
                if event is not None and mine(event):
                    return event  # it was being written down when it was cancelled
                raise

    async def _moved(self, event: ev.Event, wanted: str) -> None:
        """Wait until this event has happened again. Others need no time for it: who does not come at once does not come."""
        before = self.at
        for _ in range(PATIENCE):
            await asyncio.sleep(0)
            if self.at != before:
                return
        raise Strayed(Difference(before + 1, "kind", kind_of(event), wanted))

    def overtaken(self, mine: Callable[[ev.Event], bool]) -> ev.Event | None:
        """What is `mine` and came at the same moment as words that would have ended it: too late for them. Else None."""
        said: list[ev.Event] = []
        for event in self.ahead():
            if isinstance(event, Inbox):
                said.append(event)
                continue
            ending = any(isinstance(one, ev.Cancelled) or (isinstance(one, ev.Steered) and one.at_once) for one in said)
            if not ending or begins(event) or not mine(event):
                return None
            self.nudge()
            return event
        return None


def _older(event: ev.CallFinished) -> tuple[str, ...]:
    """The metadata that said in older logs what has a field of its own by now."""
    ruled = (msgspec.json.encode({"rule": event.rule}).decode(),) if event.rule else ()
    return (*ruled, ONCE_BY_HOOK) if event.by_hook else ruled


def _nobody() -> None:
    """Nobody is there to be told."""
