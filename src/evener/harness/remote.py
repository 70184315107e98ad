"""Runs that another process performs: how they are followed from here, and the worker that performs them there.

What is to be done stands in the log; the store's table of work only says which logs need a worker. A worker takes one, holds
its lease while it runs, and lets go of it at the end, at a question, or when it is told to drain.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from time import time
from typing import TYPE_CHECKING

from evener import events as ev
from evener.errors import EvenerError, StoreError, UsageError
from evener.loop.state import RunState, fold
from evener.result import Approval, RunResult, result_of
from evener.store.protocol import Erased, LeaseHeld, LeaseLost, NoLog, NoteKeeper, Queueing, Store, state_of

if TYPE_CHECKING:
    from evener.harness.harness import Harness

__all__ = ["LATE", "Worker", "follow", "queue_of"]


LATE = 15.0
"""Seconds after which a worker looks at a run whose submitter did not say that it is whole."""
PAUSES = (0.02, 0.5)
LOOK_AGAIN = 60.0
"""Seconds after which a run that waits is looked at although nothing was heard: a lost notice does no harm."""
MOST_TRIES = 20
GRACE = 30.0
"""Seconds that a worker which drains leaves its runs to come to an end."""


def queue_of(store: Store) -> Queueing:
    """Return the store, if it keeps work for workers. UsageError for one that does not."""
    if isinstance(store, Queueing):
        return store
    raise UsageError(
        "This store keeps no work for workers. Give the harness store='postgresql://...', or call `run` instead of `submit`."
    )


async def follow(store: Store, log: str, *, after: int = 0) -> AsyncIterator[ev.Event]:
    """Yield the events of a log as they come, until its run rests: it ended, or it waits for a decision that is not there."""
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
    """True if nothing more will happen by itself."""
    if state.finished is not None and state.finished.cause != "approval":
        return True
    if state.finished is None and state.phase != "waiting":
        return False
    return not await _is_decided(store, log, state)


async def _is_decided(store: Store, log: str, state: RunState) -> bool:
    """True if a decision that the run waits for has been said, or its time is over."""
    if not isinstance(store, NoteKeeper):
        return False
    for one in _list_questions(log, state):
        with suppress(NoLog, Erased):
            if 0 < one.expires <= time() or await store.has_note(one.thread, f"decide:{one.id}"):
                return True
    return False


def _list_questions(log: str, state: RunState) -> tuple[Approval, ...]:
    """Return what the run waits for; the questions of agents inside its calls, too."""
    return result_of(state, (), log=log).approvals


def _parking_time(approvals: Iterable[Approval]) -> float:
    """Return how many seconds a run may wait: until the first of its questions expires, but not for ever."""
    return min([LOOK_AGAIN, *(max(0.0, one.expires - time()) for one in approvals if one.expires)])


class Worker:
    """Performs the runs of some harnesses, by the name that each has in its logs, `slots` at a time.

    `seconds` is how long a run stays with a worker that shows no sign of life; the lease of the store should be as short.
    `say` is told one line for each run that ended and each that failed.
    """

    def __init__(
        self,
        harnesses: "Mapping[str, Harness]",
        store: Store,
        *,
        slots: int = 8,
        seconds: float = 10.0,
        grace: float = GRACE,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._harnesses = dict(harnesses)
        self._store = store
        self._queue = queue_of(store)
        self._slots = slots
        self._seconds = seconds
        self._grace = grace
        self._say = say
        self._running: dict[str, asyncio.Task[None]] = {}
        self._draining = asyncio.Event()

    def drain(self) -> None:
        """Take no more runs. Those under way have a while to end, then another worker goes on with them."""
        self._draining.set()

    async def run(self, *, until_idle: bool = False) -> None:
        """Work until it is told to drain. `until_idle`: or until there is nothing to do."""
        keeping = asyncio.create_task(self._keep())
        try:
            while not self._draining.is_set():
                taken = await self._take() if len(self._running) < self._slots else None
                if taken is not None:
                    log, tries = taken
                    self._running[log] = asyncio.create_task(self._perform(log, tries))
                elif until_idle and not self._running:
                    return
                else:
                    await self._rest()
            if self._running:
                await asyncio.wait(self._running.values(), timeout=self._grace)
        finally:
            keeping.cancel()
            for task in self._running.values():
                task.cancel()
            await asyncio.gather(keeping, *self._running.values(), return_exceptions=True)

    async def _take(self) -> tuple[str, int] | None:
        try:
            return await self._queue.take_work(list(self._harnesses), seconds=self._seconds)
        except StoreError as error:
            if not error.retryable:
                raise
            return None

    async def _rest(self) -> None:
        """Wait until a run ends, it is told to drain, or a moment is over."""
        draining = asyncio.create_task(self._draining.wait())
        full = len(self._running) >= self._slots
        waiting: Iterable[asyncio.Task[object]] = [draining, *self._running.values()]
        await asyncio.wait(waiting, timeout=None if full else PAUSES[1] / 2, return_when=asyncio.FIRST_COMPLETED)
        draining.cancel()

    async def _keep(self) -> None:
        """Hold on to what is under way."""
        while True:
            await asyncio.sleep(self._seconds / 3)
            with suppress(StoreError):
                if self._running:
                    await self._queue.hold_work(list(self._running), seconds=self._seconds)

    async def _perform(self, log: str, tries: int) -> None:
        try:
            await self._advance(log)
        except (LeaseHeld, LeaseLost):
            with suppress(StoreError):  # if this fails, the row comes due by itself
                await self._queue.put_work(log, await self._harness_of(log), after=min(1.0, self._seconds / 4))
        except Exception as error:
            what = f": {error}" if isinstance(error, EvenerError) else ""  # another one may hold anything
            self._say(f"{log}: {type(error).__name__}{what}")
            await self._after_error(log, error, tries)
        except asyncio.CancelledError:
            with suppress(StoreError):
                await self._queue.put_work(log, await self._harness_of(log))
            raise
        finally:
            self._running.pop(log, None)

    async def _after_error(self, log: str, error: Exception, tries: int) -> None:
        """Let go of a run that failed: its log says how. What the store or our code could not do is tried when it is due."""
        passing = error.retryable if isinstance(error, StoreError) else not isinstance(error, EvenerError)
        if passing and tries < MOST_TRIES:
            return
        with suppress(StoreError):
            await self._queue.drop_work(log)

    async def _harness_of(self, log: str) -> str:
        (opened, *_) = await self._store.read(log, until=1)
        return opened.harness if isinstance(opened, ev.Opened) else ""

    async def _advance(self, log: str) -> None:
        """Take the lease and run until the run ends or waits; then say so to the table of work."""
        try:
            state = await state_of(self._store, log)
        except NoLog:
            return await self._queue.drop_work(log)  # it was never submitted: its submitter died
        if not state.run or (state.finished is not None and state.finished.cause != "approval"):
            return await self._queue.drop_work(log)
        if state.finished is not None and not await _is_decided(self._store, log, state):
            return await self._park(log, _list_questions(log, state))
        harness = self._harnesses[await self._harness_of(log)]
        result = await harness.thread(branch=log).resume()
        return await self._settle(log, result)

    async def _settle(self, log: str, result: RunResult) -> None:
        if result.stop == "approval":
            return await self._park(log, result.approvals)
        await self._queue.drop_work(log)
        self._say(f"{log}: {result.stop}")
        return None

    async def _park(self, log: str, approvals: Sequence[Approval]) -> None:
        waits = [log, *(one.thread for one in approvals)]
        await self._queue.park_work(log, waits, seconds=_parking_time(approvals))
