"""A stream that nobody closes gives its place at the limiter back, as it does with its connection."""

import asyncio
import gc

import pytest

from evener.model import open_model
from evener.testing import FakeServer, Text, faults, turn
from evener.transport.exchange import Deadlines
from evener.transport.http import HttpTransport
from evener.transport.limiter import Rate
from tests.model.stage import MODELS, NOWHERE, asking, fresh_key, run

STALLED = turn(Text("Word after word.", pieces=6), faults=[faults.Stall(4)])


@pytest.mark.parametrize("rate", [Rate(concurrent=1), Rate(concurrent=1, requests_per_minute=100)], ids=["alone", "counted"])
def test_a_stream_that_is_dropped_unread_holds_up_nobody(rate: Rate) -> None:
    async def play(url: str) -> str:
        async with HttpTransport(trust_env=False) as http:
            most = Deadlines(connect=120, idle=120, total=120)
            model = open_model(
                MODELS["anthropic_messages"], environ=NOWHERE, transport=http, key=fresh_key(), base_url=url,
                rate=rate, deadlines=most,
            )  # fmt: skip

            async def glance() -> None:
                async for _ in model.stream(asking(model)):
                    break

            await glance()
            gc.collect()
            await asyncio.sleep(0.05)
            return (await model.complete(asking(model))).text

    with FakeServer("anthropic_messages", [STALLED, "Hi."]) as server:
        assert run(play(server.url)) == "Hi."
