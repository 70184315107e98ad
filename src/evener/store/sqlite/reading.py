"""The path of a log, as SQL: its own events and, before them, those of the logs from which it was forked. Reads only.

What is read is complete and as it was written: each chain is followed from where the reading begins to the end that the next
log of the path, or its own head, states.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import msgspec

from evener.errors import StoreError
from evener.events import Event, Opened, decode_event
from evener.store import protocol
from evener.store.integrity.digests import MISFITS, digest_of, link, origin_of, stone_of
from evener.store.protocol import Link
from evener.store.redaction import Redaction
from evener.store.sqlite.rows import log_of

if TYPE_CHECKING:
    import sqlite3


PLACE = "number, base, length, head, parent, parent_seq, parent_hash"
ROW = "seq, version, rule, at, kind, digest, chain, payload, erased, stone"

Events = Generator[Event, None, None]


class PathSection(msgspec.Struct, frozen=True):
    """The part of a path in one log: the events after number `base` up to `until`.

    `end` is the chain there, in hex, if it is known; `opening` what the first event of a fork must state about its parent:
    the log, the number and the hash.
    """

    log: str
    number: int
    base: int
    until: int
    end: str
    opening: tuple[str, int, str]


def pieces(connection: "sqlite3.Connection", log: str, *, after: int = 0, until: int | None = None) -> list[PathSection]:
    """Return the pieces of the log's path that have the events after `after` up to `until`, the first one first."""
    try:
        return _pieces(connection, log, after, until)
    except MISFITS:
        raise protocol.damaged(log, 0) from None


def _pieces(connection: "sqlite3.Connection", log: str, after: int, until: int | None) -> list[PathSection]:
    number, base, length, head, *opening = log_of(connection, log, PLACE)
    name, end, last = log, bytes(head).hex(), length if until is None else min(until, length)
    found: list[PathSection] = []
    while True:
        if last > base:
            found.insert(0, PathSection(name, number, base, last, end if last == length else "", tuple(opening)))
        if base <= max(after, 0):
            return found
        child, (name, length, end) = base, opening
        number, base, stored, _, *opening = _parent(connection, log, name)
        if not base < child == length <= stored:
            raise protocol.damaged(log, child)
        last = min(last, length)


def read(connection: "sqlite3.Connection", log: str, after: int, until: int | None, guard: Redaction) -> list[Event]:
    """Return the events after number `after`, up to `until`."""
    return list(stream(connection, log, after, until, guard))


def stream(connection: "sqlite3.Connection", log: str, after: int, until: int | None, guard: Redaction) -> Events:
    """Yield the events one by one, so that one at most is in memory. Damage is raised when it is reached."""
    (erased,) = log_of(connection, log, "erased")
    if erased is not None:
        raise protocol.erased(log, erased)
    for piece in pieces(connection, log, after=max(after, 0), until=until):
        if after < piece.until:
            yield from _events(connection, piece, max(after, piece.base), guard)


def link_at(connection: "sqlite3.Connection", log: str, seq: int | None) -> Link:
    """Return the event of that number on the path, and its hash."""
    length, erased = log_of(connection, log, "length, erased")
    if erased is not None:
        raise protocol.erased(log, erased)
    wanted = length if seq is None else seq
    if 0 < wanted <= length:
        piece = pieces(connection, log, after=wanted - 1, until=wanted)[0]
        found = connection.execute("SELECT chain FROM events WHERE log = ? AND seq = ?", (piece.number, wanted)).fetchone()
        if found is None:
            raise protocol.damaged(piece.log, wanted)
        return Link(piece.log, wanted, bytes(found[0]).hex())
    raise protocol.no_event(log, wanted)


def _events(connection: "sqlite3.Connection", piece: PathSection, after: int, guard: Redaction) -> Events:
    """Yield the events of one piece after number `after`. The cursor is always closed: open, it would hold this moment."""
    log, seq, chain = piece.log, after, _chain_at(connection, piece, after)
    first: Event | None = None
    query = f"SELECT {ROW} FROM events WHERE log = ? AND seq > ? AND seq <= ? ORDER BY seq"
    rows = connection.execute(query, (piece.number, seq, piece.until))
    try:
        for found, version, rule, at, kind, digest, stored, payload, erased, stone in rows:
            seq += 1
            if found != seq or not _is_as_written(payload, digest, erased, stone):
                raise protocol.damaged(log, seq)
            chain = link(chain, digest, seq=seq, version=version, at=at, kind=kind, rule=rule)
            if chain != stored:
                raise protocol.damaged(log, seq)
            event = decode_event(guard.open("event", log, payload, number=seq), version)
            first = first or event
            yield event
    except MISFITS:
        raise protocol.damaged(log, seq) from None
    finally:
        rows.close()
    if seq != piece.until or (piece.end and chain.hex() != piece.end):
        raise protocol.damaged(log, seq)
    if piece.base and after == piece.base:
        _check_opening(piece, first)


def _is_as_written(payload: bytes, digest: bytes, erased: float | None, stone: bytes | None) -> bool:
    if erased is None:
        return digest_of(payload) == digest
    return stone_of(digest, erased, payload) == stone


def _chain_at(connection: "sqlite3.Connection", piece: PathSection, seq: int) -> bytes:
    """Return what the event after number `seq` is linked to."""
    if seq == piece.base:
        return origin_of(piece.log)
    found = connection.execute("SELECT chain FROM events WHERE log = ? AND seq = ?", (piece.number, seq)).fetchone()
    return bytes(found[0]) if found else b""


def _check_opening(piece: PathSection, first: Event | None) -> None:
    """Check that the table names the same parent as the first event of a fork, which is bound by its chain."""
    if not isinstance(first, Opened) or (first.parent, first.parent_seq, first.parent_hash) != piece.opening:
        raise protocol.damaged(piece.log, piece.base + 1)


def _parent(connection: "sqlite3.Connection", log: str, name: str) -> tuple[Any, ...]:
    try:
        return log_of(connection, name, PLACE)
    except StoreError:
        raise protocol.damaged(log, 0) from None
