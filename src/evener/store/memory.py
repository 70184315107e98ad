"""Logs in memory, for tests and for runs without a file. Nothing outlives the process; the rules are those of the SQLite
store.
"""

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from hashlib import sha256
from math import inf
from os import PathLike
from pathlib import Path
from threading import RLock
from time import time
from weakref import finalize

import msgspec
from msgspec.structs import replace

from evener.events import VERSION, Event, Opened, Rival, decode_event, encode_event
from evener.store import protocol, subagent_logs
from evener.store.integrity.digests import EVERY, RULE, digest_of, link, origin_of
from evener.store.protocol import Finding, Hits, Lease, Link, Note, Summary, persist, waiting_of
from evener.store.redaction import Funnel
from evener.store.search import found_in, parse
from evener.store.sqlite.catalog import label_of
from evener.store.sqlite.erase import named_in
from evener.store.tombstones import blanked
from evener.store.transfer.cargo import Cargo, CargoBranch, CargoEvent, CargoThread, Chains, holds_a_secret


class LineFacts(msgspec.Struct, frozen=True):
    """What the chain needs to know of a line."""

    kind: str
    at: float


class StartFacts(msgspec.Struct, frozen=True):
    """The facts of a call that was started."""

    key: str


STARTED = b'"call_started"'
_glance = msgspec.json.Decoder(LineFacts)
_start = msgspec.json.Decoder(StartFacts)


