"""Looks whether everything in a store is as it was written, as SQL. Reads only, and goes on after what it finds.

Each chain is reckoned again from the bytes; lengths, heads, parents, checkpoints and the sidecar must agree with it. What an
erased event says now must be a blank and nothing else.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from evener.errors import EvenerError
from evener.events import VERSION, Event, Opened, decode_event, encode_event
from evener.store import refusals
from evener.store.blanking import blanked
from evener.store.blobs import Shelf
from evener.store.bookkeeping import around, labels, media_in, shelves, spilled_in
from evener.store.chain import MISFITS, digest_of, link, origin_of, stone_of
from evener.store.checkpoints import Mark, store_id
from evener.store.guard import Guard
from evener.store.log import Finding
from evener.store.rows import KINDS
from evener.store.sidecar import Stone, Told

if TYPE_CHECKING:
    import sqlite3

__all__ = ["verify"]

MOST_FAULTS = 20
LOG = "number, log, base, length, head, thread, harness, began, changed, parent, parent_seq, parent_hash"
ROW = "seq, version, rule, at, kind, digest, chain, payload, erased, stone"
MISSING = (
    "The sidecar file is missing. What is in the store was checked, but whether the end of a log was lost cannot be told. "
    "A new one is begun with the next checkpoint."
)


class Place(msgspec.Struct, frozen=True):
    """A log as its row describes it."""

    number: int
    log: str
    base: int
    length: int
    head: bytes
    thread: str
    harness: str
    began: float
    changed: float
    parent: str
    parent_seq: int
    parent_hash: str


class Row(msgspec.Struct, frozen=True):
    """An event as it lies in the file."""

    seq: int
    version: int
    rule: int
    at: float
    kind: str
    digest: bytes
    chain: bytes
    payload: bytes | None
    erased: float | None
    stone: bytes | None


class Witness:
    """What the sidecar says about this store: where its logs stood, and which events were erased."""

    def __init__(self, told: Told, store: str) -> None:
        own = [entry for entry in told.entries if entry.store == store]
        self.there = told.there
        self.foreign = {entry.log for entry in told.entries if entry.store != store}
        self.marks: dict[str, list[Mark]] = {}
        self.stones = {(entry.log, entry.seq): entry.hash for entry in own if isinstance(entry, Stone)}
        for entry in own:
            if isinstance(entry, Mark):
                self.marks.setdefault(entry.log, []).append(entry)

    def knows(self, log: str, row: Row) -> bool:
        """Whether it says that the event was erased so, or is not there to say it."""
        return not self.there or self.stones.get((log, row.seq)) == bytes(row.stone or b"").hex()


class Check(msgspec.Struct, frozen=True):
    """What the events are looked at with: the sidecar's word, the cipher, and the blobs.

    `relied` gathers the blobs that the events rely on.
    """

    witness: Witness
    guard: Guard
    shelf: Shelf
    relied: set[str]


def verify(connection: "sqlite3.Connection", log: str, told: Told, guard: Guard) -> list[Finding]:
    """What is wrong with a log and those before it on its path, with a thread, or with everything."""
    witness = Witness(told, store_id(connection))
    places = _wanted(connection, log)
    found: list[Finding] = []
    if not log:
        found += [*_safely("", _file(connection)), *_absent(places, witness), *_safely("", shelves(connection, None, guard))]
    found += _safely("", around(connection, {place.number for place in places} if log else None))
    found += _safely("", labels(connection, {place.thread for place in places}, guard))
    found += [Finding("", 0, what, damage=False) for what in _doubts(connection, places, told, witness)]
    check = Check(witness, guard, Shelf(connection, guard), set())
    for place in places:
        found += _safely(place.log, _log(connection, place, check))
    if log:
        found += _safely("", shelves(connection, check.relied, guard))
    return found


def _safely(log: str, findings: Iterable[Finding]) -> Iterator[Finding]:
    """The findings, as far as SQLite can read that part of its file."""
    try:
        yield from findings
    except EvenerError:
        raise
    except Exception as error:
        yield Finding(log, 0, f"SQLite cannot read all of it ({type(error).__name__}: {error}).")


def _wanted(connection: "sqlite3.Connection", log: str) -> list[Place]:
    if not log:
        return [Place(*row) for row in connection.execute(f"SELECT {LOG} FROM logs ORDER BY number")]
    query = f"SELECT {LOG} FROM logs WHERE thread = ? OR log = ? ORDER BY number"
    wanted = {place.log: place for place in (Place(*row) for row in connection.execute(query, (log, log)))}
    if not wanted:
        raise refusals.no_log(log)
    missing = {place.parent for place in wanted.values() if place.base} - wanted.keys()
    while missing:
        row = connection.execute(f"SELECT {LOG} FROM logs WHERE log = ?", (missing.pop(),)).fetchone()
        if row is not None:
            place = wanted[row[1]] = Place(*row)
            missing |= {place.parent} - wanted.keys() if place.base else set()
    return sorted(wanted.values(), key=lambda place: place.number)


def _file(connection: "sqlite3.Connection") -> Iterator[Finding]:
    """What SQLite itself finds wrong with its file."""
    for (told,) in connection.execute(f"PRAGMA integrity_check({MOST_FAULTS})"):
        if told != "ok":
            yield Finding("", 0, f"SQLite finds its file damaged: {told}.")
    for table, *_ in connection.execute("PRAGMA foreign_key_check"):
        yield Finding("", 0, f"A row of the table {table} belongs to a log that is not there.")


def _absent(places: Iterable[Place], witness: Witness) -> Iterator[Finding]:
    there = {place.log for place in places}
    for log, marks in witness.marks.items():
        if log not in there:
            yield Finding(log, 0, f"The whole log is gone: the sidecar knows that it had {marks[-1].seq} events.")


def _doubts(connection: "sqlite3.Connection", places: Iterable[Place], told: Told, witness: Witness) -> Iterator[str]:
    """Why the sidecar cannot tell all that it should."""
    if not told.there and connection.execute("SELECT 1 FROM checkpoints LIMIT 1").fetchone():
        yield MISSING
    if told.unread:
        yield f"{told.unread} lines of the sidecar file cannot be read; the others were."
    if witness.foreign & {place.log for place in places}:
        yield "The sidecar file speaks of these logs in another store. It was begun there, or one of the two has been changed."


def _log(connection: "sqlite3.Connection", place: Place, check: Check) -> Iterator[Finding]:
    """One log: its events, then what others know of it."""
    chains = {place.base: b""}
    seq, chain, at = place.base, origin_of(place.log), place.changed
    for row in _rows(connection, place.number):
        if row.seq != seq + 1:
            yield Finding(place.log, seq + 1, _gap(seq + 1, row.seq))
        else:
            yield from _event(place, row, chain, check)
        if row.erased is not None and not check.witness.knows(place.log, row):
            yield Finding(place.log, row.seq, "It was erased, and the sidecar does not know of that.", damage=False)
        seq, chain, at = row.seq, row.chain, row.at
        chains[seq] = chain
    if (seq, chain) != (place.length, place.head):
        yield Finding(place.log, seq, f"The log ends here, and not as it should with event {place.length}.")
    if at != place.changed:
        yield Finding(place.log, seq, "The list of logs has another time for the last change than the last event.")
    yield from (Finding(place.log, known, what) for known, what in _known(connection, place, check.witness, chains))


def _rows(connection: "sqlite3.Connection", number: int) -> Iterator[Row]:
    with closing(connection.execute(f"SELECT {ROW} FROM events WHERE log = ? ORDER BY seq", (number,))) as rows:
        for row in rows:
            yield Row(*row)


def _event(place: Place, row: Row, before: bytes, check: Check) -> Iterator[Finding]:
    """What is wrong with one event."""
    told = partial(Finding, place.log, row.seq)
    if row.payload is None:
        yield told("What it said is gone, and it was not erased.")
        return
    try:
        if row.erased is None and digest_of(row.payload) != row.digest:
            yield told("What it says is not what was written.")
        if row.erased is not None and stone_of(row.digest, row.erased, row.payload) != row.stone:
            yield told("It was erased, and what stands in its place is not what was put there.")
        if link(before, row.digest, **_place_of(row)) != row.chain:
            yield told("Its place in the chain is not the one it was written at.")
        if row.version <= VERSION:
            event = decode_event(check.guard.open("event", place.log, row.payload, number=row.seq), row.version)
            yield from map(told, _content(place, row, event))
            if row.erased is None:
                yield from _relied(told, event, check)
    except (EvenerError, *MISFITS) as error:
        yield told(f"It cannot be read: {error}")


def _relied(told: Callable[..., Finding], event: Event, check: Check) -> Iterator[Finding]:
    """The blobs that the event relies on and that are not there. Without its blob, the output of a call is lost."""
    names = set(media_in(event))
    check.relied.update(names)
    spilled = set(spilled_in(event))
    for digest in sorted(names - check.shelf.among(names)):
        yield told(f"It relies on the blob {digest!r}, which is not in the store.", damage=digest in spilled)


def _place_of(row: Row) -> dict[str, Any]:
    return {"seq": row.seq, "version": row.version, "at": row.at, "kind": row.kind, "rule": row.rule}


def _content(place: Place, row: Row, event: Event) -> Iterator[str]:
    """What an event says must fit what is noted beside it."""
    if (KINDS[type(event)], event.at) != (row.kind, row.at):
        yield "Its kind or time is not the one it was written with."
    if row.erased is not None and encode_event(event) != encode_event(blanked(event)):
        yield "It was erased, and something is said in its place."
    if row.seq == place.base + 1:
        first = event if isinstance(event, Opened) else Opened(at=event.at, thread=place.log)
        named = (first.thread, first.harness, first.at, first.parent, first.parent_seq, first.parent_hash)
        if named != (place.thread, place.harness, place.began, place.parent, place.parent_seq, place.parent_hash):
            yield "It opens another log than the one that the list of logs describes."


def _known(
    connection: "sqlite3.Connection", place: Place, witness: Witness, chains: dict[int, bytes]
) -> Iterator[tuple[int, str]]:
    """What a child, a checkpoint or the sidecar knows of a log, and what is not so."""
    if place.base and not _hangs_together(connection, place):
        yield place.base + 1, f"The event of the log {place.parent!r} that it goes on from is not what it was."
    found = connection.execute("SELECT seq, chain FROM checkpoints WHERE log = ?", (place.number,)).fetchone()
    if found is not None and chains.get(found[0]) != found[1]:
        yield found[0], "It is not what it was at the last checkpoint in the store."
    for mark in witness.marks.get(place.log, ()):
        chain = chains.get(mark.seq)
        if chain is None:
            yield mark.seq, f"The sidecar knows that the log had {mark.seq} events. The end of it is lost."
        elif chain.hex() != mark.hash:
            yield mark.seq, "It is not what the sidecar knows that it was."


def _hangs_together(connection: "sqlite3.Connection", place: Place) -> bool:
    found = connection.execute(
        "SELECT e.chain FROM events e JOIN logs l ON l.number = e.log WHERE l.log = ? AND e.seq = ?",
        (place.parent, place.parent_seq),
    ).fetchone()
    return place.base == place.parent_seq and found is not None and bytes(found[0]).hex() == place.parent_hash


def _gap(wanted: int, there: int) -> str:
    if there < wanted:
        return f"There is an event {there} that does not belong there."
    return "It is missing." if there == wanted + 1 else f"It is missing, and so are all up to event {there - 1}."
