"""Where in a thread: the number of an event, or the id of a message, which may be cut. Pure."""

from collections.abc import Sequence

from evener import events as ev
from evener.errors import UsageError

__all__ = ["number_of"]


def number_of(at: str, events: Sequence[ev.Event], log: str) -> int:
    """The number of the event that is meant: all up to it, and with it, is what is looked at."""
    if at.isdecimal() and len(at) <= len(str(len(events))):
        number = int(at)
        if not 1 <= number <= len(events):
            raise UsageError(f"There is no event {number}: those of log {log} are numbered from 1 to {len(events)}.")
        return number
    from evener.harness.lineage import seq_of

    return seq_of(events, _message(at, events), log)


def _message(at: str, events: Sequence[ev.Event]) -> str:
    ids = {id for event in events for id in _ids(event)}
    hits = {at} & ids or {id for id in ids if at and id.startswith(at)}
    if len(hits) == 1:
        return hits.pop()
    what = f"{len(hits)} messages begin" if hits else "No event has this number, and no message begins"
    raise UsageError(
        f"{what} with {at!r}. Give a number from 1 to {len(events)}, or the id of a message: "
        "`evener show` has the numbers, `evener show --json` has the ids."
    )


def _ids(event: ev.Event) -> tuple[str, ...]:
    """Of the messages that an event adds to the conversation."""
    match event:
        case ev.Prompted(message=message) | ev.Steered(message=message) | ev.Replied(message=message):
            return (message.id,)
        case ev.Imported(messages=messages):
            return tuple(message.id for message in messages)
        case ev.ModelCalled(id=id) if id:
            return (id,)
        case _:
            return ()
