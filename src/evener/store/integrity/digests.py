"""What links events: digests, the chain, checkpoints, and the sidecar file that stores these outside of the store."""

import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from evener.errors import StoreError

if TYPE_CHECKING:
    import sqlite3


RULE = 2
"""How new events are linked."""

MISFITS = (TypeError, ValueError, AttributeError, struct.error)
"""What is raised for values of another type than was written."""

_place = struct.Struct(">QId").pack
_time = struct.Struct(">d").pack


def origin_of(log: str) -> bytes:
    """Return what the first link rests on: the log's own name."""
    return sha256(b"evener log " + log.encode()).digest()


def digest_of(payload: bytes) -> bytes:
    """Return the digest of one payload."""
    return sha256(payload).digest()


def link_new(before: bytes, digest: bytes, seq: int, version: int, at: float, kind: str) -> bytes:
    """Return the link of a new event."""
    return sha256(before + digest + _place(seq, version, at) + kind.encode()).digest()


def link(before: bytes, digest: bytes, *, seq: int, version: int, at: float, kind: str, rule: int = RULE) -> bytes:
    """Return the link after `before`, for a payload of that digest at that place."""
    if rule == RULE:
        return link_new(before, digest, seq, version, at, kind)
    if rule == 1:
        return sha256(before + digest).digest()
    raise StoreError(
        f"An event is linked by rule {rule}; this Evener knows rules up to {RULE}. Update Evener to open this thread."
    )


def stone_of(digest: bytes, erased: float, payload: bytes) -> bytes:
    """Return the hash that protects a tombstone: over the erased event's digest, the time of erasure, and its new payload."""
    return sha256(b"evener stone" + digest + _time(erased) + payload).digest()


EVERY = 256


class Checkpoint(msgspec.Struct, frozen=True, tag="mark"):
    """The state of a log at some time: the id of the store, the log, its length, and the chain there in hex."""

    store: str
    log: str
    seq: int
    hash: str


def due(before: int, length: int) -> bool:
    """True if a log that grew so has passed a checkpoint."""
    return before // EVERY != length // EVERY


def put(connection: "sqlite3.Connection", number: int, *, seq: int, chain: bytes) -> Checkpoint | None:
    """Store the checkpoint of a log, in place of the previous one. Return None if it has not changed."""
    found = connection.execute("SELECT seq, chain FROM checkpoints WHERE log = ?", (number,)).fetchone()
    if found == (seq, chain):
        return None
    connection.execute(
        "INSERT INTO checkpoints (log, seq, chain, at) SELECT number, ?, ?, changed FROM logs WHERE number = ?"
        " ON CONFLICT (log) DO UPDATE SET seq = excluded.seq, chain = excluded.chain, at = excluded.at",
        (seq, chain, number),
    )
    (log,) = connection.execute("SELECT log FROM logs WHERE number = ?", (number,)).fetchone()
    return Checkpoint(store_id(connection), log, seq, chain.hex())


def store_id(connection: "sqlite3.Connection") -> str:
    """Return the id of the file, which it got when it was made."""
    found = connection.execute("SELECT value FROM meta WHERE key = 'store'").fetchone()
    return str(found[0]) if found else ""


PRIVATE = 0o600
CHECKSUM = 8
LARGEST = 8 << 20


class Stone(msgspec.Struct, frozen=True, tag="erased"):
    """An erased event, and its tombstone in hex."""

    store: str
    log: str
    seq: int
    hash: str


class Told(msgspec.Struct, frozen=True):
    """The content of the sidecar, and the number of its unreadable lines; `there`: the file exists."""

    entries: tuple[Checkpoint | Stone, ...] = ()
    unread: int = 0
    there: bool = False


_decode = msgspec.json.Decoder(Checkpoint | Stone).decode


