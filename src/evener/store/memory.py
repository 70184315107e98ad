"""Keeps logs in memory, for tests and for runs without a file. Nothing outlives the process; the rules are those of SQLite."""

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from math import inf
from os import PathLike
from pathlib import Path
from threading import RLock
from time import time
from weakref import finalize

import msgspec

from evener.events import Event, Opened, decode_event, encode_event
from evener.store import kin, refusals
from evener.store.catalog import label_of
from evener.store.erasing_kept import erase_events, erase_logs
from evener.store.funnel import Funnel
from evener.store.kept import Kept
from evener.store.log import Finding, Hits, Lease, Link, Note, Summary
from evener.store.moving import Cargo, Record, Whole
from evener.store.moving_memory import branch_of, records_of, taken_in
from evener.store.patience import persist
from evener.store.searching import found_in, parse

__all__ = ["MemoryStore"]


class MemoryLog:
    """A log that we hold. One that is dropped without being closed gives its lease back, too."""

    def __init__(self, store: "MemoryStore", kept: Kept, lease: Lease) -> None:
        self._store = store
        self._kept = kept
        self._lease = lease
        self._closed = False
        self._stays = False
        self._give_back = finalize(self, store._free, kept, lease.epoch, left=True)
        self._give_back.atexit = False

    @property
    def lease(self) -> Lease:
        """Ours, even after it was lost."""
        return self._lease

    @property
    def length(self) -> int:
        """How many events it has."""
        return self._kept.length

    async def append(self, *events: Event) -> tuple[Event, ...]:
        """Add events: all or none. Gives them as they are kept."""
        kept, payloads = self._store._funnel.events(events)
        with self._store._lock:
            self._check()
            self._extend(events, payloads)
        return kept

    async def notes(self) -> Sequence[Note]:
        """What is not settled yet, in order."""
        if not self._kept.unsettled:  # nearly always
            return []
        with self._store._lock:
            return list(self._kept.unsettled.values())

    async def settle(self, number: int, *events: Event) -> tuple[Event, ...]:
        """Append events and mark the note as settled, in one step. Gives the events as they are kept."""
        kept, payloads = self._store._funnel.events(events)
        with self._store._lock:
            self._check()
            if number not in self._kept.unsettled:
                raise refusals.no_note(self._lease.log, number)
            self._extend(events, payloads)
            del self._kept.unsettled[number]
        return kept

    async def renew(self) -> None:
        """Keep the lease."""
        with self._store._lock:
            self._check()
            self._extend((), ())

    def keep(self) -> None:
        """Hold the lease until the log is closed: all who could take it live in this process."""
        with self._store._lock:
            self._check()
            self._stays = True
            self._extend((), ())

    async def aclose(self, *, left: bool = False) -> None:
        """Give the lease back. `left`: something that was begun under it goes on."""
        if not self._closed:
            self._closed = True
            self._give_back.detach()
            self._store._free(self._kept, self._lease.epoch, left=left)

    def _check(self) -> None:
        if self._closed:
            raise refusals.given_back(self._lease.log)
        if self._kept.epoch != self._lease.epoch:
            self._store._check()
            raise refusals.lost(self._lease.log, self._kept.holder)

    def _extend(self, events: Sequence[Event], payloads: Sequence[bytes]) -> None:
        kept, store = self._kept, self._store
        kept.until = inf if self._stays else store._clock() + store._seconds
        for payload in payloads:
            kept.lines += payload
            kept.lines += b"\n"
        if events:
            kept.rival = ""
            kept.length += len(events)
            kept.changed = events[-1].at


