"""What was erased may lie in SQLite's own log while somebody reads the store as it was. It is taken out as soon as it can be.

A checkpoint that empties that log is tried when something was erased; where a reader is in the way, after each later write of
this store again, without waiting, until it is done. When the last connection to the store is closed, SQLite does it, too.
"""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from evener.store.log import Finding

if TYPE_CHECKING:
    import sqlite3

__all__ = ["Remains"]


class Remains:
    """Whether something is left there, as far as this store knows."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self.left = False

    def forget(self, connection: "sqlite3.Connection") -> None:
        """Empty SQLite's log; waits for readers as long as the connection does. Outside of any transaction."""
        self.left = True
        busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        self.left = bool(busy)

    def again(self, connection: "sqlite3.Connection") -> None:
        """The same after a write, if it has not been done yet, without waiting. When it fails, the next write tries again."""
        if not self.left:
            return
        import sqlite3

        with suppress(sqlite3.Error):
            (patience,) = connection.execute("PRAGMA busy_timeout").fetchone()
            connection.execute("PRAGMA busy_timeout = 0")
            try:
                self.forget(connection)
            finally:
                connection.execute(f"PRAGMA busy_timeout = {patience}")

    def told(self) -> list[Finding]:
        """What `verify` says of it."""
        if not self.left:
            return []
        what = (
            f"What was erased still lies in {self._store.name}-wal, because somebody read the store meanwhile. It goes with "
            "one of the next writes, or when everybody has closed the store."
        )
        return [Finding("", 0, what, damage=False)]
