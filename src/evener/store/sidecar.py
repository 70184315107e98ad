"""The checkpoints of a store once more, in a file of their own beside it: `<store>.heads`, mode 0600, a line each.

What is lost from the end of a log can be noticed only by somebody who knew where it stood. A line is added after what it speaks
of is on the disk, so it never knows more than the store did. Lines begin with a checksum; one that was cut off is passed over.
The store does not depend on this file: when it cannot be written, nobody is told before `verify` looks for it.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec

from evener.store.checkpoints import Mark

__all__ = ["Sidecar", "Stone", "Told"]

PRIVATE = 0o600
CHECKSUM = 8
LARGEST = 8 << 20


class Stone(msgspec.Struct, frozen=True, tag="erased"):
    """An event was erased, and what its tombstone is, in hex."""

    store: str
    log: str
    seq: int
    hash: str


class Told(msgspec.Struct, frozen=True):
    """What the file says, and how many of its lines cannot be read; `there`: whether there is one."""

    entries: tuple[Mark | Stone, ...] = ()
    unread: int = 0
    there: bool = False


_decode = msgspec.json.Decoder(Mark | Stone).decode


class Sidecar:
    """The file. Written by whoever's turn it is to write to the store."""

    def __init__(self, store: Path) -> None:
        self.path = store.with_name(store.name + ".heads")
        self._shortened = 0  # how large it was when we had shortened it last

    def mark(self, mark: Mark | None) -> None:
        """Add a checkpoint, if there is one."""
        if mark is not None:
            self.add([mark])

    def add(self, entries: Iterable[Mark | Stone]) -> None:
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
        """All that it says, in order."""
        try:
            content = self.path.read_bytes()
        except OSError:
            return Told()
        entries = [_entry(line) for line in content.split(b"\n") if line]
        return Told(tuple(entry for entry in entries if entry is not None), entries.count(None), there=True)

    def replace(self, entries: Iterable[Mark | Stone]) -> None:
        """Say this and nothing else from now on."""
        with suppress(OSError):
            self._write(entries)

    def _append(self, lines: bytes) -> int:
        """Begins with a line break, in case that the last writer was cut off. The size of the file."""
        with open(self.path, "ab", buffering=0, opener=_private) as file:
            file.write(b"\n" + lines)
            return file.tell()

    def _shorten(self) -> int:
        """The size of what is left."""
        entries = self.read().entries
        last = {(entry.store, entry.log): entry for entry in entries if isinstance(entry, Mark)}
        return self._write(entry for entry in entries if isinstance(entry, Stone) or last[entry.store, entry.log] is entry)

    def _write(self, entries: Iterable[Mark | Stone]) -> int:
        part = self.path.with_name(self.path.name + ".part")
        part.unlink(missing_ok=True)
        with open(part, "xb", opener=_private) as new:
            size = new.write(b"".join(map(_line, entries)))
            new.flush()
            os.fsync(new.fileno())
        part.replace(self.path)
        return size


def _level(size: int) -> int:
    return (size // LARGEST).bit_length()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, PRIVATE)


def _line(entry: Mark | Stone) -> bytes:
    content = msgspec.json.encode(entry)
    return sha256(content).hexdigest()[:CHECKSUM].encode() + b" " + content + b"\n"


def _entry(line: bytes) -> Mark | Stone | None:
    checksum, _, content = line.partition(b" ")
    if not content or sha256(content).hexdigest()[:CHECKSUM].encode() != checksum:
        return None
    try:
        entry: Mark | Stone = _decode(content)
        return entry
    except msgspec.MsgspecError:
        return None
