"""The list of threads with a summary of each, and its filters. A summary is computed again only when its log has changed.

Reads the store, writes nothing.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Collection, Sequence
from decimal import Decimal
from functools import partial
from time import monotonic

import msgspec

from evener import events as ev
from evener.errors import EvenerError
from evener.harness.remote import is_said
from evener.loop.state import RunState, apply
from evener.observe.metrics import Metrics
from evener.result import Approval, approvals_of
from evener.store.protocol import Store, Summary
from evener.transcript.reply import Usage

TITLE = 160
GROUPS = {
    "waiting": ("approval",),
    "running": ("running",),
    "failed": (
        "provider_error", "unexpected", "tool_retries", "output_retries", "unreadable", "interrupted", "limit", "repeated",
    ),
}  # fmt: skip
GROUP = {condition: group for group, conditions in GROUPS.items() for condition in conditions}
FEW, AT_ONCE = 100, 0.05
"""If at most `FEW` logs are unread, a list waits up to `AT_ONCE` seconds for them. More are read after it was returned."""
SLOW = 0.02
"""Seconds. A list that took longer to make is reused for four times as long as that took."""


class Glimpse(msgspec.Struct, frozen=True, omit_defaults=True):
    """A summary of the events of one log. `condition` is that of its last run."""

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
    """One thread in the list. Until its log is read, `seen` is None and `condition` empty. `group` is its filter."""

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
    condition: str = ""
    group: str = ""
    seen: Glimpse | None = None

    @property
    def inside(self) -> bool:
        """True if it is the thread of a subagent."""
        return "/" in self.harness


def glimpse_of(events: Sequence[ev.Event], log: str, *, held: bool) -> tuple[Glimpse, Approval | None]:
    """Return a summary of the events of a log, and the first question that waits in it."""
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
            case ev.Compacted() | ev.CompactionFailed():
                usage, cost, exact = usage + event.usage, cost + event.cost, exact and event.exact
        state = apply(state, event)
    asked = approvals_of(state, log) if state.finished is None else ()
    seen = Glimpse(
        prompt, state.model or (state.config.model if state.config else ""), _condition(state, held=held),
        float(cost), exact, usage.input_total, usage.output_total, usage.cache_read, requests, len(asked),
    )  # fmt: skip
    return seen, asked[0] if asked else None


def _condition(state: RunState, *, held: bool) -> str:
    if state.finished is not None:
        return state.finished.cause
    if not state.run:
        return "empty"
    if state.phase == "waiting":
        return "approval"
    return "running" if held else "interrupted"


class ThreadIndex:
    """The list. Logs that were not read yet are read in the background, the newest first.

    `version` changes with every change of the list. Listing a large store is slow, so a list is reused for some time.
    """

    def __init__(self, store: Store) -> None:
        self.version = 0
        self._store = store
        self._seen: dict[str, tuple[tuple[int, bool], Glimpse, Approval | None]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._left: deque[Summary] = deque()
        self._made: object = None
        self._lines: list[ListedThread] = []
        self._words: dict[str, str] = {}
        self._lock = asyncio.Lock()
        self._at = self._took = 0.0

    async def lines(self, *, rarely: bool = False) -> list[ListedThread]:
        """Return all threads, newest change first. Erased threads are included, because their tombstones remain.

        With `rarely`, read the store at most twice a second, and for at most 5 % of the time.
        """
        pause = max(0.5, 20 * self._took) if rarely else 4 * self._took if self._took > SLOW else 0.0
        async with self._lock:
            if not self._at or monotonic() - self._at >= pause:
                await self._list()
                self._at = monotonic()
        return self._lines

    def expire(self) -> None:
        """Discard the list, because the store has changed. The next request reads the store again."""
        self._at = 0.0

    def choose(
        self, text: str, *, group: str = "", agents: bool = False, only: Collection[str] | None = None
    ) -> list[ListedThread]:
        """Return the threads that contain all words of `text`. `group` limits them to one group, and `only` replaces the words.

        Threads of subagents are included only with `agents`.
        """
        chosen = self._lines if agents else [line for line in self._lines if not line.inside]
        chosen = [line for line in chosen if line.group == group] if group else chosen
        if only is not None:
            return [line for line in chosen if line.thread in only]
        words = text.lower().split()
        return [line for line in chosen if all(word in self._find_text(line) for word in words)] if words else chosen

    def _find_text(self, line: ListedThread) -> str:
        """Return the text in which a filter searches. It is computed on first use, because most lists are not searched."""
        found = self._words.get(line.log)
        if found is None:
            found = self._words[line.log] = _words_of(line)
        return found

    def count(self, *, agents: bool) -> Counter[str]:
        """Return how many threads are in each group."""
        return Counter(line.group for line in self._lines if line.group and (agents or not line.inside))

    @property
    def left(self) -> int:
        """The number of logs that are not read yet."""
        return len(self._left)

    def find(self, log: str) -> ListedThread | None:
        """Return the thread whose head is this log; None if it is not read yet."""
        return next((line for line in self._lines if line.log == log), None)

    async def metrics(self) -> str:
        """Return the metrics of every thread's head in the format of Prometheus."""
        made = Metrics()
        for line in await self.lines():
            try:
                made.add(await self._store.read(line.log))
            except EvenerError:
                continue
        return made.text()

    async def _list(self) -> None:
        began = monotonic()
        summaries = await self._store.logs()
        self._took = monotonic() - began
        waiting = {log: found[2] for log, found in self._seen.items() if found[2]}
        decided = frozenset([log for log, asked in waiting.items() if await is_said(self._store, asked)])
        made = (summaries, len(self._left), decided)
        if made == self._made:
            return
        threads: dict[str, list[Summary]] = {}
        for one in summaries:
            threads.setdefault(one.thread, []).append(one)
        heads = {thread: _head_of(several) for thread, several in threads.items()}
        self._left = deque(one for one in heads.values() if not one.erased and not self._knows(one))
        if self._left and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._read())
            if len(self._left) <= FEW:
                await asyncio.wait([self._reading], timeout=AT_ONCE)  # so that the first list of a small store is complete
        self._lines = [self._line(heads[thread], several, decided) for thread, several in threads.items()]
        self._words = {}
        self._made = (summaries, len(self._left), decided)
        self.version += 1

    def _knows(self, one: Summary) -> bool:
        found = self._seen.get(one.log)
        return found is not None and found[0] == (one.events, one.held)

    async def _read(self) -> None:
        if len(self._left) > FEW:
            await asyncio.sleep(4 * AT_ONCE)
        while self._left:
            one = self._left[0]
            try:
                work = partial(glimpse_of, await self._store.read(one.log), one.log, held=one.held)
                seen, asked = work() if one.events < 500 else await asyncio.to_thread(work)
            except EvenerError as error:
                seen, asked = Glimpse(prompt=str(error)[:TITLE], condition="unreadable"), None
            self._seen[one.log] = ((one.events, one.held), seen, asked)
            if self._left and self._left[0] is one:
                self._left.popleft()
            if not self._left:
                break  # without `sleep`: another task could get the old list while `left` is 0 already
            await asyncio.sleep(0)
        self.expire()  # a list that was returned meanwhile lacks the logs that were read since

    def _line(self, head: Summary, several: list[Summary], decided: Collection[str]) -> ListedThread:
        found = self._seen.get(head.log)
        seen = found[1] if found else None
        root = head if len(several) == 1 else next((one for one in several if one.log == one.thread), head)
        changed = head.changed if len(several) == 1 else max(one.changed for one in several)
        condition = _condition_of(head, seen, decided=head.log in decided)
        return ListedThread(
            head.thread, head.log, root.title or head.title, root.tags or head.tags, head.harness, head.events, len(several),
            changed, root.began, head.held, bool(head.erased), condition,
            GROUP.get(condition, ""), seen,
        )  # fmt: skip


def _head_of(several: list[Summary]) -> Summary:
    return several[0] if len(several) == 1 else next((one for one in several if one.head), several[0])


def _condition_of(head: Summary, seen: Glimpse | None, *, decided: bool) -> str:
    if head.erased:
        return "erased"
    if head.held and (seen is None or seen.condition != "approval"):
        return "running"
    return "decided" if decided else seen.condition if seen else ""


def _words_of(line: ListedThread) -> str:
    seen = line.seen or Glimpse()
    return " ".join((line.title, seen.prompt, seen.model, *line.tags, line.thread)).lower()
