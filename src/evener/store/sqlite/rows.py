"""Logs, leases, notes and blobs as SQL: the jobs of a store. A read returns what was written, or raises an error.

With a cipher, a SHA-256 would show every reader of the file which known content it has. So a blob is named by an HMAC of it,
with a key that the store created and encrypted. Blobs of older stores are still named by their SHA-256.
"""

import hmac
from collections.abc import Iterable, Sequence
from hashlib import sha256
from operator import itemgetter
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from evener.events import VERSION, Event, Opened, Rival, decode_event, encode_event
from evener.store import protocol
from evener.store.cipher import naming_key
from evener.store.integrity import digests
from evener.store.integrity.digests import RULE, Checkpoint, link_new, origin_of
from evener.store.protocol import LeaseHeld, Note, Summary
from evener.store.redaction import Redaction
from evener.store.sqlite.leases import claims, deserted, may_act, rival_of, seconds_of

if TYPE_CHECKING:
    import sqlite3


KINDS = {kind: str(kind.__struct_config__.tag) for kind in get_args(Event)}
INSERT = "INSERT INTO events (log, seq, version, rule, at, kind, digest, chain, payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
END = (
    "SELECT epoch, length, head, EXISTS (SELECT 1 FROM inbox WHERE log = number AND settled = 0), holder, log"
    " FROM logs WHERE number = ?"
)
GROW = "UPDATE logs SET length = ?, head = ?, changed = ?, lease_until = ?, claim = ? WHERE number = ? AND epoch = ?"
GROW_FROM = (
    "UPDATE logs SET length = ?, head = ?, changed = ?, lease_until = ?"
    " WHERE number = ? AND epoch = ? AND length = ? AND head = ? AND log = ?"
    " AND NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.log = number AND settled = 0)"
)
SET_HEAD = "INSERT INTO heads (thread, log) VALUES (?, ?) ON CONFLICT (thread) DO UPDATE SET log = excluded.log"


class EventRow(msgspec.Struct, frozen=True):
    """An event, ready to be stored."""

    at: float
    kind: str
    payload: bytes


class Claim(msgspec.Struct, frozen=True):
    """The holder that wants a lease, with its beginning and end."""

    holder: str
    mark: str
    now: float
    until: float


class HeldLog(msgspec.Struct, frozen=True):
    """A log as its holder knows it: its name, its number in the file, the holder's epoch and claim, and its rival."""

    log: str
    number: int
    epoch: int
    mark: str = ""
    rival: Rival = ""


class AppendedRows(msgspec.Struct, frozen=True):
    """The length of a log after an append, and the checkpoint that was due, if any. `noted`: rows were left out because of a
    note.

    `head` is its last link, if rows were added. `number` is the number of the log in the file, if it was created.
    """

    length: int
    mark: Checkpoint | None = None
    noted: bool = False
    head: bytes = b""
    number: int = 0


def row_of(event: Event, guard: Redaction) -> EventRow:
    """Return the event as it is stored, but for the cipher: that needs to know the event's number."""
    return EventRow(event.at, KINDS[type(event)], guard.funnel.clean(encode_event(event)))


def rows_of(events: tuple[Event, ...], guard: Redaction) -> tuple[tuple[Event, ...], list[EventRow]]:
    """Return the events as they are kept, and ready to be stored."""
    kept, payloads = guard.funnel.events(events)
    if len(kept) == 1:  # nearly always
        return kept, [EventRow(kept[0].at, KINDS[type(kept[0])], payloads[0])]
    rows: list[EventRow] = []
    for event, payload in zip(kept, payloads, strict=True):
        rows.append(EventRow(event.at, KINDS[type(event)], payload))
    return kept, rows


def create(
    connection: "sqlite3.Connection", log: str, first: Event, claim: Claim, guard: Redaction
) -> tuple[HeldLog, AppendedRows]:
    """Return a new log with its first event. A fork goes on from an event of its parent; nothing is copied."""
    row = row_of(first, guard)
    held = _add_log(connection, log, row, claim)
    return held, append(connection, held, [row], claim.until, guard)


