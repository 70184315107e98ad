"""Opens the SQLite file: owned by us, private, durable at each commit. The only place that loads SQLite.

A file is first inspected through a connection that takes no lock and writes nothing. A plain `open` would not do: closing it
would drop the locks that other connections of this process have on the file.
"""

import os
import re
import stat
import sys
from collections.abc import Sequence
from errno import EISDIR
from pathlib import Path
from threading import Lock
from time import monotonic, sleep, time
from typing import TYPE_CHECKING

from evener import __version__
from evener.errors import StoreError, UsageError
from evener.store.cipher import Cipher, agree
from evener.store.integrity.digests import renew_sidecar
from evener.store.protocol import Damaged
from evener.store.sqlite.identity import Files, OpenNote, enter

if TYPE_CHECKING:
    import sqlite3


SAFE = "Nothing was stored by this call; what was acknowledged before is safe."
PRIMARY = 0xFF
IOERR_WRITE = 778


class StoreBusy(StoreError):
    """Another process kept the file locked for longer than we wait."""

    retryable = True


class StoreFull(StoreError):
    """There was no room to write."""

    retryable = True


# By SQLite's primary result code; one extended code stands before its primary.
TABLE: dict[int, tuple[type[StoreError], str, str]] = {
    IOERR_WRITE: (StoreFull, "could not be written, most likely because the disk is full", "Free some space and try again."),
    3: (StoreError, "may not be accessed", "Check the owner and the mode of the file and its folder."),
    5: (StoreBusy, "was locked by another process for too long", "Try again; if it stays so, find what holds it open."),
    6: (StoreBusy, "was locked by another connection for too long", "Try again."),
    8: (
        StoreError,
        "can only be read",
        "Check the mode of the file and its folder, and how the disk is mounted.",
    ),
    10: (StoreError, "could not be read or written by the system", "Check the disk, then try again."),
    11: (Damaged, "is damaged", "Copy the file away before anything else, run `evener verify`, restore a backup if needed."),
    13: (StoreFull, "has no room left", "Free some space and try again."),
    14: (StoreError, "cannot be opened", "Check that its folder exists and can be written."),
    18: (StoreError, "cannot hold a value that large", "Keep the content as a file and store its name."),
    26: (StoreError, "is no database, so not a store of Evener, and was left alone", "Give another path."),
}
OTHER = (StoreError, "could not do what was asked", "Try again; if it stays so, run `evener verify`.")


def store_error(error: Exception, path: Path) -> StoreError:
    """Return the StoreError for the caller. One of ours passes as it is."""
    if isinstance(error, StoreError):
        return error
    code, name = _code(error)
    kind, happened, advice = TABLE.get(code) or TABLE.get(code & PRIMARY) or OTHER
    return kind(f"The store {path} {happened} ({name}). {SAFE} {advice}")


def _code(error: Exception) -> tuple[int, str]:
    import sqlite3

    if isinstance(error, sqlite3.Error) and "sqlite_errorcode" in vars(error):
        return error.sqlite_errorcode, error.sqlite_errorname
    if isinstance(error, sqlite3.DataError | OverflowError):
        return 18, type(error).__name__
    return 0, type(error).__name__


ADDRESS = re.compile(
    r"\s*([A-Za-z][A-Za-z0-9+.-]+:/|postgres(?:ql)?:|(?:hostaddr|host|port|dbname|user|service|sslmode)\s*=)"
    r"|(?:.*?\s)?((?:ssl)?password\s*=)",
    re.DOTALL,
)
"""A URL, also with a space before it, or the `name=value` words of libpq."""
PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600
COMPANIONS = ("", "-wal", "-shm", ".heads")
OPENED = (*COMPANIONS, "-journal")
KINDS = {
    stat.S_IFDIR: os.strerror(EISDIR),
    stat.S_IFIFO: "It is a named pipe (FIFO)",
    stat.S_IFSOCK: "It is a socket",
    stat.S_IFCHR: "It is a device",
    stat.S_IFBLK: "It is a device",
}


