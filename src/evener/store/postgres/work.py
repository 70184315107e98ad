"""Which runs wait for a worker, as SQL: a table of log ids, taken with SKIP LOCKED. The log stays the truth, this moves it.

A row that was taken comes due again after a while, unless its worker holds on to it: so the work of a dead worker is found.
What is said to a log wakes its row in the transaction that says it, so no decision is missed.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

__all__ = ["TABLE", "drop", "hold", "park", "put", "take", "wake"]


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
NOW = "extract(epoch FROM clock_timestamp())::double precision"


def put(connection: "sqlite3.Connection", log: str, harness: str, seconds: float) -> None:
    """Have a run performed so many seconds from now."""
    connection.execute(
        f"INSERT INTO work (log, harness, due) VALUES (?, ?, {NOW} + ?) ON CONFLICT (log) DO UPDATE"
        " SET harness = excluded.harness, due = excluded.due, tries = 0, parked = false, nudged = false, waits = '{}'",
        (log, harness, seconds),
    )


def take(connection: "sqlite3.Connection", harnesses: Sequence[str], seconds: float) -> tuple[str, int] | None:
    """Take the run that has been due longest, for so many seconds: its log, and how often it was taken. None: none is due."""
    found = connection.execute(
        f"UPDATE work SET due = {NOW} + ?, tries = tries + 1, parked = false, nudged = false WHERE log ="
        f" (SELECT log FROM work WHERE harness = ANY(?) AND due <= {NOW} ORDER BY due LIMIT 1 FOR UPDATE SKIP LOCKED)"
        " RETURNING log, tries",
        (seconds, list(harnesses)),
    ).fetchone()
    return None if found is None else (found[0], found[1])


def hold(connection: "sqlite3.Connection", logs: Sequence[str], seconds: float) -> None:
    """Hold on to runs for so many seconds from now."""
    connection.execute(f"UPDATE work SET due = {NOW} + ? WHERE log = ANY(?) AND NOT parked", (seconds, list(logs)))


def park(connection: "sqlite3.Connection", log: str, waits: Iterable[str], seconds: float) -> None:
    """Let a run wait: until something is said to one of these logs, or so many seconds. At once if that was said meanwhile."""
    connection.execute(
        f"UPDATE work SET parked = true, nudged = false, tries = 0, waits = ?, due = CASE WHEN nudged THEN 0 ELSE {NOW} + ? END"
        " WHERE log = ?",
        (list(waits), seconds, log),
    )


def drop(connection: "sqlite3.Connection", log: str) -> None:
    """Have nothing more done: the run came to its end."""
    connection.execute("DELETE FROM work WHERE log = ?", (log,))


def wake(connection: "sqlite3.Connection", log: str) -> None:
    """Have the run that waits for this log performed now. One that is under way is looked at again when it parks."""
    connection.execute(
        "UPDATE work SET nudged = true, due = CASE WHEN parked THEN 0 ELSE due END WHERE log = ? OR ? = ANY(waits)", (log, log)
    )
