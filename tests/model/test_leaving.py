"""A call that is given up at any moment leaves nothing behind: no socket, no task, no place in the queue."""

import asyncio
from contextlib import suppress
from random import Random

import pytest

from evener.model import Model, open_model
from evener.testing import FakeServer, Text, faults, turn
from evener.transport.limiter import Rate
from tests.model.stage import MODELS, NOWHERE, WIRES, asking, fresh_key, nothing_left, run, watched
from tests.patience import at_some_pace

TIMES = 100
SLOW = turn(Text("Word after word after word.", pieces=12), faults=[faults.Slow(head=0.004, between=0.002)])


async def give_up(model: Model, random: Random) -> str:
    """One call that is cancelled after a while, or once its answer has begun; what it said, if it was faster than that."""
    begun = asyncio.Event()

    async def call() -> str:
        said, stream = "", model.stream(asking(model))
        async with stream:
            async for delta in stream:
                begun.set()
                said += getattr(delta, "text", "")
        return said

    seconds, asked = random.uniform(0, 0.05), random.random() < 0.4
    task = asyncio.create_task(call())
    await (begun.wait() if asked else asyncio.sleep(seconds))
    task.cancel()
    with suppress(asyncio.CancelledError):
        return await task
    return ""


@pytest.mark.parametrize("wire", ["anthropic_messages", "gemini"])
def test_cancelled_a_hundred_times_nothing_is_left(wire: str) -> None:
    random = Random(7)

    async def play(url: str) -> list[str]:
        async with watched() as watch:
            rate = Rate(concurrent=5)
            model = open_model(MODELS[wire], environ=NOWHERE, transport=watch, key=fresh_key(), base_url=url, rate=rate)
            said = []
            for _ in range(TIMES // 10):
                said += await asyncio.gather(*(give_up(model, random) for _ in range(10)))
                assert watch.open == 0
            assert (await model.complete(asking(model))).text == "Word after word after word."
            return said

    with nothing_left(), FakeServer(wire, [SLOW] * (TIMES + 1)) as server:
        said = run(play(server.url))
        asked = len(server.requests)
    assert len(said) == TIMES
    assert 10 < asked <= TIMES + 1
    assert said.count("") > TIMES // 4


@pytest.mark.parametrize("wire", WIRES)
def test_a_stream_that_is_left_after_each_read_leaves_nothing(wire: str) -> None:
    async def play(url: str) -> int:
        async with watched() as watch:
            rate = Rate(concurrent=1)
            model = open_model(MODELS[wire], environ=NOWHERE, transport=watch, key=fresh_key(), base_url=url, rate=rate)
            reads = 0
            while True:
                async with model.stream(asking(model)) as stream:
                    ended = not all([bool(await stream.read()) for _ in range(reads)])
                assert watch.open == 0
                if ended:
                    return reads
                reads += 1

    def attempt(pace: float) -> None:
        slow = turn("One two three.", faults=[faults.Slow(between=0.003 * pace)])
        with nothing_left(), FakeServer(wire, lambda _: slow) as server:
            assert run(play(server.url)) > 2

    at_some_pace(attempt)  # a client that is held up gets all of it in one read


def test_a_loop_that_leaves_the_iteration_early_closes_with_the_block() -> None:
    async def play(url: str) -> None:
        async with watched() as watch:
            name = MODELS["openai_chat"]
            model = open_model(name, environ=NOWHERE, transport=watch, key=fresh_key(), base_url=url)
            async with model.stream(asking(model)) as stream:
                async for _ in stream:
                    break
            assert watch.open == 0

    with nothing_left(), FakeServer("openai_chat", [SLOW]) as server:
        run(play(server.url))
