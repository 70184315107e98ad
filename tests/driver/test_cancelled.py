"""Cancelled at random await points, 1,000 times: nothing is left behind, and the run resumes to its end (S2.20, S4.26)."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from secrets import randbelow
from typing import Any

import pytest

from bench.kill_check import violations
from bench.kill_world import TOOLS, Saga, World, agent, marks
from evener import events as ev
from evener.harness import Harness, Thread
from evener.loop.state import fold
from evener.result import RunResult
from evener.store.memory import MemoryStore
from evener.store.protocol import Store
from evener.store.sqlite.store import SqliteStore
from evener.testing import FakeServer
from evener.tools.call import Threads
from tests.driver.stage import (
    WIRES,
    children,
    labelled,
    model_at,
    others,
    playing,
    quick_folder,
    served,
    settled,
    tool_threads,
)
from tests.model.stage import nothing_left, watched

SECONDS = 120.0
THREADS = 8
Make = Callable[[World, Path], Harness]


class Campaign:
    """Cancels runs of one kind. `steps` is how many turns of the loop a run takes, as far as is known."""

    def __init__(self, seed: int, folder: Path, make: Make) -> None:
        self.chance = Random(seed)
        self.folder = folder
        self.make = make
        self.steps = 60.0
        self.cancelled = 0
        self.moments: set[int] = set()
        self.threads = Threads(THREADS)
        self.threads_before = tool_threads()
        self.children_before = children()

    async def run(self, times: int) -> None:
        async with asyncio.timeout(SECONDS):
            while self.cancelled < times:
                await self.converse()

    async def converse(self) -> None:
        """One conversation, cancelled one to three times, then brought to its end and checked."""
        world = World.of(self.chance.randrange(1 << 40))
        side = self.folder / f"{world.name}.effects"
        harness = self.make(world, side)
        harness._threads = self.threads
        thread = harness.thread()
        for _ in range(self.chance.randint(1, 3)):
            begun = await self.begun(harness, thread)
            if not await self.cancel(thread, world, begun):
                break
            self.cancelled += 1
            await self.nothing_left(harness)
            if self.chance.random() < 0.5:
                thread = harness.thread(thread.id)
        if await self.begun(harness, thread) != "over":
            await self.work(thread, world, await self.begun(harness, thread))
        events = labelled(await harness.store.read(thread.id))
        assert violations(events, marks(side), world) == []

    async def begun(self, harness: Harness, thread: Thread) -> str:
        """How far it has come: not, under way, or over."""
        if not thread.id:
            return "not"
        while thread.id not in [summary.log for summary in await harness.store.logs()]:
            await asyncio.sleep(0.001)  # to make the log was the last thing it began, and that happens all the same
        state = await thread.state()
        return "over" if state.finished else "under way" if state.run else "not"

    def work(self, thread: Thread, world: World, begun: str) -> Awaitable[object]:
        return thread.resume() if begun == "under way" else thread.run(world.prompt)

    async def cancel(self, thread: Thread, world: World, begun: str) -> bool:
        """Whether the run was under way when it was cancelled, after a random number of turns of the loop."""
        if begun == "over":
            return False
        steps = self.chance.randrange(int(self.steps) + 2)
        if self.chance.random() < 0.3:
            stream = thread.resume_stream() if begun == "under way" else thread.stream(world.prompt)
            await self.wait(stream._task, steps)
            await stream.aclose()
            return stream._task.cancelled()
        task = asyncio.ensure_future(self.work(thread, world, begun))
        await self.wait(task, steps)
        task.cancel()
        await asyncio.wait((task,))
        return task.cancelled() or bool(task.result() is None)

    async def wait(self, task: "asyncio.Future[Any]", steps: int) -> None:
        for step in range(steps):
            if task.done():
                self.steps = 0.8 * self.steps + 0.2 * step
                return
            await asyncio.sleep(0)
        self.steps *= 1.01
        self.moments.add(steps)

    async def nothing_left(self, harness: Harness) -> None:
        """No task; and each thread that still works is known to be one that nobody waits for."""
        assert others() == set()
        threads = harness.tool_threads
        assert threads.abandoned <= threads.busy <= THREADS
        assert threads.stray == 0
        assert await settled(lambda: threads.busy == 0), "a tool that returned keeps its thread"
        assert threads.abandoned == 0
        assert tool_threads() - self.threads_before <= THREADS
        assert children() <= self.children_before


def on(store: Store) -> Make:
    return lambda world, side: agent(Saga(world.name, world), store=store, side=side, tell=_unheard)


def _unheard(_text: str) -> None:
    """Nobody listens."""


@pytest.mark.parametrize("chunk", range(2))
def test_cancelled_anywhere_in_memory_it_resumes(chunk: int, tmp_path: Path) -> None:
    """S2.20."""
    seed = randbelow(1 << 30) * 2 + chunk
    with quick_folder(tmp_path) as folder, nothing_left():
        campaign = Campaign(seed, folder, on(MemoryStore()))
        asyncio.run(campaign.run(110))
    assert len(campaign.moments) > 20, f"seed {seed}"


def test_cancelled_anywhere_on_a_file_it_resumes(tmp_path: Path) -> None:
    """An append that nobody waits for any more still happens: the log is ahead of what the run knew."""
    seed = randbelow(1 << 30)

    async def go(folder: Path) -> Campaign:
        store = SqliteStore(folder / "store.db")
        campaign = Campaign(seed, folder, on(store))
        await campaign.run(100)
        await store.aclose()
        return campaign

    with quick_folder(tmp_path) as folder, nothing_left():
        campaign = asyncio.run(go(folder))
    assert len(campaign.moments) > 20, f"seed {seed}"


@pytest.mark.parametrize("wire", WIRES)
def test_cancelled_anywhere_with_a_provider_it_resumes(wire: str, tmp_path: Path) -> None:
    """Real sockets: each answer is closed, and no connection outlives the transport."""
    seed = randbelow(1 << 30)

    async def go(folder: Path, server: FakeServer) -> Campaign:
        store = MemoryStore()
        async with watched() as watch:
            model = model_at(server, wire, watch)

            def make(world: World, side: Path) -> Harness:
                harness = agent(Saga(world.name, world), store=store, side=side, tell=_unheard)
                harness._models = (model,)
                return harness

            campaign = Campaign(seed, folder, make)
            for _ in range(8):
                await campaign.run(campaign.cancelled + 5)
                assert watch.open == 0
        return campaign

    with quick_folder(tmp_path) as folder, nothing_left(), served(wire, playing(wire)) as server:
        campaign = asyncio.run(go(folder, server))
        assert server.rejected == []
    assert campaign.cancelled >= 40, f"seed {seed}"


# Asked to stop, from within or from another process: the run ends itself, with a result for each call.


async def stopped(store: Store, folder: Path, chance: Random, *, torn: bool) -> None:
    """A run that is asked to stop at a random moment; `torn`: and cancelled a moment later, before it has done so."""
    world = World.of(chance.randrange(1 << 40))
    side = folder / f"{world.name}.effects"
    harness = agent(Saga(world.name, world), store=store, side=side, tell=_unheard)
    thread = harness.thread()
    running = asyncio.ensure_future(thread.run(world.prompt))
    await stepped(running, chance.randrange(400))
    if thread.id and not running.done():
        await settled_log(harness, thread)
        await thread.cancel("enough")
    if torn:
        await stepped(running, chance.randrange(30))
        running.cancel()
    await asyncio.wait((running,))
    assert await settled(lambda: harness.tool_threads.busy == 0)
    assert others() == set()
    if running.cancelled():
        await finish(harness, thread, world)
    else:
        await resumed(harness, running.result())
    check(await store.read(thread.id), world, Counter(mark.call for mark in marks(side)), torn=torn)


async def stepped(running: "asyncio.Future[Any]", steps: int) -> None:
    for _ in range(steps):
        if running.done():
            return
        await asyncio.sleep(0)


async def settled_log(harness: Harness, thread: Thread) -> None:
    while thread.id not in [summary.log for summary in await harness.store.logs()]:
        await asyncio.sleep(0.001)


async def resumed(harness: Harness, result: RunResult) -> None:
    """The run ended itself: each call that was started has its result."""
    if result.stop == "cancelled":
        assert result.detail == "enough"
        assert all(record.result is not None for record in result.records if record.starts)
        result = await harness.resume(result.thread)
    assert result.stop == "done"


async def finish(harness: Harness, thread: Thread, world: World) -> None:
    """The run was torn off, maybe after it had been asked to stop: then that is what it does first when it is resumed."""
    if not thread.id:
        await thread.run(world.prompt)
        return
    await settled_log(harness, thread)
    for _ in range(3):
        state = await thread.state()
        if state.finished and state.finished.cause == "done":
            return
        await (thread.resume() if state.run else thread.run(world.prompt))
    raise AssertionError("it does not come to its end")


def check(events: list[ev.Event], world: World, effects: Counter[str], *, torn: bool) -> None:
    names = {call: name for turn in world.turns for name, call in turn}
    state = fold(events)
    assert state.transcript.messages[-1].text == world.ending
    ended = Counter(event.call for event in events if isinstance(event, ev.CallFinished))
    assert ended == Counter(list(names)), "a call has one result"
    starts = Counter(event.call for event in events if isinstance(event, ev.CallStarted) and not event.verifying)
    once = {call for call, name in names.items() if TOOLS[name].once or not torn}
    assert all(starts[call] <= 1 for call in once)
    assert all(count == 1 for call, count in effects.items() if call in once or TOOLS[names[call]].verifies)


@pytest.mark.parametrize("torn", [False, True], ids=["let end", "and cancelled"])
@pytest.mark.parametrize("kind", ["memory", "file"])
def test_asked_to_stop_anywhere_each_call_has_one_result_and_the_run_resumes(kind: str, torn: bool, tmp_path: Path) -> None:
    """S4.26."""
    seed = randbelow(1 << 30)

    async def go(folder: Path) -> None:
        store: Store = MemoryStore() if kind == "memory" else SqliteStore(folder / "store.db")
        chance = Random(seed)
        async with asyncio.timeout(SECONDS):
            for _ in range(25):
                await stopped(store, folder, chance, torn=torn)
        await store.aclose()

    with quick_folder(tmp_path) as folder, nothing_left():
        asyncio.run(go(folder))
