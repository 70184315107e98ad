"""What a model call gives besides words: counts, times, a price, losses, raw bytes; and how an ask becomes a request."""

import json
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from time import sleep
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from evener.errors import BadValue, UsageError
from evener.model import Answer, Model, open_model
from evener.testing import Call, FakeServer, Raw, Text, Thinking, Tokens, Turn, faults, turn
from evener.testing.servers import Received
from evener.transcript.ask import Reasoning, Settings, ToolSpec
from evener.transcript.blocks import ReasoningBlock, ToolResult
from evener.transcript.delta import CallBegun, Stopped, TextDelta
from evener.transcript.message import Message
from evener.transcript.transcript import Transcript
from evener.transport.cassette.recorder import Player, Recorder
from tests.model.stage import MODELS, MODES, NOWHERE, WIRES, asking, fresh_key, read_to_end, run, watched

T = TypeVar("T")
THINKERS = {**MODELS, "openai_chat": "deepseek:deepseek-v4-pro"}
DIALECTS = {"openai_chat": "deepseek"}


def asked(server: FakeServer, name: str, use: Callable[[Model], Awaitable[T]], **settings: Any) -> T:
    """What this use of a model at the server gives."""

    async def play() -> T:
        async with watched() as watch:
            settings.setdefault("key", fresh_key())
            return await use(open_model(name, environ=NOWHERE, transport=watch, base_url=server.url, **settings))

    return run(play())


def hello(server: FakeServer, name: str, *, streamed: bool = True, keep_raw: bool = False, **settings: Any) -> Answer:
    """The answer to a short question."""

    async def use(model: Model) -> Answer:
        return await model.complete(asking(model, streamed=streamed), keep_raw=keep_raw)

    return asked(server, name, use, **settings)


# What an answer tells.


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wire", WIRES)
def test_token_counts_are_exact(wire: str, mode: str) -> None:
    """S1.4, S1.5, S1.10."""
    with FakeServer(wire, [turn("Hi.", usage=Tokens(input=4020, cached=4000, output=40, reasoning=30))]) as server:
        answer = hello(server, MODELS[wire], streamed=MODES[mode])
    assert (answer.usage.input_total, answer.usage.cache_read, answer.usage.output_total) == (4020, 4000, 40)
    assert answer.message.usage == answer.usage
    assert answer.message.origin is not None
    assert answer.message.origin.model == MODELS[wire].partition(":")[2]


@pytest.mark.parametrize("mode", MODES)
def test_the_first_piece_is_timed_apart_from_the_whole(mode: str) -> None:
    """S1.4, S1.5."""
    slow = faults.Slow(head=0.05, between=0.02)
    with FakeServer("anthropic_messages", [turn(Text("One two three.", pieces=6), faults=[slow])]) as server:
        answer = hello(server, MODELS["anthropic_messages"], streamed=MODES[mode])
    assert 0.05 <= answer.first <= answer.seconds
    assert answer.seconds == answer.timing.latency >= 0.1
    if MODES[mode]:
        assert answer.seconds - answer.first >= 0.08


COSTS = {
    "anthropic:claude-sonnet-4-5": (True, ""),
    "anthropic:claude-never-heard-of-9": (False, "does not know"),
    "llamacpp-anthropic:own-model": (True, "your own machine"),
}


@pytest.mark.parametrize("name", COSTS)
def test_the_price_is_estimated_or_said_to_be_a_lower_bound(name: str) -> None:
    """S1.3, S1.4."""
    exact, why = COSTS[name]
    with FakeServer("anthropic_messages", [turn("Hi.", usage=Tokens(input=1000, output=1000))]) as server:
        cost = hello(server, name).cost
    assert cost.exact is exact
    assert why in cost.why
    assert (cost.amount > 0) is (name in ("anthropic:claude-sonnet-4-5",))
    assert (cost + cost).amount == 2 * cost.amount


@pytest.mark.parametrize("wire", WIRES)
def test_what_the_request_could_not_say_is_reported(wire: str) -> None:
    async def use(model: Model) -> Answer:
        ask = model.ask(Transcript([Message.user_text("Hi")]), settings=Settings(seed=7, top_k=3))
        return await model.complete(ask)

    with FakeServer(wire, ["Hi."]) as server:
        answer = asked(server, MODELS[wire], use)
    lost = {loss.what for loss in answer.losses}
    told = json.dumps(server.requests[0].json)
    assert [("seed" in told) or ("setting seed" in lost), ("op_k" in told or "opK" in told) or ("setting top_k" in lost)] == [
        True,
        True,
    ]
    assert all(loss.why for loss in answer.losses)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wire", WIRES)
