"""A store that lives for a while, and its files at several times: what damage is done to. The same each time."""

import asyncio
from itertools import repeat
from pathlib import Path

import msgspec

from evener.events import Cancelled, Event, Opened, encode_events
from evener.store import SqliteStore
from evener.store.protocol import Log

__all__ = ["FILE", "HEADS", "LATER", "WAL", "Life", "Moment", "lived"]

FILE = "evener.db"
WAL = f"{FILE}-wal"
HEADS = f"{FILE}.heads"
FORK = "fork of a"
LOGS = ("a", "b", FORK)
LIVES = 3
ROUNDS = 20
LATER = 4e9
"""A time by which every lease is over."""


class Moment(msgspec.Struct, frozen=True):
    """The store as it was at one time: its files, how long each log was, and how much of it the heads vouch for."""

    files: dict[str, bytes]
    lengths: dict[str, int]
    vouched: dict[str, int]


class Life(msgspec.Struct, frozen=True):
    """Several moments of one store, what its logs held in the end, and the lengths at which an append ended."""

    moments: list[Moment]
    events: dict[str, list[bytes]]
    ends: dict[str, frozenset[int]]


class _Living:
    """A life under way."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.moments: list[Moment] = []
        self.lengths: dict[str, int] = {}
        self.vouched: dict[str, int] = {}
        self.ends: dict[str, set[int]] = {name: set() for name in LOGS}

    def keep(self) -> None:
        """The files as they are now. Nobody writes meanwhile."""
        found = {name: self.path.with_name(name) for name in (FILE, WAL, HEADS)}
        files = {name: file.read_bytes() for name, file in found.items() if file.exists()}
        self.moments.append(Moment(files, dict(self.lengths), dict(self.vouched)))

    def told(self, log: Log) -> None:
        """An append was acknowledged."""
        self.lengths[log.lease.log] = log.length
        self.ends[log.lease.log].add(log.length)

    async def fill(self, log: Log, life: int) -> None:
        """Appends of one to three events, some of them larger than a page; then the log is given back."""
        self.told(log)
        for number in range(ROUNDS):
            text = "x" * (5000 if number % 10 == 7 else 200)
            pieces = (f"{log.lease.log} {life}.{number}.{piece} {text}" for piece in range(1 + number % 3))
            await log.append(*(Cancelled(at=2.0, why=piece) for piece in pieces))
            self.told(log)
        self.keep()
        await log.aclose()
        self.vouched[log.lease.log] = log.length
        self.keep()


def lived(folder: Path) -> Life:
    """Make a store in this folder, and keep its files at several times."""
    return asyncio.run(_live(_Living(folder / FILE)))


async def _live(living: _Living) -> Life:
    for life in range(LIVES):
        store = SqliteStore(living.path, clock=repeat(LATER * life / LIVES).__next__)
        for name in LOGS:
            if life:
                log, _ = await store.open(name, holder="h")
            else:
                log = await store.create(name, await _first(store, name), holder="h")
            await living.fill(log, life)
        events = {name: encode_events(await store.read(name)) for name in LOGS}
        await store.aclose()
        living.keep()
    return Life(living.moments, events, {name: frozenset(found) for name, found in living.ends.items()})


async def _first(store: SqliteStore, name: str) -> Event:
    if name != FORK:
        return Opened(at=1.0, thread=name)
    link = await store.link("a", 9)
    return Opened(at=1.0, thread="a", parent=link.log, parent_seq=link.seq, parent_hash=link.hash)
