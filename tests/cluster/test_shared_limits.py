"""Limits that hold across machines: the budget of a tree whose agents run on several workers, and the rate of a key."""

import asyncio
import os
import signal
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import pytest

from bench.trees import LIMITS, grow_trees, make_tree_harness
from evener import Limits
from evener.cluster import Worker
from evener.errors import TimedOut
from evener.loop.state import Spent
from evener.store.postgres import PostgresStore
from evener.store.postgres.connection import StoreUnreachable
from evener.testing.postgres import PostgresServer
from evener.transcript.reply import Usage
from evener.transport.limiter import Limiter, Rate, share_rates
from tests.patience import PATIENCE, at_some_pace
from tests.store.stores import new_schema, postgres, run


def test_the_budget_of_a_tree_of_20_agents_on_four_workers_holds() -> None:
    schema = new_schema()

    async def scenario() -> None:
        stores = [PostgresStore(postgres().address, schema=schema) for _ in range(5)]
        harnesses = [make_tree_harness(store) for store in stores]
        workers = [Worker({"trees": one}, one.store, slots=16) for one in harnesses[1:]]
        working = [asyncio.create_task(worker.run()) for worker in workers]
        report = await grow_trees(harnesses[0], 1)
        assert (report.trees, report.agents, report.violations) == (1, 20, [])
        assert report.limited  # they wanted more than there was
        assert any(report.most[name] > getattr(LIMITS, name) // 2 for name in ("requests", "tool_calls"))
        for worker in workers:
            worker.drain()
        await asyncio.gather(*working)
        for store in stores:
            await store.aclose()

    run(scenario())


def test_what_a_dead_worker_had_reserved_counts_as_spent_once_its_log_goes_on() -> None:
    async def scenario() -> None:
        store = PostgresStore(postgres().address, schema=new_schema())
        tables = store.cluster
        await tables.begin_tree("tree", log="root", limits=Limits(cost=Decimal(3), requests=9), spent=Spent(cost=Decimal(1)))
        assert await tables.reserve("tree", log="a", key="k1", cost=Decimal(1)) is None
        assert await tables.reserve("tree", log="a", key="k1", cost=Decimal(1)) is None  # the answer was lost: it is one
        refused = await tables.reserve("tree", log="b", key="k2", cost=Decimal(2))
        assert refused is not None
        assert (refused.name, refused.used, refused.held) == ("cost", 2, True)
        await tables.settle_left("tree", log="a")
        refused = await tables.reserve("tree", log="b", key="k2", cost=Decimal(2))
        assert refused is not None
        assert not refused.held
        await tables.settle("tree", key="k1", usage=Usage(), cost=Decimal(0), made=True)  # the dead worker was only asleep
        assert await tables.reserve("tree", log="b", key="k3", cost=Decimal(1)) is None
        await store.aclose()

    run(scenario())


def test_a_rate_holds_for_the_calls_of_all_machines() -> None:
    schema, rate = new_schema(), Rate(requests_per_minute=4, tokens_per_minute=100, concurrent=2)

    async def scenario() -> None:
        mine, other = (PostgresStore(postgres().address, schema=schema) for _ in range(2))

        async def wait_of(store: PostgresStore, key: str, id: str, tokens: int = 1) -> float:
            return await store.cluster.admit(key, id=id, tokens=tokens, rate=rate, within=60.0)

        assert [await wait_of(store, "a", id) for store, id in ((mine, "1"), (other, "2"))] == [0.0, 0.0]
        assert await wait_of(mine, "a", "1") == 0.0  # the answer was lost: it is one call
        assert 0.0 < await wait_of(mine, "a", "3") < 1.0  # two are under way
        mine.cluster.recount("1", 60)
        mine.cluster.leave("1")
        assert await wait_of(mine, "another key", "6") == 0.0  # jobs of one store are done in their order
        assert await wait_of(other, "a", "3") == 0.0
        other.cluster.leave("2")
        other.cluster.leave("3")
        assert 1.0 < await wait_of(other, "a", "4", 40) <= 60.0  # that is too many tokens for this minute
        assert await wait_of(other, "a", "4", 30) == 0.0
        assert 1.0 < await wait_of(mine, "a", "5") <= 60.0  # and this too many requests
        share_rates(mine)
        limiter = Limiter(rate, key="shared")
        for _ in range(2):
            async with limiter.slot(tokens=5) as slot:
                slot.settle(7)
        limiter.pause(30.0)
        assert await wait_of(mine, "shared", "7") > 1.0
        assert await wait_of(other, "shared", "8") > 1.0
        await mine.aclose()
        async with Limiter(rate, key="another").slot(tokens=1) as slot:  # a store that is closed counts no more
            assert slot.tokens == 1
        await other.aclose()

    run(scenario())


def test_a_call_that_is_given_up_while_it_waits_for_other_machines_gives_its_place_back() -> None:
    rate = Rate(concurrent=1)

    async def scenario() -> None:
        store = PostgresStore(postgres().address, schema=new_schema())
        share_rates(store)
        limiter = Limiter(rate, key="given up")
        for pause in (0.0, 0.001, 0.003, 0.01):
            for _ in range(5):
                task = asyncio.create_task(limiter.slot().enter())
                await asyncio.sleep(pause)
                if not task.cancel():
                    (await task).leave()
                await asyncio.wait([task])
        dropped = await limiter.slot().enter()
        dropped.forget()  # as the collector does with a stream that was never closed
        async with limiter.slot(within=PATIENCE):
            assert await store.cluster.admit("given up", id="another", tokens=0, rate=rate, within=60.0) > 0
        assert await store.cluster.admit("given up", id="another", tokens=0, rate=rate, within=60.0) == 0
        await store.aclose()

    run(scenario())


def test_a_call_ends_with_an_error_while_the_server_that_counts_does_not_answer() -> None:
    async def scenario(server: PostgresServer, store: PostgresStore) -> None:
        share_rates(store)
        limiter = Limiter(Rate(concurrent=1), key="slow")
        async with limiter.slot():
            pass
        for silent in (signal.SIGSTOP, signal.SIGCONT):
            for process in server.processes:
                with suppress(ProcessLookupError):  # one of those that come and go
                    os.kill(process, silent)
            if silent is signal.SIGSTOP:
                with pytest.raises(TimedOut, match="did not answer within 1 seconds"):
                    await limiter.slot(within=1.0).enter()
        async with limiter.slot(within=PATIENCE):
            pass
        await asyncio.to_thread(server.kill)
        with pytest.raises(StoreUnreachable):
            await limiter.slot().enter()

    async def closing(server: PostgresServer, pace: float) -> None:
        store = PostgresStore(server.address, busy=2.0 * pace)
        try:
            await scenario(server, store)
        finally:
            await store.aclose()

    def attempt(pace: float) -> None:
        with PostgresServer(within="/dev/shm" if Path("/dev/shm").is_dir() else None) as server:
            run(closing(server, pace))

    postgres()  # skips where there is none
    at_some_pace(attempt)
