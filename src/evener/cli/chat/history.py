"""The history of sent messages, in a bounded file that only its owner can read.

Several chats share the file: each appends to what the others wrote. If it cannot be read or written, the chat works without it.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from prompt_toolkit.history import History as Base

from evener.private_file import PRIVATE, write_private

MOST = 1000
"""Entries that are kept."""
LONGEST = 10_000
"""Characters of an entry in the file; longer ones are pastes, and are not stored."""
LARGEST = 2 * 1024 * 1024


class History(Base):
    """The history for prompt_toolkit, which wants the newest entry first."""

    def __init__(self, file: Path | None = None) -> None:
        super().__init__()
        self._file = file

    def load_history_strings(self) -> list[str]:
        """Read the file, which has one JSON string per line. Other lines are skipped."""
        try:
            return _read(self._file)[: -MOST - 1 : -1] if self._file else []
        except OSError:
            return []

    def add(self, text: str) -> None:
        """Add a sent message, unless it equals the last one."""
        if text.strip() and text != next(iter(self.get_strings()[-1:]), ""):
            self.append_string(text)

    def store_string(self, string: str) -> None:
        """Add an entry to the file."""
        if self._file is not None and len(string) <= LONGEST:
            self._save(self._file, string)

    def _save(self, file: Path, text: str) -> None:
        """Append to what the file holds now: write a new file, then rename it over the old one."""
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _lock(file):
                kept = [*(_read(file) if file.exists() else []), text][-MOST:]
                lines = b"".join(msgspec.json.encode(entry) + b"\n" for entry in kept)
                write_private(file, lines[-LARGEST:])
        except OSError:
            self._file = None  # do not try again


@contextmanager
def _lock(file: Path) -> Iterator[None]:
    """Allow one writer at a time; the lock ends with its process."""
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