def begin(
    connection: "sqlite3.Connection", log: str, added: Sequence[EventRow], claim: Claim, until: float, guard: Redaction
) -> AppendedRows:
    """Create a log with its first events."""
    held = _add_log(connection, log, added[0], claim)
    return msgspec.structs.replace(append(connection, held, added, until, guard), number=held.number)


def _add_log(connection: "sqlite3.Connection", log: str, row: EventRow, claim: Claim) -> HeldLog:
    """Return a new log without events. `row` is the first that it will have."""
    if connection.execute("SELECT 1 FROM logs WHERE log = ?", (log,)).fetchone():
        raise protocol.already_there(log)
    first = decode_event(row.payload)  # without secrets
    opened = first if isinstance(first, Opened) else Opened(at=first.at, thread=log)
    base, title = _parent(connection, opened) if opened.parent else (0, "")
    connection.execute(
        "INSERT INTO logs (log, thread, harness, parent, parent_seq, parent_hash, began, changed, length, head,"
        " epoch, holder, claim, lease_until, base, title) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?)",
        (
            log, opened.thread, opened.harness, opened.parent, opened.parent_seq, opened.parent_hash, first.at, first.at,
            base, origin_of(log), claim.holder, claim.mark, claim.until, base, title,
        ),
    )  # fmt: skip
    return HeldLog(log, int(log_of(connection, log, "number")[0]), 1, claim.mark)


def take(connection: "sqlite3.Connection", log: str, claim: Claim, *, force: bool = False) -> tuple[HeldLog, int] | LeaseHeld:
    """Take the log over, unless a process that may be alive holds it; return it and its length.

    A lease that runs longer than it lasts is cut: then the refusal is returned, so that it does not undo that.
    """
    number, length, epoch, holder, mark, until, erased = log_of(
        connection, log, "number, length, epoch, holder, claim, lease_until, erased"
    )
    if erased is not None:
        raise protocol.erased(log, erased)
    if mark and until > claim.now and not force and not deserted(mark):
        longest = seconds_of(mark, claim.until - claim.now)
        if until - claim.now <= longest:
            raise protocol.held(log, holder, until - claim.now)
        connection.execute("UPDATE logs SET lease_until = ? WHERE number = ?", (claim.now + longest, number))
        return protocol.held(log, holder, longest)
    earlier = [one for one in claims(mark) if may_act(one)]
    connection.execute(
        "UPDATE logs SET epoch = ?, holder = ?, claim = ?, lease_until = ? WHERE number = ?",
        (epoch + 1, claim.holder, ";".join((claim.mark, *earlier)), claim.until, number),
    )
    return HeldLog(log, number, epoch + 1, claim.mark, rival_of(earlier)), length


def release(connection: "sqlite3.Connection", log: str, mark: str, *, left: bool = False) -> Checkpoint | None:
    """Give a lease back, if the claim still stands; the checkpoint that this makes, if the log has grown since the last.

    `left`: what was begun under it goes on, so that the claim stays for the next holder to see.
    """
    found = connection.execute("SELECT number, length, head, claim FROM logs WHERE log = ?", (log,)).fetchone()
    if found is None or claims(found[3])[:1] != [mark]:
        return None
    number, length, head, stored = found
    kept = claims(stored)[0 if left else 1 :]
    connection.execute("UPDATE logs SET holder = '', claim = ?, lease_until = 0 WHERE number = ?", (";".join(kept), number))
    return digests.put(connection, number, seq=length, chain=head)


def end(connection: "sqlite3.Connection", held: HeldLog, grown: AppendedRows) -> AppendedRows:
    """Give the lease back after the last rows, in the same transaction. The claims of earlier holders went with those rows."""
    number = grown.number or held.number
    connection.execute("UPDATE logs SET holder = '', claim = '', lease_until = 0 WHERE number = ?", (number,))
    mark = digests.put(connection, number, seq=grown.length, chain=grown.head)
    return msgspec.structs.replace(grown, mark=mark or grown.mark)


