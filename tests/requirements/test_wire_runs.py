"""Runs over strict fakes of every wire: what is counted, noticed, shown and kept is the same, whoever answers."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from evener import Harness, Limits, RunResult, tool
from evener import streaming as st
from evener.model import Answer, Model, open_model
from evener.testing import Call, FakeServer, Thinking, Tokens, turn
from evener.transcript import TextBlock, dump_transcript
from evener.transcript.ask import State, ToolSpec
from evener.transcript.message import Message
from evener.transcript.transcript import Transcript
from evener.transport.exchange import Transport
from tests.model.stage import MODELS, MODES, NOWHERE, WIRES, asking, fresh_key, run, watched

ADD = Call("add", {"a": 1, "b": 2})


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@contextmanager
def serving(wire: str, script: list[object]) -> Iterator[FakeServer]:
    with FakeServer(wire, script) as server:  # type: ignore[arg-type]
        yield server
        assert server.rejected == []


def model_of(wire: str, server: FakeServer, transport: Transport, **settings: Any) -> Model:
    return open_model(MODELS[wire], environ=NOWHERE, transport=transport, key=fresh_key(), base_url=server.url, **settings)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wire", WIRES)
def test_every_count_of_the_provider_is_kept(wire: str, mode: str) -> None:
    """S0.44, S1.3-S1.5, S1.10, S1.13, S1.31: cached and written tokens, and reasoning where the wire tells it."""
    written = 100 if wire == "anthropic_messages" else 0
    said = turn("Hi.", usage=Tokens(input=4020, cached=3000, written=written, output=40, reasoning=30))

    async def go(server: FakeServer) -> Answer:
        async with watched() as watch:
            model = model_of(wire, server, watch)
            return await model.complete(asking(model, streamed=MODES[mode]))

    with serving(wire, [said]) as server:
        answer = run(go(server))
    usage = answer.usage
    assert (usage.input_total, usage.cache_read, usage.cache_write, usage.output_total) == (4020, 3000, written, 40)
    assert usage.reasoning == 30
    assert answer.seconds > 0
    assert answer.cost.amount > 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wire", WIRES)
def test_a_turn_is_text_calls_and_the_bytes_that_came(wire: str, mode: str) -> None:
    """S2.4: the calls have id, name and their arguments as JSON text."""
    spec = ToolSpec("add", "Adds.", '{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}}}')

    async def go(server: FakeServer) -> Answer:
        async with watched() as watch:
            model = model_of(wire, server, watch)
            ask = model.ask(Transcript([Message.user_text("1+2?")]), [spec])
            return await model.complete(replace(ask, stream=MODES[mode]), keep_raw=True)

    with serving(wire, [turn("Let me see.", ADD)]) as server:
        answer = run(go(server))
    (call,) = answer.reply.calls
    assert (answer.text, call.name, json.loads(call.raw)) == ("Let me see.", "add", {"a": 1, "b": 2})
    assert call.id
    assert answer.raw is not None
    assert b"add" in answer.raw


def test_a_chain_goes_on_from_the_answer_that_the_provider_keeps() -> None:
    """S1.7, S1.22: a stored answer is named, and the history is not sent again."""

    async def go(server: FakeServer) -> str:
        async with watched() as watch:
            model = model_of("openai_responses", server, watch)
            kept = model.ask(Transcript([Message.user_text("My name is Ada.")]), state=State(store=True, sealed=False))
            first = await model.complete(kept)
            chained = State("chain", first.reply.id, store=True, sealed=False)
            return (await model.complete(model.ask(Transcript([Message.user_text("And?")]), state=chained))).text

    with serving("openai_responses", ["Hello, Ada.", "Ada."]) as server:
        assert run(go(server)) == "Ada."
        assert b"My name is Ada." not in server.requests[1].body
        assert server.requests[1].json["previous_response_id"]


@pytest.mark.parametrize("wire", WIRES)
def test_a_notice_follows_the_results_on_every_wire(wire: str) -> None:
    """S2.39, S2.61."""

    async def go(server: FakeServer) -> RunResult:
        async with watched() as watch:
            model = model_of(wire, server, watch)
            return await Harness(model, tools=[add], limits=Limits(requests=2, warn_at=0.5), store="memory").run("1+2?")

    with serving(wire, [ADD, "three"]) as server:
        result = run(go(server))
        assert (result.ok, result.losses) == (True, ())  # no wire had to put them in order
        first, second = (request.body.decode() for request in server.requests)
    assert "model requests are left" not in first
    assert second.count("model requests are left") == 1
    place = max(second.find(words) for words in ('"3"', '"3 ', "'3'"))
    assert 0 < place < second.find("model requests are left")


RAW = {
    "anthropic_messages": "content_block",
    "openai_responses": "response.output",
    "openai_chat": "finish_reason",
    "gemini": "usageMetadata",
}


@pytest.mark.parametrize("wire", WIRES)
def test_events_show_what_was_said_and_nothing_of_the_providers_json(wire: str) -> None:
    """S2.17."""

    async def go(server: FakeServer) -> tuple[list[st.StreamEvent], bytes]:
        async with watched() as watch:
            model = model_of(wire, server, watch)
            raw = (await model.complete(asking(model), keep_raw=True)).raw
            async with Harness(model, tools=[add], store="memory").stream("What is 1+2?") as stream:
                return [event async for event in stream], raw or b""

    with serving(wire, ["Hi.", ADD, "It is three."]) as server:
        events, raw = run(go(server))
    assert RAW[wire] in raw.decode()
    last = events[-1]
    assert isinstance(last, st.RunFinished)
    shown = repr(events) + dump_transcript(last.result.transcript).decode()
    assert all(words in shown for words in ("What is 1+2?", "It is three."))
    assert [event.call.args for event in events if isinstance(event, st.ToolStarted)] == [{"a": 1, "b": 2}]
    assert [event.result.content for event in events if isinstance(event, st.ToolFinished)] == [(TextBlock("3"),)]
    assert RAW[wire] not in shown


@pytest.mark.parametrize("wire", WIRES)
def test_transport_model_and_conversation_are_apart(wire: str) -> None:
    """S2.36, S2.1: one transport and one model serve two conversations, each with a past of its own that can be dumped."""

    async def go(server: FakeServer) -> list[list[str]]:
        async with watched() as watch:
            model = model_of(wire, server, watch)
            harness = Harness(model, tools=[add], store="memory")
            one, two = harness.thread(), harness.thread()
            await one.run("a1")
            await two.run("b1")
            ended = [await one.run("a2"), await two.run("b2")]
            kept = [(await thread.state()).transcript for thread in (one, two)]
            assert [list(transcript) for transcript in kept] == [list(result.transcript) for result in ended]
            return [[message.text for message in transcript] for transcript in kept]

    with serving(wire, ["1", "2", "3", "4"]) as server:
        assert run(go(server)) == [["a1", "1", "a2", "3"], ["b1", "2", "b2", "4"]]


def test_no_key_is_in_what_the_model_is_told() -> None:
    """S1.28."""
    key = fresh_key()

    async def go(server: FakeServer) -> None:
        async with watched() as watch:
            model = open_model(MODELS["openai_chat"], environ=NOWHERE, transport=watch, key=key, base_url=server.url)
            result = await Harness(model, tools=[add], system="Be brief.", store="memory").run("1+2?")
            assert key not in repr(result)

    with serving("openai_chat", [ADD, "three"]) as server:
        asyncio.run(go(server))
        assert all(key not in request.body.decode() for request in server.requests)
        assert key in server.requests[0].headers["authorization"]


@pytest.mark.parametrize("wire", WIRES)
def test_thinking_is_shown_apart_and_the_loop_does_not_care(wire: str) -> None:
    """S0.33."""

    async def go(server: FakeServer) -> RunResult:
        async with watched() as watch:
            model = model_of(wire, server, watch)
            return await Harness(model, tools=[add], store="memory").run("1+2?")

    texts = []
    for script in ([ADD, "three"], [turn(Thinking("hm"), ADD), turn(Thinking("so"), "three")]):
        with serving(wire, list(script)) as server:
            result = run(go(server))
        texts.append((result.text, result.stop, [record.call.name for record in result.records]))
    assert texts[0] == texts[1] == ("three", "done", ["add"])
