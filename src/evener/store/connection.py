"""Opens the SQLite file: ours only, private, durable at each commit. The only place that loads SQLite.

A file is first looked at through a connection that takes no lock and writes nothing. A plain `open` of it would not do: closing
that again would drop the locks that other connections of this process hold on the file.
"""

import sys
from pathlib import Path
from threading import Lock
from time import monotonic, sleep
from typing import TYPE_CHECKING

from evener.errors import StoreError
from evener.store import schema
from evener.store.cipher import Cipher, agree
from evener.store.faults import told
from evener.store.folder import made_private, only_read, prepared
from evener.store.presence import Entry, Files, enter
from evener.store.witness import renew_sidecar

if TYPE_CHECKING:
    import sqlite3

__all__ = ["connect", "disconnect", "files_of"]

PAUSE = 0.01
LARGEST_LEFT_OVER = 64 << 20
SETTINGS = (
    "PRAGMA synchronous = FULL",  # in WAL mode: each commit is synced
    "PRAGMA fullfsync = ON",  # where a plain fsync does not reach the disk (macOS)
    "PRAGMA checkpoint_fullfsync = ON",
    "PRAGMA foreign_keys = ON",
    "PRAGMA secure_delete = ON",  # what is erased is overwritten
    f"PRAGMA journal_size_limit = {LARGEST_LEFT_OVER}",
)
_one_at_a_time = Lock()
_entries: dict[int, Entry] = {}
"""What open connections have noted, by the id of the connection."""


def connect(path: Path, patience: float, cipher: Cipher | None = None) -> "sqlite3.Connection":
    """A connection to the store at `path`, which is made if it is not there. Waits up to `patience` seconds for locks."""
    import sqlite3

    with _one_at_a_time:
        if only_read(path):
            return _fixed(path, cipher)
        prepared(path)
        try:
            _look(path)
        except sqlite3.Error as error:
            raise told(error, path) from None
        entry = enter(path, patience)
        try:
            connection = _dial(str(path), timeout=patience)
        except sqlite3.Error as error:
            entry.leave()
            raise told(error, path) from None
        _entries[id(connection)] = entry
        try:
            _set_up(connection, path, patience)
            _agree(connection, path, cipher)
            renew_sidecar(connection, path)
        except BaseException as error:
            disconnect(connection)
            if isinstance(error, sqlite3.Error):
                raise told(error, path) from None
            raise
        made_private(path)
        entry.note()
        return connection


def disconnect(connection: "sqlite3.Connection") -> None:
    """Close it. When others have put their files in the place of ours, delete none of theirs."""
    entry = _entries.pop(id(connection), None)
    if entry is not None and entry.displaced():
        _abandon(connection)
    else:
        if entry is not None:
            entry.part()
        connection.close()
    if entry is not None:
        entry.leave()


def files_of(connection: "sqlite3.Connection") -> Files:
    """Return the files that the connection was opened on."""
    entry = _entries.get(id(connection))
    return entry.files if entry else Files()


def _fixed(path: Path, cipher: Cipher | None) -> "sqlite3.Connection":
    """A connection to a store that nobody can write, as on a disk that is mounted so: it is read as it is."""
    import sqlite3

    try:
        connection = _dial(_as_it_is(path), uri=True)
    except sqlite3.Error as error:
        raise told(error, path) from None
    try:
        version = schema.check(connection, path)
        if version != schema.VERSION:
            raise StoreError(
                f"The store {path} has schema version {version} and must be brought to {schema.VERSION} first, but it can only "
                "be read. Copy it to where it can be written."
            )
        agree(connection, path, cipher, writable=False)
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error):
            raise told(error, path) from None
        raise
    return connection


def _as_it_is(path: Path) -> str:
    """The address of a file that is opened without a lock and without writing."""
    return f"{path.absolute().as_uri()}?mode=ro&immutable=1"


def _dial(target: str, *, timeout: float = 0.0, uri: bool = False) -> "sqlite3.Connection":
    """The only place where a connection is made."""
    import sqlite3

    return sqlite3.connect(target, timeout=timeout, isolation_level=None, uri=uri)


def _abandon(connection: "sqlite3.Connection") -> None:
    """Let go of a connection without the last checkpoint, which deletes `-wal` by its name."""
    import sqlite3

    if sys.version_info >= (3, 12):
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, True)
        connection.close()
    else:  # SQLite cannot be told so there: it stays open until the process ends
        from ctypes import py_object, pythonapi

        pythonapi.Py_IncRef(py_object(connection))


def _look(path: Path) -> None:
    """Refuse a file that is not ours before anything is written beside it."""
    import sqlite3

    if path.with_name(path.name + "-journal").exists():
        return  # interrupted while it was made or upgraded: SQLite puts that right first, then it is checked
    wal = path.with_name(path.name + "-wal")
    logged = wal.exists()  # before we look, too: whoever closes last puts it into the file and takes it away
    size = path.stat().st_size
    looking = _dial(_as_it_is(path), uri=True)
    try:
        if not schema.glance(looking, path) and size:
            raise schema.not_ours(path)  # too short for a database, or an empty one of somebody else
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CORRUPT or not (logged or wal.exists()):
            raise
        # A checkpoint that is under way, or was cut off: half of the pages are in the file. With its log it is whole.
    finally:
        looking.close()


def _set_up(connection: "sqlite3.Connection", path: Path, patience: float) -> None:
    for setting in SETTINGS:
        connection.execute(setting)
    schema.upgrade(connection, path)
    _use_wal(connection, path, monotonic() + patience)


def _agree(connection: "sqlite3.Connection", path: Path, cipher: Cipher | None) -> None:
    """The store and whoever opens it have the same cipher, or none. With one there may be something to write."""
    connection.execute("BEGIN" if cipher is None else "BEGIN IMMEDIATE")
    try:
        agree(connection, path, cipher)
    finally:
        connection.execute("COMMIT")


def _use_wal(connection: "sqlite3.Connection", path: Path, deadline: float) -> None:
    """SQLite does not wait by itself here. A file system that cannot do it stays with the rollback journal: slower, as safe."""
    import sqlite3

    while connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            fault: StoreError = told(error, path)
            if not fault.retryable or monotonic() > deadline:
                raise fault from None
        sleep(PAUSE)