class MemoryLogEvents:
    """The data of one log. `base` is the number of events of its path before its own, `length` counts along the path.

    `unsettled` has the open notes by number, `keys` every key ever used. `marks` has the chain after each `EVERY` events and
    the start of the next line, as far as computed; `digests` has those of erased events. `rival` is the process that may
    still act on calls that were in flight before the present holder, until the present holder has written.
    """

    __slots__ = (
        "base", "began", "changed", "digests", "epoch", "erased", "harness", "holder", "keys", "length", "lines", "log",
        "marks", "parent", "rival", "thread", "unsettled", "until",
    )  # fmt: skip

    def __init__(self, log: str, first: Event, parent: "MemoryLogEvents | None" = None) -> None:
        opened = first if isinstance(first, Opened) else Opened(at=first.at, thread=log)
        self.log, self.thread, self.harness = log, opened.thread, opened.harness
        self.parent = parent
        self.base = self.length = opened.parent_seq if parent else 0
        self.lines = bytearray()
        self.began = self.changed = first.at
        self.epoch, self.holder, self.until = 0, "", 0.0
        self.rival: Rival = ""
        self.erased: float | None = None
        self.keys: set[str] = set()
        self.unsettled: dict[int, Note] = {}
        self.marks: list[tuple[int, bytes]] = []
        self.digests: dict[int, bytes] = {}

    def path(self, after: int, until: int) -> list[bytes]:
        """Return the lines of the path after number `after` up to `until`."""
        pieces: list[list[bytes]] = []
        kept: MemoryLogEvents | None = self
        while kept is not None and until > after:
            if until > kept.base:
                pieces.append(bytes(kept.lines).split(b"\n")[max(after - kept.base, 0) : until - kept.base])
            until, kept = min(until, kept.base), kept.parent
        return [line for piece in reversed(pieces) for line in piece]

    def said(self) -> list[bytes]:
        """Return the lines of its own events; nothing in place of an erased one."""
        lines = self.path(self.base, self.length)
        return [b"" if seq in self.digests else line for seq, line in enumerate(lines, self.base + 1)]

    def keys_started(self) -> list[str]:
        """Return the keys of the calls that were started in it, erased or not."""
        lines = bytes(self.lines).split(b"\n")
        return [_start.decode(line).key for line in lines if STARTED in line and _glance.decode(line).kind == "call_started"]

    def link(self, seq: int) -> Link:
        """Return the event of that number on the path, and its hash."""
        kept = self
        while kept.parent is not None and seq <= kept.base:
            kept = kept.parent
        if not kept.base < seq <= self.length:
            raise protocol.no_event(self.log, seq)
        return Link(kept.log, seq, kept._chain(seq).hex())

    def blank(self, seqs: Iterable[int], change: Callable[[bytes], bytes]) -> int:
        """Change the lines of those numbers that are its own, and keep their digests; how many it were."""
        lines = self.path(self.base, self.length)
        wanted = [seq for seq in seqs if self.base < seq <= self.length and seq not in self.digests]
        for seq in wanted:
            line = lines[seq - self.base - 1]
            self.digests[seq] = digest_of(line)
            lines[seq - self.base - 1] = change(line)
        self.lines = bytearray(b"".join([line + b"\n" for line in lines]))
        self.marks = []
        return len(wanted)

    def _chain(self, seq: int) -> bytes:
        if not self.marks:
            self.marks.append((0, origin_of(self.log)))
        known = min((seq - self.base) // EVERY, len(self.marks) - 1)
        (offset, chain), number = self.marks[known], self.base + known * EVERY
        while number < seq:
            end = self.lines.index(b"\n", offset)
            number += 1
            line, offset = bytes(self.lines[offset:end]), end + 1
            seen, digest = _glance.decode(line), self.digests.get(number) or digest_of(line)
            chain = link(chain, digest, seq=number, version=VERSION, at=seen.at, kind=seen.kind)
            if number - self.base == len(self.marks) * EVERY:
                self.marks.append((offset, chain))
        return chain


def erase_events(
    logs: Mapping[str, MemoryLogEvents], log: MemoryLogEvents, seqs: set[int], blobs: MutableMapping[str, bytes]
) -> int:
    """Erase events of the log's path; how many. Refuses numbers that are not there before it changes anything."""
    for seq in sorted(seqs):
        log.link(seq)
    named = {name for line in log.path(0, log.length) for name in named_in(line)}
    erased, piece = 0, log
    while seqs:
        erased += piece.blank(seqs, _blank)
        seqs = {seq for seq in seqs if seq <= piece.base}
        piece = piece.parent or piece
    _drop(named, logs, blobs)
    return erased


def erase_logs(
    logs: Mapping[str, MemoryLogEvents], wanted: Sequence[MemoryLogEvents], now: float, blobs: MutableMapping[str, bytes]
) -> int:
    """Erase everything of some of the logs; how many events. Refuses while a holder has one of them."""
    for kept in wanted:
        if kept.until > now:
            raise protocol.held(kept.log, kept.holder, kept.until - now)
    named = {found for kept in wanted for found in named_in(bytes(kept.lines))}
    erased = sum(kept.blank(range(kept.base + 1, kept.length + 1), _blank) for kept in wanted)
    for kept in wanted:
        kept.erased = now if kept.erased is None else kept.erased
        kept.epoch, kept.holder = kept.epoch + 1, ""
        kept.keys, kept.unsettled = set(), {}
    _drop(named, logs, blobs)
    return erased


def _drop(named: set[str], logs: Mapping[str, MemoryLogEvents], blobs: MutableMapping[str, bytes]) -> None:
    """Let go of those of the blobs that no event names any more."""
    if gone := named & blobs.keys():
        for name in gone.difference(*(named_in(bytes(kept.lines)) for kept in logs.values())):
            del blobs[name]


def _blank(line: bytes) -> bytes:
    return encode_event(blanked(decode_event(line)))


def branch_of(kept: MemoryLogEvents) -> CargoBranch:
    """Return the log, but for its events."""
    parent = kept.parent
    return CargoBranch(
        kept.log, kept.harness, kept.began, kept.changed, kept.length, kept.base,
        parent.log if parent else "", parent.link(kept.base).hash if parent else "", kept.erased,
    )  # fmt: skip


def records_of(kept: MemoryLogEvents) -> list[CargoEvent]:
    """Return its own events with their links."""
    chain, records = origin_of(kept.log), []
    for seq, line in enumerate(kept.path(kept.base, kept.length), kept.base + 1):
        event, gone = decode_event(line), kept.digests.get(seq)
        kind = str(type(event).__struct_config__.tag)
        digest = gone or digest_of(line)
        chain = link(chain, digest, seq=seq, version=VERSION, at=event.at, kind=kind)
        erased = None if gone is None else kept.erased or 0.0
        records.append(CargoEvent(seq, VERSION, RULE, event.at, kind, digest, chain, line, erased))
    return records


def take_in(
    wholes: Sequence[CargoThread], cargo: Cargo, funnel: Funnel, blobs: Mapping[str, bytes]
) -> tuple[list[MemoryLogEvents], dict[str, bytes]]:
    """Return the logs of threads that come in, and the blobs with those that are there."""
    made = dict[str, MemoryLogEvents]()
    for whole in wholes:
        chains = Chains(whole.branches)
        for branch in map(chains.named, whole.branches):
            records = (_newest(record) for record in cargo.records(branch.log))
            lines = chains.linked(branch, records, lambda _, payload: funnel.clean(payload))
            made[branch.log] = _kept(branch, list(lines), made.get(branch.parent))
    fresh = dict(blobs)
    for blob in cargo.blobs():
        if funnel.blob(blob.content) != blob.content:
            raise holds_a_secret(blob)
        fresh[blob.digest] = blob.content
    return list(made.values()), fresh


def _kept(branch: CargoBranch, records: list[CargoEvent], parent: MemoryLogEvents | None) -> MemoryLogEvents:
    kept = MemoryLogEvents(branch.log, decode_event(records[0].payload), parent)
    kept.began, kept.changed, kept.erased, kept.length = branch.began, branch.changed, branch.erased, branch.length
    kept.lines = bytearray(b"".join([record.payload + b"\n" for record in records]))
    kept.digests = {record.seq: record.digest for record in records if record.erased is not None}
    kept.epoch, kept.rival = 1, "copy"
    return kept


def _newest(record: CargoEvent) -> CargoEvent:
    """Return the record in the form and with the rule of today."""
    if record.version == VERSION:
        return replace(record, rule=RULE)
    return replace(record, rule=RULE, version=VERSION, payload=encode_event(decode_event(record.payload, record.version)))


class MemoryLog:
    """A log whose lease is held. If it is dropped without being closed, the lease is returned, too."""

    def __init__(self, store: "MemoryStore", kept: MemoryLogEvents, lease: Lease) -> None:
        self._store = store
        self._kept = kept
        self._lease = lease
        self._closed = False
        self._stays = False
        self._give_back = finalize(self, store._free, kept, lease.epoch, left=True)
        self._give_back.atexit = False

    @property
    def lease(self) -> Lease:
        """Return our lease, even after it was lost."""
        return self._lease

    @property
    def length(self) -> int:
        """Return how many events it has."""
        return self._kept.length

    async def append(self, *events: Event) -> tuple[Event, ...]:
        """Add events: all or none. Gives them as they are kept."""
        store, log = self._store, self._kept
        kept, payloads = store._funnel.events(events)
        with store._lock:
            if self._closed or log.epoch != self._lease.epoch:
                self._check()
            self._extend(events, payloads)
        return kept

    async def notes(self) -> Sequence[Note]:
        """Return the notes that are not settled yet, in order."""
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
                raise protocol.no_note(self._lease.log, number)
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
            self._kept.until = inf

    async def aclose(self, *, left: bool = False) -> None:
        """Release the lease. `left`: a tool that was started under it is still running."""
        if not self._closed:
            self._closed = True
            self._give_back.detach()
            self._store._free(self._kept, self._lease.epoch, left=left)

    def _check(self) -> None:
        if self._closed:
            raise protocol.given_back(self._lease.log)
        if self._kept.epoch != self._lease.epoch:
            self._store._check()
            raise protocol.lost(self._lease.log, self._kept.holder)

    def _extend(self, events: Sequence[Event], payloads: Sequence[bytes]) -> None:
        kept = self._kept
        if not self._stays:
            kept.until = self._store._clock() + self._store._seconds
        if events:
            kept.lines += b"\n".join(payloads) + b"\n"
            kept.rival = ""
            kept.length += len(events)
            kept.changed = events[-1].at


class MemoryStore:
    """Stores logs in memory. `lease` is the number of seconds after which another holder may take over; `clock` returns the
    time.

    `funnel` removes secrets from what is stored; by default all secrets that this process has used.
    """

    def __init__(self, *, lease: float = 30.0, clock: Callable[[], float] = time, funnel: Funnel | None = None) -> None:
        self._lock = RLock()  # a log that is dropped by the garbage collector may call in while we hold it
        self._seconds = lease
        self._clock = clock
        self._funnel = funnel or Funnel()
        self._logs: dict[str, MemoryLogEvents] = {}
        self._heads: dict[str, str] = {}
        self._titles: dict[str, str] = {}
        self._tags: dict[str, tuple[str, ...]] = {}
        self._blobs: dict[str, bytes] = {}
        self._closed = False

    async def create(self, log: str, first: Event, *, holder: str) -> MemoryLog:
        """Return a new log with its first event, held by us. A fork names its parent there; nothing is copied."""
        kept = MemoryLogEvents(log, decode_event(self._funnel.clean(encode_event(first))), self._parent(first))
        made = MemoryLog(self, kept, Lease(log, 1, holder))
        kept.epoch, kept.holder = 1, holder
        await made.append(first)
        with self._lock:
            self._check()
            if log in self._logs:
                raise protocol.already_there(log)
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
        """Return the events of its path after number `after` up to `until`."""
        with self._lock:
            kept = self._whole(log)
            last = kept.length if until is None else min(until, kept.length)
            if after >= last:
                return []
            lines = kept.path(max(after, 0), last)
        return [decode_event(line) for line in lines]

    async def link(self, log: str, seq: int | None = None) -> Link:
        """Return the event of that number on the log's path, or the last, with its hash."""
        with self._lock:
            kept = self._whole(log)
            return kept.link(kept.length if seq is None else seq)

    async def head(self, thread: str) -> str:
        """Return the log that the thread stands on."""
        with self._lock:
            self._check()
            if thread in self._heads or thread in self._logs:
                return self._heads.get(thread, thread)
            for log, kept in self._logs.items():
                if kept.thread == thread and kept.parent is None:
                    return log
        raise protocol.no_log(thread)

    async def move_head(self, thread: str, log: str) -> None:
        """Let the thread stand on another of its logs."""
        with self._lock:
            owner = self._kept(log).thread
            if owner != thread:
                raise protocol.another_thread(log, owner, thread)
            self._heads[thread] = log

    async def post(self, log: str, note: Note) -> bool:
        """Add a note to the log's inbox. False if there was a note with the same key before."""
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
        """True if a note of that key was ever said to the log, settled or not."""
        with self._lock:
            return key in self._whole(log).keys

    async def logs(self, *, thread: str = "") -> Sequence[Summary]:
        """List every log, or those of one thread, the one that changed last first."""
        with self._lock:
            self._check()
            found = [self._summary(kept) for kept in self._logs.values() if not thread or kept.thread == thread]
        return sorted(found, key=lambda summary: summary.changed, reverse=True)

    def clean(self, text: str) -> str:
        """Return a text as it would be stored: without secrets."""
        return self._funnel.text(text)

    async def put_blob(self, content: bytes) -> str:
        """Keep bytes; their SHA-256 in hex names them."""
        kept = self._funnel.blob(bytes(content))
        digest = sha256(kept).hexdigest()
        with self._lock:
            self._check()
            self._blobs[digest] = kept
        return digest

    async def get_blob(self, digest: str) -> bytes:
        """Return the bytes of that name."""
        with self._lock:
            self._check()
            content = self._blobs.get(digest)
        if content is None:
            raise protocol.no_blob(digest)
        if sha256(content).hexdigest() != digest:
            raise protocol.spoiled_blob(digest)
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
        """Find nothing: what lies in memory does not change by itself."""
        with self._lock:
            if log and not any(log in (name, kept.thread) for name, kept in self._logs.items()):
                raise protocol.no_log(log)
        return []

    async def waiting(self) -> list[Summary]:
        """Return the heads of threads whose run waits for a decision. `Thread.approvals` says what for."""
        return await waiting_of(self)

    async def inside(self, thread: str) -> Sequence[str]:
        """Return the threads of agents inside the calls of this one, and inside theirs."""
        with self._lock:
            self._check()
            owner = self._thread_of(thread) or thread
            if not any(kept.thread == owner for kept in self._logs.values()):
                raise protocol.no_log(thread)
            return subagent_logs.threads_inside(owner, self._started, self._thread_of)

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
        """Find all words of the text: in titles and tags, then in events, the newest first."""
        query = parse(text)
        with self._lock:
            self._check()
            logs = sorted(self._logs.values(), key=lambda kept: kept.changed, reverse=True)
            summaries = [self._summary(kept) for kept in logs]
            lines = [kept.said() for kept in logs]
        return Hits(found_in(query, zip(summaries, lines, strict=True))[:limit])

    async def backup(self, path: str | PathLike[str]) -> None:
        """Write what is kept as the file of a `SqliteStore`. Refuses to write over a file."""
        from evener.store.transfer.jsonl import write_file

        await write_file(self, Path(path).absolute())

    @property
    def encrypted(self) -> bool:
        """False: nothing is on a disk."""
        return False

    async def outline(self, thread: str) -> CargoThread:
        """Return a thread but for its events, for an export."""
        with self._lock:
            owner = self._logs[thread].thread if thread in self._logs else thread
            branches = tuple(branch_of(kept) for kept in self._logs.values() if kept.thread == owner)
        head = await self.head(owner)
        return CargoThread(owner, head, self._titles.get(owner, ""), self._tags.get(owner, ()), branches)

    async def records(self, log: str, *, after: int, until: int) -> list[CargoEvent]:
        """Return the log's own events, for an export."""
        with self._lock:
            return [record for record in records_of(self._kept(log)) if after < record.seq <= until]

    async def blobs_among(self, names: Iterable[str]) -> list[str]:
        """Return those of the names that a blob has."""
        with self._lock:
            return sorted(self._blobs.keys() & names)

    async def adopt(self, wholes: Sequence[CargoThread], cargo: Cargo) -> None:
        """Take in threads from an export, all of them whole or nothing at all."""
        labels = [label_of(whole.title, whole.tags, self._funnel) for whole in wholes]
        names = {name for whole in wholes for name in (whole.thread, *(branch.log for branch in whole.branches))}
        with self._lock:
            self._check()
            for kept in self._logs.values():
                if kept.log in names or kept.thread in names:
                    raise protocol.already_there(kept.log)
            logs, self._blobs = take_in(wholes, cargo, self._funnel, self._blobs)
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

    def _family(self, name: str) -> tuple[list[MemoryLogEvents], list[str]]:
        """Return the logs of a thread and of the agents inside it, with all their threads; or one log and those inside that."""
        if any(kept.thread == name for kept in self._logs.values()):
            threads = [name, *subagent_logs.threads_inside(name, self._started, self._thread_of)]
            return [kept for kept in self._logs.values() if kept.thread in threads], threads
        logs = [name, *subagent_logs.logs_inside(name, self._started, self._thread_of)]
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
                raise protocol.held(log, kept.holder, min(kept.until - now, self._seconds))
            kept.epoch += 1
            kept.rival = kept.rival or ("holder" if kept.holder else "")
            kept.holder, kept.until = holder, now + self._seconds
            return MemoryLog(self, kept, Lease(log, kept.epoch, holder, kept.rival))

    def _free(self, kept: MemoryLogEvents, epoch: int, *, left: bool) -> None:
        with self._lock:
            if kept.epoch == epoch:
                kept.rival = kept.rival or ("holder" if left else "")
                kept.holder, kept.until = "", 0.0

    def _parent(self, first: Event) -> MemoryLogEvents | None:
        """Return the log that a fork goes on from. Refuses what it cannot go on from."""
        if not isinstance(first, Opened) or not first.parent:
            return None
        with self._lock:
            parent = self._whole(first.parent)
            if parent.thread != first.thread:
                raise protocol.another_thread(first.parent, parent.thread, first.thread)
            found = parent.link(first.parent_seq)
        if found.log != first.parent:
            raise protocol.no_event(first.parent, first.parent_seq)
        if found.hash != first.parent_hash:
            raise protocol.another_hash(first.parent, first.parent_seq)
        return parent

    def _summary(self, kept: MemoryLogEvents) -> Summary:
        head = self._heads.get(kept.thread)
        return Summary(
            kept.log, kept.thread, kept.harness, kept.length, kept.began, kept.changed,
            head=kept.parent is None if head is None else head == kept.log,
            parent=kept.parent.log if kept.parent else "", parent_seq=kept.base,
            title=self._titles.get(kept.thread, ""), tags=self._tags.get(kept.thread, ()),
            held=kept.until > self._clock(), erased=kept.erased or 0.0,
        )  # fmt: skip

    def _whole(self, log: str) -> MemoryLogEvents:
        kept = self._kept(log)
        if kept.erased is not None:
            raise protocol.erased(log, kept.erased)
        return kept

    def _kept(self, log: str) -> MemoryLogEvents:
        self._check()
        if log not in self._logs:
            raise protocol.no_log(log)
        return self._logs[log]

    def _check(self) -> None:
        if self._closed:
            raise protocol.closed()
