"""What was sent before: to go back to, to search, and to keep in a file that only its owner may read. Bounded.

Several chats share the file: each adds to what the others wrote. A history that cannot be read or written is no reason not to
chat: it is then shorter, and that is all.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

__all__ = ["History"]

MOST = 1000
"""Entries that are kept."""
LONGEST = 10_000
"""Characters of an entry that goes into the file; longer ones are pastes, and have a place of their own."""
LARGEST = 2 * 1024 * 1024
PRIVATE = 0o600


class History:
    """The newest entry last. Walking starts after it; the draft that was left is the end of the walk."""

    def __init__(self, entries: Iterable[str] = (), *, file: Path | None = None) -> None:
        self._entries = list(entries)[-MOST:]
        self._file = file
        self._place: int | None = None
        self._draft = ""

    @classmethod
    def load(cls, file: Path) -> "History":
        """From a file: a JSON text a line. What is not one is passed over."""
        try:
            entries = _read(file)
        except OSError:
            entries = []
        return cls(entries, file=file)

    @property
    def entries(self) -> tuple[str, ...]:
        return tuple(self._entries)

    def add(self, text: str) -> None:
        """Remember what was sent, once if it was just sent before."""
        self._place = None
        if not text.strip() or (self._entries and self._entries[-1] == text):
            return
        self._entries.append(text)
        if len(self._entries) > MOST:
            del self._entries[:-MOST]
        if self._file is not None and len(text) <= LONGEST:
            self._save(self._file, text)

    def older(self, draft: str) -> str | None:
        """The entry before; None at the beginning. The first step keeps the draft."""
        if self._place is None:
            self._place, self._draft = len(self._entries), draft
        if self._place == 0:
            return None
        self._place -= 1
        return self._entries[self._place]

    def newer(self) -> str | None:
        """The entry after, and at the end the draft; None when nobody walks."""
        if self._place is None:
            return None
        self._place += 1
        if self._place < len(self._entries):
            return self._entries[self._place]
        self._place = None
        return self._draft

    def search(self, words: str, *, skip: int = 0) -> str | None:
        """The newest entry with these words in it, or an older one."""
        hits = (entry for entry in reversed(self._entries) if words.lower() in entry.lower())
        for _ in range(skip):
            next(hits, None)
        return next(hits, None)

    def _save(self, file: Path, text: str) -> None:
        """What the file holds by now, and this after it; beside the old one and then in its place."""
        beside = file.with_name(f"{file.name}.{os.getpid()}")
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _alone(file):
                kept = [*(_read(file) if file.exists() else []), text][-MOST:]
                lines = b"".join(msgspec.json.encode(entry) + b"\n" for entry in kept)
                with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE), "wb") as opened:
                    opened.write(lines[-LARGEST:])
                beside.replace(file)
        except OSError:
            self._file = None  # it was tried once; the chat goes on without a file


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """One writer at a time; the lock ends with its process."""
    with os.fdopen(os.open(file.with_name(f"{file.name}.lock"), os.O_RDWR | os.O_CREAT, PRIVATE), "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read(file: Path) -> list[str]:
    with file.open("rb") as opened:
        return [entry for line in opened.read(LARGEST).splitlines() if (entry := _entry(line))]


def _entry(line: bytes) -> str:
    try:
        return msgspec.json.decode(line, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
