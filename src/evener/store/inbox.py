"""The jobs on a log's inbox, as SQL: notes come from anybody, and whoever holds the log settles them with what they led to."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from evener.store import refusals, rows
from evener.store.guard import Guard
from evener.store.log import Note
from evener.store.rows import Grown, Held, Row, log_of

if TYPE_CHECKING:
    import sqlite3

__all__ = ["has_note", "notes", "post", "settle"]


def post(connection: "sqlite3.Connection", log: str, note: Note, guard: Guard) -> bool:
    """Put a note into the log's inbox, unless its key was used before."""
    number, erased = log_of(connection, log, "number, erased")
    if erased is not None:
        raise refusals.erased(log, erased)
    if connection.execute("SELECT 1 FROM inbox WHERE log = ? AND key = ?", (number, note.key)).fetchone():
        return False
    (place,) = connection.execute("SELECT coalesce(max(number), 0) + 1 FROM inbox WHERE log = ?", (number,)).fetchone()
    cleaned = guard.funnel.clean(note.body.encode()).decode()
    body = guard.seal_text("note", log, cleaned, number=place)
    connection.execute(
        "INSERT INTO inbox (log, number, key, kind, body) VALUES (?, ?, ?, ?, ?)", (number, place, note.key, note.kind, body)
    )
    return True


def has_note(connection: "sqlite3.Connection", log: str, key: str) -> bool:
    """Whether a note of this key was ever put into the log's inbox."""
    (number,) = log_of(connection, log, "number")
    return connection.execute("SELECT 1 FROM inbox WHERE log = ? AND key = ?", (number, key)).fetchone() is not None


def notes(connection: "sqlite3.Connection", held: Held, guard: Guard) -> list[Note]:
    """What is not settled, in order."""
    found = connection.execute(
        "SELECT key, kind, body, number FROM inbox WHERE log = ? AND settled = 0 ORDER BY number", (held.number,)
    ).fetchall()
    return [
        Note(key, kind, guard.open_text("note", held.log, body, number=number), number) for key, kind, body, number in found
    ]


def settle(
    connection: "sqlite3.Connection", held: Held, number: int, added: Sequence[Row], until: float, guard: Guard
) -> Grown:
    """Append what a note led to, and mark the note with the length of the log from then on."""
    rows.end_of(connection, held)
    found = connection.execute(
        "SELECT 1 FROM inbox WHERE log = ? AND number = ? AND settled = 0", (held.number, number)
    ).fetchone()
    if found is None:
        raise refusals.no_note(held.log, number)
    grown = rows.append(connection, held, added, until, guard)
    connection.execute("UPDATE inbox SET settled = ? WHERE log = ? AND number = ?", (grown.length, held.number, number))
    return grown