class MemoryStore:
    """Keeps logs in memory. `lease` is how many seconds a holder has until others may take over; `clock` tells the time.

    `funnel` takes secrets out of what is kept; without one: all that this process has used.
    """

    def __init__(self, *, lease: float = 30.0, clock: Callable[[], float] = time, funnel: Funnel | None = None) -> None:
        self._lock = RLock()  # a log that is dropped by the garbage collector may call in while we hold it
        self._seconds = lease
        self._clock = clock
        self._funnel = funnel or Funnel()
        self._logs: dict[str, Kept] = {}
        self._heads: dict[str, str] = {}
        self._titles: dict[str, str] = {}
        self._tags: dict[str, tuple[str, ...]] = {}
        self._blobs: dict[str, bytes] = {}
        self._closed = False

    async def create(self, log: str, first: Event, *, holder: str) -> MemoryLog:
        """A new log with its first event, held by us. A fork names its parent there; nothing is copied."""
        kept = Kept(log, decode_event(self._funnel.clean(encode_event(first))), self._parent(first))
        made = MemoryLog(self, kept, Lease(log, 1, holder))
        kept.epoch, kept.holder = 1, holder
        await made.append(first)
        with self._lock:
            self._check()
            if log in self._logs:
                raise refusals.already_there(log)
            self._logs[log] = kept
        return made

    async def open(
        self, log: str, *, holder: str, after: int = 0, patience: float = 0.0, force: bool = False
    ) -> tuple[MemoryLog, list[Event]]:
        """Take the log over, and its events after number `after`."""

        async def attempt() -> MemoryLog:
            return self._take(log, holder, force=force)

        held = await persist(attempt, patience)
        return held, await self.read(log, after=after)

    async def read(self, log: str, *, after: int = 0, until: int | None = None) -> list[Event]:
        """The events of its path after number `after` up to `until`."""
        with self._lock:
            kept = self._whole(log)
            last = kept.length if until is None else min(until, kept.length)
            if after >= last:
                return []
            lines = kept.path(max(after, 0), last)
        return [decode_event(line) for line in lines]

    async def link(self, log: str, seq: int | None = None) -> Link:
        """The event of that number on the log's path, or the last, with its hash."""
        with self._lock:
            kept = self._whole(log)
            return kept.link(kept.length if seq is None else seq)

    async def head(self, thread: str) -> str:
        """The log that the thread stands on."""
        with self._lock:
            self._check()
            if thread in self._heads or thread in self._logs:
                return self._heads.get(thread, thread)
            for log, kept in self._logs.items():
                if kept.thread == thread and kept.parent is None:
                    return log
        raise refusals.no_log(thread)

    async def move_head(self, thread: str, log: str) -> None:
        """Let the thread stand on another of its logs."""
        with self._lock:
            owner = self._kept(log).thread
            if owner != thread:
                raise refusals.another_thread(log, owner, thread)
            self._heads[thread] = log

    async def post(self, log: str, note: Note) -> bool:
        """Say something to the log. False when a note of that key was there before."""
        with self._lock:
            kept = self._whole(log)
            if note.key in kept.keys:
                return False
            body = self._funnel.clean(note.body.encode()).decode()
            kept.keys.add(note.key)
            number = len(kept.keys)
            kept.unsettled[number] = msgspec.structs.replace(note, number=number, body=body)
            return True

    async def has_note(self, log: str, key: str) -> bool:
        """Whether a note of that key was ever said to the log, settled or not."""
        with self._lock:
            return key in self._whole(log).keys

    async def logs(self, *, thread: str = "") -> Sequence[Summary]:
        """Every log, or those of one thread, the one that changed last first."""
        with self._lock:
            self._check()
            found = [self._summary(kept) for kept in self._logs.values() if not thread or kept.thread == thread]
        return sorted(found, key=lambda summary: summary.changed, reverse=True)

    async def put_blob(self, content: bytes) -> str:
        """Keep bytes; their SHA-256 in hex names them."""
        kept = self._funnel.blob(bytes(content))
        digest = sha256(kept).hexdigest()
        with self._lock:
            self._check()
            self._blobs[digest] = kept
        return digest

    async def get_blob(self, digest: str) -> bytes:
        """The bytes of that name."""
        with self._lock:
            self._check()
            content = self._blobs.get(digest)
        if content is None:
            raise refusals.no_blob(digest)
        if sha256(content).hexdigest() != digest:
            raise refusals.spoiled_blob(digest)
        return content

    async def erase(self, log: str, *, seqs: Iterable[int] | None = None) -> int:
        """Erase what events of the log's path say, or everything of a log or thread, for good; how many events that were."""
        with self._lock:
            self._check()
            if seqs is not None:
                return erase_events(self._logs, self._kept(log), set(seqs), self._blobs)
            kept, threads = self._family(log)
            erased = erase_logs(self._logs, kept, self._clock(), self._blobs)
            for thread in threads:
                self._titles.pop(thread, None)
                self._tags.pop(thread, None)
            return erased

    async def verify(self, log: str = "") -> Sequence[Finding]:
        """Nothing: what lies in memory does not change by itself."""
        with self._lock:
            if log and not any(log in (name, kept.thread) for name, kept in self._logs.items()):
                raise refusals.no_log(log)
        return []

    async def inside(self, thread: str) -> Sequence[str]:
        """The threads of agents inside the calls of this one, and inside theirs."""
        with self._lock:
            self._check()
            owner = self._thread_of(thread) or thread
            if not any(kept.thread == owner for kept in self._logs.values()):
                raise refusals.no_log(thread)
            return kin.threads_inside(owner, self._started, self._thread_of)

    async def describe(self, thread: str, *, title: str | None = None, tags: Iterable[str] | None = None) -> None:
        """Give the thread a title, or tags in place of those it had."""
        label = label_of(title, tags, self._funnel)
        log = await self.head(thread)
        with self._lock:
            owner = self._whole(log).thread
            if label.title is not None:
                self._titles[owner] = label.title
            if label.tags is not None:
                self._tags[owner] = label.tags

    async def search(self, text: str, *, limit: int = 50) -> Hits:
        """Where all words of the text occur: in titles and tags, then in events, the newest first."""
        query = parse(text)
        with self._lock:
            self._check()
            logs = sorted(self._logs.values(), key=lambda kept: kept.changed, reverse=True)
            summaries = [self._summary(kept) for kept in logs]
            lines = [kept.said() for kept in logs]
        return Hits(found_in(query, zip(summaries, lines, strict=True))[:limit])

    async def backup(self, path: str | PathLike[str]) -> None:
        """Write what is kept as the file of a `SqliteStore`. Refuses to write over a file."""
        from evener.store.filing import write_file

        await write_file(self, Path(path).absolute())

    @property
    def encrypted(self) -> bool:
        """Nothing lies on a disk."""
        return False

    async def outline(self, thread: str) -> Whole:
        """A thread but for its events, for an export."""
        with self._lock:
            owner = self._logs[thread].thread if thread in self._logs else thread
            branches = tuple(branch_of(kept) for kept in self._logs.values() if kept.thread == owner)
        head = await self.head(owner)
        return Whole(owner, head, self._titles.get(owner, ""), self._tags.get(owner, ()), branches)

    async def records(self, log: str, *, after: int, until: int) -> list[Record]:
        """The log's own events, for an export."""
        with self._lock:
            return [record for record in records_of(self._kept(log)) if after < record.seq <= until]

    async def blobs_among(self, names: Iterable[str]) -> list[str]:
        """Those of the names that a blob has."""
        with self._lock:
            return sorted(self._blobs.keys() & names)

    async def adopt(self, wholes: Sequence[Whole], cargo: Cargo) -> None:
        """Take in threads from an export, all of them whole or nothing at all."""
        labels = [label_of(whole.title, whole.tags, self._funnel) for whole in wholes]
        names = {name for whole in wholes for name in (whole.thread, *(branch.log for branch in whole.branches))}
        with self._lock:
            self._check()
            for kept in self._logs.values():
                if kept.log in names or kept.thread in names:
                    raise refusals.already_there(kept.log)
            logs, self._blobs = taken_in(wholes, cargo, self._funnel, self._blobs)
            self._logs |= {kept.log: kept for kept in logs}
            for whole, label in zip(wholes, labels, strict=True):
                self._heads[whole.thread] = whole.head
                self._titles[whole.thread], self._tags[whole.thread] = label.title or "", label.tags or ()

    async def aclose(self) -> None:
        """Let go of everything: after this the store is empty and of no use."""
        with self._lock:
            self._closed = True
            for kept in self._logs.values():
                kept.epoch += 1
            self._logs.clear()
            self._blobs.clear()

    def _family(self, name: str) -> tuple[list[Kept], list[str]]:
        """The logs of a thread and of the agents inside it, with all their threads; or one log and those inside that."""
        if any(kept.thread == name for kept in self._logs.values()):
            threads = [name, *kin.threads_inside(name, self._started, self._thread_of)]
            return [kept for kept in self._logs.values() if kept.thread in threads], threads
        logs = [name, *kin.logs_inside(name, self._started, self._thread_of)]
        return [self._kept(log) for log in logs], []

    def _started(self, thread: str) -> list[tuple[str, str]]:
        return [(kept.log, key) for kept in self._logs.values() if kept.thread == thread for key in kept.keys_started()]

    def _thread_of(self, log: str) -> str:
        return self._logs[log].thread if log in self._logs else ""

    def _take(self, log: str, holder: str, *, force: bool) -> MemoryLog:
        with self._lock:
            kept, now = self._whole(log), self._clock()
            if kept.until < inf:
                kept.until = min(kept.until, now + self._seconds)  # else it was taken while the clock was ahead
            if kept.until > now and not force:
                raise refusals.held(log, kept.holder, min(kept.until - now, self._seconds))
            kept.epoch += 1
            kept.rival = kept.rival or ("holder" if kept.holder else "")
            kept.holder, kept.until = holder, now + self._seconds
            return MemoryLog(self, kept, Lease(log, kept.epoch, holder, kept.rival))

    def _free(self, kept: Kept, epoch: int, *, left: bool) -> None:
        with self._lock:
            if kept.epoch == epoch:
                kept.rival = kept.rival or ("holder" if left else "")
                kept.holder, kept.until = "", 0.0

    def _parent(self, first: Event) -> Kept | None:
        """The log that a fork goes on from. Refuses what it cannot go on from."""
        if not isinstance(first, Opened) or not first.parent:
            return None
        with self._lock:
            parent = self._whole(first.parent)
            if parent.thread != first.thread:
                raise refusals.another_thread(first.parent, parent.thread, first.thread)
            found = parent.link(first.parent_seq)
        if found.log != first.parent:
            raise refusals.no_event(first.parent, first.parent_seq)
        if found.hash != first.parent_hash:
            raise refusals.another_hash(first.parent, first.parent_seq)
        return parent

    def _summary(self, kept: Kept) -> Summary:
        head = self._heads.get(kept.thread)
        return Summary(
            kept.log, kept.thread, kept.harness, kept.length, kept.began, kept.changed,
            head=kept.parent is None if head is None else head == kept.log,
            parent=kept.parent.log if kept.parent else "", parent_seq=kept.base,
            title=self._titles.get(kept.thread, ""), tags=self._tags.get(kept.thread, ()),
            held=kept.until > self._clock(), erased=kept.erased or 0.0,
        )  # fmt: skip

    def _whole(self, log: str) -> Kept:
        kept = self._kept(log)
        if kept.erased is not None:
            raise refusals.erased(log, kept.erased)
        return kept

    def _kept(self, log: str) -> Kept:
        self._check()
        if log not in self._logs:
            raise refusals.no_log(log)
        return self._logs[log]

    def _check(self) -> None:
        if self._closed:
            raise refusals.closed()
