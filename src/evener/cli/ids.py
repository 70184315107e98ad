"""Which thread is meant: ids are long, and how one begins is enough where only one begins so. Reads no events."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from evener.errors import UsageError
from evener.store.log import Store, Summary

__all__ = ["chosen", "log_of", "short_ids"]

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
