"""Keeps logs in one SQLite file: what an append was given is on the disk, whole and in order, when it returns.

One thread writes and groups what waits, another reads; this file is their asynchronous front and knows no SQL. Safe from
several tasks, event loops and threads of a process, and from several processes on one machine. Never pickles.
"""

from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from time import time
from typing import TYPE_CHECKING
from weakref import WeakSet, finalize

import msgspec

from evener.events import Event
from evener.store import blobs, refusals, rows
from evener.store.claim import new_claim
from evener.store.connection import connect
from evener.store.folder import default_path
from evener.store.lane import Lane, reads, writes
from evener.store.log import Lease, Note, Summary
from evener.store.patience import persist
from evener.store.rows import Claim, Held, row_of

if TYPE_CHECKING:
    import sqlite3

__all__ = ["SqliteStore"]


class SqliteLog:
    """A log that we hold. One that is dropped without being closed gives its lease back, too."""

    def __init__(self, store: "SqliteStore", held: Held, claim: Claim, length: int) -> None:
        self._store = store
        self._held = held
        self._release = partial(rows.release, log=held.log, mark=claim.mark)
        self._dropped = finalize(self, store._writer.send, self._release)
        self._dropped.atexit = False  # by then the process is as good as dead, and others can tell
        self._lease = Lease(held.log, held.epoch, claim.holder)
        self._length = length
        self._closed = False

    @property
    def lease(self) -> Lease:
        """Ours, even after it was lost."""
        return self._lease

    @property
    def length(self) -> int:
        """How many events it has, as far as we wrote or read them."""
        return self._length

    async def append(self, *events: Event) -> None:
        """Add events: all or none, durable when this returns. Cancelled while it waits, it happens all the same."""
        added = [row_of(event) for event in events]
        await self._write(partial(rows.append, held=self._held, rows=added, until=self._store._expiry()))

    async def notes(self) -> Sequence[Note]:
        """What is not settled yet, in order."""
        return await self._store._reader.run(partial(rows.notes, held=self._held))

    async def settle(self, number: int, *events: Event) -> None:
        """Append events and mark the note as settled, in one step."""
        added = [row_of(event) for event in events]
        await self._write(partial(rows.settle, held=self._held, number=number, rows=added, until=self._store._expiry()))

    async def renew(self) -> None:
        """Keep the lease."""
        await self._write(partial(rows.renew, held=self._held, until=self._store._expiry()))

    async def aclose(self) -> None:
        """Give the lease back."""
        if not self._closed:
            self._closed = True
            self._dropped.detach()
            await self._store._writer.run(self._release)

    def _drop(self) -> None:
        if not self._closed:
            self._closed = True
            self._dropped()

    async def _write(self, job: "Callable[[sqlite3.Connection], int]") -> None:
        if self._closed:
            raise refusals.given_back(self._held.log)
        await self._store._writer.run(job, self._grown)

    def _grown(self, length: int) -> None:
        self._length = length


class SqliteStore:
    """Keeps logs in the file at `path`; without one in the platform's data folder. The file is made when it is first used.

    `lease` is how many seconds a holder has until others may take over, unless its process has died; `busy` how many seconds
    we wait while another process writes; `clock` tells the time. Close it with `aclose`.
    """

    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        *,
        lease: float = 30.0,
        busy: float = 10.0,
        clock: Callable[[], float] = time,
    ) -> None:
        self.path = Path(path) if path is not None else default_path()
        opener = partial(connect, self.path.absolute(), busy)
        self._writer = Lane(self.path, opener, writes)
        self._reader = Lane(self.path, opener, reads)
        self._seconds = lease
        self._clock = clock
        self._open: WeakSet[SqliteLog] = WeakSet()
        finalize(self, _end, self._writer, self._reader)

    async def create(self, log: str, first: Event, *, holder: str) -> SqliteLog:
        """A new log with its first event, held by us."""
        claim = self._claim(holder)
        try:
            held = await self._writer.run(partial(rows.create, log=log, first=first, claim=claim))
        except BaseException:
            self._writer.send(partial(rows.release, log=log, mark=claim.mark))
            raise
        return self._hold(held, claim, 1)

    async def open(self, log: str, *, holder: str, after: int = 0, patience: float = 0.0) -> tuple[SqliteLog, list[Event]]:
        """Take the log over, and its events after number `after`.

        At once when its holder's process has died, else when the lease is over.
        """
        claim = self._claim(holder)
        try:
            held, length = await persist(lambda: self._take(log, claim), patience)
            events = await self.read(log, after=after)
        except BaseException:
            self._writer.send(partial(rows.release, log=log, mark=claim.mark))
            raise
        return self._hold(held, claim, length), events

    async def read(self, log: str, *, after: int = 0) -> list[Event]:
        """The events after number `after`, without a lease."""
        return await self._reader.run(partial(rows.read, log=log, after=after))

    async def post(self, log: str, note: Note) -> bool:
        """Say something to the log. False when a note of that key was there before."""
        return await self._writer.run(partial(rows.post, log=log, note=note))

    async def logs(self) -> Sequence[Summary]:
        """Every log, the one that changed last first."""
        return await self._reader.run(rows.summaries)

    async def put_blob(self, content: bytes) -> str:
        """Keep bytes; their SHA-256 in hex names them. Durable when this returns."""
        kept = bytes(content)
        digest, stored = await self._reader.run(partial(blobs.name_of, content=kept))
        if not stored:
            await self._writer.run(partial(blobs.put, digest=digest, content=kept))
        return digest

    async def get_blob(self, digest: str) -> bytes:
        """The bytes of that name."""
        return await self._reader.run(partial(blobs.get, digest=digest))

    async def aclose(self) -> None:
        """Give all leases back, do what waits, and let go of the file."""
        for log in list(self._open):
            log._drop()
        await self._writer.end()
        await self._reader.end()

    async def _take(self, log: str, claim: Claim) -> tuple[Held, int]:
        now = msgspec.structs.replace(claim, now=self._clock(), until=self._expiry())
        return await self._writer.run(partial(rows.take, log=log, claim=now))

    def _claim(self, holder: str) -> Claim:
        return Claim(holder, new_claim(), self._clock(), self._expiry())

    def _hold(self, held: Held, claim: Claim, length: int) -> SqliteLog:
        log = SqliteLog(self, held, claim, length)
        self._open.add(log)
        return log

    def _expiry(self) -> float:
        return self._clock() + self._seconds


def _end(*lanes: Lane) -> None:
    """When the store is dropped without being closed, and when the interpreter ends."""
    for lane in lanes:
        lane.stop()
