"""Erasing, as SQL: the content of events is replaced by blanks, permanently. Numbers, kinds, digests and the chain do not
change.

Blobs that only erased events name are erased, too. To find these, every other event is read: first while others write
(`survey`), then, in the transaction that erases, only the newer ones.
"""

import re
from collections.abc import Callable, Collection, Iterable
from contextlib import closing
from typing import TYPE_CHECKING

import msgspec

from evener.errors import EvenerError
from evener.events import Opened, decode_event, encode_event
from evener.store import protocol
from evener.store.integrity.digests import MISFITS, Stone, digest_of, stone_of, store_id
from evener.store.redaction import Redaction
from evener.store.sqlite import catalog, reading, snapshots
from evener.store.sqlite.leases import deserted
from evener.store.sqlite.rows import BlobTable, log_of
from evener.store.sqlite.search_index import count_erasure
from evener.store.tombstones import blanked, least

if TYPE_CHECKING:
    import sqlite3


DIGEST = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
EVENT = (
    "e.id, l.log, l.number, e.seq, e.version, e.at, e.kind, e.digest, e.payload FROM events e JOIN logs l ON l.number = e.log"
)


Forget = Callable[["sqlite3.Connection", Iterable[int]], None]


class EraseTarget(msgspec.Struct, frozen=True):
    """What is to be erased: whole logs, or single events of them."""

    whole: bool
    seqs: dict[int, frozenset[int]]  # by the number of the log; empty is all
    threads: tuple[str, ...] = ()  # those that are erased as a whole


class Survey(msgspec.Struct, frozen=True):
    """The blobs that only the target names, among the events up to that row."""

    blobs: frozenset[str]
    last: int


class Done(msgspec.Struct, frozen=True):
    """The tombstones, and the rows of the events that were erased."""

    stones: list[Stone]
    rows: frozenset[int]


class StoredLine(msgspec.Struct, frozen=True):
    """An event that is not erased, as it is stored in the file."""

    id: int
    log: str
    number: int
    seq: int
    version: int
    at: float
    kind: str
    digest: bytes
    payload: bytes | None


