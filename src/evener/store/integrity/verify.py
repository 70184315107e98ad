"""Checks that everything in a store is as it was written, as SQL. Reads only, and continues after each finding.

Each chain is computed again from the bytes; lengths, heads, parents, checkpoints and the sidecar must agree with it. An
erased event must contain a blank and nothing else.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from evener import events as ev
from evener.errors import EvenerError
from evener.events import VERSION, Event, Opened, decode_event, encode_event
from evener.store import protocol
from evener.store.integrity.digests import MISFITS, Checkpoint, Stone, Told, digest_of, link, origin_of, stone_of, store_id
from evener.store.protocol import Finding
from evener.store.redaction import UNREADABLE, Redaction, What
from evener.store.sqlite.rows import KINDS, BlobTable
from evener.store.tombstones import blanked
from evener.transcript.blocks import DocumentBlock, ImageBlock, Stored, TextBlock, ToolResult
from evener.transcript.message import Message

if TYPE_CHECKING:
    import sqlite3


SPILLED = '"spilled"'
NAME = re.compile("[0-9a-f]{64}")


def around(connection: "sqlite3.Connection", numbers: Collection[int] | None) -> Iterator[Finding]:
    """Check heads, inboxes and erased logs: of these logs, or of all."""
    heads = connection.execute(
        "SELECT h.thread, h.log FROM heads h LEFT JOIN logs l ON l.log = h.log WHERE l.thread IS NULL OR l.thread <> h.thread"
    )
    for thread, head in heads if numbers is None else ():
        yield Finding(thread, 0, f"The head of the thread is {head!r}, which is not one of its logs.")
    settled = connection.execute(
        "SELECT l.number, l.log, i.number FROM inbox i JOIN logs l ON l.number = i.log"
        " WHERE i.settled < 0 OR i.settled > l.length OR i.settled <> CAST(i.settled AS INTEGER)"
    )
    for number, log, note in settled:
        if numbers is None or number in numbers:
            yield Finding(log, 0, f"Note {note} is marked as settled by an event that does not exist.")
    gone = connection.execute(
        "SELECT l.number, l.log, min(e.seq) FROM logs l JOIN events e ON e.log = l.number"
        " WHERE l.erased IS NOT NULL AND e.erased IS NULL GROUP BY l.number, l.log"
    )
    for number, log, seq in gone:
        if numbers is None or number in numbers:
            yield Finding(log, seq, "The log is marked as erased, but this event is not erased.")


def labels(connection: "sqlite3.Connection", threads: Collection[str], guard: Redaction) -> Iterator[Finding]:
    """Check that titles and tags of these threads open."""
    titles = connection.execute("SELECT log, thread, title FROM logs ORDER BY number").fetchall()
    tags = connection.execute("SELECT thread, thread, tag FROM tags").fetchall()
    stored: tuple[tuple[What, list[tuple[str, str, str | bytes]]], ...] = (("title", titles), ("tag", tags))
    for what, rows in stored:
        for name, thread, text in rows:
            if thread in threads and guard.label(what, thread, text) == UNREADABLE != text:
                yield Finding(name, 0, f"A {what} of it cannot be read.")


def shelves(connection: "sqlite3.Connection", names: Iterable[str] | None, guard: Redaction) -> Iterator[Finding]:
    """Check that each blob is what its name says: those of the names, or all."""
    shelf = BlobTable(connection, guard)
    wanted = None if names is None else shelf.places(names)
    for place, size in connection.execute("SELECT digest, size FROM blobs").fetchall():
        try:
            if (wanted is None or place in wanted) and shelf.check(place) != size:
                yield Finding("", 0, f"The blob {place!r} has another size than the one that is noted.")
        except EvenerError as error:
            yield Finding("", 0, str(error))


def media_in(event: ev.Event) -> Iterator[str]:
    """Yield the names of the blobs that an event relies on."""
    match event:
        case ev.MediaFetched():
            yield event.digest
        case ev.Prompted() | ev.Steered() | ev.Replied():
            yield from _in_message(event.message)
            yield from raw_in(event)
        case ev.Imported():
            for message in event.messages:
                yield from _in_message(message)
        case ev.CallFinished():
            yield from _in_blocks(event.content)
            yield from spilled_in(event)


def raw_in(event: ev.Event) -> tuple[str, ...]:
    """Return the name of the blob with an answer as it came from the provider, if it was kept."""
    return (event.raw_blob,) if isinstance(event, ev.Replied) and event.raw_blob else ()


def spilled_in(event: ev.Event) -> Iterator[str]:
    """Yield the name of the blob that holds the whole output of a call, when the event has the ends of it only.

    Older logs have it in the metadata. A program may have metadata of the same name, so the text must name it, too.
    """
    if not isinstance(event, ev.CallFinished):
        return
    if event.spilled is not None:
        yield event.spilled.id
    elif SPILLED in event.metadata:
        found = _decode(event.metadata)
        name = found.spilled if found is not None else ""
        if NAME.fullmatch(name) and any(isinstance(block, TextBlock) and name in block.text for block in event.content):
            yield name


class _Metadata(msgspec.Struct, frozen=True):
    spilled: str


def _decode(metadata: str) -> _Metadata | None:
    try:
        return msgspec.json.decode(metadata, type=_Metadata)
    except msgspec.MsgspecError:
        return None


def _in_message(message: Message) -> Iterator[str]:
    for block in message.blocks:
        yield from _in_blocks(block.content if isinstance(block, ToolResult) else (block,))


def _in_blocks(blocks: Collection[object]) -> Iterator[str]:
    for block in blocks:
        match block:
            case ImageBlock(source=Stored(digest=digest)) | DocumentBlock(source=Stored(digest=digest)):
                yield digest


FileCheck = Callable[["sqlite3.Connection"], Iterator[Finding]]

MOST_FAULTS = 20
LOG = "number, log, base, length, head, thread, harness, began, changed, parent, parent_seq, parent_hash"
ROW = "seq, version, rule, at, kind, digest, chain, payload, erased, stone"
MISSING = (
    "The sidecar file is missing. The content of the store was checked, but the loss of the end of a log cannot be detected. "
    "The next checkpoint creates a new sidecar file."
)


class LogPlace(msgspec.Struct, frozen=True):
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


class VerifiedRow(msgspec.Struct, frozen=True):
    """An event as it is stored in the file."""

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
        self.marks: dict[str, list[Checkpoint]] = {}
        self.stones = {(entry.log, entry.seq): entry.hash for entry in own if isinstance(entry, Stone)}
        for entry in own:
            if isinstance(entry, Checkpoint):
                self.marks.setdefault(entry.log, []).append(entry)

    def knows(self, log: str, row: VerifiedRow) -> bool:
        """True if the sidecar confirms that the event was erased in this way, or if there is no sidecar."""
        return not self.there or self.stones.get((log, row.seq)) == bytes(row.stone or b"").hex()


class LogVerifier(msgspec.Struct, frozen=True):
    """What checking events needs: the content of the sidecar, the cipher, and the blobs.

    `relied` collects the blobs that the events name.
    """

    witness: Witness
    guard: Redaction
    shelf: BlobTable
    relied: set[str]


def verify(
    connection: "sqlite3.Connection", log: str, told: Told, guard: Redaction, file: FileCheck | None = None
) -> list[Finding]:
    """Find what is wrong with a log and those before it on its path, with a thread, or with everything.

    `file` finds what is wrong with the tables as such; without one, SQLite is asked about its file.
    """
    file = file or _file
    witness = Witness(told, store_id(connection))
    places = _list_wanted(connection, log)
    found: list[Finding] = []
    if not log:
        found += [*_safely("", file(connection)), *_absent(places, witness), *_safely("", shelves(connection, None, guard))]
    found += _safely("", around(connection, {place.number for place in places} if log else None))
    found += _safely("", labels(connection, {place.thread for place in places}, guard))
    found += [Finding("", 0, what, damage=False) for what in _doubts(connection, places, told, witness)]
    check = LogVerifier(witness, guard, BlobTable(connection, guard), set())
    for place in places:
        found += _safely(place.log, _log(connection, place, check))
    if log:
        found += _safely("", shelves(connection, check.relied, guard))
    return found


def _safely(log: str, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings, as far as the database can read that part."""
    try:
        yield from findings
    except EvenerError:
        raise
    except Exception as error:
        yield Finding(log, 0, f"The database cannot read a part of the store ({type(error).__name__}: {error}).")