def append(
    connection: "sqlite3.Connection",
    held: HeldLog,
    rows: Sequence[EventRow],
    until: float,
    guard: Redaction,
    certain: int | None = None,
    end: tuple[int, bytes] | None = None,
) -> AppendedRows:
    """Add rows, if there are any, and renew the lease. Writes nothing when the epoch is not the holder's.

    With `certain`, only so many of the rows are added when a note waits to be settled. `end` is the length and the head after
    the holder's last rows: if the log still has them and no note waits, one statement checks that and moves it on. The claims
    of earlier holders were dropped with those rows.
    """
    if end is not None and rows:
        links, head = _link_rows(held, rows, end, guard)
        length, before = end
        grown = (
            length + len(links), bytearray(head), rows[-1].at, until,
            held.number, held.epoch, length, bytearray(before), held.log,
        )  # fmt: skip
        if connection.execute(GROW_FROM, grown).rowcount == 1:
            return _insert(connection, held, links, head, noted=False)
    length, head, noted = end_of(connection, held)
    noted = noted and certain is not None
    if noted:
        rows = rows[:certain]
    if not rows:
        connection.execute("UPDATE logs SET lease_until = ? WHERE number = ? AND epoch = ?", (until, held.number, held.epoch))
        return AppendedRows(length, noted=noted)
    links, head = _link_rows(held, rows, (length, head), guard)
    connection.execute(GROW, (length + len(links), head, rows[-1].at, until, held.mark, held.number, held.epoch))
    return _insert(connection, held, links, head, noted=noted)


LinkedRow = tuple[int, int, int, int, float, str, bytearray, bytearray, bytearray]
"""A row of the table. Not bytes: for each of those `sqlite3` looks for an adapter, which costs more than a copy."""


def _link_rows(
    held: HeldLog, rows: Sequence[EventRow], end: tuple[int, bytes], guard: Redaction
) -> tuple[list[LinkedRow], bytes]:
    """Return the rows as they are stored behind that end of the log, each linked to the one before, and the last link."""
    seq, head = end
    links: list[LinkedRow] = []
    number, plain = held.number, guard.cipher is None
    for row in rows:
        seq += 1
        at, kind, payload = row.at, row.kind, row.payload
        if not plain:
            payload = guard.seal("event", held.log, payload, number=seq)
        digest = sha256(payload).digest()
        head = link_new(head, digest, seq, VERSION, at, kind)
        links.append((number, seq, VERSION, RULE, at, kind, bytearray(digest), bytearray(head), bytearray(payload)))
    return links, head


def _insert(
    connection: "sqlite3.Connection", held: HeldLog, links: list[LinkedRow], head: bytes, *, noted: bool
) -> AppendedRows:
    """Insert linked rows, and put a checkpoint if one is due."""
    if len(links) == 1:
        connection.execute(INSERT, links[0])
    else:
        connection.executemany(INSERT, links)
    length = links[-1][1]
    due = digests.due(length - len(links), length)
    mark = digests.put(connection, held.number, seq=length, chain=head) if due else None
    return AppendedRows(length, mark, noted, head)


def log_of(connection: "sqlite3.Connection", log: str, columns: str) -> tuple[Any, ...]:
    """Return columns of a log. Raises NoLog if there is none with that id."""
    found: tuple[Any, ...] | None = connection.execute(f"SELECT {columns} FROM logs WHERE log = ?", (log,)).fetchone()
    if found is None:
        raise protocol.no_log(log)
    return found


