"""Stores logs in one SQLite file: when an append returns, its events are on the disk, complete and in order.

One thread writes and groups the waiting jobs, another reads; this file is their asynchronous interface and has no SQL. Safe
from several tasks, event loops and threads of a process, and from several processes on one machine. Never pickles.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakSet, finalize

import msgspec

from evener.errors import StoreError
from evener.events import Event
from evener.loop.state import RunState, fold
from evener.store import protocol
from evener.store.cipher import Cipher, SameKey
from evener.store.integrity.digests import Checkpoint, Sidecar
from evener.store.integrity.verify import verify
from evener.store.protocol import Damaged, Finding, Hits, Lease, LeaseHeld, Note, persist
from evener.store.redaction import Funnel, Redaction
from evener.store.sql_store import SqlStore
from evener.store.sqlite import catalog, erase, reading, rows, snapshots, transfer
from evener.store.sqlite.backup import write_copy
from evener.store.sqlite.file import StoreBusy, StoreFull, connect, only_read, path_of
from evener.store.sqlite.identity import FileIdentity
from evener.store.sqlite.leases import Renewer, forget, give_back, new_claim
from evener.store.sqlite.rows import AppendedRows, Claim, EventRow, HeldLog, rows_of
from evener.store.sqlite.search_index import SearchIndex, part_of
from evener.store.sqlite.snapshots import Folder
from evener.store.sqlite.writer import (
    Interlock,
    Job,
    Perform,
    WalScrubber,
    WriterThread,
    make_checked_reads,
    make_writes_in_turn,
    perform_freely,
    perform_reads,
    read_alone,
)
from evener.store.transfer.cargo import Cargo, CargoThread

if TYPE_CHECKING:
    import sqlite3


MOMENT = 1.0
"""Seconds that a search may spend on its index when it has its answer."""

UNKNOWN = 0
"""The number of a log that is not in the file yet."""

T = TypeVar("T")
Release = tuple["Callable[[sqlite3.Connection], Checkpoint | None]", Callable[[Checkpoint | None], None]]


class SqliteLog:
    """A log whose lease is held. If it is dropped without being closed, the lease is returned, too."""

    def __init__(self, store: "SqliteStore", held: HeldLog, claim: Claim, length: int) -> None:
        self._store = store
        self._held = held
        self._dropped = finalize(self, _give_back, store._writer, store._sidecar, held.log, claim.mark, left=True)
        self._dropped.atexit = False  # by then the process is as good as dead, and others can tell
        self._lease = Lease(held.log, held.epoch, claim.holder, held.rival)
        self._length = length
        self._until = claim.until
        self._closed = False
        self._folded = length
        self._staged: list[EventRow] = []
        self._writing = 0  # writes under way
        self._end: tuple[int, bytes] | None = None  # length and head after our last write, if they are known
        self._claim = claim  # with which the first write creates the log, if it does not exist yet

    @property
    def exists(self) -> bool:
        """True if the log is in the store."""
        return self._held.number != UNKNOWN

    @property
    def lease(self) -> Lease:
        """Return our lease, even after it was lost."""
        return self._lease

    @property
    def length(self) -> int:
        """Return how many events it has, as far as we wrote or read them."""
        return self._length

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

    async def append_last(self, *events: Event) -> tuple[Event, ...] | None:
        """Append as `append_unless_noted` does, and close the log in the same commit. It stays open if None is returned."""
        kept, added = rows_of(events, self._store._guard)
        if (await self._write(added, certain=len(self._staged), last=True)).noted:
            return None
        self._close()
        return kept

    async def notes(self) -> Sequence[Note]:
        """Return the notes that are not settled yet, in order."""
        if not self.exists:
            return ()
        return await self._store._reader.run(
            partial(rows.notes, held=self._held, guard=self._store._guard), here=self._store._is_alone
        )

    async def settle(self, number: int, *events: Event) -> tuple[Event, ...]:
        """Append events and mark the note as settled, in one step."""
        kept, added = rows_of(events, self._store._guard)
        await self._write(added, note=number)
        return kept

    def keep(self) -> None:
        """Renew the lease from a thread of the store's, until the log is closed or lost."""
        self._store._renewer.add(self)

    def renew_soon(self, when_less_than: float) -> None:
        """Have the lease renewed if fewer seconds than this are left of it, without waiting for that."""
        store = self._store
        if self._closed or not self.exists or self._until - store._clock() >= when_less_than:
            return
        until = store._expiry()
        renewed = partial(rows.append, held=self._held, rows=(), until=until, guard=store._guard)
        store._writer.send(renewed, partial(self._note_growth, until))

    async def renew(self) -> None:
        """Keep the lease."""
        await self._write([])

    async def aclose(self, *, left: bool = False) -> None:
        """Give the lease back. `left`: something that was begun under it goes on."""
        if not self._closed:
            give_back(self._held.mark, left=left)
            self._close()
            job, after = _release(self._store._sidecar, self._held.log, self._held.mark, left=left)
            try:
                await self._store._writer.run(job, after, here=self._store._is_alone)
            except (StoreBusy, StoreFull):  # ours it is not any more; others learn of it with the next write
                self._store._writer.send(job, after)

    def _close(self) -> None:
        self._closed = True
        self._dropped.detach()
        self._store._open.discard(self)
        self._store._renewer.discard(self)
        self._fold_after(snapshots.EVERY)

    def _drop(self) -> None:
        if not self._closed:
            self._closed = True
            self._dropped()

    async def _write(
        self, added: list[EventRow], *, certain: int | None = None, note: int | None = None, last: bool = False
    ) -> AppendedRows:
        """Have rows written, those that were staged before them. If it fails, those stay staged.

        With `certain`, only so many of all of them if a note waits. With `note`, the note of that number is settled. `last`:
        the lease is given back unless a note waits.
        """
        if self._closed:
            raise protocol.given_back(self._held.log)
        store, staged, exists = self._store, self._staged, self.exists
        if not (exists or staged):  # an earlier write that creates it is under way
            raise protocol.no_log(self._held.log)
        held, guard, end, all = self._held, store._guard, self._end, staged + added if staged else added
        until = store._expiry()

        def work(connection: "sqlite3.Connection") -> AppendedRows:
            if note is not None:
                return rows.settle(connection, held, note, all, until, guard)
            if exists:
                grown = rows.append(connection, held, all, until, guard, certain, end)
            else:
                grown = rows.begin(connection, held.log, all, self._claim, until, guard)
            return rows.end(connection, held, grown) if last and not grown.noted else grown

        self._staged = []
        self._writing += 1
        try:
            return await store._writer.run(work, partial(self._note_growth, until), here=store._is_alone)
        except StoreError:
            self._staged = staged + self._staged
            raise
        finally:
            self._writing -= 1

    def _note_growth(self, until: float, grown: AppendedRows) -> None:
        length = self._length = grown.length
        if grown.head:
            self._end = (length, grown.head)
        if grown.number:
            self._held = msgspec.structs.replace(self._held, number=grown.number)
        self._until = until
        if grown.mark is not None:
            self._store._sidecar.mark(grown.mark)
        if self._folded // snapshots.SELDOM != length // snapshots.SELDOM:
            self._fold_after(snapshots.SELDOM)

    def _fold_after(self, events: int) -> None:
        """Have the log folded, beside whatever else is done, if it has passed another so many events."""
        if self._folded // events != self._length // events:
            self._folded = self._length
            self._store._folder.soon(self._held.log)