def test_raw_is_the_body_as_it_was_served(wire: str, mode: str, packed: bool) -> None:
    """S2.4."""
    spoilt = [faults.Gzip()] if packed else []
    with FakeServer(wire, [turn("Hello, world.", faults=spoilt)]) as server:
        first = hello(server, MODELS[wire], streamed=MODES[mode], keep_raw=True)
    assert first.raw is not None
    kind = "text/event-stream" if MODES[mode] else "application/json"
    with FakeServer(wire, [Raw(first.raw, content_type=kind), "Hi."]) as server:
        again = hello(server, MODELS[wire], streamed=MODES[mode], keep_raw=True)
        assert hello(server, MODELS[wire]).raw is None
    assert (again.raw, again.reply) == (first.raw, first.reply)


def test_an_answer_is_there_only_when_it_has_ended() -> None:
    async def use(model: Model) -> None:
        stream = model.stream(asking(model))
        with pytest.raises(UsageError, match="no answer yet"):
            assert stream.answer
        assert await stream.read()
        with pytest.raises(UsageError, match="no answer yet"):
            assert stream.answer
        await stream.aclose()
        assert await stream.read() == []
        with pytest.raises(UsageError, match="no answer yet"):
            assert stream.answer

    with FakeServer("anthropic_messages", [turn(Text("a b c d e f", pieces=6), faults=[faults.Slow(between=0.02)])]) as server:
        asked(server, MODELS["anthropic_messages"], use)


def test_a_json_answer_to_a_streamed_ask_is_taken() -> None:
    with FakeServer("openai_chat", ["Hi there."]) as server:
        whole = hello(server, MODELS["openai_chat"], streamed=False, keep_raw=True)
    assert whole.raw is not None
    for kind in ("application/json; charset=utf-8", "text/plain", ""):
        with FakeServer("openai_chat", [Raw(whole.raw, content_type=kind)]) as server:
            assert hello(server, MODELS["openai_chat"]).reply == whole.reply


# A conversation.


def long_script() -> list[Turn]:
    """Ten model calls: thinking, calls, one and several, and words."""
    turns = []
    for number in range(5):
        calls = [Call("add", {"a": number, "b": extra}) for extra in range(1 + number % 2)]
        turns += [turn(Thinking(f"Hm, {number}."), *calls), turn(Thinking("Now."), f"Answer {number}.")]
    return turns


ADD = ToolSpec(
    "add",
    "Adds.",
    '{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"],'
    '"additionalProperties":false}',
)


@pytest.mark.parametrize("wire", WIRES)
def test_the_last_answer_makes_the_next_call_cheaper_and_no_byte_different(wire: str) -> None:
    """Each call is made twice, with `after` and without: the server sees the same bytes."""
    script = [entry for one in long_script() for entry in (one, one)]

    async def use(model: Model) -> list[Answer]:
        transcript, answer, answers = Transcript(system="Be brief."), None, []
        for number in range(5):
            transcript = transcript.append(Message.user_text(f"Question {number}"))
            for _ in range(2):
                ask = model.ask(transcript, [ADD], reasoning=Reasoning("low", show="summary"))
                answer = await model.complete(ask, after=answer)
                await model.complete(ask)
                answers.append(answer)
                transcript = transcript.append(answer.message)
                if answer.reply.calls:
                    results = tuple(ToolResult(call.id, "42") for call in answer.reply.calls)  # type: ignore[arg-type]
                    transcript = transcript.append(Message("user", results))
        return answers

    with FakeServer(wire, script, dialect=DIALECTS.get(wire, "")) as server:
        answers = asked(server, THINKERS[wire], use)
        bodies = [received.body for received in server.requests]
        assert server.rejected == []
    assert len(bodies) == 20
    assert bodies[0::2] == bodies[1::2]
    assert len(set(bodies)) == 10
    assert all(any(isinstance(block, ReasoningBlock) for block in answer.message.blocks) for answer in answers)
    shared = answers[-2].sent.encoded.fold.fragments
    assert all(new is old for new, old in zip(answers[-1].sent.encoded.fold.fragments, shared, strict=False))


