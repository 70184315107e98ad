"""What the stores on SQL tables have in common: the methods that are one job of `store/sqlite`, done by a reader or a writer.

Knows no SQL, and neither the file nor the server that it lies in.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from evener.events import Event
from evener.store.protocol import Link, Summary, waiting_of
from evener.store.redaction import Redaction
from evener.store.sqlite import catalog, reading, rows, transfer
from evener.store.sqlite.rows import BlobTable
from evener.store.transfer.cargo import CargoEvent, CargoThread

if TYPE_CHECKING:
    import sqlite3

    from evener.store.sqlite.writer import Job

T = TypeVar("T")


class SqlStore(ABC):
    """A part of a store: everything but its leases, its notes, and what depends on where it lies."""

    _guard: Redaction

    @abstractmethod
    async def _read(self, job: "Job[T]") -> T:
        """Have a job done that reads: it sees the store as it is at one moment."""

    @abstractmethod
    async def _write(self, job: "Job[T]", log: str = "") -> T:
        """Have a job done that writes, to this log or to none. Done twice, it does no more."""

    @abstractmethod
    def _now(self, connection: "sqlite3.Connection") -> float:
        """Return the time."""

    async def read(self, log: str, *, after: int = 0, until: int | None = None) -> list[Event]:
        """Return the events of its path after number `after` up to `until`, without a lease."""
        return await self._read(partial(reading.read, log=log, after=after, until=until, guard=self._guard))

    async def link(self, log: str, seq: int | None = None) -> Link:
        """Return the event of that number on the log's path, or the last, with its hash."""
        return await self._read(partial(reading.link_at, log=log, seq=seq))

    async def head(self, thread: str) -> str:
        """Return the log that the thread stands on."""
        return await self._read(partial(rows.head, thread=thread))

    async def move_head(self, thread: str, log: str) -> None:
        """Let the thread stand on another of its logs."""
        await self._write(partial(rows.move, thread=thread, log=log), log)

    async def has_note(self, log: str, key: str) -> bool:
        """True if a note of that key was ever said to the log, settled or not."""
        return await self._read(partial(rows.has_note, log=log, key=key))

    async def logs(self, *, thread: str = "") -> Sequence[Summary]:
        """List every log, or those of one thread, the one that changed last first."""
        return await self._read(lambda connection: rows.summaries(connection, thread, self._now(connection), self._guard))

    def clean(self, text: str) -> str:
        """Return a text as it would be stored: without secrets."""
        return self._guard.funnel.text(text)

    async def put_blob(self, content: bytes) -> str:
        """Keep bytes; their SHA-256 in hex names them. Durable when this returns."""
        kept = self._guard.funnel.blob(bytes(content))
        digest, stored = await self._read(lambda connection: BlobTable(connection, self._guard).name_of(kept))
        if not stored:
            await self._write(lambda connection: BlobTable(connection, self._guard).put(digest, kept))
        return digest

    async def get_blob(self, digest: str) -> bytes:
        """Return the bytes of that name."""
        return await self._read(lambda connection: BlobTable(connection, self._guard).get(digest))

    async def waiting(self) -> list[Summary]:
        """Return the heads of threads whose run waits for a decision. `Thread.approvals` says what for."""
        return await waiting_of(self)  # type: ignore[arg-type]  # what is made of it is a Store

    async def inside(self, thread: str) -> Sequence[str]:
        """Return the threads of agents inside the calls of this one, and inside theirs."""
        return await self._read(partial(catalog.threads_inside, thread=thread, guard=self._guard))

    async def describe(self, thread: str, *, title: str | None = None, tags: Iterable[str] | None = None) -> None:
        """Give the thread a title, or tags in place of those it had."""
        label = catalog.label_of(title, tags, self._guard.funnel)
        await self._write(partial(catalog.describe, thread=thread, label=label, guard=self._guard))

    @property
    def encrypted(self) -> bool:
        """True if there is a cipher. A server's disk may be sealed by the server."""
        return self._guard.cipher is not None

    async def outline(self, thread: str) -> CargoThread:
        """Return a thread but for its events, for an export."""
        return await self._read(partial(transfer.outline, thread=thread, guard=self._guard))

    async def records(self, log: str, *, after: int, until: int) -> list[CargoEvent]:
        """Return some of the log's own events, for an export."""
        return await self._read(partial(transfer.page, log=log, after=after, until=until, guard=self._guard))

    async def blobs_among(self, names: Iterable[str]) -> list[str]:
        """Return those of the names that a blob has."""
        wanted = list(names)
        return await self._read(lambda connection: sorted(BlobTable(connection, self._guard).among(wanted)))
