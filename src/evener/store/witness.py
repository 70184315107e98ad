"""Writes the sidecar of a store anew from what the store says, after all its links were made anew."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from evener.store.checkpoints import Mark, store_id
from evener.store.sidecar import Sidecar, Stone

if TYPE_CHECKING:
    import sqlite3

__all__ = ["renew_sidecar", "witnessed"]


def witnessed(connection: "sqlite3.Connection") -> Iterator[Mark | Stone]:
    """What the sidecar of a store says: where each log stood, and what is erased."""
    store = store_id(connection)
    for log, seq, chain in connection.execute(
        "SELECT l.log, c.seq, c.chain FROM checkpoints c JOIN logs l ON l.number = c.log"
    ):
        yield Mark(store, log, seq, bytes(chain).hex())
    erased = "SELECT l.log, e.seq, e.stone FROM events e JOIN logs l ON l.number = e.log WHERE e.stone IS NOT NULL"
    for log, seq, stone in connection.execute(erased):
        yield Stone(store, log, seq, bytes(stone).hex())


def renew_sidecar(connection: "sqlite3.Connection", path: Path) -> None:
    """Write it anew, if the store has noted that this is due."""
    if connection.execute("SELECT 1 FROM meta WHERE key = 'sidecar_due'").fetchone():
        Sidecar(path).replace(witnessed(connection))
        connection.execute("DELETE FROM meta WHERE key = 'sidecar_due'")
