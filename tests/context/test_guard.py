"""The guard of the prompt cache: what moved is named before a request is sent, and held against the provider's own diagnosis.

(S1.12, S1.13, S1.27, S1.31, S1.32)
"""

import asyncio
from itertools import count

import pytest
from msgspec.structs import replace

from evener import Harness, tool
from evener.context import ContextRules
from evener.model import open_model
from evener.testing import Call, FakeServer, Received, Tokens, Turn, turn
from evener.transcript import Message
from evener.transcript.ask import ModelSettings
from evener.transcript.blocks import TextBlock
from evener.transport.exchange import Request
from evener.transport.http import HttpTransport
from tests.context.servers import MODELS, harness_on, look, opened, serving

DIAGNOSE = ContextRules(diagnose=True)
DIAGNOSING = ("anthropic_messages", "openai_responses")


class Looking:
    """A model that looks twice a run, and says that so much of a prompt was cached."""

    def __init__(self) -> None:
        self.said = 0

    def __call__(self, _: Received) -> Turn:
        self.said += 1
        used = Tokens(input=1000, output=10, cached=800, written=100)
        return turn(Call("look", {"n": self.said}), usage=used) if self.said % 3 else turn("Done.", usage=used)


@pytest.mark.parametrize("wire", MODELS)
def test_a_system_prompt_whose_text_changes_is_named(wire: str) -> None:
    """home-generative-agent #617, MeshWeaver PR 2108: a clock in the system prompt. (S1.27)"""
    clock = count(1)

    async def go() -> None:
        async with serving(wire, Looking()) as (_, model):
            harness = harness_on(model, ContextRules(), system=lambda _: f"It is {next(clock)} o'clock.")
            thread = harness.thread()
            assert (await thread.run("Look.")).warnings == ()
            [warning] = (await thread.run("Look again.")).warnings
            assert "system changed" in warning
            assert "prompt cache" in warning

    asyncio.run(go())


def test_a_stable_conversation_warns_of_nothing_and_tools_keep_their_order() -> None:
    """S1.32; hermes #27339, vscode #316182: tools in another order or another number with each request."""

    async def go() -> None:
        async with serving("anthropic_messages", Looking()) as (server, model):
            thread = harness_on(model, DIAGNOSE, system="You look.").thread()
            for number in range(3):
                assert (await thread.run(f"Look, {number}.")).warnings == ()
            assert len({str(one.json["tools"]) for one in server.requests}) == 1
            before: list[list[object]] = []
            for one in server.requests:  # each begins as the one before it, reasoning and results included
                now = [[message["role"], unmarked(message["content"])] for message in one.json["messages"]]
                assert now[: len(before)] == before
                before = now

    asyncio.run(go())


def unmarked(content: object) -> object:
    if not isinstance(content, list):
        return [{"type": "text", "text": content}]
    return [{name: value for name, value in block.items() if name != "cache_control"} for block in content]


def test_a_tool_with_a_random_id_in_its_description_is_named() -> None:
    """claude-agent-sdk-typescript #197: a new UUID in a tool's description with every start. (S1.32)"""

    def made(id: str) -> object:
        @tool(name="find", effect="read", description=f"Find in workspace {id}.")
        def find() -> str:
            return "nothing"

        return find

    async def go() -> None:
        async with serving("anthropic_messages", Looking()) as (_, model):
            first = harness_on(model, ContextRules(), tools=[look, made("5b1c")])
            thread = first.thread()
            assert (await thread.run("Look.")).warnings == ()
            other = harness_on(model, ContextRules(), tools=[look, made("77aa")], store=first.store)
            [warning] = (await other.thread(thread.id).run("Look.")).warnings
            assert "find changed" in warning
            swapped = harness_on(model, ContextRules(), tools=[made("77aa"), look], store=first.store)
            [warning] = (await swapped.thread(thread.id).run("Look.")).warnings
            assert "their order changed" in warning

    asyncio.run(go())


