"""Stores logs on a PostgreSQL server: when an append returns, its events are on the server's disk, complete and in order.

One thread writes and groups the waiting jobs, a pool of connections reads; this file is their asynchronous interface and has
no SQL except a notification. Safe from several tasks, event loops and threads, and from processes on any number of machines.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from os import PathLike
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import WeakSet, finalize

from evener.errors import EvenerError, StoreError, UsageError
from evener.events import Event
from evener.store import protocol
from evener.store.integrity.digests import Told, sidecar_entries
from evener.store.integrity.verify import verify
from evener.store.postgres import work
from evener.store.postgres.appends import AppendJob, LogTail
from evener.store.postgres.cluster import PostgresCluster
from evener.store.postgres.connection import (
    Dial,
    PostgresConnection,
    check_address,
    load_psycopg,
    persist,
    postgres_error,
    was_lost,
)
from evener.store.postgres.notices import CHANNEL, NoticeListener
from evener.store.postgres.schema import check_schema
from evener.store.postgres.writes import LogJob, perform_writes
from evener.store.protocol import Finding, Hits, Lease, LeaseHeld, Note
from evener.store.redaction import Funnel, Redaction
from evener.store.sql_store import SqlStore
from evener.store.sqlite import catalog, erase, rows, transfer
from evener.store.sqlite.leases import Renewer, claims, forget, give_back, new_claim, rival_of
from evener.store.sqlite.rows import AppendedRows, Claim, EventRow, HeldLog, rows_of
from evener.store.sqlite.writer import WriterThread
from evener.store.transfer.cargo import Cargo, CargoThread
from evener.transport.limiter import unshare_rates

if TYPE_CHECKING:
    import sqlite3

    import psycopg
    from psycopg_pool import ConnectionPool


READERS = 4
LONGEST_FAREWELL = 5.0
SCRUB = "VACUUM events, logs, inbox, blobs, tags"

T = TypeVar("T")


class ServerClock:
    """The server's time, continued by our own clock between two queries: machines need not agree on the time."""

    def __init__(self) -> None:
        self._offset: float | None = None

    def set(self, connection: "sqlite3.Connection") -> None:
        """Ask the server for its time."""
        (now,) = connection.execute("SELECT extract(epoch FROM clock_timestamp())::double precision").fetchone()
        self._offset = now - monotonic()

    def __call__(self) -> float:
        """Return the server's time; ours, before it was asked."""
        return monotonic() + self._offset if self._offset is not None else 0.0


class PostgresLog:
    """A log whose lease is held. If it is dropped without being closed, the lease is returned, too."""

    def __init__(self, store: "PostgresStore", held: HeldLog, claim: Claim, tail: LogTail) -> None:
        self._store = store
        self._held = held
        self._dropped = finalize(self, _give_back, store._writer, held.log, claim.mark, left=True)
        self._dropped.atexit = False
        self._lease = Lease(held.log, held.epoch, claim.holder, held.rival)
        self._tail = tail
        self._until = claim.until
        self._closed = False
        self._staged: list[EventRow] = []
        self._writing = 0

    @property
    def lease(self) -> Lease:
        """Return our lease, even after it was lost."""
        return self._lease

    @property
    def length(self) -> int:
        """Return how many events it has, as far as we wrote or read them."""
        return self._tail.length

    async def append(self, *events: Event) -> tuple[Event, ...]:
        """Add events: all or none, durable when this returns. Cancelled while it waits, it happens all the same."""
        kept, added = rows_of(events, self._store._guard)
        await self._write(added)
        return kept

    def stage(self, *events: Event) -> tuple[Event, ...] | None:
        """Keep events for the next write, which puts them first. None when a write is under way."""
        if self._writing:
            return None
        kept, added = rows_of(events, self._store._guard)
        self._staged += added
        return kept

    async def append_unless_noted(self, *events: Event) -> tuple[Event, ...] | None:
        """Append, unless a note waits to be settled: then write only what was staged, and return None."""
        kept, added = rows_of(events, self._store._guard)
        return None if (await self._write(added, certain=len(self._staged))).noted else kept

    async def notes(self) -> Sequence[Note]:
        """Return the notes that are not settled yet, in order. While the store hears of new ones, most looks cost nothing."""
        notices = self._store._notices
        if notices.is_quiet(self._held.number):
            return []
        notices.looking(self._held.number)
        found = await self._store._read(partial(rows.notes, held=self._held, guard=self._store._guard))
        if found:
            notices.hear(self._held.number)
        return found

    async def settle(self, number: int, *events: Event) -> tuple[Event, ...]:
        """Append events and mark the note as settled, in one step."""
        kept, added = rows_of(events, self._store._guard)
        self._store._notices.hear(self._held.number)
        await self._write(added, settles=number)
        return kept

    def keep(self) -> None:
        """Renew the lease from a thread of the store's, until the log is closed or lost."""
        self._store._renewer.add(self)

    def renew_soon(self, when_less_than: float) -> None:
        """Have the lease renewed if fewer seconds than this are left of it, without waiting for that."""
        store = self._store
        if self._closed or self._until - store._clock() >= when_less_than:
            return
        until = store._expiry()
        store._writer.send(AppendJob(self._held, (), until, tail=self._tail), partial(self._grow, until=until))

    async def renew(self) -> None:
        """Keep the lease."""
        await self._write([])

    async def aclose(self, *, left: bool = False) -> None:
        """Give the lease back. `left`: something that was begun under it goes on."""
        if not self._closed:
            self._closed = True
            self._dropped.detach()
            self._store._open.discard(self)
            self._store._renewer.discard(self)
            give_back(self._held.mark, left=left)
            job, after = _release(self._held.log, self._held.mark, left=left)
            try:
                await self._store._writer.run(job, after)
            except StoreError as error:  # the lease runs out; until then only this process knows that it is free
                if not error.retryable:
                    raise

    def _drop(self) -> None:
        if not self._closed:
            self._closed = True
            self._dropped()

    async def _write(self, added: list[EventRow], *, certain: int | None = None, settles: int | None = None) -> AppendedRows:
        """Have the rows written, those that were staged before them. If it fails, those stay staged."""
        if self._closed:
            raise protocol.given_back(self._held.log)
        staged, self._staged = self._staged, []
        until = self._store._expiry()
        self._writing += 1
        try:
            added = staged + added if staged else added
            job = AppendJob(self._held, added, until, tail=self._tail, certain=certain, settles=settles)
            return await self._store._writer.put(job, partial(self._grow, until=until))
        except StoreError:
            self._staged = staged + self._staged
            raise
        finally:
            self._writing -= 1

    def _grow(self, grown: AppendedRows, until: float) -> None:
        self._tail.length, self._tail.head = grown.length, grown.head
        self._until = until


