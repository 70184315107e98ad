"""Where in a thread: the number of an event, or the id of a message, which may be cut. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from evener import events as ev
from evener.errors import UsageError
from evener.store.protocol import Store, Summary

__all__ = [
    "chosen",
    "log_of",
    "number_of",
    "short_ids",
]


SHORTEST = 8
LISTED = 8
LIKE = 0.6
LISTING = "`evener threads` lists them (with --store FILE, if they are kept elsewhere)."


async def log_of(store: Store, given: str) -> str:
    """The whole id of the log that is meant. UsageError when there is none, or more than one."""
    return chosen(given, await store.logs())


def chosen(given: str, logs: Iterable[Summary]) -> str:
    """The one among these that has this id, or begins so."""
    known = [one.log for one in logs]
    if given in known:
        return given
    hits = [log for log in known if given and log.startswith(given)]
    match hits:
        case [log]:
            return log
        case []:
            raise UsageError(f"There is no thread {given!r}. {_near(given, known)}{LISTING}")
        case _:
            more = f" and {len(hits) - LISTED} more" if len(hits) > LISTED else ""
            raise UsageError(
                f"More than one thread begins with {given!r}: {', '.join(sorted(hits)[:LISTED])}{more}. Write more of the id."
            )


def short_ids(logs: Iterable[str]) -> Mapping[str, str]:
    """Each id, cut to what is enough to mean it among these."""
    ordered = sorted(set(logs))
    around = ["", *ordered, ""]
    return {
        log: log[: max(SHORTEST, _shared(before, log) + 1, _shared(log, after) + 1)]
        for before, log, after in zip(around, ordered, around[2:], strict=False)
    }


def _shared(one: str, other: str) -> int:
    """How many characters both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (ours, theirs) in pairs if ours != theirs), min(len(one), len(other)))


def _near(given: str, known: list[str]) -> str:
    """Ids that look like it: as a whole, or up to where it ends."""
    cut = {log[: max(len(given), SHORTEST)]: log for log in known}
    near = [cut[hit] for hit in get_close_matches(given, cut, n=3, cutoff=LIKE)]
    return f"Did you mean {' or '.join(near)}? " if near else ""


def number_of(at: str, events: Sequence[ev.Event], log: str) -> int:
    """The number of the event that is meant: all up to it, and with it, is what is looked at."""
    if at.isdecimal() and len(at) <= len(str(len(events))):
        number = int(at)
        if not 1 <= number <= len(events):
            raise UsageError(f"There is no event {number}: those of log {log} are numbered from 1 to {len(events)}.")
        return number
    from evener.harness.branches import seq_of

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
