"""A stream at odd moments: spoken to before it began, made where there is no loop."""

import asyncio

import pytest

from evener import Harness
from evener.errors import UsageError
from evener.result import RunResult
from evener.store.log import NoLog
from evener.testing import ScriptedModel


def agent() -> Harness:
    return Harness(ScriptedModel(lambda _: "Hello."), store="memory")


def test_a_run_that_has_just_been_made_is_steered() -> None:
    async def go() -> RunResult:
        async with agent().stream("Hi.") as stream:
            await stream.steer("Be brief.")
            return await stream.result()

    assert "Be brief." in [message.text for message in asyncio.run(go()).transcript]


def test_a_run_that_has_just_been_made_is_cancelled() -> None:
    async def go() -> RunResult:
        async with agent().stream("Hi.") as stream:
            await stream.cancel("never mind")
            return await stream.result()

    result = asyncio.run(go())
    assert (result.stop, result.detail) == ("cancelled", "never mind")


def test_speaking_to_a_stream_that_was_closed_at_once_does_not_wait_for_ever() -> None:
    async def go() -> None:
        stream = agent().stream("Hi.")
        await stream.aclose()
        async with asyncio.timeout(5):
            with pytest.raises(NoLog):
                await stream.steer("Still there?")

    asyncio.run(go())


def test_a_stream_without_a_loop_says_what_to_do() -> None:
    with pytest.raises(UsageError, match="needs a running event loop"):
        agent().stream("Hi.")
