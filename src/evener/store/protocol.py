"""The protocols of a store and a log, the values that they return, and their errors with the messages."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from os import PathLike
from time import monotonic
from typing import Protocol, TypeVar, runtime_checkable

import msgspec

from evener.errors import StoreError
from evener.events import Event, Finished, Rival
from evener.loop.state import RunState, fold

__all__ = [
    "Begun",
    "Creating",
    "Damaged",
    "Ending",
    "Erased",
    "Finding",
    "Folding",
    "Found",
    "Hits",
    "Lease",
    "LeaseHeld",
    "LeaseLost",
    "Link",
    "Log",
    "NoLog",
    "Note",
    "NoteKeeper",
    "Staging",
    "Store",
    "Summary",
    "already_there",
    "another_hash",
    "another_thread",
    "closed",
    "damaged",
    "erased",
    "given_back",
    "held",
    "incomplete",
    "lost",
    "no_blob",
    "no_event",
    "no_log",
    "no_note",
    "persist",
    "spoiled_blob",
    "state_of",
    "waiting_of",
]


class LeaseHeld(StoreError):
    """Another lease holder writes to this log at the moment."""

    retryable = True


class LeaseLost(StoreError):
    """Another lease holder took the log over: this one can write nothing more. Acknowledged events stay."""


class NoLog(StoreError):
    """This store has no log with that id."""


class Damaged(StoreError):
    """The store contains something that differs from what was written. Nothing was changed; `verify` reports the extent."""


class Erased(StoreError):
    """The log existed, and its content was erased. Only its structure is left."""


class Lease(msgspec.Struct, frozen=True):
    """The right to append to one log. Each holder has a higher epoch than the one before; a stale holder can write nothing.

    `rival` is the process that may still act on calls that were in flight when the log was opened: an earlier `holder` that
    did not return its lease and was not seen to die, or whose tools continued; or the log of which this one is a `copy`. It
    stays until something is appended.
    """

    log: str
    epoch: int
    holder: str
    rival: Rival = ""


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message to a running log, from any process: steer, cancel, approve, reject. `key` is unique in its log."""

    key: str
    kind: str
    body: str = "{}"
    number: int = 0  # given by the store, in the order of arrival


class Link(msgspec.Struct, frozen=True):
    """One event and all events before it, by hash: the log that contains it, its number on the path, and the chain there, in
    hex.
    """

    log: str
    seq: int
    hash: str


class Summary(msgspec.Struct, frozen=True):
    """One log in a list. `events` counts along the path; `head`: it is the head of its thread; `held`: a lease holder writes
    to it.

    Title and tags are the thread's.
    """

    log: str
    thread: str
    harness: str
    events: int
    began: float
    changed: float
    head: bool = True
    parent: str = ""
    parent_seq: int = 0
    title: str = ""
    tags: tuple[str, ...] = ()
    held: bool = False
    erased: float = 0.0  # when everything in it was erased


class Found(msgspec.Struct, frozen=True):
    """A place where a search found its words: the log, the number of the event (0: the title or a tag), and some text around
    them.
    """

    summary: Summary
    seq: int
    excerpt: str


class Hits(list[Found]):
    """The result of a search. `unread` counts the events that it could not read: damaged, or written by a newer Evener."""

    def __init__(self, found: Iterable[Found] = (), *, unread: int = 0) -> None:
        super().__init__(found)
        self.unread = unread


class Finding(msgspec.Struct, frozen=True):
    """A finding of `verify` at an event of a log (0: about the log; no log: about the store).

    `damage`: something differs from what was written; otherwise it only could not be checked.
    """

    log: str
    seq: int
    what: str
    damage: bool = True


class Log(Protocol):
    """A log whose lease this process holds. The caller that opened it closes it, which returns the lease."""

    @property
    def lease(self) -> Lease: ...

    @property
    def length(self) -> int:
        """Return how many events it has; the number of the last one."""
        ...

    async def append(self, *events: Event) -> tuple[Event, ...]:
        """Add events: all or none, durable when this returns. LeaseLost when another holder took over.

        Gives them as they are kept: the same, unless a secret was taken out of one.
        """
        ...

    async def notes(self) -> Sequence[Note]:
        """Return what has been said to the log and is not settled yet, in order."""
        ...

    async def settle(self, number: int, *events: Event) -> tuple[Event, ...]:
        """Append what a note led to and mark it as settled, in one step. Gives the events as they are kept."""
        ...

    async def renew(self) -> None:
        """Keep the lease. LeaseLost when another holder took over."""
        ...

    async def aclose(self, *, left: bool = False) -> None:
        """Release the lease. `left`: a tool that was started under it is still running, and the next holder is told."""
        ...


@runtime_checkable
class Staging(Protocol):
    """A log that commits events together with those that follow at once. Other logs commit each append."""

    def stage(self, *events: Event) -> tuple[Event, ...] | None:
        """Keep events for the next write to the log, which puts them first, and give them as they will be stored.

        They are durable when that write returns, and lost if there is none. None when a write is under way, which they would
        overtake: append them instead.
        """
        ...

    async def append_unless_noted(self, *events: Event) -> tuple[Event, ...] | None:
        """Append, unless a note waits to be settled: then write only what was staged, and return None."""
        ...