def _list_wanted(connection: "sqlite3.Connection", log: str) -> list[LogPlace]:
    if not log:
        return [LogPlace(*row) for row in connection.execute(f"SELECT {LOG} FROM logs ORDER BY number")]
    query = f"SELECT {LOG} FROM logs WHERE thread = ? OR log = ? ORDER BY number"
    wanted = {place.log: place for place in (LogPlace(*row) for row in connection.execute(query, (log, log)))}
    if not wanted:
        raise protocol.no_log(log)
    missing = {place.parent for place in wanted.values() if place.base} - wanted.keys()
    while missing:
        row = connection.execute(f"SELECT {LOG} FROM logs WHERE log = ?", (missing.pop(),)).fetchone()
        if row is not None:
            place = wanted[row[1]] = LogPlace(*row)
            missing |= {place.parent} - wanted.keys() if place.base else set()
    return sorted(wanted.values(), key=lambda place: place.number)


def _file(connection: "sqlite3.Connection") -> Iterator[Finding]:
    """Yield what SQLite itself finds wrong with its file."""
    for (told,) in connection.execute(f"PRAGMA integrity_check({MOST_FAULTS})"):
        if told != "ok":
            yield Finding("", 0, f"SQLite reports that its file is damaged: {told}.")
    for table, *_ in connection.execute("PRAGMA foreign_key_check"):
        yield Finding("", 0, f"A row of the table {table} belongs to a log that does not exist.")