@pytest.mark.parametrize("wire", DIAGNOSING)
def test_a_change_that_both_see_is_no_disagreement(wire: str) -> None:
    clock = count(1)

    async def go() -> None:
        async with serving(wire, Looking()) as (server, model):
            harness = harness_on(model, DIAGNOSE, system=lambda _: f"It is {next(clock)} o'clock.")
            thread = harness.thread()
            await thread.run("Look.")
            result = await thread.run("Look again.")
            asked = [one.json.get("diagnostics") or one.json.get("prompt_cache_options") for one in server.requests]
            assert asked[-1]
            assert next(iter(asked[-1].values()))
            [warning] = result.warnings
            assert "system changed" in warning

    asyncio.run(go())


@pytest.mark.parametrize("wire", DIAGNOSING)
def test_a_miss_that_only_the_provider_sees_is_reported(wire: str) -> None:
    """Something between us and the provider changes the system prompt: only its diagnosis can tell."""
    number = count(1)

    def meddle(request: Request) -> Request:
        body = request.body.replace(b"You look around.", b"You look around, day %d." % next(number))
        return replace(request, headers=(*request.headers, ("x-api-key", "k"), ("authorization", "Bearer k")), body=body)

    async def go() -> None:
        name = MODELS[wire]
        with FakeServer(wire, Looking()) as server:
            async with HttpTransport() as transport:
                model = open_model(name, transport=transport, base_url=server.url, environ={}, auth=meddle)
                harness = Harness(model, tools=[look], system="You look around.", store="memory", context=DIAGNOSE)
                result = await harness.run("Look.")
        assert result.stop == "done"
        assert any("disagree about the prompt cache" in one and "was missed" in one for one in result.warnings), result.warnings

    asyncio.run(go())


@pytest.mark.parametrize("wire", MODELS)
def test_cache_tokens_hit_rate_and_money_are_in_every_result(wire: str) -> None:
    """S1.10, S1.13, S1.31."""

    async def go() -> None:
        async with serving(wire, Looking()) as (_, model):
            result = await harness_on(model, ContextRules()).run("Look.")
            assert result.usage.cache_read == 2400
            assert result.usage.hit_rate == pytest.approx(0.8)
            assert result.cost > 0
            assert [one.usage.cache_read for one in result.requests] == [800, 800, 800]
            assert all(one.cost > 0 for one in result.requests)
            assert sum(one.cost for one in result.requests) == result.cost
            if wire in DIAGNOSING:
                assert result.usage.cache_write == 300

    asyncio.run(go())


@pytest.mark.parametrize(("wire", "ttl"), [("anthropic_messages", "1h"), ("openai_responses", "12h")])
def test_the_lifetime_and_the_key_of_the_cache_are_chosen_in_the_settings(wire: str, ttl: str) -> None:
    """S1.12, S3.5: marks after stable blocks, at most as many as the wire allows, none on reasoning."""
    settings = ModelSettings(cache_ttl=ttl, cache_key="shelves")  # type: ignore[arg-type]

    async def go() -> None:
        async with serving(wire, Looking()) as (server, model):
            harness = harness_on(model, DIAGNOSE, system="You look.", settings=settings)
            assert (await harness.run("Look.")).warnings == ()
        for number, one in enumerate(server.requests):
            body = one.body.decode()
            if wire == "anthropic_messages":
                marks = body.count('"cache_control":{"type":"ephemeral","ttl":"1h"}')
                assert 1 <= marks == body.count("cache_control") <= 4
            else:
                options = one.json["prompt_cache_options"]
                assert options["ttl"] == "12h"
                assert ("comparison_response_id" in options) == (number > 0)
                assert one.json["prompt_cache_key"] == "shelves"

    asyncio.run(go())


@pytest.mark.parametrize("name", ["openai:gpt-5.6-sol", "openai:gpt-5.4"])
def test_explicit_breakpoints_go_where_the_row_has_them(name: str) -> None:
    async def go() -> None:
        with FakeServer("openai_responses", ["Yes.", "Yes."]) as server:
            async with HttpTransport() as transport:
                harness = Harness(opened(server, name, transport), store="memory")
                long = Message("user", (TextBlock("A long text. " * 500, cache="30m"), TextBlock("What is it?")))
                await harness.run(long)
        found = server.requests[0].body.count(b'"prompt_cache_breakpoint":{"mode":"explicit"}')
        assert found == (name == "openai:gpt-5.6-sol")
        assert server.rejected == []

    asyncio.run(go())
