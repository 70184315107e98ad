"""Retention: erases threads that have not changed for a while.

A thread with a running run is never erased; one that waits for a decision or cannot be read, only by force.
"""

from collections.abc import Callable, Iterable
from time import time
from typing import Literal

import msgspec

from evener.errors import BadValue, StoreError
from evener.events import ApprovalAsked, CallPaused, Continued, Event, Finished, Prompted, Resumed
from evener.store.protocol import Erased, LeaseHeld, Store, Summary

Reason = Literal["running", "waiting", "damaged"]
"""Why a thread is kept although it is old: a holder runs it, it waits for a decision, or it cannot be read to tell."""

TAIL = 64


class Spared(msgspec.Struct, frozen=True):
    """An old thread that was kept."""

    thread: str
    why: Reason


class Sweep(msgspec.Struct, frozen=True):
    """What was erased, or would be: the threads, the number of their events, and the old threads that were kept.

    A thread is erased together with the threads of agents inside its calls: all of them are named.
    """

    erased: tuple[str, ...] = ()
    events: int = 0
    spared: tuple[Spared, ...] = ()


async def keep(
    store: Store, *, older_than: float, dry: bool = False, force: bool = False, clock: Callable[[], float] = time
) -> Sweep:
    """Erase the threads whose last change is more than `older_than` seconds ago. With `dry`, only say which.

    `force` erases threads that wait for a decision or cannot be read, too. One that runs is never erased: stop it first.
    """
    if not older_than >= 0:
        raise BadValue(f"older_than is {older_than} and must be a number of seconds, 0 or more.")
    before = clock() - older_than
    erased: list[str] = []
    spared: list[Spared] = []
    events = 0
    for family in await _families(store):
        thread, logs = family[0].thread, [summary for summary in family if not summary.erased]
        if not logs or max(summary.changed for summary in logs) >= before:
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
            erased += dict.fromkeys(summary.thread for summary in logs)
            events += count
        else:
            spared.append(Spared(thread, why))
    return Sweep(tuple(erased), events, tuple(spared))


async def _families(store: Store) -> list[list[Summary]]:
    """Return all logs, each thread with the agents inside its calls: they are its own, and go with it."""
    threads = _threads(await store.logs())
    inside = {thread: await store.inside(thread) for thread in threads}
    within = {one for several in inside.values() for one in several}
    return [
        logs + [summary for one in inside[thread] for summary in threads.get(one, ())]
        for thread, logs in threads.items()
        if thread not in within
    ]


def _threads(logs: Iterable[Summary]) -> dict[str, list[Summary]]:
    """Return the logs by their thread, the oldest thread first."""
    found: dict[str, list[Summary]] = {}
    for summary in sorted(logs, key=lambda summary: (summary.changed, summary.log)):
        found.setdefault(summary.thread, []).append(summary)
    return found


async def _reason(store: Store, logs: Iterable[Summary], *, force: bool) -> Reason | None:
    """Return why the thread is kept. Raises Erased if it was erased meanwhile."""
    waiting = broken = False
    for summary in logs:
        try:
            tail = await store.read(summary.log, after=max(0, summary.events - TAIL))
        except Erased:
            raise
        except StoreError as error:
            if error.retryable:
                raise
            await store.logs(thread=summary.thread)  # raises when it is the store that cannot be read, and not this thread
            broken, tail = True, []
        waiting = waiting or _waits(tail)
        if summary.held:
            return "running"
    if force:
        return None
    return "waiting" if waiting else "damaged" if broken else None


def _waits(events: Iterable[Event]) -> bool:
    """True if the log waits for a decision."""
    waits = False
    for event in events:
        match event:
            case Prompted() | Continued() | Resumed():
                waits = False
            case ApprovalAsked() | CallPaused():
                waits = True
            case Finished(cause=cause):
                waits = cause == "approval"
    return waits