class SqliteStore(SqlStore):
    """Stores logs in the file at `path`; by default in the platform's data folder. The file is created at the first use.

    `lease` is the number of seconds after which another holder may take over, unless the holder's process has died; a thread
    renews the lease during a run. `busy` is the maximum wait in seconds while another process writes; `clock` returns the
    time. `funnel` removes secrets from what is stored (by default all that this process has used); `cipher` encrypts the
    rest, and the file opens only with the cipher with which it was made. Close it with `aclose`.
    """

    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        *,
        lease: float = 30.0,
        busy: float = 10.0,
        clock: Callable[[], float] = time,
        funnel: Funnel | None = None,
        cipher: Cipher | None = None,
    ) -> None:
        self.path = path_of(path)
        given = self.path.absolute()
        place = given.resolve()  # as SQLite does: a link to the file is the same store, with the same locks beside it
        self._opener = partial(connect, place, busy, cipher)
        self._identity = FileIdentity(place, given)
        self._sidecar = Sidecar(place)
        self._scrubber = WalScrubber(place)
        interlock = Interlock(place, busy)
        writes = make_writes_in_turn(
            interlock, self._identity, self._scrubber.scrub_again, None if cipher is None else SameKey(place)
        )
        self._writer = WriterThread(place, self._opener, writes, self._identity, interlock.close)
        self._reader = WriterThread(place, self._opener, make_checked_reads(self._identity), self._identity)
        self._indexer = WriterThread(place, self._opener, make_checked_reads(self._identity), self._identity)
        self._seconds = lease
        self._clock = clock
        self._guard = Redaction(funnel or Funnel(), cipher)
        self._open: WeakSet[SqliteLog] = WeakSet()
        self._renewer = Renewer(lease)
        finalize(self, _end, self._renewer, self._indexer, self._writer, self._reader)

    @property
    def _is_alone(self) -> bool:
        """True if one log is written at most. What several write shares one sync of the disk: the thread collects it."""
        return len(self._open) < 2

    @cached_property
    def _folder(self) -> Folder:
        """Return what folds long logs. Made when there is one."""
        alone = partial(read_alone, connect=self._opener, identity=self._identity, path=self._writer.path)
        pager = snapshots.Pager(alone, self._guard)
        return Folder(self._indexer, self._writer, partial(snapshots.fold_log, guard=self._guard, pager=pager))

    @cached_property
    def _indexes(self) -> tuple[SearchIndex, SearchIndex] | None:
        """Return the index that answers searches and the one that grows, of the same file. None where there is no index."""
        path = self._writer.path
        return None if self.encrypted or only_read(path) else (SearchIndex(path), SearchIndex(path))

    async def create(self, log: str, first: Event, *, holder: str) -> SqliteLog:
        """Return a new log with its first event, held by us. A fork names its parent there; nothing is copied."""
        claim = self._claim(holder)
        try:
            held, grown = await self._writer.run(
                partial(rows.create, log=log, first=first, claim=claim, guard=self._guard),
                lambda made: self._sidecar.mark(made[1].mark),
                here=not self._open,
            )
        except BaseException:
            _give_back(self._writer, self._sidecar, log, claim.mark)
            raise
        return self._hold(held, claim, grown.length)

    def begin(self, log: str, first: Event, *, holder: str) -> SqliteLog:
        """Return a log that is created with its first write, which puts this event first. The id must be new."""
        claim = self._claim(holder)
        begun = self._hold(HeldLog(log, UNKNOWN, 1, claim.mark), claim, 1)
        begun.stage(first)
        return begun

    async def open(
        self, log: str, *, holder: str, after: int = 0, patience: float = 0.0, force: bool = False
    ) -> tuple[SqliteLog, list[Event]]:
        """Take the log over, and its events after number `after`.

        At once when its holder's process has died, or with `force`; else when the lease is over.
        """
        claim = self._claim(holder)
        try:
            held, length = await persist(lambda: self._take(log, claim, force=force), patience)
            events = await self._read_up_to(length, log, after)
        except BaseException:
            _give_back(self._writer, self._sidecar, log, claim.mark)
            raise
        return self._hold(held, claim, length), events

    async def open_folded(self, log: str, *, holder: str, force: bool = False) -> tuple[SqliteLog, RunState]:
        """Take the log over, and its state. Only events after the last fold that was kept are read.

        The messages of a long log are read when something asks for them: also after the store was closed, while its file is
        there.
        """
        claim = self._claim(holder)
        try:
            held, length = await self._take(log, claim, force=force)
            if length < snapshots.EVERY:
                state = fold(await self._read_up_to(length, log, 0))
            else:
                state = await self._fold_up_to(length, log)
        except BaseException:
            _give_back(self._writer, self._sidecar, log, claim.mark)
            raise
        return self._hold(held, claim, length), state

    async def state(self, log: str, *, until: int | None = None) -> RunState:
        """Return the state of the log now, or after the event of that number; without a lease, and read as by `open_folded`."""
        return (await self._folded(log, self._reader.run, until)).state

    async def post(self, log: str, note: Note) -> bool:
        """Add a note to the log's inbox. False if there was a note with the same key before."""
        return await self._writer.run(partial(rows.post, log=log, note=note, guard=self._guard))

    async def erase(self, log: str, *, seqs: Iterable[int] | None = None) -> int:
        """Erase what events of the log's path say, or everything of a log or thread, for good; how many events that were."""
        wanted = None if seqs is None else frozenset(seqs)
        surveyed = await self._apart(partial(erase.survey, log=log, seqs=wanted, guard=self._guard))
        job = partial(erase.erase, log=log, seqs=wanted, surveyed=surveyed, now=self._clock(), guard=self._guard)
        done = await self._writer.run(job, lambda done: self._sidecar.add(done.stones))
        if self._indexes is not None and done.rows:
            await self._apart(partial(self._indexes[1].purge, parts={part_of(row) for row in done.rows}))
        await self._apart(self._scrubber.scrub, perform_freely)
        return len(done.stones)

    async def verify(self, log: str = "") -> Sequence[Finding]:
        """Find what is not as it was written: in a log and those before it, in a thread, or in the whole store."""

        def job(connection: "sqlite3.Connection") -> list[Finding]:
            known = self._sidecar.read()  # before the store is looked at: it must not know more than we see
            return verify(connection, log, known, self._guard)

        try:
            return [*await self._apart(job), *self._scrubber.findings()]
        except Damaged as error:
            return [Finding("", 0, str(error))]

    async def search(self, text: str, *, limit: int = 50) -> Hits:
        """Find all words of the text: in titles and tags, then in events, the newest first."""
        index, growing = self._indexes or (None, None)
        hits = await catalog.search(self._reader.run, text, limit, self._clock(), self._guard, index)
        if index is not None and growing is not None and await self._reader.run(index.wants):
            await self._grow_index(growing)
        return hits

    async def index(self) -> None:
        """Finish the index of the search now. Without this it grows a little with each search, and while the store is open.

        An encrypted store has none.
        """
        while self._indexes is not None and await self._indexer.run(self._indexes[1].grow):
            pass

    async def backup(self, path: str | PathLike[str]) -> None:
        """Write a consistent copy while others write. Refuses to write over a file."""
        await self.logs()  # the file is there, and ours
        await asyncio.to_thread(write_copy, self._opener, Path(path).absolute())

    async def adopt(self, wholes: Sequence[CargoThread], cargo: Cargo) -> None:
        """Take in threads from an export, all of them whole or nothing at all."""
        job = partial(transfer.adopt, wholes=wholes, cargo=cargo, guard=self._guard)
        await self._writer.run(job, self._sidecar.add)

    async def aclose(self) -> None:
        """Give all leases back, do what waits, and let go of the file."""
        self._renewer.stop()
        for log in list(self._open):
            log._drop()
        if "_folder" in vars(self):
            await self._folder.finish()
        await self._indexer.end()
        await self._writer.end()
        await self._reader.end()
        self._identity.close()
        for index in vars(self).get("_indexes") or ():
            index.close()

    async def _read(self, job: "Job[T]") -> T:
        return await self._reader.run(job)

    async def _write(self, job: "Job[T]", log: str = "") -> T:  # noqa: ARG002 - whatever the log, one process writes
        return await self._writer.run(job)

    def _now(self, connection: "sqlite3.Connection") -> float:  # noqa: ARG002 - the clock is our own
        return self._clock()

    async def _grow_index(self, index: SearchIndex) -> None:
        """Let the index grow: for a moment now, then beside whatever else is done."""
        until = monotonic() + MOMENT
        while monotonic() < until:
            if not await self._indexer.run(index.grow):
                return
        _grow_on(self._indexer, index)

    async def _apart(self, job: "Callable[[sqlite3.Connection], T]", perform: Perform = perform_reads) -> T:
        """Have a long job done on a connection of its own, so that no other job waits for it."""
        if self._writer.stopped:
            raise protocol.closed()
        thread = WriterThread(self._writer.path, self._opener, perform, self._identity)
        try:
            return await thread.run(job)
        finally:
            await thread.end()

    async def _take(self, log: str, claim: Claim, *, force: bool) -> tuple[HeldLog, int]:
        now = msgspec.structs.replace(claim, now=self._clock(), until=self._expiry())
        taken = await self._writer.run(partial(rows.take, log=log, claim=now, force=force))
        if isinstance(taken, LeaseHeld):
            raise taken
        return taken

    async def _read_up_to(self, length: int, log: str, after: int) -> list[Event]:
        """Return the events of a log that we hold: as many as the writer knows of. A run from fewer would repeat."""
        wanted = max(length - max(after, 0), 0)
        events = await self.read(log, after=after)
        if len(events) < wanted:  # the reader is behind
            events = await self._apart(
                partial(reading.read, log=log, after=after, until=None, guard=self._guard), perform_reads
            )
        if len(events) != wanted:
            raise protocol.lost(log, "") if len(events) > wanted else protocol.damaged(log, length)
        return events

    async def _fold_up_to(self, length: int, log: str) -> RunState:
        """Return the state of a log that we hold, at the end that the writer knows of."""
        found = await self._folded(log, self._reader.run)
        if found.seq < length:  # the reader is behind
            found = await self._folded(log, self._apart)
        if found.seq != length:
            raise protocol.lost(log, "") if found.seq > length else protocol.damaged(log, length)
        return found.state

    async def _folded(
        self,
        log: str,
        run: "Callable[[Callable[[sqlite3.Connection], snapshots.Folded]], Awaitable[snapshots.Folded]]",
        until: int | None = None,
    ) -> snapshots.Folded:
        found = await run(self._folder.job(log, until))
        self._folder.keep(found)
        return found

    def _claim(self, holder: str) -> Claim:
        return Claim(holder, f"{new_claim()} {self._seconds:g}", self._clock(), self._expiry())

    def _hold(self, held: HeldLog, claim: Claim, length: int) -> SqliteLog:
        log = SqliteLog(self, held, claim, length)
        self._open.add(log)
        return log

    def _expiry(self) -> float:
        return self._clock() + self._seconds


def _grow_on(thread: WriterThread, index: SearchIndex) -> None:
    """Let the index grow step by step, until it is whole or the thread is stopped."""

    def again(more: bool) -> None:
        if more:
            _grow_on(thread, index)

    thread.send(index.grow, again)


def _release(sidecar: Sidecar, log: str, mark: str, *, left: bool) -> Release:
    """Return the job that gives a lease back, and what is to be done after it."""

    def after(made: Checkpoint | None) -> None:
        forget(mark)
        sidecar.mark(made)

    return partial(rows.release, log=log, mark=mark, left=left), after


def _give_back(writer: WriterThread, sidecar: Sidecar, log: str, mark: str, *, left: bool = False) -> None:
    """Give a lease back: at once for this process, for others when the store has noted it."""
    give_back(mark, left=left)
    writer.send(*_release(sidecar, log, mark, left=left))


def _end(renewer: Renewer, *threads: WriterThread) -> None:
    """Stop the threads, when the store is dropped without being closed and when the interpreter ends."""
    renewer.stop()
    for thread in threads:
        thread.stop()