def _absent(places: Iterable[LogPlace], witness: Witness) -> Iterator[Finding]:
    there = {place.log for place in places}
    for log, marks in witness.marks.items():
        if log not in there:
            yield Finding(log, 0, f"The whole log is gone: according to the sidecar, it had {marks[-1].seq} events.")


def _doubts(connection: "sqlite3.Connection", places: Iterable[LogPlace], told: Told, witness: Witness) -> Iterator[str]:
    """Yield the reasons why the sidecar cannot be checked completely."""
    if not told.there and connection.execute("SELECT 1 FROM checkpoints LIMIT 1").fetchone():
        yield MISSING
    if told.unread:
        yield f"{told.unread} lines of the sidecar file cannot be read; its other lines were checked."
    if witness.foreign & {place.log for place in places}:
        yield "The sidecar file has records of these logs from another store: it is from there, or one of the two has changed."


def _log(connection: "sqlite3.Connection", place: LogPlace, check: LogVerifier) -> Iterator[Finding]:
    """Check one log: its events, then what others know of it."""
    chains = {place.base: b""}
    seq, chain, at = place.base, origin_of(place.log), place.changed
    for row in _rows(connection, place.number):
        if row.seq != seq + 1:
            yield Finding(place.log, seq + 1, _gap(seq + 1, row.seq))
        else:
            yield from _event(place, row, chain, check)
        if row.erased is not None and not check.witness.knows(place.log, row):
            yield Finding(place.log, row.seq, "It was erased, but the sidecar has no record of that.", damage=False)
        seq, chain, at = row.seq, row.chain, row.at
        chains[seq] = chain
    if (seq, chain) != (place.length, place.head):
        yield Finding(place.log, seq, f"The log ends here, but it should end with event {place.length}.")
    if at != place.changed:
        yield Finding(place.log, seq, "This is the last event, but the list of logs says that the log changed at another time.")
    yield from (Finding(place.log, known, what) for known, what in _is_known(connection, place, check.witness, chains))


def _rows(connection: "sqlite3.Connection", number: int) -> Iterator[VerifiedRow]:
    with closing(connection.execute(f"SELECT {ROW} FROM events WHERE log = ? ORDER BY seq", (number,))) as rows:
        for row in rows:
            yield VerifiedRow(*row)