def survey(connection: "sqlite3.Connection", log: str, seqs: Collection[int] | None, guard: Redaction) -> Survey:
    """Find the blobs that may go. Changes nothing."""
    target = _target(connection, log, seqs, guard)
    named = {digest for line in _events(connection, target) for digest in _names(line, guard)}
    stored = frozenset(BlobTable(connection, guard).among(named))
    (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()
    return Survey(stored - _is_named_elsewhere(connection, target, stored, 0, guard), last)


def erase(
    connection: "sqlite3.Connection",
    log: str,
    seqs: Collection[int] | None,
    surveyed: Survey,
    now: float,
    guard: Redaction,
    forget: Forget | None = None,
) -> Done:
    """Put blanks in place of what the events say; of whole logs the inbox goes, too. The tombstones.

    `forget` drops what the store keeps beside the events of these logs; without one: the index and the folds of a file.
    """
    target = _target(connection, log, seqs, guard)
    if target.whole:
        _check_leases(connection, target, now)
    store = store_id(connection)
    changes, stones = [], []
    for line in _events(connection, target):
        blank = _blank(line, guard) if not target.whole else _blank_anyway(connection, line, guard)
        payload = guard.seal("event", line.log, blank, number=line.seq)
        stone = stone_of(line.digest, now, payload)
        changes.append((payload, now, stone, line.id))
        stones.append(Stone(store, line.log, line.seq, stone.hex()))
    blobs = surveyed.blobs - _is_named_elsewhere(connection, target, surveyed.blobs, surveyed.last, guard)
    connection.executemany("UPDATE events SET payload = ?, erased = ?, stone = ? WHERE id = ?", changes)
    BlobTable(connection, guard).drop(blobs)
    if changes:
        (forget or _forget)(connection, target.seqs)
    if target.whole:
        _close(connection, target, now)
    return Done(stones, frozenset(row for *_, row in changes))


def _forget(connection: "sqlite3.Connection", numbers: Iterable[int]) -> None:
    count_erasure(connection)
    snapshots.drop(connection, numbers)


def named_in(payload: bytes) -> Iterable[str]:
    """Return what may be the name of a blob in a payload."""
    return [found.decode() for found in DIGEST.findall(payload)]


def _target(connection: "sqlite3.Connection", log: str, seqs: Collection[int] | None, guard: Redaction) -> EraseTarget:
    if seqs is None:
        return _whole(connection, log, guard)
    wanted: dict[int, frozenset[int]] = {}
    for piece in reading.pieces(connection, log):
        own = frozenset(seq for seq in seqs if piece.base < seq <= piece.until)
        if own:
            wanted[piece.number] = own
    known = frozenset(seq for own in wanted.values() for seq in own)
    if missing := set(seqs) - known:
        raise protocol.no_event(log, min(missing))
    return EraseTarget(False, wanted)


def _whole(connection: "sqlite3.Connection", log: str, guard: Redaction) -> EraseTarget:
    """Return a thread, or one log, with the agents inside its calls."""
    if connection.execute("SELECT 1 FROM logs WHERE thread = ?", (log,)).fetchone():
        threads = (log, *catalog.threads_inside(connection, log, guard))
        found = [connection.execute("SELECT number FROM logs WHERE thread = ?", (one,)).fetchall() for one in threads]
        return EraseTarget(True, {number: frozenset() for rows in found for (number,) in rows}, threads)
    numbers = [log_of(connection, one, "number")[0] for one in (log, *catalog.logs_inside(connection, log, guard))]
    return EraseTarget(True, dict.fromkeys(numbers, frozenset()))


def _events(connection: "sqlite3.Connection", target: EraseTarget) -> Iterable[StoredLine]:
    """Yield the events of the target."""
    for number, seqs in target.seqs.items():
        query = f"SELECT {EVENT} WHERE e.log = ? AND e.erased IS NULL ORDER BY e.seq"
        for line in [StoredLine(*row) for row in connection.execute(query, (number,))]:
            if not seqs or line.seq in seqs:
                yield line


def _blank(line: StoredLine, guard: Redaction) -> bytes:
    """Return the blank that replaces the payload. Damaged for a payload that is not as it was written."""
    if line.payload is None or digest_of(line.payload) != line.digest:
        raise protocol.damaged(line.log, line.seq)
    return encode_event(blanked(decode_event(guard.open("event", line.log, line.payload, number=line.seq), line.version)))


def _blank_anyway(connection: "sqlite3.Connection", line: StoredLine, guard: Redaction) -> bytes:
    """Blank an event where a whole log goes: of an event that cannot be read, its kind, time and links stay."""
    try:
        return _blank(line, guard)
    except (EvenerError, *MISFITS):
        event = least(str(line.kind), line.at if isinstance(line.at, float) else 0.0)
    if not isinstance(event, Opened):
        return encode_event(event)
    thread, harness, parent, seq, hash = log_of(connection, line.log, "thread, harness, parent, parent_seq, parent_hash")
    return encode_event(Opened(at=event.at, thread=thread, harness=harness, parent=parent, parent_seq=seq, parent_hash=hash))


def _names(line: StoredLine, guard: Redaction) -> Iterable[str]:
    """Return what may be the names of blobs in an event. A damaged one that does not open names none that can be used."""
    try:
        return named_in(guard.open("event", line.log, line.payload, number=line.seq)) if line.payload else ()
    except (EvenerError, *MISFITS):
        if isinstance(line.payload, bytes) and digest_of(line.payload) == line.digest:
            raise
        return ()


def _is_named_elsewhere(
    connection: "sqlite3.Connection", target: EraseTarget, blobs: frozenset[str], after: int, guard: Redaction
) -> frozenset[str]:
    """Return those of the blobs that other events after that row name."""
    if not blobs:
        return frozenset()
    found: set[str] = set()
    with closing(connection.execute(f"SELECT {EVENT} WHERE e.id > ? AND e.erased IS NULL", (after,))) as rows:
        for line in (StoredLine(*row) for row in rows):
            own = target.seqs.get(line.number)
            if own is None or (own and line.seq not in own):
                found |= blobs.intersection(_names(line, guard))
    return frozenset(found)


def _check_leases(connection: "sqlite3.Connection", target: EraseTarget, now: float) -> None:
    for number in target.seqs:
        log, holder, mark, until = connection.execute(
            "SELECT log, holder, claim, lease_until FROM logs WHERE number = ?", (number,)
        ).fetchone()
        if mark and until > now and not deserted(mark):
            raise protocol.held(log, holder, until - now)


def _close(connection: "sqlite3.Connection", target: EraseTarget, now: float) -> None:
    """End the leases of these logs and empty their inboxes, titles and tags."""
    numbers = [(number,) for number in target.seqs]
    connection.executemany("DELETE FROM inbox WHERE log = ?", numbers)
    connection.executemany(
        "UPDATE logs SET erased = coalesce(erased, ?), epoch = epoch + 1, holder = '', claim = '', lease_until = 0"
        " WHERE number = ?",
        [(now, *number) for number in numbers],
    )
    threads = [(thread,) for thread in target.threads]
    connection.executemany("UPDATE logs SET title = '' WHERE thread = ?", threads)
    connection.executemany("DELETE FROM tags WHERE thread = ?", threads)
