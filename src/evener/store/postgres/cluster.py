"""What the workers of several machines share beside the logs: work, schedules, budgets of trees, rates of keys.

These are ids and numbers; the only contents are the prompts of schedules, which are nowhere else.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from evener.store.postgres import budgets, rates, schedules, work
from evener.store.postgres.writes import LogJob

if TYPE_CHECKING:
    import sqlite3

    from evener.events import Limits
    from evener.loop.state import Spent
    from evener.store.cluster import Schedule, TakenWork, TreeRefusal
    from evener.store.sqlite.writer import WriterThread
    from evener.transcript.reply import Usage
    from evener.transport.limiter import Rate

__all__ = ["PostgresCluster"]


T = TypeVar("T")


class PostgresCluster:
    """The tables of a `PostgresStore` that its workers share. `read` has a job done that only reads."""

    def __init__(
        self, writer: "WriterThread", read: "Callable[[Callable[[sqlite3.Connection], object]], Awaitable[object]]"
    ) -> None:
        self._writer = writer
        self._look = read

    async def _do(self, job: "Callable[[sqlite3.Connection], T]", *, again: bool = True) -> T:
        return await self._writer.run(LogJob(job, again=again))

    async def _read(self, job: "Callable[[sqlite3.Connection], T]") -> T:
        return await self._look(job)  # type: ignore[return-value]  # it gives what the job gives

    async def store_id(self) -> str:
        """Return what tells this store from every other one."""
        query = "SELECT value FROM meta WHERE key = 'store'"
        return await self._read(lambda connection: str(connection.execute(query).fetchone()[0]))

    # Work.

    async def put_work(self, log: str, harness: str, *, after: float = 0.0) -> None:
        """Have the run of a log performed by a worker, so many seconds from now."""
        await self._do(partial(work.put, log=log, harness=harness, seconds=after))

    async def take_work(self, harnesses: Sequence[str], *, seconds: float, most: int = 1) -> "list[TakenWork]":
        """Take the runs that have been due longest, for so many seconds."""
        return await self._do(partial(work.take, harnesses=harnesses, seconds=seconds, most=most), again=False)

    async def turn_of(self, log: str) -> int:
        """Return the turn of the work that is there for the log; -1 without any."""
        return await self._read(partial(work.turn_of, log=log))

    async def hold_work(self, logs: Sequence[str], *, seconds: float) -> None:
        """Hold on to runs that were taken."""
        await self._do(partial(work.hold, logs=logs, seconds=seconds))

    async def park_work(self, log: str, turn: int, waits: Iterable[str], *, seconds: float) -> None:
        """Let a run wait until something is said to one of these logs, or so many seconds."""
        await self._do(partial(work.park, log=log, turn=turn, waits=list(waits), seconds=seconds))

    async def drop_work(self, log: str, turn: int) -> None:
        """Have nothing more done for that turn of the log: its run came to its end."""
        await self._do(partial(work.drop, log=log, turn=turn))

    # Schedules.

    async def put_schedule(self, one: "Schedule") -> bool:
        """Keep a schedule; False when there is one of that name."""
        return await self._do(partial(schedules.put, one=one), again=False)

    async def schedules(self) -> "list[Schedule]":
        """Return all schedules, the next one first."""
        return await self._read(schedules.every_one)

    async def remove_schedule(self, name: str) -> bool:
        """Forget a schedule; False when there is none of that name."""
        return await self._do(partial(schedules.remove, name=name))

    async def take_schedule(self, harnesses: Sequence[str]) -> "Schedule | None":
        """Claim a schedule that is due; None when none is."""
        return await self._do(partial(schedules.take, harnesses=harnesses), again=False)

    async def schedule_fired(self, one: "Schedule", due: float) -> None:
        """Note when a schedule is due next."""
        await self._do(partial(schedules.fired, one=one, due=due))

    # Budgets of trees.

    async def begin_tree(self, tree: str, *, log: str, limits: "Limits", spent: "Spent") -> None:
        """Begin the budget of a tree: `tree` is the run at its root, which has spent so much by now."""
        await self._do(partial(budgets.begin, tree=tree, log=log, limits=limits, spent=spent))

    async def join_tree(self, tree: str, *, log: str, run: str) -> None:
        """Let a run belong to a tree."""
        await self._do(partial(budgets.join, tree=tree, log=log, run=run))

    async def tree_of(self, log: str, run: str) -> tuple[str, bool]:
        """Return the tree that the run belongs to, and whether its cost is limited; empty without one."""
        return await self._read(partial(budgets.tree_of, log=log, run=run))

    async def members_of(self, tree: str) -> list[str]:
        """Return the logs of the runs that belong to a tree."""
        return await self._read(partial(budgets.members_of, tree=tree))

    async def reserve(self, tree: str, *, log: str, key: str, cost: Decimal) -> "TreeRefusal | None":
        """Reserve room for one request of a run of the tree; None when there is."""
        return await self._do(partial(budgets.reserve, tree=tree, log=log, key=key, cost=cost))

    async def claim_calls(self, tree: str, *, log: str, key: str, count: int) -> "TreeRefusal | None":
        """Claim so many tool calls of a run of the tree; None when there is room."""
        return await self._do(partial(budgets.claim, tree=tree, log=log, key=key, count=count))

    async def settle(self, tree: str, *, key: str, usage: "Usage", cost: Decimal, made: bool) -> None:
        """Replace a reservation by what the request used."""
        await self._do(partial(budgets.settle, tree=tree, key=key, usage=usage, cost=cost, made=made))

    async def settle_left(self, tree: str, *, log: str) -> None:
        """Settle what an earlier holder of the log had reserved."""
        await self._do(partial(budgets.settle_left, tree=tree, log=log))

    async def renew(self, tree: str) -> None:
        """Start a fresh allowance for the tree."""
        await self._do(partial(budgets.renew, tree=tree))

    # Rates of keys.

    async def admit(self, key: str, *, id: str, tokens: int, rate: "Rate", within: float, minute: float = 60.0) -> float:
        """Begin a call with the key if there is room: 0.0. Else return the seconds after which to ask again."""
        return await self._do(partial(rates.admit, key=key, id=id, tokens=tokens, rate=rate, within=within, minute=minute))

    def leave(self, id: str) -> None:
        """End a call. Does not wait."""
        self._writer.send(LogJob(partial(rates.leave, id=id), again=True))

    def recount(self, id: str, tokens: int) -> None:
        """Replace the estimate of a call by what it used. Does not wait."""
        self._writer.send(LogJob(partial(rates.recount, id=id, tokens=tokens), again=True))

    def pause(self, key: str, seconds: float) -> None:
        """Begin no call with the key for so many seconds, on any machine. Does not wait."""
        self._writer.send(LogJob(partial(rates.pause, key=key, seconds=seconds), again=True))
