"""Keeps logs in memory, for tests and for runs without a file. Nothing outlives the process; the rules are those of SQLite.

The events of a log are one run of bytes, a line each (their JSON has no line breaks), so an idle log costs about its bytes.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256
from threading import RLock
from time import time
from weakref import finalize

import msgspec

from evener.events import Event, Opened, decode_event, encode_event
from evener.store import refusals
from evener.store.log import Lease, Note, Summary
from evener.store.patience import persist

__all__ = ["MemoryStore"]


class Kept:
    """All there is of one log. `unsettled` has the open notes by number, `keys` every key ever used."""

    __slots__ = ("began", "changed", "epoch", "harness", "holder", "keys", "length", "lines", "thread", "unsettled", "until")

    def __init__(self, log: str, first: Event) -> None:
        self.thread, self.harness = (first.thread, first.harness) if isinstance(first, Opened) else (log, "")
        self.lines = bytearray()
        self.length = 0
        self.began = self.changed = first.at
        self.epoch = 0
        self.holder = ""
        self.until = 0.0
        self.keys: set[str] = set()
        self.unsettled: dict[int, Note] = {}

    def summary(self, log: str) -> Summary:
        return Summary(log, self.thread, self.harness, self.length, self.began, self.changed)


class MemoryLog:
    """A log that we hold. One that is dropped without being closed gives its lease back, too."""

    def __init__(self, store: "MemoryStore", kept: Kept, lease: Lease) -> None:
        self._store = store
        self._kept = kept
        self._lease = lease
        self._closed = False
        self._give_back = finalize(self, store._free, kept, lease.epoch)
        self._give_back.atexit = False

    @property
    def lease(self) -> Lease:
        """Ours, even after it was lost."""
        return self._lease

    @property
    def length(self) -> int:
        """How many events it has."""
        return self._kept.length

    async def append(self, *events: Event) -> None:
        """Add events: all or none."""
        lines = _lines(events)
        with self._store._lock:
            self._check()
            self._extend(events, lines)

    async def notes(self) -> Sequence[Note]:
        """What is not settled yet, in order."""
        with self._store._lock:
            return list(self._kept.unsettled.values())

    async def settle(self, number: int, *events: Event) -> None:
        """Append events and mark the note as settled, in one step."""
        lines = _lines(events)
        with self._store._lock:
            self._check()
            if number not in self._kept.unsettled:
                raise refusals.no_note(self._lease.log, number)
            self._extend(events, lines)
            del self._kept.unsettled[number]

    async def renew(self) -> None:
        """Keep the lease."""
        with self._store._lock:
            self._check()
            self._extend((), b"")

    async def aclose(self) -> None:
        """Give the lease back."""
        self._closed = True
        self._give_back()

    def _check(self) -> None:
        if self._closed:
            raise refusals.given_back(self._lease.log)
        if self._kept.epoch != self._lease.epoch:
            self._store._check()
            raise refusals.lost(self._lease.log, self._kept.holder)

    def _extend(self, events: Sequence[Event], lines: bytes) -> None:
        kept, store = self._kept, self._store
        kept.until = store._clock() + store._seconds
        if events:
            kept.lines += lines
            kept.length += len(events)
            kept.changed = events[-1].at


def _lines(events: Sequence[Event]) -> bytes:
    return b"".join([encode_event(event) + b"\n" for event in events])


class MemoryStore:
    """Keeps logs in memory. `lease` is how many seconds a holder has until others may take over; `clock` tells the time."""

    def __init__(self, *, lease: float = 30.0, clock: Callable[[], float] = time) -> None:
        self._lock = RLock()  # a log that is dropped by the garbage collector may call in while we hold it
        self._seconds = lease
        self._clock = clock
        self._logs: dict[str, Kept] = {}
        self._blobs: dict[str, bytes] = {}
        self._closed = False

    async def create(self, log: str, first: Event, *, holder: str) -> MemoryLog:
        """A new log with its first event, held by us."""
        kept = Kept(log, first)
        made = MemoryLog(self, kept, Lease(log, 1, holder))
        kept.epoch, kept.holder = 1, holder
        await made.append(first)
        with self._lock:
            self._check()
            if log in self._logs:
                raise refusals.already_there(log)
            self._logs[log] = kept
        return made

    async def open(self, log: str, *, holder: str, after: int = 0, patience: float = 0.0) -> tuple[MemoryLog, list[Event]]:
        """Take the log over, and its events after number `after`."""

        async def attempt() -> MemoryLog:
            return self._take(log, holder)

        held = await persist(attempt, patience)
        return held, await self.read(log, after=after)

    async def read(self, log: str, *, after: int = 0) -> list[Event]:
        """The events after number `after`."""
        with self._lock:
            kept = self._kept(log)
            if after >= kept.length:
                return []
            lines = bytes(kept.lines)
        return [decode_event(line) for line in lines.split(b"\n")[max(after, 0) : -1]]

    async def post(self, log: str, note: Note) -> bool:
        """Say something to the log. False when a note of that key was there before."""
        with self._lock:
            kept = self._kept(log)
            if note.key in kept.keys:
                return False
            kept.keys.add(note.key)
            number = len(kept.keys)
            kept.unsettled[number] = msgspec.structs.replace(note, number=number)
            return True

    async def logs(self) -> Sequence[Summary]:
        """Every log, the one that changed last first."""
        with self._lock:
            self._check()
            found = [kept.summary(log) for log, kept in self._logs.items()]
        return sorted(found, key=lambda summary: summary.changed, reverse=True)

    async def put_blob(self, content: bytes) -> str:
        """Keep bytes; their SHA-256 in hex names them."""
        digest = sha256(content).hexdigest()
        with self._lock:
            self._check()
            self._blobs[digest] = bytes(content)
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

    async def aclose(self) -> None:
        """Let go of everything: after this the store is empty and of no use."""
        with self._lock:
            self._closed = True
            for kept in self._logs.values():
                kept.epoch += 1
            self._logs.clear()
            self._blobs.clear()

    def _take(self, log: str, holder: str) -> MemoryLog:
        with self._lock:
            kept = self._kept(log)
            left = kept.until - self._clock()
            if left > 0:
                raise refusals.held(log, kept.holder, left)
            kept.epoch += 1
            kept.holder, kept.until = holder, self._clock() + self._seconds
            return MemoryLog(self, kept, Lease(log, kept.epoch, holder))

    def _free(self, kept: Kept, epoch: int) -> None:
        with self._lock:
            if kept.epoch == epoch:
                kept.holder, kept.until = "", 0.0

    def _kept(self, log: str) -> Kept:
        self._check()
        if log not in self._logs:
            raise refusals.no_log(log)
        return self._logs[log]

    def _check(self) -> None:
        if self._closed:
            raise refusals.closed()
