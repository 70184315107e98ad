"""Runs that another process performs (`evener.cluster`), and how this process follows them.

The log says what to do; the store's table of work only says which logs need a worker.
"""

import asyncio
from collections.abc import AsyncIterator
from time import time
from typing import TYPE_CHECKING

from evener import events as ev
from evener.errors import UsageError
from evener.loop.state import RunState, fold
from evener.result import Approval, result_of
from evener.store.protocol import Erased, NoLog, NoteKeeper, Store

if TYPE_CHECKING:
    from evener.store.postgres.cluster import PostgresCluster


LATE = 15.0
"""Seconds after which a worker looks at a run whose submitter did not say that it is whole."""
PAUSES = (0.02, 0.5)


def tables_of(store: Store) -> "PostgresCluster":
    """Return the store's tables for workers. Raises UsageError for a store without them."""
    tables: PostgresCluster | None = getattr(store, "cluster", None)
    if tables is not None:
        return tables
    raise UsageError(
        "Workers cannot take runs from this store. Give the harness store='postgresql://...', or call `run`, not `submit`."
    )


async def follow(store: Store, log: str, *, after: int = 0) -> AsyncIterator[ev.Event]:
    """Yield the events of a log as they are written, until its run ends or waits for a decision."""
    state, seq, pause = RunState(), 0, PAUSES[0]
    while True:
        events = await store.read(log, after=seq)
        for number, event in enumerate(events, seq + 1):
            if number > after:
                yield event
        state, seq = fold(events, state), seq + len(events)
        if state.run and await _rests(store, log, state):
            return
        pause = PAUSES[0] if events else min(pause * 2, PAUSES[1])
        await asyncio.sleep(pause)


async def _rests(store: Store, log: str, state: RunState) -> bool:
    """True if the run ended, or waits for a decision that was not made yet."""
    if state.finished is not None and state.finished.cause != "approval":
        return True
    if state.finished is None and state.phase != "waiting":
        return False
    return not await is_decided(store, log, state)


async def is_decided(store: Store, log: str, state: RunState) -> bool:
    """True if a decision that the run waits for was posted, or its deadline has passed."""
    for one in list_questions(log, state):
        if 0 < one.expires <= time() or await is_said(store, one):
            return True
    return False


async def is_said(store: Store, one: Approval) -> bool:
    """True if a decision about this question was posted."""
    if not isinstance(store, NoteKeeper):
        return False
    try:
        return await store.has_note(one.thread, f"decide:{one.id}")
    except (NoLog, Erased):
        return False


def list_questions(log: str, state: RunState) -> tuple[Approval, ...]:
    """Return the approvals that the run waits for, also those of agents inside its calls."""
    return result_of(state, (), log=log).approvals
