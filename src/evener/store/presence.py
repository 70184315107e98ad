"""Notices that the store's file was moved, deleted or replaced while it was open: what is written then would be lost."""

from pathlib import Path

from evener.errors import StoreError

__all__ = ["Identity", "Presence", "StoreGone"]

Identity = tuple[int, int]


class StoreGone(StoreError):
    """The file is not the one that was opened any more."""


class Presence:
    """Which file a store works on, and which log of SQLite's lies beside it, from the first connection on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wal = path.with_name(path.name + "-wal")
        self._file: Identity | None = None
        self._broken = False

    def check(self) -> None:
        """StoreGone when the path does not lead to the file that was opened first."""
        if self._broken:
            raise self._gone(self._wal)
        if self._file is not None and _identity(self._path) != self._file:
            raise self._gone(self._path)

    def opened(self) -> Identity | None:
        """A connection was opened: note the file. Gives what SQLite's log is to be while that connection lasts."""
        if self._file is None:
            self._file = _identity(self._path)
        self.check()
        return _identity(self._wal)

    def check_wal(self, wal: Identity | None) -> None:
        """As `check`, and SQLite's log must still be there: what was acknowledged may be nowhere else.

        Without it the file must not be opened again while another connection is open.
        """
        self.check()
        if wal is not None and _identity(self._wal) != wal:
            self._broken = True
            raise self._gone(self._wal)

    def _gone(self, path: Path) -> StoreGone:
        return StoreGone(
            f"The file {path} was moved, deleted or replaced while the store was open, so nothing of this was stored. What was "
            "acknowledged before went into the file that was there. Put that file back, or make a new store to begin afresh."
        )


def _identity(path: Path) -> Identity | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