def _parent(connection: "sqlite3.Connection", opened: Opened) -> tuple[int, str | bytes]:
    """Return how many events a fork has before its own, and the title of its thread. Refuses what it cannot go on from."""
    number, thread, title, erased = log_of(connection, opened.parent, "number, thread, title, erased")
    if erased is not None:
        raise protocol.erased(opened.parent, erased)
    if thread != opened.thread:
        raise protocol.another_thread(opened.parent, thread, opened.thread)
    found = connection.execute("SELECT chain FROM events WHERE log = ? AND seq = ?", (number, opened.parent_seq)).fetchone()
    if found is None:
        raise protocol.no_event(opened.parent, opened.parent_seq)
    if bytes(found[0]).hex() != opened.parent_hash:
        raise protocol.another_hash(opened.parent, opened.parent_seq)
    return opened.parent_seq, title


def end_of(connection: "sqlite3.Connection", held: HeldLog) -> tuple[int, bytes, bool]:
    """Return length and head of the log, and whether a note waits. Raises LeaseLost if the epoch is no longer the holder's."""
    found = connection.execute(END, (held.number,)).fetchone()
    if found is None or found[0] != held.epoch or found[5] != held.log:
        raise protocol.lost(held.log, found[4] if found else "")
    return found[1], found[2], bool(found[3])


def post(connection: "sqlite3.Connection", log: str, note: Note, guard: Redaction) -> bool:
    """Add a note to the log's inbox. False if its key was used before."""
    number, erased = log_of(connection, log, "number, erased")
    if erased is not None:
        raise protocol.erased(log, erased)
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
    """True if a note of this key was ever put into the log's inbox."""
    (number,) = log_of(connection, log, "number")
    return connection.execute("SELECT 1 FROM inbox WHERE log = ? AND key = ?", (number, key)).fetchone() is not None


def notes(connection: "sqlite3.Connection", held: HeldLog, guard: Redaction) -> list[Note]:
    """Return the notes that are not settled, in order."""
    found = connection.execute(
        "SELECT key, kind, body, number FROM inbox WHERE log = ? AND settled = 0 ORDER BY number", (held.number,)
    ).fetchall()
    return [
        Note(key, kind, guard.open_text("note", held.log, body, number=number), number) for key, kind, body, number in found
    ]


def settle(
    connection: "sqlite3.Connection", held: HeldLog, number: int, rows: Sequence[EventRow], until: float, guard: Redaction
) -> AppendedRows:
    """Append what a note led to, and mark the note with the length of the log from then on."""
    end_of(connection, held)
    found = connection.execute(
        "SELECT 1 FROM inbox WHERE log = ? AND number = ? AND settled = 0", (held.number, number)
    ).fetchone()
    if found is None:
        raise protocol.no_note(held.log, number)
    grown = append(connection, held, rows, until, guard)
    connection.execute("UPDATE inbox SET settled = ? WHERE log = ? AND number = ?", (grown.length, held.number, number))
    return grown


LISTED = (
    "SELECT l.log, l.thread, l.harness, l.length, l.began, l.changed, l.parent, l.base, l.title, l.claim, l.lease_until,"
    " l.erased FROM logs l"
)


def head(connection: "sqlite3.Connection", thread: str) -> str:
    """Return the log that the thread stands on. The id of a log that is no thread's stands for itself."""
    for query in (
        "SELECT log FROM heads WHERE thread = ?",
        "SELECT log FROM logs WHERE log = ?",
        "SELECT log FROM logs WHERE thread = ? AND parent = '' ORDER BY number LIMIT 1",
    ):
        found = connection.execute(query, (thread,)).fetchone()
        if found is not None:
            return str(found[0])
    raise protocol.no_log(thread)


def move(connection: "sqlite3.Connection", thread: str, log: str) -> None:
    """Make this log the head of its thread. It must be a log of that thread."""
    (owner,) = log_of(connection, log, "thread")
    if owner != thread:
        raise protocol.another_thread(log, owner, thread)
    connection.execute(SET_HEAD, (thread, log))


