"""A tree of agents in random order, two levels deep: they pause, fail, are cancelled, and die with their process.

What it spends is counted where it is spent: at the models, whose prices vary and who are paid for answers that nobody hears.
"""

import asyncio
import random
from collections.abc import Callable
from decimal import Decimal

import msgspec

from evener import Harness, Limits, MemoryStore, tool
from evener.errors import Overloaded, StoreError
from evener.events import Event
from evener.harness import Subagent
from evener.harness.approvals import Decision, keyed
from evener.harness.thread import Thread
from evener.loop.state import RunState
from evener.result import RunResult
from evener.store.memory import MemoryLog
from evener.store.protocol import NoLog
from evener.testing.scripted_model import Line, ScriptedModel, calls
from evener.transcript.ask import Ask
from evener.transcript.blocks import ToolCall

__all__ = ["overspent"]

LIVES = 60
MIDS, WORKERS, TURNS = 4, 3, 3


class Died(StoreError):
    """The process is gone: nothing that it still wants to write is written."""


class Mortal(MemoryStore):
    """Lets so many appends through; then all who write are dead, until they are born again. Opens its logs at its leisure."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self.left = 10**9

    async def create(self, log: str, first: Event, *, holder: str) -> MemoryLog:
        self.live()
        return self._mortal(await super().create(log, first, holder=holder))

    async def open(
        self, log: str, *, holder: str, after: int = 0, patience: float = 0.0, force: bool = False
    ) -> tuple[MemoryLog, list[Event]]:
        for _ in range(self._rng.randrange(12)):
            await asyncio.sleep(0)
        found, events = await super().open(log, holder=holder, after=after, patience=patience, force=force)
        return self._mortal(found), events

    def live(self) -> None:
        self.left -= 1
        if self.left <= 0:
            raise Died("The process has died.")

    def _mortal(self, log: MemoryLog) -> MemoryLog:
        append = log.append

        async def dying(*events: Event) -> tuple[Event, ...]:
            heard = self._rng.random() < 0.5
            if not heard and self.left == 1:
                await append(*events)  # written, and nobody hears of it any more
            self.live()
            return await append(*events)

        log.append = dying  # type: ignore[method-assign]
        return log


class Purse(msgspec.Struct):
    """What was spent, and what might be."""

    requests: int | None
    money: Decimal | None
    asked: int = 0
    paid: Decimal = Decimal(0)

    @property
    def wrong(self) -> list[str]:
        more = [f"{self.asked} of {self.requests} requests"] if self.requests is not None and self.asked > self.requests else []
        return more + ([f"${self.paid} of ${self.money}"] if self.money is not None and self.paid > self.money else [])


class Seller(ScriptedModel):
    """Costs up to its price, as it likes, and takes its time. It is paid for what it did, heard or not."""

    def __init__(self, script: Callable[[Ask], Line], *, price: Decimal, rng: random.Random, purses: tuple[Purse, ...]) -> None:
        super().__init__(script, price=price)
        self._rng, self._purses, self._most = rng, purses, price

    def stream(self, ask: Ask, *, after: object = None):  # type: ignore[no-untyped-def]
        stream = super().stream(ask, after=after)
        cost = self._most * self._rng.randrange(2, 11) / 10
        line = stream._line
        free = isinstance(line, Overloaded) and line.status
        for purse in self._purses:
            purse.asked += 1
            purse.paid += 0 if free else cost
        stream._price = msgspec.structs.replace(stream._price, amount=cost)
        read, waits = stream.read, self._rng.randrange(5)

        async def slowly():  # type: ignore[no-untyped-def]
            for _ in range(waits):
                await asyncio.sleep(0)
            return await read()

        stream.read = slowly  # type: ignore[method-assign]
        return stream


def overspent(seed: int) -> list[str]:
    """Lets a tree live as the seed decides, to its end; what it spent beyond its limits, or how else it went wrong."""
    rng = random.Random(seed)
    store = Mortal(rng)
    root, purses = _tree(rng, store)
    try:
        state = asyncio.run(_lives(root, store, rng))
    except Overloaded:
        return [text for purse in purses for text in purse.wrong]  # the root itself could not be asked
    wrong = [text for purse in purses for text in purse.wrong]
    spent, cause, whole = state.spent, state.finished.cause if state.finished else "nothing", purses[0]
    if (whole.money is not None and spent.cost > whole.money) or whole.paid > spent.cost:
        wrong.append(f"counted ${spent.cost} of ${whole.money}, and spent ${whole.paid}")
    if spent.requests < whole.asked:  # one that was written down may never have been made
        wrong.append(f"counted {spent.requests} requests, and made {whole.asked}")
    return wrong + [f"ended with {cause}"] * (cause not in ("done", "limit"))


def _tree(rng: random.Random, store: MemoryStore) -> tuple[Harness, list[Purse]]:
    @tool(approval=True)
    async def pay(n: int) -> int:
        """Pay."""
        await asyncio.sleep(0)
        return n

    @tool(effect="read")
    async def look(n: int) -> int:
        """Look."""
        for _ in range(n):
            await asyncio.sleep(0)
        return n

    def price() -> Decimal:
        return Decimal(rng.randrange(1, 90)) / 10_000

    def worker(ask: Ask) -> Line:
        if rng.random() < 0.1:
            return Overloaded("busy", status=rng.choice((0, 529)), retry_after=0.0001)
        turns = _turns(ask)
        return calls(ToolCall.of(f"t{turns}", rng.choice(("pay", "look", "look")), {"n": turns})) if turns < TURNS else "done"

    def boss(names: list[str]) -> Callable[[Ask], Line]:
        def line(ask: Ask) -> Line:
            return "done" if _turns(ask) else calls(*(ToolCall.of(f"c-{name}", name, {"task": "go"}) for name in names))

        return line

    whole = Purse(rng.randrange(5, 60), Decimal(rng.randrange(10, 250)) / 1000)
    purses, mids = [whole], []
    for number in range(MIDS):
        own = Purse(rng.choice((None, rng.randrange(2, 14))), rng.choice((None, Decimal(rng.randrange(5, 60)) / 1000)))
        both = (whole, own)
        purses.append(own)
        workers = [
            _agent(f"w{each}", Harness(Seller(worker, price=price(), rng=rng, purses=both), tools=[pay, look], store="memory"))
            for each in range(WORKERS)
        ]
        model = Seller(boss([one.name for one in workers]), price=price(), rng=rng, purses=both)
        mids.append(_agent(f"m{number}", Harness(model, agents=workers, store="memory", limits=_limits(own))))
    model = Seller(boss([one.name for one in mids]), price=price(), rng=rng, purses=(whole,))
    return Harness(model, agents=mids, store=store, limits=_limits(whole)), purses


def _turns(ask: Ask) -> int:
    return sum(message.role == "assistant" for message in ask.transcript)


def _agent(name: str, harness: Harness) -> Subagent:
    return Subagent(name=name, harness=harness, description="Helps.")


def _limits(purse: Purse) -> Limits:
    return Limits(requests=purse.requests, cost=purse.money, tool_calls=None, retries=3)


async def _lives(root: Harness, store: Mortal, rng: random.Random) -> RunState:
    """The run to its end, in as many lives as that takes."""
    thread = ""
    for _ in range(LIVES):
        here = root.thread(thread)
        state = await here.state() if thread else RunState()
        if state.finished is not None:
            return state
        store.left = rng.choice((10**9, rng.randrange(1, 60)))
        try:
            result = await _life(here, rng, resumes=bool(state.run))
            thread, waiting = result.thread, keyed(result.approvals)
        except (Died, asyncio.CancelledError):
            thread, waiting = here.id if await _is_there(store, here.id) else "", {}
        store.left = 10**9
        if waiting:
            await root.decide(thread, {name: Decision(rng.choice(("allow", "allow", "reject"))) for name in waiting})
    return RunState()


async def _life(thread: Thread, rng: random.Random, *, resumes: bool) -> RunResult:
    """One go. Some are cut off from outside, after so many turns of the loop."""
    task = asyncio.ensure_future(thread.resume() if resumes else thread.run("go"))
    turns = rng.choice((0, 0, rng.randrange(1, 200)))
    if turns:
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
    return await task


async def _is_there(store: MemoryStore, log: str) -> bool:
    try:
        return bool(log and await store.head(log))
    except NoLog:
        return False
