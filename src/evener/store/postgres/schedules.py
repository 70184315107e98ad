"""Prompts that are submitted repeatedly, as SQL. A firing is claimed for a limited time, so that another worker can take
over.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from evener.store.cluster import Schedule
from evener.store.postgres.work import NOW

if TYPE_CHECKING:
    import sqlite3


TABLE = (
    """
    CREATE TABLE schedules (
        name text PRIMARY KEY,
        harness text NOT NULL,
        prompt text NOT NULL,
        every double precision NOT NULL,
        cron text NOT NULL,
        due double precision NOT NULL,
        claimed double precision NOT NULL DEFAULT 0
    )
    """,
)
CLAIM = 30.0
COLUMNS = "name, harness, prompt, every, cron, due"


def put(connection: "sqlite3.Connection", one: Schedule) -> bool:
    """Store a schedule. False if there is one with that name."""
    found = connection.execute(
        f"INSERT INTO schedules ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING 1",
        (one.name, one.harness, one.prompt, one.every, one.cron, one.due),
    ).fetchone()
    return found is not None


def every_one(connection: "sqlite3.Connection") -> list[Schedule]:
    """Return all schedules, the next one first."""
    return [Schedule(*row) for row in connection.execute(f"SELECT {COLUMNS} FROM schedules ORDER BY due, name").fetchall()]


def remove(connection: "sqlite3.Connection", name: str) -> bool:
    """Remove a schedule. False if there is none with that name."""
    return connection.execute("DELETE FROM schedules WHERE name = ? RETURNING 1", (name,)).fetchone() is not None


def take(connection: "sqlite3.Connection", harnesses: Sequence[str]) -> Schedule | None:
    """Claim a schedule that is due; None when none is."""
    found = connection.execute(
        f"UPDATE schedules SET claimed = {NOW} + {CLAIM} WHERE name = (SELECT name FROM schedules WHERE harness = ANY(?)"
        f" AND due <= {NOW} AND claimed <= {NOW} ORDER BY due LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING {COLUMNS}",
        (list(harnesses),),
    ).fetchone()
    return None if found is None else Schedule(*found)


def fired(connection: "sqlite3.Connection", one: Schedule, due: float) -> None:
    """Note when it is due next, unless another worker did."""
    connection.execute("UPDATE schedules SET due = ?, claimed = 0 WHERE name = ? AND due = ?", (due, one.name, one.due))
