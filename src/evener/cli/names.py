"""Resolves what the user names: threads and branches by the start of their id, events by number or message id."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from evener import events as ev
from evener.errors import UsageError
from evener.store.protocol import Store, Summary

SHORTEST = 8
LISTED = 8
LIKE = 0.6
LISTING = "`evener threads` lists all threads (with --store FILE, those of another store)."


async def find_log(store: Store, given: str) -> str:
    """Return the full id of a log. UsageError if none matches, or more than one."""
    return match_id(given, await store.logs())


def match_id(given: str, logs: Iterable[Summary]) -> str:
    """Return the id of the one log with this id, or whose id starts with it."""
    known = [one.log for one in logs]
    if given in known:
        return given
    hits = [log for log in known if given and log.startswith(given)]
    match hits:
        case [log]:
            return log
        case []:
            raise UsageError(f"There is no thread {given!r}. {_suggest(given, known)}{LISTING}")
        case _:
            more = f" and {len(hits) - LISTED} more" if len(hits) > LISTED else ""
            raise UsageError(
                f"More than one id starts with {given!r}: {', '.join(sorted(hits)[:LISTED])}{more}. Give more of the id."
            )


def short_ids(logs: Iterable[str]) -> Mapping[str, str]:
    """Return each id with the shortest prefix that is unique among them, at least 8 characters."""
    ordered = sorted(set(logs))
    around = ["", *ordered, ""]
    return {
        log: log[: max(SHORTEST, _count_shared(before, log) + 1, _count_shared(log, after) + 1)]
        for before, log, after in zip(around, ordered, around[2:], strict=False)
    }


def _count_shared(one: str, other: str) -> int:
    """Return the length of the common prefix."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (ours, theirs) in pairs if ours != theirs), min(len(one), len(other)))


def _suggest(given: str, known: list[str]) -> str:
    """Return a sentence with similar ids; empty if there are none."""
    cut = {log[: max(len(given), SHORTEST)]: log for log in known}
    near = [cut[hit] for hit in get_close_matches(given, cut, n=3, cutoff=LIKE)]
    return f"Did you mean {' or '.join(near)}? " if near else ""


def find_event(at: str, events: Sequence[ev.Event], log: str) -> int:
    """Return the number of the event that `at` names by its number or by the id of a message."""
    if at.isdecimal() and len(at) <= len(str(len(events))):
        number = int(at)
        if not 1 <= number <= len(events):
            raise UsageError(f"There is no event {number}: log {log} has events 1 to {len(events)}.")
        return number
    from evener.harness.branches import seq_of

    return seq_of(events, _find_message(at, events), log)


def _find_message(at: str, events: Sequence[ev.Event]) -> str:
    ids = {id for event in events for id in _ids(event)}
    hits = {at} & ids or {id for id in ids if at and id.startswith(at)}
    if len(hits) == 1:
        return hits.pop()
    what = f"{len(hits)} messages have an id" if hits else "No event has this number, and no message an id"
    raise UsageError(
        f"{what} that starts with {at!r}. Give a number from 1 to {len(events)}, or the id of a message: "
        "`evener show` prints the numbers, `evener show --json` the ids."
    )


def _ids(event: ev.Event) -> tuple[str, ...]:
    """Return the ids of the messages that an event adds to the conversation."""
    match event:
        case ev.Prompted(message=message) | ev.Steered(message=message) | ev.Replied(message=message):
            return (message.id,)
        case ev.Imported(messages=messages):
            return tuple(message.id for message in messages)
        case ev.ModelCalled(id=id) if id:
            return (id,)
        case _:
            return ()
