"""Checkpoints: where a log stood, kept apart from its events, so that the loss of its tail is noticed. As SQL.

One is due when a log has grown past another `EVERY` events, and when it is given back.
"""

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import sqlite3

__all__ = ["EVERY", "Mark", "due", "put", "store_id"]

EVERY = 256


class Mark(msgspec.Struct, frozen=True, tag="mark"):
    """Where a log stood: the id of the store, the log, its length, and the chain there in hex."""

    store: str
    log: str
    seq: int
    hash: str


def due(before: int, length: int) -> bool:
    """Whether a log that grew so has passed a checkpoint."""
    return before // EVERY != length // EVERY


def put(connection: "sqlite3.Connection", number: int, *, seq: int, chain: bytes) -> Mark | None:
    """Keep where the log stands in place of what was kept before; None when it is the same."""
    found = connection.execute("SELECT seq, chain FROM checkpoints WHERE log = ?", (number,)).fetchone()
    if found == (seq, chain):
        return None
    connection.execute(
        "INSERT OR REPLACE INTO checkpoints (log, seq, chain, at) SELECT number, ?, ?, changed FROM logs WHERE number = ?",
        (seq, chain, number),
    )
    (log,) = connection.execute("SELECT log FROM logs WHERE number = ?", (number,)).fetchone()
    return Mark(store_id(connection), log, seq, chain.hex())


def store_id(connection: "sqlite3.Connection") -> str:
    """The id of the file, which it got when it was made."""
    found = connection.execute("SELECT value FROM meta WHERE key = 'store'").fetchone()
    return str(found[0]) if found else ""
