"""What a model is opened with is looked at when it is opened, and what one key may do is counted once."""

import asyncio

import pytest

from evener import open_model
from evener.encodings import prepare
from evener.errors import BadValue, EvenerError, UsageError
from evener.model import Model
from evener.transcript import Message, Transcript
from evener.transport.exchange import Request
from evener.transport.limiter import Rate

ASKED = Transcript([Message.user_text("Hello")])


def test_one_key_has_one_limiter_on_every_row() -> None:
    rate = Rate(requests_per_minute=5)
    one = open_model("openai:gpt-5.1", key="sk-shared-key-0001", environ={}, rate=rate)
    other = open_model("openai-chat:gpt-5.1", key="sk-shared-key-0001", environ={})
    assert one.endpoint.limiter is other.endpoint.limiter


def test_a_rate_is_whole_numbers() -> None:
    with pytest.raises(BadValue):
        Rate(requests_per_minute=0.5)  # type: ignore[arg-type] # that is the point


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/v1?api-version=1", "http://127.0.0.1:9/v1#x"])
def test_a_base_url_with_a_query_is_refused_early(address: str) -> None:
    with pytest.raises(UsageError, match="base_url"):
        open_model("openai-chat:m", key="k", base_url=address, environ={})


def test_an_auth_that_gives_no_request_is_told() -> None:
    def forgetful(_: Request) -> Request:
        return None  # type: ignore[return-value]

    async def ask() -> None:
        model = open_model("openai-chat:m", auth=forgetful, base_url="http://127.0.0.1:9", environ={})
        await model.complete(model.ask(ASKED))

    with pytest.raises(EvenerError, match="auth"):
        asyncio.run(ask())


@pytest.mark.parametrize("name", ["anthropic:claude-opus-4-5", "vllm:x", "deepseek:deepseek-chat", "openai:gpt-5.1"])
def test_a_thinking_budget_of_nothing_is_off(name: str) -> None:
    def body(model: Model) -> bytes:
        quirks = model.endpoint.facts.quirks
        return model.endpoint.codec.encode(prepare(model.ask(ASKED), quirks).ask, quirks, None).body

    nothing = open_model(name, key="k", environ={}, thinking_budget=0)
    assert body(nothing) == body(open_model(name, key="k", environ={}, thinking=False))
