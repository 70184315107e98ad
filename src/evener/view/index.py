"""The list of threads: what each came to, read once for each length of its log and kept. Reads the store, writes nothing."""

import asyncio
from collections.abc import Sequence
from decimal import Decimal

import msgspec

from evener import events as ev
from evener.errors import EvenerError
from evener.loop.state import RunState, apply
from evener.observe.metrics import Metrics
from evener.result import approvals_of
from evener.store.protocol import Store, Summary
from evener.transcript.reply import Usage

__all__ = ["Glimpse", "ListedThread", "ThreadIndex", "glimpse_of"]

TITLE = 160


class Glimpse(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the events of one log say in short. `condition` is that of its last run."""

    prompt: str = ""
    model: str = ""
    condition: str = ""
    cost: float = 0.0
    exact: bool = True
    input: int = 0
    output: int = 0
    cache_read: int = 0
    requests: int = 0
    waiting: int = 0


class ListedThread(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thread in the list. `seen` is None until its log was read."""

    thread: str
    log: str
    title: str
    tags: tuple[str, ...]
    harness: str
    events: int
    branches: int
    changed: float
    began: float
    held: bool
    erased: bool
    seen: Glimpse | None = None


def glimpse_of(events: Sequence[ev.Event], *, held: bool) -> Glimpse:
    """Return what these events say."""
    state, prompt, usage, cost, exact, requests = RunState(), "", Usage(), Decimal(0), True, 0
    for event in events:
        match event:
            case ev.Prompted(message=message) if not prompt:
                prompt = message.text[:TITLE]
            case ev.Replied():
                usage, cost, exact = usage + (event.message.usage or Usage()), cost + event.cost, exact and event.exact
                requests += 1
            case ev.CallFinished(nested=ev.Nested() as nested):
                usage, cost = usage + nested.usage, cost + nested.cost
        state = apply(state, event)
    waiting = len(approvals_of(state, "")) if state.finished is None else 0
    return Glimpse(
        prompt, state.model or (state.config.model if state.config else ""), _condition(state, held=held),
        float(cost), exact, usage.input_total, usage.output_total, usage.cache_read, requests, waiting,
    )  # fmt: skip


def _condition(state: RunState, *, held: bool) -> str:
    if state.finished is not None:
        return state.finished.cause
    if not state.run:
        return "empty"
    if state.phase == "waiting":
        return "approval"
    return "running" if held else "interrupted"


class ThreadIndex:
    """The list. Logs that were not read yet are read in the background, the newest first."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: dict[str, tuple[tuple[int, bool], Glimpse]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._left: list[Summary] = []

    async def lines(self) -> list[ListedThread]:
        """Return every thread, the one that changed last first. Erased ones are listed, too: they leave a skeleton."""
        threads: dict[str, list[Summary]] = {}
        for one in await self._store.logs():
            threads.setdefault(one.thread, []).append(one)
        heads = {thread: next((one for one in several if one.head), several[0]) for thread, several in threads.items()}
        self._left = [one for one in heads.values() if not one.erased and not self._knows(one)]
        if self._left and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._read())
        return [self._line(heads[thread], several) for thread, several in threads.items()]

    @property
    def left(self) -> int:
        """How many logs are still to be read."""
        return len(self._left)

    async def wait(self) -> None:
        """Return when everything was read."""
        if self._reading is not None:
            await asyncio.shield(self._reading)

    async def metrics(self) -> str:
        """Return the metrics of every thread's head, as Prometheus reads them."""
        made = Metrics()
        for line in await self.lines():
            try:
                made.add(await self._store.read(line.log))
            except EvenerError:
                continue
        return made.text()

    def _knows(self, one: Summary) -> bool:
        found = self._seen.get(one.log)
        return found is not None and found[0] == (one.events, one.held)

    async def _read(self) -> None:
        while self._left:
            one = self._left[0]
            try:
                events = await self._store.read(one.log)
                seen = (
                    glimpse_of(events, held=one.held)
                    if len(events) < 500
                    else await asyncio.to_thread(glimpse_of, events, held=one.held)
                )
            except EvenerError as error:
                seen = Glimpse(prompt=str(error)[:TITLE], condition="unreadable")
            self._seen[one.log] = ((one.events, one.held), seen)
            self._left = (
                [other for other in self._left if other is not one]
                if self._left and self._left[0] is not one
                else self._left[1:]
            )
            await asyncio.sleep(0)

    def _line(self, head: Summary, several: list[Summary]) -> ListedThread:
        found = self._seen.get(head.log)
        root = next((one for one in several if one.log == one.thread), head)
        return ListedThread(
            head.thread, head.log, root.title or head.title, root.tags or head.tags, head.harness, head.events, len(several),
            max(one.changed for one in several), root.began, head.held, bool(head.erased), found[1] if found else None,
        )  # fmt: skip