@runtime_checkable
class Ending(Staging, Protocol):
    """A log that gives its lease back in the commit of the last events. Other logs do so in a commit of their own."""

    async def append_last(self, *events: Event) -> tuple[Event, ...] | None:
        """Append as `append_unless_noted` does, and close the log in the same commit. It stays open if None is returned."""
        ...


class Begun(Log, Protocol):
    """A log that its first write creates."""

    @property
    def exists(self) -> bool:
        """True if the log is in the store."""
        ...


@runtime_checkable
class Creating(Protocol):
    """A store that creates a log in the commit of the events that follow at once."""

    def begin(self, log: str, first: Event, *, holder: str) -> Begun:
        """Return a log that is created with its first write, which puts this event first. The id must be new."""
        ...


class Store(Protocol):
    """Stores logs. All methods are safe from several tasks; logs of one store are independent of each other."""

    async def create(self, log: str, first: Event, *, holder: str) -> Log:
        """Return a new log with its first event, held by us. One whose `Opened` names a parent is a fork: nothing is copied.

        StoreError when the parent has no event of that number and hash, or is of another thread.
        """
        ...

    async def open(
        self, log: str, *, holder: str, after: int = 0, patience: float = 0.0, force: bool = False
    ) -> tuple[Log, list[Event]]:
        """Take the log over, and the events of its path after number `after`.

        LeaseHeld when a process that may be alive holds it for longer than `patience`, in seconds; with `force` it is taken all
        the same. A lease that runs out later than its own length from now was made by a clock that was ahead, and is cut to
        that length.
        """
        ...

    async def read(self, log: str, *, after: int = 0, until: int | None = None) -> list[Event]:
        """Return the events of the log's path after number `after`, up to `until` and with it, without a lease."""
        ...

    async def link(self, log: str, seq: int | None = None) -> Link:
        """Return the event of that number on the log's path, or the last, with its hash: what a fork names."""
        ...

    async def head(self, thread: str) -> str:
        """Return the log that the thread stands on: its first, until the head is moved. The id of a fork stands for itself."""
        ...

    async def move_head(self, thread: str, log: str) -> None:
        """Let the thread stand on another of its logs. Durable when this returns."""
        ...

    async def post(self, log: str, note: Note) -> bool:
        """Add a note to the log's inbox. False if there was a note with the same key before: the first one counts."""
        ...

    async def logs(self, *, thread: str = "") -> Sequence[Summary]:
        """List every log, or those of one thread, the one that changed last first."""
        ...

    async def inside(self, thread: str) -> Sequence[str]:
        """Return the threads of agents inside the calls of this one, and inside theirs, as far as they are here."""
        ...

    async def describe(self, thread: str, *, title: str | None = None, tags: Iterable[str] | None = None) -> None:
        """Give the thread a title, or tags in place of those it had. What is not given stays."""
        ...

    async def search(self, text: str, *, limit: int = 50) -> Hits:
        """Find all words of the text: in prompts, answers, results, titles and tags. What cannot be read is counted."""
        ...

    async def erase(self, log: str, *, seqs: Iterable[int] | None = None) -> int:
        """Erase what events of the log's path say, for good; how many. Their numbers, kinds and hashes stay.

        Without numbers: everything of the log, with its inbox. The id of a thread stands for all its logs, its title and tags,
        and the blobs that no other event names. Agents inside the calls of what is erased whole are erased with it. LeaseHeld
        while a holder runs it, or one of them.
        """
        ...

    async def verify(self, log: str = "") -> Sequence[Finding]:
        """Find what differs from what was written: in the log and its ancestors, or in the whole store. Changes nothing."""
        ...

    async def backup(self, path: str | PathLike[str]) -> None:
        """Write a consistent copy while others write. Refuses to write over a file."""
        ...

    async def put_blob(self, content: bytes) -> str:
        """Keep bytes; their SHA-256 in hex names them. Durable when this returns."""
        ...

    async def get_blob(self, digest: str) -> bytes:
        """Return the bytes of that name. StoreError when they are not here or not what they were."""
        ...

    async def aclose(self) -> None:
        """Let go of everything."""
        ...


@runtime_checkable
class Folding(Protocol):
    """A store that can return the state of a log without reading all its events. Logs of other stores are read as a whole."""

    async def open_folded(self, log: str, *, holder: str, force: bool = False) -> tuple[Log, RunState]:
        """Take the log over, as `Store.open` does, and its state."""
        ...

    async def state(self, log: str, *, until: int | None = None) -> RunState:
        """Return the state of the log now, or after the event of that number; without a lease."""
        ...


@runtime_checkable
class NoteKeeper(Protocol):
    """A store that knows whether a note was ever posted to a log. Stores without this method are not asked."""

    async def has_note(self, log: str, key: str) -> bool:
        """True if a note with that key was ever posted to the log, settled or not."""
        ...


