"""A lease that was taken while the clock was ahead holds for its own length, and no longer; by force it is taken at once."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from evener import Harness, MemoryStore, tool
from evener.events import Opened
from evener.store import SqliteStore
from evener.store.protocol import LeaseHeld, LeaseLost
from evener.testing import ScriptedModel, calls
from evener.testing.scripted_model import Line
from evener.transcript.blocks import ToolCall

YEARS = 1e9
NOW = 1000.0
AnyStore = MemoryStore | SqliteStore


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


Stores = Callable[..., AnyStore]


@pytest.fixture(params=["memory", "sqlite"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    """Stores on the same logs, each with its own lease where that is possible."""
    made: list[MemoryStore] = []

    def store(clock: Clock, lease: float = 30.0) -> AnyStore:
        if request.param == "sqlite":
            return SqliteStore(tmp_path / "store.db", clock=clock, lease=lease)
        made.append(made[0] if made else MemoryStore(clock=clock, lease=lease))
        return made[0]

    return store


def run(work: Coroutine[object, object, None]) -> None:
    asyncio.run(work)


def test_a_lease_from_a_clock_that_was_ahead_is_cut_to_its_own_length(stores: Stores) -> None:
    async def scenario() -> None:
        clock = Clock()
        clock.now += YEARS
        first = stores(clock, 20.0)
        held = await first.create("log", Opened(at=1.0, thread="log"), holder="first")
        clock.now = NOW
        second = stores(clock, 30.0)
        with pytest.raises(LeaseHeld, match="for 20 more seconds"):
            await second.open("log", holder="second")
        clock.now += 19
        with pytest.raises(LeaseHeld, match="for 1 more seconds"):
            await second.open("log", holder="second")
        clock.now += 2
        log, _ = await second.open("log", holder="second")
        assert log.lease.rival == "holder"
        with pytest.raises(LeaseLost):
            await held.renew()
        await second.aclose()
        await first.aclose()

    run(scenario())


def test_a_holder_that_lives_keeps_its_lease_when_the_clock_is_corrected(stores: Stores) -> None:
    async def scenario() -> None:
        clock = Clock()
        clock.now += YEARS
        first = stores(clock, 20.0)
        held = await first.create("log", Opened(at=1.0, thread="log"), holder="first")
        clock.now = NOW
        second = stores(clock)
        for _ in range(5):
            with pytest.raises(LeaseHeld):
                await second.open("log", holder="second")
            clock.now += 15
            await held.renew()
        await second.aclose()
        await first.aclose()

    run(scenario())


def test_by_force_a_log_is_taken_from_whoever_holds_it(stores: Stores) -> None:
    async def scenario() -> None:
        clock = Clock()
        first, second = stores(clock), stores(clock)
        held = await first.create("log", Opened(at=1.0, thread="log"), holder="first")
        with pytest.raises(LeaseHeld, match="Use `force`"):
            await second.open("log", holder="second")
        log, _ = await second.open("log", holder="second", force=True)
        assert (log.lease.epoch, log.lease.rival) == (2, "holder")
        with pytest.raises(LeaseLost):
            await held.append(Opened(at=1.0, thread="log"))
        await second.aclose()
        await first.aclose()

    run(scenario())


def test_what_is_known_of_earlier_holders_stays_until_something_is_written(stores: Stores) -> None:
    """A successor that dies, or leaves without a word, does not make its predecessor dead."""

    async def scenario() -> None:
        clock = Clock()
        store = stores(clock)
        first = await store.create("log", Opened(at=1.0, thread="log"), holder="first")
        second, _ = await store.open("log", holder="second", force=True)
        await second.aclose()
        third, _ = await store.open("log", holder="third")
        assert (second.lease.rival, third.lease.rival) == ("holder", "holder")
        await third.append(Opened(at=1.0, thread="log"))
        await third.aclose()
        fourth, _ = await store.open("log", holder="fourth")
        assert (fourth.lease.rival, first.lease.rival) == ("", "")
        await fourth.aclose(left=True)
        fifth, _ = await store.open("log", holder="fifth")
        assert fifth.lease.rival == "holder", "what the fourth had begun goes on"
        await store.aclose()

    run(scenario())


def test_a_thread_is_resumed_by_force(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock, later = Clock(), Clock()
        clock.now += YEARS
        first = SqliteStore(tmp_path / "store.db", clock=clock)
        begun = asyncio.Event()

        async def hang() -> str:
            begun.set()
            await asyncio.sleep(3600)
            return "never"

        def agent(store: SqliteStore, look: Callable[[], object], *script: Line) -> Harness:
            return Harness(ScriptedModel(script), tools=[tool(look, name="look", effect="read")], store=store)

        stream = agent(first, hang, calls(ToolCall.of("c", "look", {}))).thread().stream("Hello.")
        await begun.wait()
        [log] = await first.logs()
        second = SqliteStore(tmp_path / "store.db", clock=later)
        thread = agent(second, lambda: "seen", "Here I am.").thread(log.log)
        with pytest.raises(LeaseHeld):
            await thread.resume()
        assert (await thread.resume(force=True)).text == "Here I am."
        await stream.aclose()
        await second.aclose()
        await first.aclose()

    run(scenario())
