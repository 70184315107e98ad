"""One life of a process that has a conversation: it begins it or goes on with it, and tells what was acknowledged.

Runs in a forked child until it is done or killed. What it tells goes to a pipe at once, a line each.
"""

import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from bench.kill_world import Tell, World, agent
from evener.events import Event, encode_events
from evener.loop import plan
from evener.loop.state import Pending, State
from evener.loop.steps import RunTool, Step
from evener.store.log import Lease, Log, Note, Store, Summary
from evener.store.sqlite import SqliteStore

__all__ = ["ACKNOWLEDGED", "TellingStore", "digests", "forget_starts", "live", "telling"]

ACKNOWLEDGED = "acknowledged"


def telling(pipe: int) -> Tell:
    """Writes lines to a pipe, unbuffered."""

    def tell(text: str) -> None:
        os.write(pipe, text.encode() + b"\n")

    return tell


async def live(world: World, *, path: Path, side: Path, tell: Tell) -> None:
    """Bring the conversation to its end, from wherever the last life left it."""
    store = SqliteStore(path)
    harness = agent(world, store=TellingStore(store, tell), side=side, tell=tell)
    tell("ready")
    known = [summary.log for summary in await store.logs() if summary.harness == world.name]
    thread = harness.thread(known[0] if known else "")
    state = await thread.state() if known else None
    if state is None or not state.run:
        await thread.run(world.prompt)
    elif state.finished is None:
        await thread.resume()
    tell("done")
    await store.aclose()


def digests(events: Sequence[Event]) -> list[str]:
    """The same for the same event; events hold their time and fresh ids, so no two are alike."""
    return [sha256(line).hexdigest()[:16] for line in encode_events(events)]


def forget_starts() -> None:
    """Take the started-check out of the loop: what was interrupted counts as never begun. For the test of the test."""

    def start(pending: Pending, state: State, setup: plan.Setup) -> tuple[Step, ...]:
        del state, setup
        return () if pending.status in ("started", "finished") else (RunTool(pending.call),)

    plan._start = start


class TellingLog:
    """A log that tells of each append once it is acknowledged: how long the log is now, and what was added."""

    def __init__(self, log: Log, tell: Tell) -> None:
        self._log = log
        self._tell = tell

    @property
    def lease(self) -> Lease:
        return self._log.lease

    @property
    def length(self) -> int:
        return self._log.length

    async def append(self, *events: Event) -> None:
        await self._log.append(*events)
        self._told(events)

    async def notes(self) -> Sequence[Note]:
        return await self._log.notes()

    async def settle(self, number: int, *events: Event) -> None:
        await self._log.settle(number, *events)
        self._told(events)

    async def renew(self) -> None:
        await self._log.renew()

    async def aclose(self) -> None:
        await self._log.aclose()

    def _told(self, events: Sequence[Event]) -> None:
        self._tell(" ".join((ACKNOWLEDGED, *digests(events))))


class TellingStore:
    """A store whose logs tell."""

    def __init__(self, store: Store, tell: Tell) -> None:
        self._store = store
        self._tell = tell

    async def create(self, log: str, first: Event, *, holder: str) -> Log:
        made = TellingLog(await self._store.create(log, first, holder=holder), self._tell)
        made._told((first,))
        return made

    async def open(self, log: str, *, holder: str, after: int = 0, patience: float = 0.0) -> tuple[Log, list[Event]]:
        held, events = await self._store.open(log, holder=holder, after=after, patience=patience)
        return TellingLog(held, self._tell), events

    async def read(self, log: str, *, after: int = 0) -> list[Event]:
        return await self._store.read(log, after=after)

    async def post(self, log: str, note: Note) -> bool:
        return await self._store.post(log, note)

    async def logs(self) -> Sequence[Summary]:
        return await self._store.logs()

    async def put_blob(self, content: bytes) -> str:
        return await self._store.put_blob(content)

    async def get_blob(self, digest: str) -> bytes:
        return await self._store.get_blob(digest)

    async def aclose(self) -> None:
        await self._store.aclose()