class PostgresStore(SqlStore):
    """Stores logs in the schema `schema` of the database at `address`, as in `postgresql://user@host/database`.

    The tables are created at the first use, if the role may. `lease` is the number of seconds after which another holder may
    take over; a thread renews the lease during a run. `busy` is the maximum wait for the server and for locks, in seconds;
    `clock` returns the time (by default the server's). `funnel` removes secrets from what is stored. Close it with `aclose`.
    """

    def __init__(
        self,
        address: str,
        *,
        schema: str = "evener",
        lease: float = 10.0,
        busy: float = 15.0,
        clock: Callable[[], float] | None = None,
        funnel: Funnel | None = None,
    ) -> None:
        load_psycopg()
        if type(busy) not in (int, float) or not busy >= 0:
            raise UsageError(f"`busy` is a number of seconds, 0 or more; not {busy!r}.")
        self._dial = Dial(check_address(address), check_schema(schema), busy)
        self._channel = f"{CHANNEL}_{schema}"
        self._server_clock = ServerClock()
        self._clock = clock or self._server_clock
        self._seconds = lease
        self._guard = Redaction(funnel or Funnel())
        self._writer = WriterThread(Path(schema), self._connect, perform_writes, _Server())
        self._pool: ConnectionPool[Any] | None = None
        self._pooling = Lock()
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="evener store")
        self._notices = NoticeListener(self._dial, self._channel)
        self._open: WeakSet[PostgresLog] = WeakSet()
        self._renewer = Renewer(lease)
        finalize(self, _end, self._renewer, self._notices, self._writer, self._threads)

    def __repr__(self) -> str:
        return "<PostgresStore>"  # an address may hold a password

    async def create(self, log: str, first: Event, *, holder: str) -> PostgresLog:
        """Return a new log with its first event, held by us. A fork names its parent there; nothing is copied."""
        mark = self._mark()

        def job(connection: "sqlite3.Connection") -> tuple[HeldLog, AppendedRows, Claim]:
            self._server_clock.set(connection)
            claim = self._claim(holder, mark)
            made = find_held(connection, log, mark)
            if made is not None:
                return made[0], AppendedRows(made[1]), claim
            return (*rows.create(connection, log, first, claim, self._guard), claim)

        try:
            held, grown, claim = await self._writer.run(LogJob(job, log, again=True))
        except BaseException:
            _give_back(self._writer, log, mark)
            raise
        return self._hold(held, claim, LogTail(grown.length, grown.head))

    async def open(
        self, log: str, *, holder: str, after: int = 0, patience: float = 0.0, force: bool = False
    ) -> tuple[PostgresLog, list[Event]]:
        """Take the log over, and its events after number `after`.

        At once when its holder's process has died on this machine, or with `force`; else when the lease is over.
        """
        mark = self._mark()

        async def attempt() -> tuple[HeldLog, int, Claim]:
            return await self._take(log, holder, mark, force=force)

        try:
            held, length, claim = await protocol.persist(attempt, patience)
            events = await self.read(log, after=after, until=length)
            if len(events) != max(length - max(after, 0), 0):
                raise protocol.damaged(log, length)
        except BaseException:
            _give_back(self._writer, log, mark)
            raise
        return self._hold(held, claim, LogTail(length)), events

    async def post(self, log: str, note: Note) -> bool:
        """Add a note to the log's inbox. False if there was a note with the same key before. The lease holder is notified at
        once.
        """

        def job(connection: "sqlite3.Connection") -> tuple[bool, int]:
            won = rows.post(connection, log, note, self._guard)
            (number,) = rows.log_of(connection, log, "number")
            if won:
                work.wake(connection, log)
                connection.execute("SELECT pg_notify(?, ?)", (self._channel, str(number)))
            return won, number

        won, number = await self._writer.run(LogJob(job, log))
        self._notices.hear(number)
        return won

    async def erase(self, log: str, *, seqs: Iterable[int] | None = None) -> int:
        """Erase what events of the log's path say, or everything of a log or thread, for good; how many events that were.

        The server's tables are cleaned after that, if the role may. Its write-ahead log and backups are the server's affair.
        """
        wanted = None if seqs is None else frozenset(seqs)
        surveyed = await self._read(partial(erase.survey, log=log, seqs=wanted, guard=self._guard))

        def job(connection: "sqlite3.Connection") -> int:
            connection.execute("LOCK TABLE logs IN EXCLUSIVE MODE")  # no writer is between its events and its blobs
            self._server_clock.set(connection)
            done = erase.erase(connection, log, wanted, surveyed, self._clock(), self._guard, _forget_nothing)
            return len(done.stones)

        erased = await self._writer.run(LogJob(job))
        await self._do(self._scrub)
        return erased

    async def verify(self, log: str = "") -> Sequence[Finding]:
        """Find what is not as it was written: in a log and those before it, in a thread, or in the whole store."""

        def job(connection: "sqlite3.Connection") -> list[Finding]:
            told = Told(tuple(sidecar_entries(connection)), there=True)
            return verify(connection, log, told, self._guard, _find_strays)

        return await self._read(job)

    async def search(self, text: str, *, limit: int = 50) -> Hits:
        """Find all words of the text: in titles and tags, then in events, the newest first. There is no index."""
        return await catalog.search(self._read, text, limit, self._clock(), self._guard)

    async def backup(self, path: str | PathLike[str]) -> None:
        """Write what is kept as the file of a `SqliteStore`. Refuses to write over a file."""
        from evener.store.transfer.jsonl import write_file

        await write_file(self, Path(path).absolute())

    async def adopt(self, wholes: Sequence[CargoThread], cargo: Cargo) -> None:
        """Take in threads from an export, all of them whole or nothing at all."""
        await self._writer.run(LogJob(partial(transfer.adopt, wholes=wholes, cargo=cargo, guard=self._guard)))

    @property
    def cluster(self) -> PostgresCluster:
        """The tables that workers of several machines share, beside the logs."""
        return PostgresCluster(self._writer, self._read)

    async def aclose(self) -> None:
        """Give all leases back, do what waits, and let go of the connections. Its tables no longer count calls."""
        unshare_rates(self)
        self._renewer.stop()
        for log in list(self._open):
            log._drop()
        await self._writer.end()
        await asyncio.to_thread(self._close_reading)

    def _close_reading(self) -> None:
        self._notices.stop()
        self._threads.shutdown(wait=True)
        if self._pool is not None:
            self._pool.close(LONGEST_FAREWELL)

    def _connect(self) -> "sqlite3.Connection":
        return cast("sqlite3.Connection", PostgresConnection(self._dial))  # as far as the jobs use one

    async def _read(self, job: "Callable[[sqlite3.Connection], T]") -> T:
        """Have a job done that reads, on a connection of the pool: it sees the store as it is at one moment."""
        return await self._do(partial(persist, partial(self._look, job), self._dial.patience))

    async def _write(self, job: "Callable[[sqlite3.Connection], T]", log: str = "") -> T:
        return await self._writer.run(LogJob(job, log, again=True))

    def _now(self, connection: "sqlite3.Connection") -> float:
        self._server_clock.set(connection)
        return self._clock()

    async def _do(self, work: Callable[[], T]) -> T:
        if self._writer.stopped:
            raise protocol.closed()
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _look(self, job: "Callable[[sqlite3.Connection], T]") -> T:
        from psycopg_pool import PoolTimeout

        try:
            with self._readers().connection() as raw:
                return self._look_there(job, raw)
        except PoolTimeout:
            pass
        with self._dial() as raw:  # fails with the reason, where the server has one; the pool may only wait for its next try
            return self._look_there(job, raw)

    def _look_there(self, job: "Callable[[sqlite3.Connection], T]", raw: "psycopg.Connection") -> T:
        try:
            raw.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            found = job(cast("sqlite3.Connection", PostgresConnection(self._dial, raw)))
            raw.execute("COMMIT")
            return found
        except Exception as error:
            if not was_lost(error) and not raw.closed:
                raw.rollback()
            if isinstance(error, EvenerError) or was_lost(error):
                raise
            raise postgres_error(error) from None

    def _scrub(self) -> None:
        """Have the server overwrite what was erased, if this role may. Other readers are not held up."""
        try:
            with self._readers().connection() as raw:
                raw.execute(SCRUB)
        except load_psycopg().Error as error:
            postgres_error(error)  # not ours to do: the server's own cleaning does it later

    def _readers(self) -> "ConnectionPool[Any]":
        with self._pooling:
            if self._pool is None:
                self._pool = self._dial.pool(READERS)
        return self._pool

    async def _take(self, log: str, holder: str, mark: str, *, force: bool) -> tuple[HeldLog, int, Claim]:
        def job(connection: "sqlite3.Connection") -> tuple[tuple[HeldLog, int] | LeaseHeld, Claim]:
            self._server_clock.set(connection)
            claim = self._claim(holder, mark)
            return find_held(connection, log, mark) or rows.take(connection, log, claim, force=force), claim

        taken, claim = await self._writer.run(LogJob(job, log, again=True))
        if isinstance(taken, LeaseHeld):
            raise taken
        return (*taken, claim)

    def _mark(self) -> str:
        return f"{new_claim()} {self._seconds:g}"

    def _claim(self, holder: str, mark: str) -> Claim:
        return Claim(holder, mark, self._clock(), self._expiry())

    def _hold(self, held: HeldLog, claim: Claim, tail: LogTail) -> PostgresLog:
        log = PostgresLog(self, held, claim, tail)
        self._open.add(log)
        return log

    def _expiry(self) -> float:
        return self._clock() + self._seconds


