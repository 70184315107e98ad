"""apsw's SQLite behind the face of the module `sqlite3`, as far as the store looks at it: the same calls, the same errors."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import apsw
import pytest

from evener.store.integrity import digests
from evener.store.sqlite import file
from tests.store.proofs.recorder import Recorder, recording

__all__ = ["Apart", "recorded"]

T = TypeVar("T")
KINDS: dict[type[apsw.Error], type[sqlite3.Error]] = {
    apsw.ConstraintError: sqlite3.IntegrityError,
    apsw.CorruptError: sqlite3.DatabaseError,
    apsw.NotADBError: sqlite3.DatabaseError,
    apsw.TooBigError: sqlite3.DataError,
    apsw.MismatchError: sqlite3.IntegrityError,
}
PAGES = 10
"""How long SQLite's log grows before it is put into the file: short, so that this happens often."""

EVENTS = 3
"""How often a checkpoint of a log is due: as often, for the same reason."""


class Apart:
    """A connection of apsw's SQLite that is used as one of `sqlite3`. `carelessly` names a weaker `synchronous`, if any."""

    def __init__(self, path: str, *, vfs: str, timeout: float, carelessly: str = "") -> None:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
        self._carelessly = carelessly
        self._connection = _as_ours(lambda: apsw.Connection(path, flags, vfs=vfs))
        self._connection.set_busy_timeout(int(timeout * 1000))
        self._connection.execute(f"PRAGMA wal_autocheckpoint = {PAGES}")

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    @property
    def total_changes(self) -> int:
        return self._connection.total_changes()

    def execute(self, sql: str, bindings: Sequence[Any] = ()) -> "_Rows":
        if self._carelessly and "synchronous" in sql:
            sql = f"PRAGMA synchronous = {self._carelessly}"
        return _Rows(self._connection, _as_ours(lambda: self._connection.execute(sql, bindings)))

    def executemany(self, sql: str, bindings: Iterable[Sequence[Any]]) -> "_Rows":
        return _Rows(self._connection, _as_ours(lambda: self._connection.executemany(sql, bindings)))

    def close(self) -> None:
        _as_ours(lambda: self._connection.close(True))

    def __enter__(self) -> "Apart":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the transaction as `sqlite3` does: with what it did, or after an error without it."""
        if self.in_transaction:
            self.execute("COMMIT" if kind is None else "ROLLBACK")


class _Rows:
    """What a statement gives."""

    def __init__(self, connection: apsw.Connection, cursor: apsw.Cursor) -> None:
        self._cursor = cursor
        self.lastrowid = connection.last_insert_rowid()
        self.rowcount = connection.changes()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        while (row := self.fetchone()) is not None:
            yield row

    def fetchone(self) -> tuple[Any, ...] | None:
        return _as_ours(self._cursor.fetchone)

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self)

    def close(self) -> None:
        self._cursor.close()


def _as_ours(act: Callable[[], T]) -> T:
    """Do it; an error of apsw becomes the one that `sqlite3` would raise."""
    try:
        return act()
    except apsw.Error as error:
        told = KINDS.get(type(error), sqlite3.OperationalError)(str(error))
        told.sqlite_errorcode = int(vars(error)["extendedresult"])
        told.sqlite_errorname = type(error).__name__
        raise told from None


@contextmanager
def recorded(*, carelessly: str = "") -> Iterator[Recorder]:
    """Within the block the store's files are opened through a recorder."""
    with recording() as recorder, pytest.MonkeyPatch.context() as patch:

        def dial(target: str, *, timeout: float = 0.0, uri: bool = False) -> Apart:
            del uri
            return Apart(target, vfs=recorder.name, timeout=timeout, carelessly=carelessly)

        patch.setattr(file, "_dial", dial)
        patch.setattr(digests, "EVERY", EVENTS)
        yield recorder
