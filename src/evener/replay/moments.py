"""The events that one driver wrote, each with the state before it. Pure."""

from collections.abc import Sequence

import msgspec

from evener import events as ev
from evener.loop.state import RunState, apply

ENDLESS = 10**9

Inbox = ev.Steered | ev.Cancelled | ev.ApprovalDecided
"""What users said to the log."""

Beginning = ev.Opened | ev.Configured | ev.Imported | ev.Prompted | ev.Continued | ev.Resumed | ev.Pinned
"""What a driver is given when it begins; only the plan may go on by itself beyond a limit."""


class RecordedMoment(msgspec.Struct, frozen=True):
    """An event, and the state before it."""

    state: RunState
    event: ev.Event


def begins(event: ev.Event | None) -> bool:
    """True if a driver never writes this event itself: a driver began here, or the recording has ended."""
    if isinstance(event, ev.Evicted | ev.Compacted | ev.CompactionFailed | ev.ContextRestored):
        return event.cause == "user"
    return event is None or isinstance(event, Beginning)


def moments(events: Sequence[ev.Event], state: RunState) -> list[RecordedMoment]:
    """Return the events that one driver wrote, with the state before each: up to the point where another driver began."""
    found: list[RecordedMoment] = []
    for event in events:
        extends = isinstance(event, ev.Continued) and state.finished is None
        if begins(event) and not extends:
            break
        found.append(RecordedMoment(state, event))
        state = apply(state, event)
    return found


def hit_of(event: ev.Event | None) -> ev.LimitHit | None:
    """Return the limit at which a run stopped, or at which a user was asked whether to continue; None for other events."""
    match event:
        case ev.Finished(limit=hit) | ev.ApprovalAsked(questions=(ev.Question(limit=hit),)):
            return hit
        case _:
            return None
