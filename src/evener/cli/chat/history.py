"""What was sent before: to go back to, to search, and to keep in a file that only its owner may read. Bounded.

Several chats share the file: each adds to what the others wrote. A history that cannot be read or written is no reason not to
chat: it is then shorter, and that is all.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from prompt_toolkit.history import History as Base

__all__ = ["History"]

MOST = 1000
"""Entries that are kept."""
LONGEST = 10_000
"""Characters of an entry that goes into the file; longer ones are pastes, and have a place of their own."""
LARGEST = 2 * 1024 * 1024
PRIVATE = 0o600


class History(Base):
    """What prompt_toolkit walks through and searches, the newest entry first."""

    def __init__(self, file: Path | None = None) -> None:
        super().__init__()
        self._file = file

    def load_history_strings(self) -> list[str]:
        """Read the file: a JSON text a line. What is not one is passed over."""
        try:
            return _read(self._file)[: -MOST - 1 : -1] if self._file else []
        except OSError:
            return []

    def add(self, text: str) -> None:
        """Remember what was sent, once if it was just sent before."""
        if text.strip() and text != next(iter(self.get_strings()[-1:]), ""):
            self.append_string(text)

    def store_string(self, string: str) -> None:
        """Add an entry to the file."""
        if self._file is not None and len(string) <= LONGEST:
            self._save(self._file, string)

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
