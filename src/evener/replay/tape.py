"""The recording, with the position of the replay. Each event that the driver writes is compared with the recorded one.

It is also the driver's clock: events get the recorded times and ids, and nothing waits.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from evener import events as ev
from evener.encodings.forms import FINAL_RESULT
from evener.replay.difference import Difference, compare_events, kind_of
from evener.replay.moments import Inbox, begins, hit_of
from evener.replay.old_logs import add_facts, write_as_old

PATIENCE = 1000
"""Rounds of the event loop."""


class RecordingEnded(Exception):
    """The recording ends here: its process died, or was stopped."""


class Strayed(Exception):
    """The replay differs from the recording."""

    def __init__(self, *differences: Difference) -> None:
        super().__init__("; ".join(map(str, differences)))
        self.differences = differences


class Tape:
    """The clock for one driver after another. `keyed`: the keys of calls are known, because the name of the log is."""

    def __init__(self, recorded: Sequence[ev.Event]) -> None:
        self.stored = tuple(recorded)
        """The events as they are stored, and below with the facts that earlier versions did not write."""
        self.recorded = tuple(add_facts(self.stored))
        self.at = 0
        """How many events have happened again."""
        self.made: list[ev.Event] = []
        self._has_facts = False  # the events from here on are of a version that writes facts
        self.keyed = True
        self.knows_shape = False
        """Whether the shape of the final answer is known; else what was made of an answer is taken from the recording."""
        self.nudge: Callable[[], None] = _nobody
        """Tells the driver that a user has spoken."""
        self.late = False
        """Whether the present request will run out of time."""

    @property
    def next(self) -> ev.Event | None:
        """The next event of the recording; None at its end."""
        return self.recorded[self.at] if self.at < len(self.recorded) else None

    def ahead(self) -> Iterator[ev.Event]:
        """Yield the remaining events of the recording."""
        return (self.recorded[place] for place in range(self.at, len(self.recorded)))

    def accept(self, event: ev.Event) -> None:
        """Record that the next event was reproduced, and move on."""
        self.made.append(event)
        self.at += 1
        self.late = False  # the driver of a run without a time limit sets no timeout
        if isinstance(event, ev.Configured):
            self._has_facts = event.setup is not None

    # The clock.

    def now(self) -> float:
        """Return the recorded time.

        If a question is next, it is the time of the question, because an expired one is asked again.
        """
        if isinstance(self.next, ev.ApprovalAsked):
            return self.next.at
        return self.recorded[self.at - 1].at if self.at else 0.0

    async def pause(self, seconds: float) -> bool:
        """Return True at once: a replay does not wait."""
        del seconds
        return True

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """Return a timeout that expires at once if the recording has one here, else one that never expires."""
        over = self.next
        hit = hit_of(over) if isinstance(over, ev.Finished) else None
        self.late = seconds is not None and hit is not None and hit.which == "seconds"
        return asyncio.timeout(0 if self.late else None)

    def dated(self, events: tuple[ev.Event, ...]) -> tuple[ev.Event, ...]:
        """Return the events with recorded times and ids. Raises Strayed if they differ from the recording."""
        if not events:
            return ()
        found: list[ev.Event] = []
        written: list[ev.Event] = []
        for place, event in enumerate((*events, *self._find_known(events[-1]))):
            number = self.at + place
            recorded = self.recorded[number] if number < len(self.recorded) else None
            if place and (recorded is None or isinstance(recorded, ev.Opened)):
                break  # cut in the middle of what was written at once: by a fork, or by a caller that reads a part only
            if recorded is None or (not place and begins(recorded) and not isinstance(event, ev.Continued)):
                raise RecordingEnded
            made = self._stamp(event, recorded)
            stored = self.stored[number]
            as_stored = made if self._has_facts else write_as_old(made, stored)
            differences = compare_events(stored, as_stored, number=number + 1)
            if differences:
                raise Strayed(*differences)
            found.append(made)
            written.append(as_stored)
        for made in written:
            self.accept(made)
        return tuple(found)

    def _find_known(self, event: ev.Event) -> Iterator[ev.CallFinished]:
        """Yield recorded results of a rejected final answer, if only the recording knows why it was rejected."""
        if not isinstance(event, ev.Replied) or self.knows_shape or not event.problems:
            return
        finals = {call.id for call in event.message.calls if call.name == FINAL_RESULT}
        for place in range(self.at + 1, len(self.recorded)):
            recorded = self.recorded[place]
            if not isinstance(recorded, ev.CallFinished) or recorded.call not in finals:
                return
            yield recorded

    def _stamp(self, event: ev.Event, recorded: ev.Event) -> ev.Event:
        """Return the event with the recorded ids and times, and with the fields that neither log nor harness determine."""
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
            case ev.Replied(), ev.Replied() if not self.knows_shape:
                request, output, ended = recorded.request, recorded.output, recorded.ended
                return replace(event, at=recorded.at, request=request, output=output, ended=ended)
            case ev.Replied() | ev.ModelFailed(), ev.Replied(request=request) | ev.ModelFailed(request=request):
                return replace(event, at=recorded.at, request=request)
            case _:
                return replace(event, at=recorded.at)

    # Taking turns.

    async def turn(self, mine: Callable[[ev.Event], bool], others: Callable[[ev.Event], bool], *, wanted: str) -> ev.Event:
        """Wait until the next event is `mine`; the events before it must be `others` or messages of users, which are delivered
        first.
        """
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
                await self._move(event, wanted)
            except asyncio.CancelledError:
                event = self.next
                if event is not None and mine(event):
                    return event  # it was being written down when it was cancelled
                raise

    async def _move(self, event: ev.Event, wanted: str) -> None:
        """Wait until this event was reproduced.

        Other tasks need no time for that, so a bounded number of iterations is enough.
        """
        before = self.at
        for _ in range(PATIENCE):
            await asyncio.sleep(0)
            if self.at != before:
                return
        raise Strayed(Difference(before + 1, "kind", kind_of(event), wanted))

    def overtaken(self, mine: Callable[[ev.Event], bool]) -> ev.Event | None:
        """Return the next event that is `mine`, if only user messages that would have aborted it come before it; else None."""
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


def _nobody() -> None:
    """Do nothing: there is no driver to notify."""
