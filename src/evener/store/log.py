"""The seam to the store: logs of events, leases, inboxes and blobs. Values and protocols; no I/O."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from evener.errors import StoreError
from evener.events import Event

__all__ = ["Lease", "LeaseHeld", "LeaseLost", "Log", "NoLog", "Note", "Store", "Summary"]


class LeaseHeld(StoreError):
    """Somebody else writes to this log at the moment."""

    retryable = True


class LeaseLost(StoreError):
    """Somebody else took the log over: nothing more may be written by us. What was acknowledged before stays."""


class NoLog(StoreError):
    """There is no log of that id in this store."""


class Lease(msgspec.Struct, frozen=True):
    """The right to append to one log. Each holder has a higher epoch than the one before; a stale one can write nothing."""

    log: str
    epoch: int
    holder: str


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody says to a running log, from any process: steer, cancel, approve, reject. `key` is unique in its log."""

    key: str
    kind: str
    body: str = "{}"
    number: int = 0  # given by the store, in the order of arrival


class Summary(msgspec.Struct, frozen=True):
    """One log in a list."""

    log: str
    thread: str
    harness: str
    events: int
    began: float
    changed: float
    head: bool = True


class Log(Protocol):
    """A log that we hold. Closed by whoever opened it; that gives the lease back."""

    @property
    def lease(self) -> Lease: ...

    @property
    def length(self) -> int:
        """How many events it has; the number of the last one."""
        ...

    async def append(self, *events: Event) -> None:
        """Add events: all or none, durable when this returns. LeaseLost when somebody took over."""
        ...

    async def notes(self) -> Sequence[Note]:
        """What has been said to the log and is not settled yet, in order."""
        ...

    async def settle(self, number: int, *events: Event) -> None:
        """Append what a note led to and mark it as settled, in one step."""
        ...

    async def renew(self) -> None:
        """Keep the lease. LeaseLost when somebody took over."""
        ...

    async def aclose(self) -> None:
        """Give the lease back."""
        ...


class Store(Protocol):
    """Keeps logs. All methods are safe from several tasks; logs of one store are independent of each other."""

    async def create(self, log: str, first: Event, *, holder: str) -> Log:
        """A new log with its first event, held by us."""
        ...

    async def open(self, log: str, *, holder: str, after: int = 0, patience: float = 0.0) -> tuple[Log, list[Event]]:
        """Take the log over, and its events after number `after`.

        LeaseHeld when somebody who is alive holds it for longer than `patience`, in seconds.
        """
        ...

    async def read(self, log: str, *, after: int = 0) -> list[Event]:
        """The events after number `after`, without a lease."""
        ...

    async def post(self, log: str, note: Note) -> bool:
        """Say something to the log. False when a note of that key was there before: the first one counts."""
        ...

    async def logs(self) -> Sequence[Summary]:
        """Every log, the one that changed last first."""
        ...

    async def put_blob(self, content: bytes) -> str:
        """Keep bytes; their SHA-256 in hex names them. Durable when this returns."""
        ...

    async def get_blob(self, digest: str) -> bytes:
        """The bytes of that name. StoreError when they are not here or not what they were."""
        ...

    async def aclose(self) -> None:
        """Let go of everything."""
        ...