def data_folder() -> Path:
    """Return the folder for what Evener keeps: EVENER_HOME if that is set, else `evener` in the platform's data folder."""
    if home := os.environ.get("EVENER_HOME"):
        return Path(home)
    given = Path(os.environ.get("XDG_DATA_HOME") or "")
    if given.is_absolute():  # the XDG specification: a relative one is invalid and to be ignored
        return given / "evener"
    if sys.platform == "darwin":
        return _home() / "Library" / "Application Support" / "evener"
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local) / "evener"
    return _home() / ".local" / "share" / "evener"


def _home() -> Path:
    """Return the user's home folder. An empty HOME is none."""
    found = os.path.expanduser("~") if os.environ.get("HOME", "~") else "~"
    if found == "~":
        raise UsageError("There is no home folder to keep threads in. Set HOME, or EVENER_HOME to a folder; or name a --store.")
    return Path(found)


def default_path() -> Path:
    """Return the store's usual file."""
    return data_folder() / "evener.db"


def path_of(given: str | os.PathLike[str] | None) -> Path:
    """Return the file of a store: the given path, by default the usual file. Refuse names that SQLite takes for no file."""
    if given is None:
        return default_path()
    text = os.fspath(given)
    if found := ADDRESS.match(text):  # of which no more is shown: it may hold a password
        raise UsageError(
            f"An address with {found[1] or found[2]!r} is no path of a store file. Nothing was created. Give a path, as in "
            'store="evener.db", or the address of a PostgreSQL database, as in store="postgresql://user@host/database".'
        )
    if text in ("", ":memory:") or "\0" in text:
        raise UsageError(
            f"{text!r} is no path of a store file. Nothing was created. For a store that ends with its process, say "
            'store="memory" (MemoryStore() as an object); else give a path, or none for the file in the data folder.'
        )
    return Path(given)


def prepare_file(path: Path) -> None:
    """Make the file, empty, and the folders it needs, unless they are there. Refuse what is no file: it could hang us."""
    for ending in OPENED:
        _refuse_other_kinds(path.with_name(path.name + ending))
    try:
        _make_folder(path.parent)
        _make_file(path)
    except OSError as error:
        raise StoreError(
            f"The store {path} cannot be made: {error.strerror}. Nothing was written. "
            "Give a path that can be written, or set EVENER_HOME to a folder that can."
        ) from None


def only_read(path: Path) -> bool:
    """True if there is a store that is whole without SQLite's log, and we can write neither it nor anything beside it."""
    beside = (path.with_name(path.name + ending) for ending in ("-wal", "-journal"))
    there = path.is_file() and not any(file.exists() for file in beside)
    return there and not os.access(path, os.W_OK) and not os.access(path.parent, os.W_OK)


def make_private(path: Path) -> None:
    """Take the rights of others away from the file and what SQLite keeps beside it."""
    for ending in COMPANIONS:
        beside = path.with_name(path.name + ending)
        try:
            if beside.stat().st_mode & 0o077:
                beside.chmod(PRIVATE_FILE)
        except OSError:
            continue  # not there, or another user's: then its mode is that user's decision


def _refuse_other_kinds(path: Path) -> None:
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except OSError:
        return  # not there, or not to be seen: opening it will tell
    if kind != stat.S_IFREG:
        raise StoreError(
            f"The store {path} cannot be made: {KINDS.get(kind, 'It is no regular file')}. The store and "
            "the files beside it under its name must be regular files. Nothing was written. Give another path, or move it away."
        )


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


def _make_file(path: Path) -> None:
    """Create the file. SQLite gives its other files the mode of this one, whatever the umask is. The folder is synced, too."""
    try:
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, PRIVATE_FILE)
    except FileExistsError:
        return
    os.close(file)
    if sys.platform != "win32":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


APPLICATION = 0x45764E72
"""SQLite's application id of our files: `EvNr`."""