class Sidecar:
    """The file. Only the process whose turn it is to write to the store writes it."""

    def __init__(self, store: Path) -> None:
        self.path = store.with_name(store.name + ".heads")
        self._shortened = 0  # how large it was when we had shortened it last

    def mark(self, mark: Checkpoint | None) -> None:
        """Add a checkpoint, if there is one."""
        if mark is not None:
            self.add([mark])

    def add(self, entries: Iterable[Checkpoint | Stone]) -> None:
        """Add lines. A file that has grown large keeps the last mark of each log only.

        It is shortened when it passes a size, twice that, and so on: what it must keep may be larger than that, and is not to
        be written again with each line.
        """
        lines = b"".join(map(_line, entries))
        with suppress(OSError):
            if not lines:
                return
            size = self._append(lines)
            if _level(size) > _level(size - len(lines) - 1) and size >= 2 * self._shortened:
                self._shortened = self._shorten()

    def read(self) -> Told:
        """Return all that it says, in order."""
        try:
            content = self.path.read_bytes()
        except OSError:
            return Told()
        entries = [_entry(line) for line in content.split(b"\n") if line]
        return Told(tuple(entry for entry in entries if entry is not None), entries.count(None), there=True)

    def replace(self, entries: Iterable[Checkpoint | Stone]) -> None:
        """Replace all lines of the sidecar by these."""
        with suppress(OSError):
            self._write(entries)

    def _append(self, lines: bytes) -> int:
        """Append lines after a line break, in case the last writer was cut off. Return the size of the file."""
        with open(self.path, "ab", buffering=0, opener=_private) as file:
            file.write(b"\n" + lines)
            return file.tell()

    def _shorten(self) -> int:
        """Keep the last checkpoint of each log and every tombstone. Return the size of what is left."""
        entries = self.read().entries
        last = {(entry.store, entry.log): entry for entry in entries if isinstance(entry, Checkpoint)}
        return self._write(entry for entry in entries if isinstance(entry, Stone) or last[entry.store, entry.log] is entry)

    def _write(self, entries: Iterable[Checkpoint | Stone]) -> int:
        from evener.private_file import write_private  # rarely needed

        lines = b"".join(map(_line, entries))
        write_private(self.path, lines)
        return len(lines)


def _level(size: int) -> int:
    return (size // LARGEST).bit_length()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, PRIVATE)


def _line(entry: Checkpoint | Stone) -> bytes:
    content = msgspec.json.encode(entry)
    return sha256(content).hexdigest()[:CHECKSUM].encode() + b" " + content + b"\n"


def _entry(line: bytes) -> Checkpoint | Stone | None:
    checksum, _, content = line.partition(b" ")
    if not content or sha256(content).hexdigest()[:CHECKSUM].encode() != checksum:
        return None
    try:
        entry: Checkpoint | Stone = _decode(content)
        return entry
    except msgspec.MsgspecError:
        return None


def sidecar_entries(connection: "sqlite3.Connection") -> Iterator[Checkpoint | Stone]:
    """Yield what the sidecar of a store says: where each log stood, and what is erased."""
    store = store_id(connection)
    for log, seq, chain in connection.execute(
        "SELECT l.log, c.seq, c.chain FROM checkpoints c JOIN logs l ON l.number = c.log"
    ):
        yield Checkpoint(store, log, seq, bytes(chain).hex())
    erased = "SELECT l.log, e.seq, e.stone FROM events e JOIN logs l ON l.number = e.log WHERE e.stone IS NOT NULL"
    for log, seq, stone in connection.execute(erased):
        yield Stone(store, log, seq, bytes(stone).hex())


def renew_sidecar(connection: "sqlite3.Connection", path: Path) -> None:
    """Write it anew, if the store has noted that this is due."""
    if connection.execute("SELECT 1 FROM meta WHERE key = 'sidecar_due'").fetchone():
        Sidecar(path).replace(sidecar_entries(connection))
        connection.execute("DELETE FROM meta WHERE key = 'sidecar_due'")