@pytest.mark.parametrize("there", WIRES)
@pytest.mark.parametrize("here", WIRES)
def test_an_ask_for_another_model_is_turned_to_this_one(here: str, there: str) -> None:
    """A conversation with thinking and tools goes on elsewhere, and the strict server there takes it. (S1.2, S4.27)"""
    script = [turn(Thinking("Let me see."), Call("add", {"a": 1, "b": 2})), turn("3.")]

    async def play(first_url: str, second_url: str) -> Answer:
        async with watched() as watch:
            settings: dict[str, Any] = {"environ": NOWHERE, "transport": watch, "key": fresh_key()}
            first = open_model(THINKERS[here], base_url=first_url, **settings)
            second = open_model(THINKERS[there], base_url=second_url, **settings)
            transcript = Transcript([Message.user_text("1 + 2?")], "Be brief.")
            ask = first.ask(transcript, [ADD], reasoning=Reasoning("low", show="summary"))
            answer = await first.complete(ask)
            (call,) = answer.reply.calls
            grown = transcript.append(answer.message).append(Message.tool_result(call.id, "3"))
            return await second.complete(replace(ask, transcript=grown), after=answer)

    first = FakeServer(here, script[:1], dialect=DIALECTS.get(here, ""))
    with first as one, FakeServer(there, script[1:], dialect=DIALECTS.get(there, "")) as two:
        answer = run(play(one.url, two.url))
        assert (one.rejected, two.rejected) == ([], [])
        assert b"Be brief." in two.requests[0].body
    assert answer.text == "3."
    assert answer.message.origin is not None
    assert answer.message.origin.wire == there
    if here != there:
        assert any(loss.what.startswith("reasoning") for loss in answer.losses)


# Plain switches.

SWITCHES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("anthropic:claude-opus-5-5", {"effort": "high"}, {"output_config.effort": "high", "thinking.type": "adaptive"}),
    ("anthropic:claude-opus-5-5", {"thinking": True}, {"thinking.type": "adaptive"}),
    ("anthropic:claude-sonnet-4-5", {"thinking": False}, {"thinking.type": "disabled"}),
    (
        "anthropic:claude-sonnet-4-5",
        {"thinking_budget": 2000, "max_output_tokens": 3000},
        {"thinking.type": "enabled", "thinking.budget_tokens": 2000, "max_tokens": 3000},
    ),
    *(("openai:gpt-5", {"effort": level}, {"reasoning.effort": level}) for level in ("minimal", "low", "medium", "high")),
    ("openai:gpt-5.5", {"thinking": False}, {"reasoning.effort": "none"}),
    ("openai:gpt-5.5", {"max_output_tokens": 77}, {"max_output_tokens": 77}),
    ("openai-chat:gpt-4.1", {"max_output_tokens": 77, "temperature": 0.5}, {"max_completion_tokens": 77, "temperature": 0.5}),
    ("google:gemini-3-flash-preview", {"effort": "high"}, {"generationConfig.thinkingConfig.thinkingLevel": "HIGH"}),
    ("google:gemini-2.5-flash", {"thinking_budget": 2000}, {"generationConfig.thinkingConfig.thinkingBudget": 2000}),
    ("google:gemini-3-flash-preview", {"temperature": 0.5}, {"generationConfig.temperature": 0.5}),
]
WIRE_OF = {name.partition(":")[0]: wire for wire, name in MODELS.items()}


def found(body: Any, path: str) -> Any:
    for name in path.split("."):
        body = body.get(name) if isinstance(body, dict) else None
    return body


@pytest.mark.parametrize(("name", "switches", "wanted"), SWITCHES, ids=lambda value: json.dumps(value))
def test_a_plain_argument_is_the_field_of_the_wire(name: str, switches: dict[str, Any], wanted: dict[str, Any]) -> None:
    """S0.35, S0.42, S0.46."""
    with FakeServer(WIRE_OF[name.partition(":")[0]], ["Hi."]) as server:
        hello(server, name, **switches)
        assert server.rejected == []
    assert {path: found(server.requests[0].json, path) for path in wanted} == wanted


@pytest.mark.parametrize("most", [1000, 2000])
def test_a_budget_must_leave_room_for_an_answer(most: int) -> None:
    """S0.35."""
    with pytest.raises(BadValue, match="must exceed thinking_budget, 2000"):
        open_model("anthropic:claude-sonnet-4-5", environ=NOWHERE, key="k", thinking_budget=2000, max_output_tokens=most)


def test_a_budget_without_a_limit_gets_one_that_fits() -> None:
    """S0.35."""
    with FakeServer("anthropic_messages", ["Hi."]) as server:
        hello(server, "anthropic:claude-sonnet-4-5", thinking_budget=20_000)
        assert server.rejected == []
    assert server.requests[0].json["max_tokens"] > server.requests[0].json["thinking"]["budget_tokens"] == 20_000


def test_an_ask_may_say_it_otherwise() -> None:
    async def use(model: Model) -> Answer:
        ask = model.ask(Transcript([Message.user_text("Hi")]), reasoning=Reasoning("low"), settings=Settings(99))
        return await model.complete(ask)

    with FakeServer("openai_responses", ["Hi."]) as server:
        asked(server, MODELS["openai_responses"], use, effort="high", max_output_tokens=5)
    assert found(server.requests[0].json, "reasoning.effort") == "low"
    assert server.requests[0].json["max_output_tokens"] == 99


# Names.