FIRST = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """
    CREATE TABLE logs (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        log TEXT NOT NULL UNIQUE,
        thread TEXT NOT NULL,
        harness TEXT NOT NULL,
        parent TEXT NOT NULL,
        parent_seq INTEGER NOT NULL,
        parent_hash TEXT NOT NULL,
        began REAL NOT NULL,
        changed REAL NOT NULL,
        length INTEGER NOT NULL,
        head BLOB NOT NULL,
        epoch INTEGER NOT NULL,
        holder TEXT NOT NULL,
        claim TEXT NOT NULL,
        lease_until REAL NOT NULL
    )
    """,
    "CREATE INDEX logs_of_thread ON logs (thread)",
    """
    CREATE TABLE events (
        id INTEGER PRIMARY KEY,
        log INTEGER NOT NULL REFERENCES logs (number),
        seq INTEGER NOT NULL,
        version INTEGER NOT NULL,
        at REAL NOT NULL,
        kind TEXT NOT NULL,
        digest BLOB NOT NULL,
        chain BLOB NOT NULL,
        payload BLOB
    )
    """,
    "CREATE UNIQUE INDEX events_in_order ON events (log, seq)",
    """
    CREATE TABLE inbox (
        log INTEGER NOT NULL REFERENCES logs (number),
        number INTEGER NOT NULL,
        key TEXT NOT NULL,
        kind TEXT NOT NULL,
        body TEXT NOT NULL,
        settled INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (log, number),
        UNIQUE (log, key)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX inbox_unsettled ON inbox (log, number) WHERE settled = 0",
    "CREATE TABLE blobs (id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, size INTEGER NOT NULL, content BLOB NOT NULL)",
)

SECOND = (
    "ALTER TABLE logs ADD COLUMN base INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE logs ADD COLUMN title TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE logs ADD COLUMN erased REAL",
    "ALTER TABLE events ADD COLUMN rule INTEGER NOT NULL DEFAULT 1",
    "ALTER TABLE events ADD COLUMN erased REAL",
    "ALTER TABLE events ADD COLUMN stone BLOB",
    "CREATE TABLE heads (thread TEXT PRIMARY KEY, log TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE tags (thread TEXT NOT NULL, tag TEXT NOT NULL, PRIMARY KEY (thread, tag)) WITHOUT ROWID",
    """
    CREATE TABLE checkpoints (
        log INTEGER PRIMARY KEY REFERENCES logs (number),
        seq INTEGER NOT NULL,
        chain BLOB NOT NULL,
        at REAL NOT NULL
    )
    """,
    "INSERT INTO meta VALUES ('store', lower(hex(randomblob(8))))",
)

STEPS: tuple[tuple[str, ...], ...] = (FIRST, SECOND)
"""Step n makes version n+1 of version n. A step, once released, is never changed: files of every past version are out there."""

VERSION = len(STEPS)


def glance(connection: "sqlite3.Connection", path: Path, newest: int = VERSION) -> int:
    """Return the version in the file's header, 0 for an empty one. Refuses what is not ours, and what a newer Evener made."""
    header = ("application_id", "user_version", "schema_version")
    application, version, changes = (connection.execute(f"PRAGMA {field}").fetchone()[0] for field in header)
    if not (application or version or changes):
        return 0
    if application != APPLICATION:
        raise not_ours(path)
    return _check_known(int(version), path, newest)


def check(connection: "sqlite3.Connection", path: Path, newest: int = VERSION) -> int:
    """Return the version as `glance` does, checked against what the table `meta` states."""
    version = glance(connection, path, newest)
    return _check_known(max(version, _read_noted(connection)), path, newest) if version else 0


def upgrade(connection: "sqlite3.Connection", path: Path, steps: Sequence[Sequence[str]] = STEPS) -> None:
    """Bring the file to the newest version, in one transaction: all steps or none."""
    if check(connection, path, len(steps)) == len(steps):
        return
    with connection:  # commits, or rolls back
        connection.execute("BEGIN IMMEDIATE")
        version = check(connection, path, len(steps))  # again: another process may have been quicker
        for step in steps[version:]:
            for statement in step:
                connection.execute(statement)
        if not version:
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            made = [("created_by", f"evener {__version__}"), ("created_at", f"{time():.3f}")]
            connection.executemany("INSERT INTO meta VALUES (?, ?)", made)
        connection.execute(f"PRAGMA user_version = {len(steps)}")
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('schema', ?)", (str(len(steps)),))


def not_ours(path: Path) -> StoreError:
    """Return the error for a file that is not a store of Evener."""
    return StoreError(f"The file {path} is not a store of Evener, and was left alone. Give another path.")


def _check_known(version: int, path: Path, newest: int) -> int:
    if version > newest:
        raise StoreError(
            f"The store {path} has schema version {version}, and this Evener knows versions up to {newest}. "
            "Nothing was changed. Update Evener, or give another path."
        )
    return version


