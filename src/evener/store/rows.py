"""The jobs on a log, as SQL: each is one step within a transaction that the lane begins and ends.

Whoever writes has checked first: a StoreError is raised before the first change, never after it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from evener.errors import StoreError
from evener.events import VERSION, Event, Opened, decode_event, encode_event
from evener.store import refusals
from evener.store.chain import digest_of, link, origin_of
from evener.store.claim import deserted
from evener.store.log import Note, Summary

if TYPE_CHECKING:
    import sqlite3

__all__ = [
    "Claim",
    "Held",
    "Row",
    "append",
    "create",
    "notes",
    "post",
    "read",
    "release",
    "renew",
    "row_of",
    "settle",
    "summaries",
    "take",
]

KINDS = {kind: str(kind.__struct_config__.tag) for kind in get_args(Event)}


class Row(msgspec.Struct, frozen=True):
    """An event, ready to be stored."""

    at: float
    kind: str
    payload: bytes


class Claim(msgspec.Struct, frozen=True):
    """Who wants to hold a log, from when and until when."""

    holder: str
    mark: str
    now: float
    until: float


class Held(msgspec.Struct, frozen=True):
    """A log as its holder knows it: its name, its number in the file, and the holder's epoch."""

    log: str
    number: int
    epoch: int


def row_of(event: Event) -> Row:
    """The event as it is stored."""
    return Row(event.at, KINDS[type(event)], encode_event(event))


def create(connection: "sqlite3.Connection", log: str, first: Event, claim: Claim) -> Held:
    """A new log with its first event."""
    if connection.execute("SELECT 1 FROM logs WHERE log = ?", (log,)).fetchone():
        raise refusals.already_there(log)
    opened = first if isinstance(first, Opened) else Opened(at=first.at, thread=log)
    made = connection.execute(
        "INSERT INTO logs (log, thread, harness, parent, parent_seq, parent_hash, began, changed, length, head,"
        " epoch, holder, claim, lease_until) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 1, ?, ?, ?)",
        (
            log, opened.thread, opened.harness, opened.parent, opened.parent_seq, opened.parent_hash,
            first.at, first.at, origin_of(log), claim.holder, claim.mark, claim.until,
        ),
    )  # fmt: skip
    held = Held(log, int(made.lastrowid or 0), 1)
    append(connection, held, [row_of(first)], claim.until)
    return held


def take(connection: "sqlite3.Connection", log: str, claim: Claim) -> tuple[Held, int]:
    """Take the log over, unless somebody who may be alive holds it; it, and its length."""
    number, length, epoch, holder, mark, until = _log(connection, log, "number, length, epoch, holder, claim, lease_until")
    if mark and until > claim.now and not deserted(mark):
        raise refusals.held(log, holder, until - claim.now)
    connection.execute(
        "UPDATE logs SET epoch = ?, holder = ?, claim = ?, lease_until = ? WHERE number = ?",
        (epoch + 1, claim.holder, claim.mark, claim.until, number),
    )
    return Held(log, number, epoch + 1), length


def release(connection: "sqlite3.Connection", log: str, mark: str) -> None:
    """Give a lease back, if the claim still stands."""
    connection.execute("UPDATE logs SET holder = '', claim = '', lease_until = 0 WHERE log = ? AND claim = ?", (log, mark))


def append(connection: "sqlite3.Connection", held: Held, rows: Sequence[Row], until: float) -> int:
    """Add rows and renew the lease; the new length. Writes nothing when the epoch is not the holder's."""
    if not rows:
        return renew(connection, held, until)
    length, head = _end_of(connection, held)
    links = []
    for seq, row in enumerate(rows, length + 1):
        digest = digest_of(row.payload)
        head = link(head, digest)
        links.append((held.number, seq, VERSION, row.at, row.kind, digest, head, row.payload))
    connection.executemany(
        "INSERT INTO events (log, seq, version, at, kind, digest, chain, payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", links
    )
    length += len(links)
    connection.execute(
        "UPDATE logs SET length = ?, head = ?, changed = ?, lease_until = ? WHERE number = ? AND epoch = ?",
        (length, head, rows[-1].at, until, held.number, held.epoch),
    )
    return length


