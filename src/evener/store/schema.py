"""The tables, and how a file of an older version becomes one of this version. A newer or foreign file is never touched.

The number of a log is never used again. `base` is how many events of a log's path lie before its own first one, `length` counts
along the path. `rule` says how an event is linked into the chain; what was there before version 2 keeps its links. An erased
event has a time in `erased`, a payload without content, and in `stone` a hash of that; its digest stays. `title`, `tag`,
`body`, `payload` and `content` may be sealed by a cipher, which `meta` then names.
Every event lies in order of arrival, whatever its log, so that the events of many runs share their pages; the index finds them.
"""

from collections.abc import Sequence
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

from evener import __version__
from evener.errors import StoreError

if TYPE_CHECKING:
    import sqlite3

__all__ = ["APPLICATION", "STEPS", "VERSION", "check", "glance", "not_ours", "upgrade"]

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
    """The version in the file's header, 0 for an empty one. Refuses what is not ours, and what a newer Evener made."""
    header = ("application_id", "user_version", "schema_version")
    application, version, changes = (connection.execute(f"PRAGMA {field}").fetchone()[0] for field in header)
    if not (application or version or changes):
        return 0
    if application != APPLICATION:
        raise not_ours(path)
    return _known(int(version), path, newest)


def check(connection: "sqlite3.Connection", path: Path, newest: int = VERSION) -> int:
    """As `glance`, and what the table `meta` states has its say, too."""
    version = glance(connection, path, newest)
    return _known(max(version, _noted(connection)), path, newest) if version else 0


def upgrade(connection: "sqlite3.Connection", path: Path, steps: Sequence[Sequence[str]] = STEPS) -> None:
    """Bring the file to the newest version, in one transaction: all steps or none."""
    if check(connection, path, len(steps)) == len(steps):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = check(connection, path, len(steps))  # again: somebody else may have been quicker
        for step in steps[version:]:
            for statement in step:
                connection.execute(statement)
        if not version:
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            made = [("created_by", f"evener {__version__}"), ("created_at", f"{time():.3f}")]
            connection.executemany("INSERT INTO meta VALUES (?, ?)", made)
        connection.execute(f"PRAGMA user_version = {len(steps)}")
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('schema', ?)", (str(len(steps)),))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def not_ours(path: Path) -> StoreError:
    """The error for a file of somebody else."""
    return StoreError(f"The file {path} is not a store of Evener, and was left alone. Give another path.")


def _known(version: int, path: Path, newest: int) -> int:
    if version > newest:
        raise StoreError(
            f"The store {path} has schema version {version}, and this Evener knows versions up to {newest}. "
            "Nothing was changed. Update Evener, or give another path."
        )
    return version


def _noted(connection: "sqlite3.Connection") -> int:
    """The version that the table `meta` states."""
    row = connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
    return int(row[0]) if row and str(row[0]).isdecimal() else 0