def _event(place: LogPlace, row: VerifiedRow, before: bytes, check: LogVerifier) -> Iterator[Finding]:
    """Yield what is wrong with one event."""
    told = partial(Finding, place.log, row.seq)
    if row.payload is None:
        yield told("Its content is missing, but it was not erased.")
        return
    try:
        if row.erased is None and digest_of(row.payload) != row.digest:
            yield told("Its content is not what was written.")
        if row.erased is not None and stone_of(row.digest, row.erased, row.payload) != row.stone:
            yield told("It was erased, but its tombstone has changed.")
        if link(before, row.digest, **_place_of(row)) != row.chain:
            yield told("Its place in the chain is not the one it was written at.")
        if row.version <= VERSION:
            event = decode_event(check.guard.open("event", place.log, row.payload, number=row.seq), row.version)
            yield from map(told, _content(place, row, event))
            if row.erased is None:
                yield from _relies(told, event, check)
    except (EvenerError, *MISFITS) as error:
        yield told(f"It cannot be read: {error}")


def _relies(told: Callable[..., Finding], event: Event, check: LogVerifier) -> Iterator[Finding]:
    """Yield the blobs that the event relies on and that are not there. Without its blob, the output of a call or
    a raw answer is lost.
    """
    names = set(media_in(event))
    check.relied.update(names)
    lost = {*spilled_in(event), *raw_in(event)}
    for digest in sorted(names - check.shelf.among(names)):
        yield told(f"It relies on the blob {digest!r}, which is not in the store.", damage=digest in lost)


def _place_of(row: VerifiedRow) -> dict[str, Any]:
    return {"seq": row.seq, "version": row.version, "at": row.at, "kind": row.kind, "rule": row.rule}


def _content(place: LogPlace, row: VerifiedRow, event: Event) -> Iterator[str]:
    """Yield where an event does not fit what is noted beside it."""
    if (KINDS[type(event)], event.at) != (row.kind, row.at):
        yield "Its kind or time is not the one it was written with."
    if row.erased is not None and encode_event(event) != encode_event(blanked(event)):
        yield "It was erased, but it still has content."
    if row.seq == place.base + 1:
        first = event if isinstance(event, Opened) else Opened(at=event.at, thread=place.log)
        named = (first.thread, first.harness, first.at, first.parent, first.parent_seq, first.parent_hash)
        if named != (place.thread, place.harness, place.began, place.parent, place.parent_seq, place.parent_hash):
            yield "It is the first event of another log than the one that the list of logs describes."


def _is_known(
    connection: "sqlite3.Connection", place: LogPlace, witness: Witness, chains: dict[int, bytes]
) -> Iterator[tuple[int, str]]:
    """Yield what a child, a checkpoint or the sidecar knows of a log, and what is not so."""
    if place.base and not _hangs_together(connection, place):
        yield (
            place.base + 1,
            f"The event of the log {place.parent!r} after which this log was forked has changed or is missing.",
        )
    found = connection.execute("SELECT seq, chain FROM checkpoints WHERE log = ?", (place.number,)).fetchone()
    if found is not None and chains.get(found[0]) != found[1]:
        yield found[0], "Its hash differs from that of the last checkpoint in the store."
    for mark in witness.marks.get(place.log, ()):
        chain = chains.get(mark.seq)
        if chain is None:
            yield mark.seq, f"The log had {mark.seq} events, according to the sidecar. Its end is lost."
        elif chain.hex() != mark.hash:
            yield mark.seq, "Its hash differs from the one in the sidecar."


def _hangs_together(connection: "sqlite3.Connection", place: LogPlace) -> bool:
    found = connection.execute(
        "SELECT e.chain FROM events e JOIN logs l ON l.number = e.log WHERE l.log = ? AND e.seq = ?",
        (place.parent, place.parent_seq),
    ).fetchone()
    return place.base == place.parent_seq and found is not None and bytes(found[0]).hex() == place.parent_hash


def _gap(wanted: int, there: int) -> str:
    if there < wanted:
        return f"There is an event {there} that does not belong there."
    return "It is missing." if there == wanted + 1 else f"It is missing, and so are all up to event {there - 1}."
