"""The runs that wait for a worker, as SQL: a table of log ids, taken with SKIP LOCKED. The log is the only state; this only
distributes it.

A row that was taken becomes due again after a while, unless its worker renews it: so the work of a dead worker is found. A
note to a log makes its row due in the same transaction, so no decision is missed. `turn` counts how often work was added for
a log: a worker that finished one turn does not remove the next.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from evener.store.cluster import TakenWork

if TYPE_CHECKING:
    import sqlite3


TABLE = (
    """
    CREATE TABLE work (
        log text PRIMARY KEY,
        harness text NOT NULL,
        due double precision NOT NULL,
        tries bigint NOT NULL DEFAULT 0,
        parked boolean NOT NULL DEFAULT false,
        nudged boolean NOT NULL DEFAULT false,
        waits text[] NOT NULL DEFAULT '{}'
    )
    """,
    "CREATE INDEX work_due ON work (harness, due)",
)
TURNS = (
    "ALTER TABLE work ADD COLUMN turn bigint NOT NULL DEFAULT 0",
    "CREATE INDEX work_waits ON work USING gin (waits)",
)
NOW = "extract(epoch FROM clock_timestamp())::double precision"


def put(connection: "sqlite3.Connection", log: str, harness: str, *, after: float = 0.0) -> None:
    """Put a log into the table of work, so that a worker of that harness performs its run, `after` seconds from now."""
    connection.execute(
        f"INSERT INTO work (log, harness, due, turn) VALUES (?, ?, {NOW} + ?, ({NOW} * 1000000)::bigint) ON CONFLICT (log)"
        " DO UPDATE SET turn = excluded.turn, harness = excluded.harness, due = excluded.due, tries = 0, parked = false,"
        " nudged = false, waits = '{}'",
        (log, harness, after),
    )


def take(connection: "sqlite3.Connection", harnesses: Sequence[str], *, seconds: float, most: int = 1) -> list[TakenWork]:
    """Take the runs that have been due longest, for so many seconds, at most `most` of them."""
    found = connection.execute(
        f"UPDATE work SET due = {NOW} + ?, tries = tries + 1, parked = false, nudged = false WHERE log IN"
        f" (SELECT log FROM work WHERE harness = ANY(?) AND due <= {NOW} ORDER BY due LIMIT ? FOR UPDATE SKIP LOCKED)"
        " RETURNING log, harness, tries, turn",
        (seconds, list(harnesses), most),
    ).fetchall()
    return [TakenWork(*row) for row in found]


def turn_of(connection: "sqlite3.Connection", log: str) -> int:
    """Return the turn of the work that is there for the log; -1 without any."""
    found = connection.execute("SELECT turn FROM work WHERE log = ?", (log,)).fetchone()
    return -1 if found is None else found[0]


def hold(connection: "sqlite3.Connection", logs: Sequence[str], *, seconds: float) -> None:
    """Hold on to runs for so many seconds from now. What was put anew meanwhile is not held."""
    query = f"UPDATE work SET due = {NOW} + ? WHERE log = ANY(?) AND NOT parked AND tries > 0"
    connection.execute(query, (seconds, list(logs)))


def park(connection: "sqlite3.Connection", log: str, turn: int, waits: Iterable[str], *, seconds: float) -> None:
    """Let a run wait: until something is said to one of these logs, or so many seconds. At once if that was said meanwhile."""
    connection.execute(
        f"UPDATE work SET parked = true, nudged = false, tries = 0, waits = ?, due = CASE WHEN nudged THEN 0 ELSE {NOW} + ? END"
        " WHERE log = ? AND turn = ?",
        (list(waits), seconds, log, turn),
    )


def drop(connection: "sqlite3.Connection", log: str, turn: int) -> None:
    """Remove the work of a finished run. Work that was submitted after that turn stays."""
    connection.execute("DELETE FROM work WHERE log = ? AND turn = ?", (log, turn))


def wake(connection: "sqlite3.Connection", log: str) -> None:
    """Have the run that waits for this log performed now. One that is under way is looked at again when it parks."""
    connection.execute(
        "UPDATE work SET nudged = true, due = CASE WHEN parked THEN 0 ELSE due END WHERE log = ? OR waits @> ARRAY[?]",
        (log, log),
    )
