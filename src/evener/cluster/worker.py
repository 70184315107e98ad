"""Performs submitted runs with PostgreSQL alone: takes ids from the store's table of work."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from evener.cluster.advance import Advancer, is_passing
from evener.cluster.due import DueWork, describe_error
from evener.driver.slice import RunSlice
from evener.errors import StoreError
from evener.harness.remote import PAUSES, tables_of
from evener.store.cluster import TakenWork
from evener.store.protocol import LeaseHeld, LeaseLost, Store

if TYPE_CHECKING:
    from evener.harness.harness import Harness


MOST_TRIES = 20
GRACE = 30.0
"""Seconds that a worker which drains leaves the steps under way to come to an end."""
SLICE = 60.0
"""Seconds that a run keeps its slot while others wait for one."""
LONGEST_WAIT = 5.0
"""Seconds: a run that a provider has told to wait longer leaves its slot meanwhile."""


class Worker:
    """Performs the runs of some harnesses, by the name that each has in its logs, `slots` at a time.

    `seconds` is how long a silent worker keeps a run; the lease of the store should be as short. `slice` is how long a run
    keeps its slot. `say` gets one line when the worker is ready, for each run that ended, for each that failed, and when the
    store is away and back.
    """

    def __init__(
        self,
        harnesses: "Mapping[str, Harness]",
        store: Store,
        *,
        slots: int = 8,
        seconds: float = 10.0,
        grace: float = GRACE,
        slice: float = SLICE,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._harnesses = dict(harnesses)
        self._tables = tables_of(store)
        self._due = DueWork(self._harnesses, self._tables, say)
        self._advancer = Advancer(harnesses, store)
        self._slots = slots
        self._seconds = seconds
        self._grace = grace
        self._slice = slice
        self._say = say
        self._running: dict[str, asyncio.Task[None]] = {}
        self._slices: dict[str, RunSlice] = {}
        self._draining = asyncio.Event()

    def drain(self) -> None:
        """Take no more runs. Running runs finish their current step, and other workers continue them."""
        self._draining.set()
        for slice in self._slices.values():
            slice.end()

    async def run(self, *, until_idle: bool = False) -> None:
        """Work until `drain` is called. With `until_idle`, also end when no run is due."""
        keeping = asyncio.create_task(self._keep())
        self._say(f"ready: runs of {', '.join(map(repr, self._harnesses))}, {self._slots} at a time")
        try:
            while not self._draining.is_set():
                free = self._slots - len(self._running)
                taken = await self._due.take(free, seconds=self._seconds) if free > 0 else []
                for one in taken:
                    self._running[one.log] = asyncio.create_task(self._perform(one))
                if taken:
                    continue
                if until_idle and not self._running and not self._due.away:
                    return
                await self._rest()
            if self._running:
                await asyncio.wait(self._running.values(), timeout=self._grace)
        finally:
            keeping.cancel()
            for task in self._running.values():
                task.cancel()
            await asyncio.gather(keeping, *self._running.values(), return_exceptions=True)

    async def _rest(self) -> None:
        """Wait until a run ends or `drain` is called. If a slot is free, wait only for a short time."""
        draining = asyncio.create_task(self._draining.wait())
        full = len(self._running) >= self._slots
        waiting: Iterable[asyncio.Task[object]] = [draining, *self._running.values()]
        await asyncio.wait(waiting, timeout=None if full else PAUSES[1] / 2, return_when=asyncio.FIRST_COMPLETED)
        draining.cancel()

    async def _keep(self) -> None:
        """Renew the hold on the running runs."""
        while True:
            await asyncio.sleep(self._seconds / 3)
            with suppress(StoreError):
                if self._running:
                    await self._tables.hold_work(list(self._running), seconds=self._seconds)

    async def _perform(self, one: TakenWork) -> None:
        slice = self._slices[one.log] = RunSlice(self._slice, longest_wait=LONGEST_WAIT)
        if self._draining.is_set():
            slice.end()
        try:
            await self._advance(one, slice)
        except (LeaseHeld, LeaseLost):
            with suppress(StoreError):  # if this fails, the row comes due by itself
                await self._advancer.give_back(one, after=min(1.0, self._seconds / 4))
        except Exception as error:
            self._say(f"{one.log}: {describe_error(error)}")
            await self._after_error(one, error)
        except asyncio.CancelledError:
            with suppress(StoreError):
                await self._advancer.give_back(one)
            raise
        finally:
            self._running.pop(one.log, None)
            self._slices.pop(one.log, None)

    async def _advance(self, one: TakenWork, slice: RunSlice) -> None:
        done = await self._advancer.advance(one, slice)
        match done.kind:
            case "more":
                await self._advancer.give_back(one)
            case "finished":
                self._say(f"{one.log}: {done.stop}")
            case "waiting":
                pass

    async def _after_error(self, one: TakenWork, error: Exception) -> None:
        """Release a run that failed; its log has the reason.

        After a failure of the store or of our code it is tried again when due.
        """
        if is_passing(error) and one.tries < MOST_TRIES:
            return
        with suppress(StoreError):
            await self._tables.drop_work(one.log, one.turn)