class _Server:
    """A server is what its address names, whichever machine that is."""

    def check(self) -> None:
        pass

    def opened(self) -> None:
        pass


def find_held(connection: "sqlite3.Connection", log: str, mark: str) -> tuple[HeldLog, int] | None:
    """Return the log and its length if this claim has it already: the answer to an earlier attempt was lost."""
    found = connection.execute("SELECT number, epoch, claim, length FROM logs WHERE log = ?", (log,)).fetchone()
    if found is None or claims(found[2])[:1] != [mark]:
        return None
    number, epoch, stored, length = found
    return HeldLog(log, number, epoch, mark, rival_of(claims(stored)[1:])), length


def _find_strays(connection: "sqlite3.Connection") -> Iterator[Finding]:
    """Yield rows that belong to no log. The server refuses these; a restored part of a database may have some."""
    for table in ("events", "inbox", "checkpoints"):
        query = f"SELECT count(*) FROM {table} t LEFT JOIN logs l ON l.number = t.log WHERE l.number IS NULL"
        (count,) = connection.execute(query).fetchone()
        if count:
            yield Finding("", 0, f"{count} rows of the table {table} belong to a log that does not exist.")


def _forget_nothing(connection: "sqlite3.Connection", numbers: Iterable[int]) -> None:
    """Keep nothing beside the events: there is nothing to forget."""


def _release(log: str, mark: str, *, left: bool) -> "tuple[LogJob[object], Callable[[object], None]]":
    """Return the job that gives a lease back, and what is to be done after it."""
    return LogJob(partial(rows.release, log=log, mark=mark, left=left), log, again=True), lambda _: forget(mark)


def _give_back(writer: WriterThread, log: str, mark: str, *, left: bool = False) -> None:
    """Give a lease back: at once for this process, for others when the store has noted it."""
    give_back(mark, left=left)
    writer.send(*_release(log, mark, left=left))


def _end(renewer: Renewer, notices: NoticeListener, writer: WriterThread, threads: ThreadPoolExecutor) -> None:
    """Stop the threads, when the store is dropped without being closed and when the interpreter ends."""
    renewer.stop()
    writer.stop()
    notices.stop()
    threads.shutdown(wait=False)
