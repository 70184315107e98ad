"""What the workers of several machines share beside the logs: work, schedules, budgets of trees, rates of keys.

These are ids and numbers; the only contents are the prompts of schedules, which are stored nowhere else. Work has ids only:
the log says what to do.
"""

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from evener.store.integrity import digests
from evener.store.postgres import budgets, rates, schedules, work
from evener.store.postgres.writes import LogJob

if TYPE_CHECKING:
    import sqlite3

    from evener.store.sqlite.writer import WriterThread


P = ParamSpec("P")
T = TypeVar("T")
Job = Callable[Concatenate["sqlite3.Connection", P], T]
Method = Callable[Concatenate["PostgresCluster", P], T]


def _write(job: Job[P, T], *, again: bool = True) -> Method[P, Coroutine[Any, Any, T]]:
    """Return a method that runs this job as a write. `again`: running it twice has the same result as once."""

    @wraps(job)
    async def method(tables: "PostgresCluster", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await tables.writer.run(LogJob[T](lambda connection: job(connection, *args, **kwargs), again=again))

    return method


def _send(job: Job[P, None]) -> Method[P, None]:
    """Return the method that has a job done without waiting for it."""

    @wraps(job)
    def method(tables: "PostgresCluster", /, *args: P.args, **kwargs: P.kwargs) -> None:
        tables.writer.send(LogJob[None](lambda connection: job(connection, *args, **kwargs), again=True))

    return method


def _read(job: Job[P, T]) -> Method[P, Coroutine[Any, Any, T]]:
    """Return the method that has a job done which only reads."""

    @wraps(job)
    async def method(tables: "PostgresCluster", /, *args: P.args, **kwargs: P.kwargs) -> T:
        found: T = await tables.read(lambda connection: job(connection, *args, **kwargs))
        return found

    return method


class PostgresCluster:
    """The tables of a `PostgresStore` that its workers share. `read` performs a job that only reads."""

    def __init__(self, writer: "WriterThread", read: "Callable[[Callable[[sqlite3.Connection], Any]], Awaitable[Any]]") -> None:
        self.writer = writer
        self.read = read

    store_id = _read(digests.store_id)

    put_work = _write(work.put)
    take_work = _write(work.take, again=False)
    turn_of = _read(work.turn_of)
    hold_work = _write(work.hold)
    park_work = _write(work.park)
    drop_work = _write(work.drop)

    put_schedule = _write(schedules.put, again=False)
    remove_schedule = _write(schedules.remove)
    take_schedule = _write(schedules.take, again=False)
    schedule_fired = _write(schedules.fired)
    schedules = _read(schedules.every_one)

    begin_tree = _write(budgets.begin)
    join_tree = _write(budgets.join)
    tree_of = _read(budgets.tree_of)
    members_of = _read(budgets.members_of)
    reserve = _write(budgets.reserve)
    claim_calls = _write(budgets.claim)
    settle = _write(budgets.settle)
    settle_left = _write(budgets.settle_left)
    renew = _write(budgets.renew)

    admit = _write(rates.admit)
    leave = _send(rates.leave)
    recount = _send(rates.recount)
    pause = _send(rates.pause)