def summaries(connection: "sqlite3.Connection", thread: str, now: float, guard: Redaction) -> list[Summary]:
    """List every log, or those of one thread, the one that changed last first. A title that does not open is shown as such."""
    where, values = (" WHERE l.thread = ?", (thread,)) if thread else ("", ())
    tags: dict[str, list[str]] = {}
    for owner, tag in connection.execute("SELECT l.thread, l.tag FROM tags l" + where, values).fetchall():
        tags.setdefault(owner, []).append(guard.label("tag", owner, tag))
    # Joined and sorted here: that takes half of the time, and a list of all threads is what a user waits for.
    heads = dict(connection.execute("SELECT l.thread, l.log FROM heads l" + where, values).fetchall())
    found = connection.execute(LISTED + where + " ORDER BY l.number", values).fetchall()
    found.sort(key=itemgetter(5), reverse=True)
    return [
        Summary(
            log, owner, harness, events, began, changed, heads[owner] == log if owner in heads else not parent, parent, seq,
            guard.label("title", owner, title) if title else "", tuple(sorted(tags[owner])) if owner in tags else (),
            bool(claim) and until > now and not deserted(claim), erased or 0.0,
        )
        for log, owner, harness, events, began, changed, parent, seq, title, claim, until, erased in found
    ]  # fmt: skip


class BlobTable:
    """The blobs of a store, through one connection."""

    def __init__(self, connection: "sqlite3.Connection", guard: Redaction) -> None:
        self._connection = connection
        self._guard = guard
        self._key = b"" if guard.cipher is None else naming_key(connection, guard.cipher)

    def name_of(self, content: bytes) -> tuple[str, bool]:
        """Return the name of the content, and whether it is stored, whole."""
        digest = sha256(content).hexdigest()
        return digest, self._is_stored(digest) == content

    def put(self, digest: str, content: bytes) -> None:
        """Keep the content; what was there under its name and has been damaged is mended."""
        place = self._places(digest)[0]
        self._connection.execute(
            "INSERT INTO blobs (digest, size, content) VALUES (?, ?, ?)"
            " ON CONFLICT (digest) DO UPDATE SET size = excluded.size, content = excluded.content",
            (place, len(content), self._guard.seal("blob", place, content)),
        )

    def get(self, digest: str) -> bytes:
        """Return the content of that name."""
        content = self._is_stored(digest)
        if content is None:
            raise protocol.no_blob(digest)
        if sha256(content).hexdigest() != digest:
            raise protocol.spoiled_blob(digest)
        return content

    def check(self, place: str) -> int:
        """Return the size of what lies in a place. Raises when it is not what belongs there."""
        content = self.content(place)
        if place not in self._places(sha256(content).hexdigest()):
            raise protocol.spoiled_blob(place)
        return len(content)

    def content(self, place: str) -> bytes:
        """Return what lies in a place."""
        (found,) = self._connection.execute("SELECT content FROM blobs WHERE digest = ?", (place,)).fetchone()
        return self._guard.open("blob", place, bytes(found))

    def among(self, names: Iterable[str]) -> set[str]:
        """Return those of the names that a blob has."""
        return {name for name in names if any(map(self._is_there, self._places(name)))}

    def places(self, names: Iterable[str]) -> set[str]:
        """Return where the blobs of these names lie, as far as they are there."""
        return {place for name in names for place in self._places(name) if self._is_there(place)}

    def drop(self, names: Iterable[str]) -> None:
        """Let go of the blobs of these names."""
        places = [(place,) for name in names for place in self._places(name)]
        self._connection.executemany("DELETE FROM blobs WHERE digest = ?", places)

    def _is_there(self, place: str) -> bool:
        return self._connection.execute("SELECT 1 FROM blobs WHERE digest = ?", (place,)).fetchone() is not None

    def _places(self, digest: str) -> tuple[str, ...]:
        """Return where a blob of that name may lie; the first is where a new one goes."""
        return (hmac.digest(self._key, digest.encode(), "sha256").hex(), digest) if self._key else (digest,)

    def _is_stored(self, digest: str) -> bytes | None:
        for place in self._places(digest):
            found = self._connection.execute("SELECT content FROM blobs WHERE digest = ?", (place,)).fetchone()
            if found is not None:
                return self._guard.open("blob", place, bytes(found[0]))
        return None
