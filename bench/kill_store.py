"""A store that tells what it acknowledged, at once and no sooner; in everything else it is the store behind it."""

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from os import PathLike

from evener.events import Event, encode_events
from evener.store.protocol import Begun, Creating, Ending, Finding, Hits, Lease, Link, Log, Note, Staging, Store, Summary
from evener.store.sqlite.leases import SelfRenewing

__all__ = ["ACKNOWLEDGED", "MOVED", "TellingStore", "digests", "telling_store"]

ACKNOWLEDGED = "acknowledged"
"""Told with the log and the digest of each event."""
MOVED = "moved"
"""Told with the log that the thread stands on now."""

Tell = Callable[[str], None]


def digests(events: Sequence[Event]) -> list[str]:
    """The same for the same event; events hold their time and fresh ids, so no two are alike."""
    return [sha256(line).hexdigest()[:16] for line in encode_events(events)]


class TellingLog:
    """A log that tells of each append once it is acknowledged."""

    def __init__(self, log: Log, tell: Tell) -> None:
        self._log = log
        self._tell = tell
        self._staged: list[Event] = []

    @property
    def lease(self) -> Lease:
        return self._log.lease

    @property
    def length(self) -> int:
        return self._log.length

    async def append(self, *events: Event) -> tuple[Event, ...]:
        kept = await self._log.append(*events)
        self.told(events)
        return kept

    def stage(self, *events: Event) -> tuple[Event, ...] | None:
        kept = self._log.stage(*events) if isinstance(self._log, Staging) else None
        if kept is not None:
            self._staged += events
        return kept

    async def append_unless_noted(self, *events: Event) -> tuple[Event, ...] | None:
        assert isinstance(self._log, Staging)
        kept = await self._log.append_unless_noted(*events)
        self.told(events if kept is not None else ())
        return kept

    async def notes(self) -> Sequence[Note]:
        return await self._log.notes()

    async def settle(self, number: int, *events: Event) -> tuple[Event, ...]:
        kept = await self._log.settle(number, *events)
        self.told(events)
        return kept

    async def renew(self) -> None:
        await self._log.renew()
        self.told(())

    def keep(self) -> None:
        if isinstance(self._log, SelfRenewing):
            self._log.keep()

    async def aclose(self, *, left: bool = False) -> None:
        await self._log.aclose(left=left)

    def told(self, events: Sequence[Event]) -> None:
        """Tell of events that were written, after those that were staged for that."""
        staged, self._staged = self._staged, []
        if staged or events:
            self._tell(" ".join((ACKNOWLEDGED, self._log.lease.log, *digests((*staged, *events)))))


class TellingEndingLog(TellingLog):
    """The same, of a log that is closed with its last events."""

    async def append_last(self, *events: Event) -> tuple[Event, ...] | None:
        assert isinstance(self._log, Ending)
        kept = await self._log.append_last(*events)
        self.told(events if kept is not None else ())
        return kept


class TellingBegunLog(TellingEndingLog):
    """The same, of a log that its first write creates. `first` is the event that this write puts first."""

    def __init__(self, log: Begun, first: Event, tell: Tell) -> None:
        super().__init__(log, tell)
        self._begun = log
        self._staged = [first]

    @property
    def exists(self) -> bool:
        return self._begun.exists


def _telling(log: Log, tell: Tell) -> TellingLog:
    return TellingEndingLog(log, tell) if isinstance(log, Ending) else TellingLog(log, tell)


def telling_store(store: Store, tell: Tell) -> "TellingStore":
    """Return a store that tells, and creates logs with their first write if the store behind it does."""
    return TellingCreatingStore(store, tell) if isinstance(store, Creating) else TellingStore(store, tell)


class TellingStore:
    """A store whose logs tell, and that tells when a thread's head was moved."""

    def __init__(self, store: Store, tell: Tell) -> None:
        self._store = store
        self._tell = tell

    async def create(self, log: str, first: Event, *, holder: str) -> Log:
        made = _telling(await self._store.create(log, first, holder=holder), self._tell)
        made.told((first,))
        return made

    async def open(
        self, log: str, *, holder: str, after: int = 0, patience: float = 0.0, force: bool = False
    ) -> tuple[Log, list[Event]]:
        held, events = await self._store.open(log, holder=holder, after=after, patience=patience, force=force)
        return _telling(held, self._tell), events

    async def move_head(self, thread: str, log: str) -> None:
        await self._store.move_head(thread, log)
        self._tell(f"{MOVED} {log}")

    async def read(self, log: str, *, after: int = 0, until: int | None = None) -> list[Event]:
        return await self._store.read(log, after=after, until=until)

    async def link(self, log: str, seq: int | None = None) -> Link:
        return await self._store.link(log, seq)

    async def head(self, thread: str) -> str:
        return await self._store.head(thread)

    async def post(self, log: str, note: Note) -> bool:
        return await self._store.post(log, note)

    async def logs(self, *, thread: str = "") -> Sequence[Summary]:
        return await self._store.logs(thread=thread)

    async def inside(self, thread: str) -> Sequence[str]:
        return await self._store.inside(thread)

    async def describe(self, thread: str, *, title: str | None = None, tags: Iterable[str] | None = None) -> None:
        await self._store.describe(thread, title=title, tags=tags)

    async def search(self, text: str, *, limit: int = 50) -> Hits:
        return await self._store.search(text, limit=limit)

    async def erase(self, log: str, *, seqs: Iterable[int] | None = None) -> int:
        return await self._store.erase(log, seqs=seqs)

    async def verify(self, log: str = "") -> Sequence[Finding]:
        return await self._store.verify(log)

    async def backup(self, path: str | PathLike[str]) -> None:
        await self._store.backup(path)

    async def put_blob(self, content: bytes) -> str:
        return await self._store.put_blob(content)

    async def get_blob(self, digest: str) -> bytes:
        return await self._store.get_blob(digest)

    async def aclose(self) -> None:
        await self._store.aclose()


class TellingCreatingStore(TellingStore):
    """The same, of a store that creates a log with its first write."""

    def begin(self, log: str, first: Event, *, holder: str) -> TellingBegunLog:
        assert isinstance(self._store, Creating)
        return TellingBegunLog(self._store.begin(log, first, holder=holder), first, self._tell)