def tool_name(wire: str, received: Received) -> str:
    """What the first tool is called on the wire."""
    (tool, *_) = received.json["tools"]
    match wire:
        case "openai_chat":
            return str(tool["function"]["name"])
        case "gemini":
            return str(tool["functionDeclarations"][0]["name"])
    return str(tool["name"])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wire", WIRES)
def test_a_tool_that_had_to_be_renamed_comes_back_under_our_name(wire: str, mode: str) -> None:
    """S2.40."""
    ours = "look up / weather (\u00fcber all)"

    def script(received: Received) -> Turn:
        return turn("Known.") if "Sunny" in received.body.decode() else turn(Call(tool_name(wire, received), {"at": "Oslo"}))

    async def use(model: Model) -> tuple[list[str], Answer, Answer]:
        tools = [ToolSpec(ours, "Looks.", '{"type":"object","properties":{"at":{"type":"string"}},"required":["at"]}')]
        transcript = Transcript([Message.user_text("Oslo?")])
        ask = replace(model.ask(transcript, tools), stream=MODES[mode])
        stream = model.stream(ask)
        names = [delta.name async for delta in stream if isinstance(delta, CallBegun)]
        grown = transcript.append(stream.answer.message)
        grown = grown.append(Message.tool_result(stream.answer.reply.calls[0].id, "Sunny"))
        return names, stream.answer, await model.complete(replace(ask, transcript=grown), after=stream.answer)

    with FakeServer(wire, script) as server:
        names, first, second = asked(server, MODELS[wire], use)
        assert server.rejected == []
    assert tool_name(wire, server.requests[0]) != ours
    assert names == [call.name for call in first.reply.calls] == [call.name for call in first.message.calls] == [ours]
    assert second.text == "Known."


# Other ways in.


def test_the_plain_completer_asks_with_the_defaults() -> None:
    """S0.31."""

    async def use(model: Model) -> str:
        assert model.completer.name == model.name == MODELS["openai_responses"]
        reply = await model.completer.complete(Transcript([Message.user_text("Hi")], "Be brief."), [ADD])
        return reply.text

    with FakeServer("openai_responses", ["Hello."]) as server:
        assert asked(server, MODELS["openai_responses"], use, effort="low") == "Hello."
    assert found(server.requests[0].json, "reasoning.effort") == "low"
    assert tool_name("openai_responses", server.requests[0]) == "add"


@pytest.mark.parametrize("wire", WIRES)
def test_a_cassette_replays_a_model(wire: str, tmp_path: Path) -> None:
    path, key = tmp_path / "hello.cassette", fresh_key()

    async def record(url: str) -> Answer:
        async with watched() as watch:
            with Recorder(watch, path) as recorder:
                model = open_model(MODELS[wire], environ=NOWHERE, transport=recorder, key=key, base_url=url)
                return await read_to_end(model.stream(asking(model), keep_raw=True))

    with FakeServer(wire, [turn(Thinking("Hm."), "Hello, world.")]) as server:
        url = server.url
        live = run(record(url))

    async def replay() -> tuple[Answer, str]:
        model = open_model(MODELS[wire], environ=NOWHERE, transport=Player(path), key=fresh_key(), base_url=url)
        stream = model.stream(asking(model), keep_raw=True)
        deltas = [delta async for delta in stream]
        assert isinstance(deltas[-1], Stopped)
        return stream.answer, "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))

    again, told = run(replay())
    assert (again.reply, again.raw, told) == (live.reply, live.raw, "Hello, world.")
    assert key not in path.read_text()


@pytest.mark.parametrize("wire", WIRES)
def test_an_answer_has_one_message_which_is_as_old_as_the_answer(wire: str) -> None:
    with FakeServer(wire, [turn(Text("Hi."))]) as server:
        began = datetime.now(UTC)
        answer = hello(server, MODELS[wire])
        ended = datetime.now(UTC)
    sleep(0.01)
    with ThreadPoolExecutor(8) as pool:
        made = {id(message) for message in pool.map(lambda _: answer.message, range(64))}
    assert made == {id(answer.message)}
    assert answer.message.created_at is not None
    assert began <= answer.message.created_at <= ended


def test_a_tiny_model_is_asked_as_its_row_says_where_the_caller_does_not() -> None:
    talk = Transcript([Message.user_text("Hi")])
    usual = open_model("local:smollm2", environ={}).ask(talk).settings
    own = open_model("local:smollm2", environ={}, temperature=0.7, max_output_tokens=900).ask(talk).settings
    other = open_model("openai-chat:gpt-4.1", key="k", environ={}).ask(talk).settings
    assert (usual.temperature, usual.max_output_tokens) == (0.0, 256)
    assert (own.temperature, own.max_output_tokens) == (0.7, 900)
    assert (other.temperature, other.max_output_tokens) == (None, None)