@runtime_checkable
class Cleaning(Protocol):
    """A store that can show a text as it would be stored. Without this method, a store is taken to find secrets in any piece
    of a text.
    """

    def clean(self, text: str) -> str:
        """Return a text as it would be stored: without secrets."""
        ...


async def keep_raw(store: Store, raw: bytes, said: str) -> str:
    """Keep an answer as it came; return the name of its blob. `said` is all that it says.

    Empty where that holds a secret: a stream splits it into pieces, in which no search would find it.
    """
    return await store.put_blob(raw) if not isinstance(store, Cleaning) or store.clean(said) == said else ""


async def waiting_of(store: Store) -> list[Summary]:
    """Return the heads of threads whose run waits for a decision, those that changed last first."""
    heads = [one for one in await store.logs() if one.head and not one.erased]
    found = []
    for one in heads:
        last = await store.read(one.log, after=max(0, one.events - 1))
        if not any(isinstance(event, Finished) for event in last) and (await state_of(store, one.log)).phase == "waiting":
            found.append(one)
    return sorted(found, key=lambda one: -one.changed)


async def state_of(store: Store, log: str, *, until: int | None = None) -> RunState:
    """Return the state of a log now, or after the event of that number."""
    if isinstance(store, Folding):
        return await store.state(log, until=until)
    return fold(await store.read(log, until=until))


def no_log(log: str) -> NoLog:
    return NoLog(f"There is no log {log!r} in this store. Check the id, and that this is the store it was made in.")


def already_there(log: str) -> StoreError:
    return StoreError(
        f"The log {log!r} exists already, and nothing was written. Open it instead, or give the new one another id."
    )


def held(log: str, holder: str, seconds: float) -> LeaseHeld:
    return LeaseHeld(
        f"The log {log!r} is being written by {holder!r}, whose lease runs for {seconds:.0f} more seconds unless renewed. "
        "Wait for it (give `patience`), stop that run, or fork the thread. Use `force` to take it over anyway."
    )


def lost(log: str, holder: str) -> LeaseLost:
    who = repr(holder) if holder else "Another holder"
    return LeaseLost(
        f"{who} took over the log {log!r}, so this was not written. What was acknowledged before is safe. "
        "Open the log again to continue."
    )


def given_back(log: str) -> LeaseLost:
    return LeaseLost(f"The log {log!r} was closed here, so this was not written. Open it again to continue.")


def closed() -> StoreError:
    return StoreError("This store is closed. What was acknowledged is safe. Open a new store on the same file to continue.")


def no_note(log: str, number: int) -> StoreError:
    return StoreError(
        f"Note {number} of the log {log!r} does not exist or is settled already, so nothing was written. Read the notes again."
    )


def no_blob(digest: str) -> StoreError:
    return StoreError(
        f"There is no blob {digest!r} in this store. Check that it was put there, and that it has not been erased."
    )


def spoiled_blob(digest: str) -> Damaged:
    return Damaged(
        f"The blob {digest!r} is not what was stored: its bytes have another SHA-256. "
        "Put the same content again to mend it, or restore the store from a backup."
    )


def incomplete(log: str, seq: int, digest: str) -> Damaged:
    return Damaged(
        f"Event {seq} of the log {log!r} has only a part of an output, and the blob {digest!r} with the whole output is not in "
        "the store, so this export is not complete. Restore the store from a backup, or erase that event and export again."
    )


def no_event(log: str, seq: int) -> StoreError:
    return StoreError(
        f"The log {log!r} has no event {seq} of its own, so nothing was done. Ask `link` for the log that contains it."
    )


def another_hash(log: str, seq: int) -> StoreError:
    return StoreError(
        f"Event {seq} of the log {log!r} has another hash than the fork names, so nothing was written. "
        "Ask `link` for the hash of the event."
    )


def another_thread(log: str, owner: str, thread: str) -> StoreError:
    return StoreError(
        f"The log {log!r} belongs to the thread {owner!r} and not to {thread!r}, so nothing was written. "
        "Give a log of the thread, or the thread of the log."
    )


def erased(log: str, when: float) -> Erased:
    day = datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return Erased(f"The log {log!r} was erased on {day}: its content is gone. Start a new thread.")


def damaged(log: str, seq: int) -> Damaged:
    return Damaged(
        f"The log {log!r} is damaged at event {seq}: it is missing, or not what was written. Nothing was changed. "
        "Run `evener verify` to see how much is affected, and restore a backup if there is one."
    )


FIRST_PAUSE = 0.01
LONGEST_PAUSE = 0.25

T = TypeVar("T")


async def persist(attempt: Callable[[], Awaitable[T]], patience: float) -> T:
    """Try until the lease is free or `patience` seconds have passed."""
    deadline = monotonic() + patience
    pause = FIRST_PAUSE
    while True:
        try:
            return await attempt()
        except LeaseHeld:
            left = deadline - monotonic()
            if left <= 0:
                raise
        await asyncio.sleep(min(pause, left))
        pause = min(pause * 2, LONGEST_PAUSE)
