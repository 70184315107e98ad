"""The index of a search, in a separate file beside the store: `<store>.search`, mode 0600. It is only a hint; the store
decides.

It says which events may contain some words; each is then read from the store and checked, as without it. It has a part for
each `PART` events in order of arrival, made when all of them are stored, so appending costs nothing more. A part whose last
event differs from the store's, and an index that missed an erasure, are ignored. An encrypted store has no index.

Erasing drops the parts that contain erased events; their pages are overwritten, and made again later. The store counts its
erasures in the transaction that erases: an index that missed one is emptied before it is used again.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from evener.errors import EvenerError
from evener.events import decode_event
from evener.store.integrity.digests import MISFITS
from evener.store.search import SPOKEN, said_in

if TYPE_CHECKING:
    import sqlite3


PART = 2048
ROWS = 128
BYTES = 4 << 20
"""How much is added in one step, at most and unless a single event has more."""
GRAM = 3
MOST_GRAMS = 12
PRIVATE = 0o600
VERSION = "1"
PRIMARY = 0xFF
BUSY = (5, 6)
"""SQLite's codes for a file that another process uses at the moment."""
FILES = ("", "-wal", "-shm", "-journal")
SETTINGS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",
    "PRAGMA secure_delete = ON",
    "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS parts (number INTEGER PRIMARY KEY, upto INTEGER NOT NULL, chain BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS unread (id INTEGER PRIMARY KEY)",
)


def part_of(row: int) -> int:
    """Return the number of the part that has the event of this row."""
    return row // PART


def count_erasure(connection: "sqlite3.Connection") -> None:
    """Note in the store that something is erased, in the transaction that does it."""
    connection.execute(
        "INSERT INTO meta VALUES ('erasures', '1') ON CONFLICT (key) DO UPDATE SET value = CAST(value AS INTEGER) + 1"
    )


class Behind(OSError):
    """What was read of the store is older than what the index knows of. Nothing is wrong."""


class SearchIndex:
    """The index of one store. If anything is wrong with its file, it is ignored. Close it.

    An index that is growing does not keep others of the same file from answering.
    """

    def __init__(self, store: Path) -> None:
        self._path = store.with_name(store.name + ".search")
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None

    def candidates(self, store: "sqlite3.Connection", number: int, words: Sequence[str]) -> list[int] | None:
        """Return the rows of a part that may hold all words, the last first; None when the index cannot tell."""
        asked = _question(words)
        if not asked or not self._path.is_file():
            return None
        import sqlite3

        with self._lock, suppress(sqlite3.Error, OSError):
            connection = self._dial(make=False)
            if self._read_noted() != _belongs(store) or self._upto(connection, store, number) != _last(number):
                return None
            found = connection.execute(
                f"SELECT rowid FROM said{number} WHERE said{number} MATCH ? UNION SELECT id FROM unread WHERE id / ? = ?"
                " ORDER BY 1 DESC",
                (asked, PART, number),
            )
            return [row for (row,) in found]
        self._close()
        return None

    def grow(self, store: "sqlite3.Connection") -> bool:
        """Add some events. Return True if there are more. Called in a transaction that reads the store."""
        import sqlite3

        with self._lock:
            try:
                connection = self._open_index(store, make=True)
                number = next(self._find_missing_parts(connection, store), None)
                if number is not None:
                    self._fill(connection, store, number)
                return number is not None
            except Behind:
                return False
            except (sqlite3.Error, OSError) as error:
                self._close()
                if getattr(error, "sqlite_errorcode", 0) & PRIMARY not in BUSY:
                    self._remove()
                return False

    def wants(self, store: "sqlite3.Connection") -> bool:
        """True if there are parts to be made."""
        import sqlite3

        if _whole_parts(store) == 0:
            return False
        if not self._path.exists():
            return True
        with self._lock, suppress(sqlite3.Error, OSError):
            connection = self._dial(make=False)
            return self._read_noted() != _belongs(store) or next(self._find_missing_parts(connection, store), None) is not None
        return True

    def purge(self, store: "sqlite3.Connection", parts: Iterable[int]) -> None:
        """Forget parts, because something in them was erased. Called after that, with a transaction that reads the store."""
        import sqlite3

        if not os.path.lexists(self._path):
            return
        with self._lock:
            try:
                connection = self._open_index(store, make=True, purged=frozenset(parts))
                busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except (sqlite3.Error, OSError):
                busy = True
            if busy:
                self._close()
                self._remove()

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._close()

    def _open_index(
        self, store: "sqlite3.Connection", *, make: bool = False, purged: frozenset[int] | None = None
    ) -> "sqlite3.Connection":
        """Return a connection to the index, which belongs to this store and has heard of all its erasures."""
        connection = self._dial(make=make)
        wanted = _belongs(store)
        if self._read_noted() != wanted:
            self._conform(wanted, purged)
        return connection

    def _dial(self, *, make: bool) -> "sqlite3.Connection":
        import sqlite3

        if self._connection is None:
            descriptor = os.open(self._path, os.O_RDWR | os.O_NONBLOCK | (os.O_CREAT if make else 0), PRIVATE)
            regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            os.close(descriptor)
            if not regular:
                raise OSError(f"{self._path} is no file")
            self._connection = sqlite3.connect(self._path, timeout=10.0, isolation_level=None, check_same_thread=False)
            for statement in SETTINGS if make else SETTINGS[:3]:
                self._connection.execute(statement)
        return self._connection

    def _read_noted(self) -> dict[str, str]:
        assert self._connection is not None
        return dict(self._connection.execute("SELECT key, value FROM meta").fetchall())

    def _conform(self, wanted: dict[str, str], purged: frozenset[int] | None) -> None:
        """Forget what may have been erased: some parts if that is known, else everything."""
        connection = self._connection
        assert connection is not None
        with connection:  # commits, or rolls back
            connection.execute("BEGIN IMMEDIATE")
            noted = self._read_noted()
            if int(noted.get("erasures", 0)) > int(wanted["erasures"]) and noted.get("store") == wanted["store"]:
                raise Behind("the index has heard of an erasure that this reader does not see yet")
            heard = {**noted, "erasures": str(int(noted.get("erasures", 0)) + 1)}
            known = purged is not None and heard == wanted
            numbers = [number for (number,) in connection.execute("SELECT number FROM parts")]
            for number in numbers:
                if not known or (purged is not None and number in purged):
                    self._drop(connection, number)
            connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", list(wanted.items()))

    def _drop(self, connection: "sqlite3.Connection", number: int) -> None:
        connection.execute(f"DROP TABLE IF EXISTS said{number}")
        connection.execute("DELETE FROM parts WHERE number = ?", (number,))
        connection.execute("DELETE FROM unread WHERE id / ? = ?", (PART, number))

    def _upto(self, connection: "sqlite3.Connection", store: "sqlite3.Connection", number: int) -> int:
        """Return the last row of the part that is indexed and still the same in the store; -1 if there is none."""
        found = connection.execute("SELECT upto, chain FROM parts WHERE number = ?", (number,)).fetchone()
        if found is None:
            return -1
        there = store.execute("SELECT chain FROM events WHERE id = ?", (found[0],)).fetchone()
        return int(found[0]) if there is not None and there[0] == found[1] else -1

    def _find_missing_parts(self, connection: "sqlite3.Connection", store: "sqlite3.Connection") -> Iterator[int]:
        """Return the parts that are not made, the newest first."""
        made = {number for number, upto in connection.execute("SELECT number, upto FROM parts") if upto == _last(number)}
        return (number for number in range(_whole_parts(store) - 1, -1, -1) if number not in made)

    def _fill(self, connection: "sqlite3.Connection", store: "sqlite3.Connection", number: int) -> None:
        """Add some rows to a part."""
        upto = self._upto(connection, store, number)
        after = max(upto, number * PART - 1)
        said, unread, last, chain = _rows(store, after, _last(number))
        with connection:  # commits, or rolls back
            connection.execute("BEGIN IMMEDIATE")
            if self._read_noted() != _belongs(store):
                raise Behind("something was erased meanwhile")
            if upto < 0:
                self._drop(connection, number)
                connection.execute(
                    f"CREATE VIRTUAL TABLE said{number} USING fts5(words, content = '', columnsize = 0, detail = none,"
                    " tokenize = 'trigram case_sensitive 1')"
                )
            connection.executemany(f"INSERT INTO said{number} (rowid, words) VALUES (?, ?)", said)
            connection.executemany("INSERT OR REPLACE INTO unread VALUES (?)", unread)
            connection.execute("INSERT OR REPLACE INTO parts VALUES (?, ?, ?)", (number, last, chain))

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _remove(self) -> None:
        """Overwrite and delete the file: it cannot be used, and may say what was erased."""
        for ending in FILES:
            path = self._path.with_name(self._path.name + ending)
            with suppress(OSError):
                if path.is_file() and not path.is_symlink():
                    with path.open("r+b") as file:
                        for _ in range(0, path.stat().st_size, BYTES):
                            file.write(bytes(BYTES))
                    path.unlink()


