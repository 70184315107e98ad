"""Advances one log: takes its lease, runs plan and driver until the run ends, waits, or its slice is over, and releases the
lease.

Every engine uses it. It records the outcome in the store's table of work, and tells its caller only what an engine may know:
no contents.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from time import time
from typing import TYPE_CHECKING, Literal

import msgspec

from evener.driver.slice import RunSlice
from evener.errors import EvenerError, StoreError
from evener.harness.remote import is_decided, is_said, list_questions, tables_of
from evener.result import Approval
from evener.store.cluster import TakenWork
from evener.store.protocol import NoLog, Note, Store, state_of

if TYPE_CHECKING:
    from evener.harness.harness import Harness


LOOK_AGAIN = 60.0
"""Seconds after which a run that waits is looked at although nothing was heard: a lost notice does no harm."""


@dataclass(frozen=True)  # the converter of Temporal reads no other class
class AdvancedLog:
    """The outcome for a log. `seconds`: when to check a waiting run again; `stop` is the cause of an end."""

    kind: Literal["finished", "waiting", "more"]
    stop: str = ""
    seconds: float = 0.0


def is_passing(error: Exception) -> bool:
    """True if the run may be tried again later, because the store or our code failed.

    A failure of the run itself is in its log.
    """
    return error.retryable if isinstance(error, StoreError) else not isinstance(error, EvenerError)


class Advancer:
    """Advances logs of some harnesses, by the name that each has in the table of work. Safe from several tasks.

    `look_again` is the number of seconds after which a waiting run is checked even without a notification.
    """

    def __init__(self, harnesses: "Mapping[str, Harness]", store: Store, *, look_again: float = LOOK_AGAIN) -> None:
        self._harnesses = dict(harnesses)
        self._store = store
        self._tables = tables_of(store)
        self._look_again = look_again

    async def advance(self, work: TakenWork, slice: RunSlice) -> AdvancedLog:
        """Continue the log's run with the harness that it was submitted to.

        A prompt that is submitted later is a separate turn.
        """
        log, turn = work.log, work.turn
        try:
            state = await state_of(self._store, log)
        except NoLog:
            return await self._report_end(log, turn, "gone")  # it was never submitted: its submitter died
        if not state.run or (state.finished is not None and state.finished.cause != "approval"):
            return await self._report_end(log, turn, state.finished.cause if state.finished else "gone")
        if state.finished is not None and not await is_decided(self._store, log, state):
            return await self._report_approvals(log, turn, list_questions(log, state))
        await self._cancel_expired(log, list_questions(log, state))
        result = await self._harnesses[work.harness].thread(branch=log).advance(slice)
        if slice.rested:
            return await self._report_rest(log, turn, slice.until)
        if result.stop == "approval":
            return await self._report_approvals(log, turn, result.approvals)
        return await self._report_end(log, turn, result.stop)

    async def _cancel_expired(self, log: str, questions: Iterable[Approval]) -> None:
        """End a run whose question expired, because no user is present to be asked again. Resuming the run asks again."""
        for one in questions:
            if 0 < one.expires <= time() and not await is_said(self._store, one):
                why = msgspec.json.encode({"why": "The question was not decided in time."}).decode()
                await self._store.post(log, Note(f"expired:{one.id}", "cancel", why))

    async def give_back(self, work: TakenWork, *, after: float = 0.0) -> None:
        """Return the work to the table, so that another worker continues the log."""
        await self._tables.put_work(work.log, work.harness, after=after)

    async def _report_end(self, log: str, turn: int, stop: str) -> AdvancedLog:
        await self._tables.drop_work(log, turn)
        return AdvancedLog("finished", stop)

    async def _report_rest(self, log: str, turn: int, until: float) -> AdvancedLog:
        if not until:
            return AdvancedLog("more")
        return await self._park(log, turn, (log,), max(0.0, until - time()))

    async def _report_approvals(self, log: str, turn: int, approvals: Iterable[Approval]) -> AdvancedLog:
        asked = tuple(approvals)
        first = min((max(0.0, one.expires - time()) for one in asked if one.expires), default=self._look_again)
        return await self._park(log, turn, dict.fromkeys((log, *(one.thread for one in asked))), first)

    async def _park(self, log: str, turn: int, waits: Iterable[str], seconds: float) -> AdvancedLog:
        seconds = min(seconds, self._look_again)
        await self._tables.park_work(log, turn, waits, seconds=seconds)
        return AdvancedLog("waiting", seconds=seconds)
