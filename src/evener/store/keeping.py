"""Retention: erases threads that nobody has changed for a while. Never one that runs or waits for a decision, unless forced."""

from collections.abc import Callable, Iterable
from time import time
from typing import Literal

import msgspec

from evener.errors import BadValue
from evener.events import ApprovalAsked, Continued, Event, Finished, Prompted
from evener.store.log import Erased, LeaseHeld, Store, Summary

__all__ = ["Reason", "Spared", "Sweep", "keep"]

Reason = Literal["running", "waiting"]
"""Why a thread is kept although it is old: somebody runs it, or it waits for somebody's decision."""

TAIL = 64


class Spared(msgspec.Struct, frozen=True):
    """An old thread that was kept."""

    thread: str
    why: Reason


class Sweep(msgspec.Struct, frozen=True):
    """What was done, or would be: the threads that were erased, how many events they had, and the old ones that were kept."""

    erased: tuple[str, ...] = ()
    events: int = 0
    spared: tuple[Spared, ...] = ()


async def keep(
    store: Store, *, older_than: float, dry: bool = False, force: bool = False, clock: Callable[[], float] = time
) -> Sweep:
    """Erase the threads whose last change is more than `older_than` seconds ago. With `dry`, only say which.

    `force` erases threads that wait for a decision, too. One that runs is never erased: stop it first.
    """
    if not older_than >= 0:
        raise BadValue(f"older_than is {older_than} and must be a number of seconds, 0 or more.")
    before = clock() - older_than
    erased: list[str] = []
    spared: list[Spared] = []
    events = 0
    for thread, logs in _threads(await store.logs()).items():
        if max(summary.changed for summary in logs) >= before:
            continue
        try:
            why = await _reason(store, logs, force=force)
            count = sum(summary.events - summary.parent_seq for summary in logs)
            if why is None and not dry:
                count = await store.erase(thread)
        except Erased:
            continue
        except LeaseHeld:
            why = "running"
        if why is None:
            erased.append(thread)
            events += count
        else:
            spared.append(Spared(thread, why))
    return Sweep(tuple(erased), events, tuple(spared))


def _threads(logs: Iterable[Summary]) -> dict[str, list[Summary]]:
    """The logs by their thread, the oldest thread first."""
    found: dict[str, list[Summary]] = {}
    for summary in sorted(logs, key=lambda summary: (summary.changed, summary.log)):
        found.setdefault(summary.thread, []).append(summary)
    return found


async def _reason(store: Store, logs: Iterable[Summary], *, force: bool) -> Reason | None:
    """Why the thread must stay. Erased when it is gone already."""
    waiting = False
    for summary in logs:
        tail = await store.read(summary.log, after=max(0, summary.events - TAIL))
        waiting = waiting or _waits(tail)
        if summary.held:
            return "running"
    return "waiting" if waiting and not force else None


def _waits(events: Iterable[Event]) -> bool:
    """Whether the log stands still until somebody decides."""
    waits = False
    for event in events:
        match event:
            case Prompted() | Continued():
                waits = False
            case ApprovalAsked():
                waits = True
            case Finished(cause=cause):
                waits = cause == "approval"
    return waits