def _rows(store: "sqlite3.Connection", after: int, until: int) -> tuple[list[tuple[int, str]], list[tuple[int]], int, bytes]:
    """Return what some events say, those that cannot be read, and the last of them with its chain."""
    said, unread, size, last, chain = list[tuple[int, str]](), list[tuple[int]](), 0, until, b""
    found = store.execute(
        "SELECT id, kind, version, payload, erased, chain FROM events WHERE id > ? AND id <= ? ORDER BY id LIMIT ?",
        (after, until, ROWS),
    )
    for row in found:
        last, kind, version, payload, erased, chain = row
        if kind in SPOKEN and erased is None and payload is not None:
            try:
                size += len(payload)
                said.append((last, _is_indexed(said_in(decode_event(payload, version)))))
            except (EvenerError, *MISFITS):
                unread.append((last,))
        if size > BYTES:
            break
    found.close()
    return said, unread, last, chain


def _belongs(store: "sqlite3.Connection") -> dict[str, str]:
    """Return what the index of this store must say of itself."""
    noted = dict(store.execute("SELECT key, value FROM meta WHERE key IN ('store', 'erasures')").fetchall())
    return {"version": VERSION, "store": str(noted.get("store", "")), "erasures": str(noted.get("erasures", "0"))}


def _whole_parts(store: "sqlite3.Connection") -> int:
    """Return how many parts have all their events."""
    (last,) = store.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()
    return int((last + 1) // PART)


def _last(number: int) -> int:
    return (number + 1) * PART - 1


def _is_indexed(text: str) -> str:
    """Return each word of the text once: what is asked for are pieces of words."""
    return " ".join(set(_plain(text.lower()).split()))


def _question(words: Sequence[str]) -> str:
    """Return what FTS5 is asked: some pieces of the words, which must all be there. Empty when all are too short."""
    grams = [piece[at : at + GRAM] for word in words for piece in _plain(word).split() for at in range(len(piece) - GRAM + 1)]
    step = max(1, -(-len(grams) // MOST_GRAMS))
    return " AND ".join('"' + gram.replace('"', '""') + '"' for gram in dict.fromkeys(grams[::step]))


def _plain(text: str) -> str:
    """Return the text without what SQLite's text cannot hold."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode()
