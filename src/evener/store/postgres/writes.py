"""How a group of jobs is written: in one transaction; again if the connection broke; and each by itself if one of them
fails.

If the connection broke before COMMIT was sent, nothing was written, and the group is written again. After that, a job that
is not idempotent (a new note) is not repeated: its caller gets `StoreUnreachable`. An append is repeated, because its chain
shows whether it was written; and so is taking or creating a log, because its claim shows it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from evener.errors import StoreError
from evener.store.postgres.appends import AppendJob, lock_logs, write_appends
from evener.store.postgres.connection import PostgresConnection, load_psycopg, postgres_error, was_lost

if TYPE_CHECKING:
    import sqlite3

    from evener.store.sqlite.writer import Group


T = TypeVar("T")
ATTEMPTS = 5


class LogJob(Generic[T]):
    """A job on one log, or on none, in the shape that SQLite's jobs have. `again`: it is idempotent."""

    __slots__ = ("again", "job", "log")

    def __init__(self, job: "Callable[[sqlite3.Connection], T]", log: str = "", *, again: bool = False) -> None:
        self.job = job
        self.log = log
        self.again = again

    def __call__(self, connection: "sqlite3.Connection") -> T:
        """Do it, within a transaction that has locked the log."""
        return self.job(connection)


def perform_writes(connection: "sqlite3.Connection", group: "Group", path: Path, *, wait: bool = True) -> bool:  # noqa: ARG001
    """Perform the group. False if the connection cannot be used any more."""
    assert isinstance(connection, PostgresConnection)
    try:
        _perform(connection, group, ATTEMPTS)
    except StoreError as error:
        for request in group:
            request.error = request.error or error
    for request in group:
        request.keep()
    return not connection.raw.closed


def _perform(connection: PostgresConnection, group: "Group", attempts: int) -> None:
    try:
        _attempt(connection, group)
    except Exception as error:
        if was_lost(error):
            _repeat(connection, group, postgres_error(error), attempts)
            return
        connection.roll_back()
        if len(group) == 1:
            _settle_alone(connection, group, error, attempts)
            return
        for request in group:
            _perform(connection, [request], attempts)


def _settle_alone(connection: PostgresConnection, group: "Group", error: Exception, attempts: int) -> None:
    """Try once more what two writers wanted at once; anything else is the job's own fault."""
    psycopg = load_psycopg()
    quarrel = isinstance(error, psycopg.errors.DeadlockDetected | psycopg.errors.SerializationFailure)
    if quarrel and attempts > 1:
        _perform(connection, group, attempts - 1)
    else:
        group[0].error = postgres_error(error)


def _repeat(connection: PostgresConnection, group: "Group", error: StoreError, attempts: int) -> None:
    """Connect anew and do again what may be done again."""
    certain = [request for request in group if not connection.committing or _may_repeat(request.job)]
    for request in group:
        if request not in certain:
            request.error = error
    if attempts <= 1:
        raise error
    connection.reconnect()
    if certain:
        _perform(connection, certain, attempts - 1)


def _may_repeat(job: Any) -> bool:
    return isinstance(job, AppendJob) or (isinstance(job, LogJob) and job.again)


def _attempt(connection: PostgresConnection, group: "Group") -> None:
    appends = [request for request in group if isinstance(request.job, AppendJob)]
    others = [request for request in group if not isinstance(request.job, AppendJob)]
    if not others:
        write_appends(connection, appends, alone=True)
        return
    connection.committing = False
    connection.raw.execute("BEGIN")
    names = {request.job.log for request in others if isinstance(request.job, LogJob) and request.job.log}
    lock_logs(connection, [request.job.held.number for request in appends], names)  # type: ignore[attr-defined]
    if appends:  # first: what was sent before a lease was given back must not come after that
        write_appends(connection, appends, alone=False)
    for request in others:
        request.perform(connection)  # type: ignore[arg-type]  # it has the shape
    connection.committing = True
    connection.raw.execute("COMMIT")