def _read_noted(connection: "sqlite3.Connection") -> int:
    """Return the version that the table `meta` states."""
    row = connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
    return int(row[0]) if row and str(row[0]).isdecimal() else 0


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
_entries: dict[int, OpenNote] = {}
"""What open connections have noted, by the id of the connection."""


def connect(path: Path, patience: float, cipher: Cipher | None = None) -> "sqlite3.Connection":
    """Connect to the store at `path`, which is made if it is not there. Waits up to `patience` seconds for locks."""
    import sqlite3

    with _one_at_a_time:
        if only_read(path):
            return _connect_fixed(path, cipher)
        prepare_file(path)
        try:
            _look(path)
        except sqlite3.Error as error:
            raise store_error(error, path) from None
        entry = enter(path, patience)
        try:
            connection = _dial(str(path), timeout=patience)
        except sqlite3.Error as error:
            entry.leave()
            raise store_error(error, path) from None
        _entries[id(connection)] = entry
        try:
            _set_up(connection, path, patience)
            _agree(connection, path, cipher)
            renew_sidecar(connection, path)
        except BaseException as error:
            disconnect(connection)
            if isinstance(error, sqlite3.Error):
                raise store_error(error, path) from None
            raise
        make_private(path)
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


def _connect_fixed(path: Path, cipher: Cipher | None) -> "sqlite3.Connection":
    """Return a connection to a store that cannot be written, as on a disk that is mounted so: it is read as it is."""
    import sqlite3

    try:
        connection = _dial(_as_it_is(path), uri=True)
    except sqlite3.Error as error:
        raise store_error(error, path) from None
    try:
        version = check(connection, path)
        if version != VERSION:
            raise StoreError(
                f"The store {path} has schema version {version} and must be brought to {VERSION} first, but it can only "
                "be read. Copy it to where it can be written."
            )
        agree(connection, path, cipher, writable=False)
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error):
            raise store_error(error, path) from None
        raise
    return connection


def _as_it_is(path: Path) -> str:
    """Return the address of a file that is opened without a lock and without writing."""
    return f"{path.absolute().as_uri()}?mode=ro&immutable=1"


def _dial(target: str, *, timeout: float = 0.0, uri: bool = False) -> "sqlite3.Connection":
    """Connect. The only place where a connection is made. One thread at a time may use it; the writer's lock sees to that."""
    import sqlite3

    return sqlite3.connect(target, timeout=timeout, isolation_level=None, uri=uri, check_same_thread=False)


def _abandon(connection: "sqlite3.Connection") -> None:
    """Drop a connection without the last checkpoint, which would delete `-wal` by its name."""
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
    logged = wal.exists()  # before we look, too: the last process to close puts it into the file and takes it away
    size = path.stat().st_size
    looking = _dial(_as_it_is(path), uri=True)
    try:
        if not glance(looking, path) and size:
            raise not_ours(path)  # too short for a database, or an empty one that is not ours
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CORRUPT or not (logged or wal.exists()):
            raise
        # A checkpoint that is under way, or was cut off: half of the pages are in the file. With its log it is whole.
    finally:
        looking.close()


def _set_up(connection: "sqlite3.Connection", path: Path, patience: float) -> None:
    for setting in SETTINGS:
        connection.execute(setting)
    upgrade(connection, path)
    _use_wal(connection, path, monotonic() + patience)


def _agree(connection: "sqlite3.Connection", path: Path, cipher: Cipher | None) -> None:
    """Check that the store and the caller have the same cipher, or none. With one there may be something to write."""
    connection.execute("BEGIN" if cipher is None else "BEGIN IMMEDIATE")
    try:
        if cipher is not None or connection.execute("SELECT 1 FROM meta WHERE key LIKE 'cipher%'").fetchone():
            agree(connection, path, cipher)
    finally:
        connection.execute("COMMIT")


def _use_wal(connection: "sqlite3.Connection", path: Path, deadline: float) -> None:
    """Switch to WAL mode; SQLite itself does not wait for it.

    If the file system cannot do it, the rollback journal is used: slower, as safe.
    """
    import sqlite3

    while connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            fault: StoreError = store_error(error, path)
            if not fault.retryable or monotonic() > deadline:
                raise fault from None
        sleep(PAUSE)