def settle(connection: "sqlite3.Connection", held: Held, number: int, rows: Sequence[Row], until: float) -> int:
    """Append what a note led to, and mark the note with the length of the log from then on; that length."""
    _end_of(connection, held)
    found = connection.execute(
        "SELECT 1 FROM inbox WHERE log = ? AND number = ? AND settled = 0", (held.number, number)
    ).fetchone()
    if found is None:
        raise refusals.no_note(held.log, number)
    length = append(connection, held, rows, until)
    connection.execute("UPDATE inbox SET settled = ? WHERE log = ? AND number = ?", (length, held.number, number))
    return length


def renew(connection: "sqlite3.Connection", held: Held, until: float) -> int:
    """Keep the lease; the length of the log."""
    length, _ = _end_of(connection, held)
    connection.execute("UPDATE logs SET lease_until = ? WHERE number = ? AND epoch = ?", (until, held.number, held.epoch))
    return length


def post(connection: "sqlite3.Connection", log: str, note: Note) -> bool:
    """Put a note into the log's inbox, unless its key was used before."""
    (number,) = _log(connection, log, "number")
    if connection.execute("SELECT 1 FROM inbox WHERE log = ? AND key = ?", (number, note.key)).fetchone():
        return False
    connection.execute(
        "INSERT INTO inbox (log, number, key, kind, body)"
        " SELECT ?, coalesce(max(number), 0) + 1, ?, ?, ? FROM inbox WHERE log = ?",
        (number, note.key, note.kind, note.body, number),
    )
    return True


def notes(connection: "sqlite3.Connection", held: Held) -> list[Note]:
    """What is not settled, in order."""
    found = connection.execute(
        "SELECT key, kind, body, number FROM inbox WHERE log = ? AND settled = 0 ORDER BY number", (held.number,)
    )
    return [Note(*row) for row in found]


def read(connection: "sqlite3.Connection", log: str, after: int) -> list[Event]:
    """The events after number `after`. Each is what was written, and none is missing: the chain is followed to its head."""
    number, length, head = _log(connection, log, "number, length, head")
    seq, chain = max(after, 0), origin_of(log)
    if seq >= length:
        return []
    if seq:
        found = connection.execute("SELECT chain FROM events WHERE log = ? AND seq = ?", (number, seq)).fetchone()
        chain = found[0] if found else b""
    events = []
    rows = connection.execute(
        "SELECT seq, version, digest, payload FROM events WHERE log = ? AND seq > ? ORDER BY seq", (number, seq)
    )
    for found, version, digest, payload in rows:
        seq += 1
        if found != seq or payload is None or digest_of(payload) != digest:
            raise _damaged(log, seq)
        chain = link(chain, digest)
        events.append(decode_event(payload, version))
    if seq != length or chain != head:
        raise _damaged(log, seq)
    return events


def summaries(connection: "sqlite3.Connection") -> list[Summary]:
    """Every log, the one that changed last first."""
    found = connection.execute("SELECT log, thread, harness, length, began, changed FROM logs ORDER BY changed DESC, number")
    return [Summary(*row) for row in found]


def _log(connection: "sqlite3.Connection", log: str, columns: str) -> tuple[Any, ...]:
    found: tuple[Any, ...] | None = connection.execute(f"SELECT {columns} FROM logs WHERE log = ?", (log,)).fetchone()
    if found is None:
        raise refusals.no_log(log)
    return found


def _end_of(connection: "sqlite3.Connection", held: Held) -> tuple[int, bytes]:
    """Length and head of the log. LeaseLost when the epoch is not the holder's any more."""
    found = connection.execute("SELECT epoch, length, head, holder FROM logs WHERE number = ?", (held.number,)).fetchone()
    if found is None or found[0] != held.epoch:
        raise refusals.lost(held.log, found[3] if found else "")
    return found[1], found[2]


def _damaged(log: str, seq: int) -> StoreError:
    return StoreError(
        f"The log {log!r} is damaged at event {seq}: it is missing, erased, or not what was written. Nothing was changed. "
        "Run `evener verify` to see how much is affected, and restore a backup if there is one."
    )
