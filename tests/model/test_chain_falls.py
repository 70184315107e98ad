"""A chain goes on with the next model as long as nothing of an answer was shown."""

import asyncio

import pytest

from evener import open_model
from evener.model import Chain, Model
from evener.testing import FakeServer, faults
from evener.transcript import Message, Transcript
from evener.transport.exchange import Retries

ASKED = Transcript([Message.user_text("Hello")])


def claude(url: str) -> Model:
    return open_model(
        "anthropic:claude-opus-4-5", key="sk-very-secret-1234", base_url=url, environ={}, retries=Retries(attempts=1)
    )


@pytest.mark.parametrize("fault", [faults.Cut(after=3), faults.ErrorEvent(after=1), faults.ErrorEvent(after=4)])
def test_a_chain_completes_with_the_next_model_when_one_breaks_off(fault: faults.Fault) -> None:
    async def ask() -> str:
        async with FakeServer("anthropic_messages", [fault]) as first, FakeServer("anthropic_messages", ["Second."]) as second:
            chain = Chain([claude(first.url), claude(second.url)])
            return (await chain.complete(chain.models[0].ask(ASKED))).text

    assert asyncio.run(ask()) == "Second."


def test_a_chain_falls_back_while_nothing_but_the_start_was_streamed() -> None:
    async def ask() -> str:
        broken = faults.ErrorEvent(after=1)  # message_start, then overloaded_error: nothing was shown
        async with FakeServer("anthropic_messages", [broken]) as first, FakeServer("anthropic_messages", ["Second."]) as second:
            chain = Chain([claude(first.url), claude(second.url)])
            async with chain.stream(chain.models[0].ask(ASKED)) as stream:
                while await stream.read():
                    pass
                return stream.answer.text

    assert asyncio.run(ask()) == "Second."
