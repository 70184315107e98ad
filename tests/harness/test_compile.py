"""`thread.compile`: the request that would be sent, on any provider, without a key and without sending it.

The proof is the run itself: what was compiled is what arrives, byte for byte.
"""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal

import pytest

from evener import Harness, Limits, MemoryStore, tool
from evener.errors import UsageError
from evener.harness.approvals import Decision
from evener.harness.preview import Compiled
from evener.hooks import Hook
from evener.model import Model, open_model
from evener.testing import Call, FakeServer, ScriptedModel, Text, Thinking, turn
from evener.testing.check import check_request
from evener.transcript.blocks import ImageBlock, Remote, TextBlock
from evener.transcript.message import Message
from evener.transport.exchange import Retries, Transport
from tests.driver.stage import WIRES, others
from tests.model.stage import NOWHERE, fresh_key, watched

TARGETS = {
    "anthropic_messages": ("anthropic:claude-opus-5-5", ""),
    "openai_responses": ("openai:gpt-5.5", ""),
    "openai_chat": ("deepseek:deepseek-v4-pro", "deepseek"),
    "gemini": ("google:gemini-3-flash-preview", ""),
}


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@contextmanager
def serving(wire: str, *script: object) -> Iterator[FakeServer]:
    name, dialect = TARGETS[wire]
    with FakeServer(wire, list(script), dialect=dialect, models=(name.partition(":")[2],)) as server:  # type: ignore[arg-type]
        yield server
        assert [rejected.violations for rejected in server.rejected] == []


def model_of(server: FakeServer, wire: str, transport: Transport) -> Model:
    return open_model(
        TARGETS[wire][0], environ=NOWHERE, transport=transport, key=fresh_key(), base_url=server.url,
        retries=Retries(attempts=1), effort="low",
    )  # fmt: skip


def agent(model: Model, store: MemoryStore, **more: object) -> Harness:
    return Harness(model, tools=[add, pay], system="You do sums.", store=store, **more)  # type: ignore[arg-type]


SUMS = (
    turn(Thinking("A sum."), "Let me see.", Call("add", {"a": 1, "b": 2})),
    turn(Thinking("Easy."), "It is 3."),
    turn(Thinking("Again."), Call("add", {"a": 3, "b": 4})),
    turn("It is 7."),
)


@pytest.mark.parametrize("wire", WIRES)
def test_what_was_compiled_is_what_a_run_sends(wire: str) -> None:
    """Byte for byte, for the first prompt, for a later one, on a fork, and in another process that knows nothing."""

    async def go(server: FakeServer) -> None:
        store = MemoryStore()
        async with watched() as watch:
            harness = agent(model_of(server, wire, watch), store)
            thread = harness.thread()
            shown = [await thread.compile(prompt="1+2?")]
            assert watch.sent == 0
            await thread.run("1+2?")
            shown.append(await thread.compile(prompt="And 3+4?"))
            cold = await harness.thread(thread.id).compile(prompt="And 3+4?")
            assert cold == shown[1]
            fork = await thread.fork()
            assert await fork.compile(prompt="And 3+4?") == shown[1]
            await fork.run("And 3+4?")
            assert watch.sent == len(server.requests) == 4
        first, second = server.requests[0], server.requests[2]
        for compiled, request in zip(shown, (first, second), strict=True):
            assert compiled.body == request.body
            assert compiled.url.endswith(request.path)
            assert compiled.method == request.method
            assert {name.lower() for name, _ in compiled.headers} <= set(request.headers)
            assert "SENTINEL" not in repr(compiled)
            assert compiled.losses == () or wire == "openai_chat", "there, thinking is taken back beside calls only"
            assert compiled.notes == ()
        assert shown[0].prefix != shown[1].prefix
        assert len({one.cache for one in shown}) == 2

    with serving(wire, *SUMS) as server:
        asyncio.run(go(server))


@pytest.mark.parametrize("wire", WIRES)
def test_a_run_that_stopped_compiles_to_what_its_resume_sends(wire: str) -> None:
    async def go(server: FakeServer) -> None:
        async with watched() as watch:
            harness = agent(model_of(server, wire, watch), MemoryStore(), limits=Limits(requests=1))
            thread = harness.thread()
            stopped = await thread.run("1+2?")
            assert stopped.stop == "limit"
            compiled = await thread.compile()
            assert compiled.notes == ()
            await thread.resume()
        assert compiled.body == server.requests[1].body

    with serving(wire, *SUMS[:2]) as server:
        asyncio.run(go(server))


@pytest.mark.parametrize("form", ["native", "tool"])
@pytest.mark.parametrize("wire", WIRES)
def test_a_structured_answer_is_asked_for_as_in_the_run(wire: str, form: str) -> None:
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"], "additionalProperties": False}

    async def go(server: FakeServer) -> None:
        async with watched() as watch:
            harness = agent(model_of(server, wire, watch), MemoryStore(), output=schema, output_form=form)
            thread = harness.thread()
            compiled = await thread.compile(prompt="1+2?")
            await thread.run("1+2?")
        assert compiled.body == server.requests[0].body

    answer = turn(Call("final_result", {"sum": 3})) if form == "tool" or wire == "openai_chat" else turn('{"sum": 3}')
    with serving(wire, answer) as server:
        asyncio.run(go(server))


@pytest.mark.parametrize("there", WIRES)
@pytest.mark.parametrize("here", WIRES)
def test_any_thread_compiles_for_any_wire_with_its_losses(here: str, there: str) -> None:
    """What the other provider cannot be told is listed; the request is legal; and it is what a run there sends."""

    async def go(server: FakeServer, other: FakeServer) -> Compiled:
        store = MemoryStore()
        async with watched() as watch:
            harness = agent(model_of(server, here, watch), store)
            thread = harness.thread()
            await thread.run("1+2?")
            compiled = await thread.compile(model_of(other, there, watch), prompt="And 3+4?")
            before = len(await store.read(thread.log))
            result = await harness.with_model(model_of(other, there, watch)).thread(thread.id).run("And 3+4?")
            assert before == sum(1 for _ in await store.read(thread.log, until=before))
            assert set(compiled.losses) == set(result.losses)
        assert compiled.body == other.requests[-1].body
        return compiled

    with ExitStack() as stack:
        server = stack.enter_context(serving(here, *SUMS[:2], *(("It is 7.",) if here == there else ())))
        other = server if here == there else stack.enter_context(serving(there, "It is 7."))
        compiled = asyncio.run(go(server, other))
    lost = {word for loss in compiled.losses for word in ("reasoning", "signature", "seal") if word in loss.what}
    assert bool(lost) is (here != there or here == "openai_chat")


@pytest.mark.parametrize("mode", ["chain", "conversation"])
def test_what_a_provider_holds_is_left_out_as_in_the_run(mode: str) -> None:
    """The second request has only what is new, and a note says who holds the rest; on another provider all of it goes out."""

    async def go(server: FakeServer) -> None:
        async with watched() as watch:
            harness = agent(model_of(server, "openai_responses", watch), MemoryStore(), state=mode)
            thread = harness.thread()
            await thread.run("1+2?")
            compiled = await thread.compile(prompt="And 3+4?")
            elsewhere = await thread.compile("anthropic:claude-opus-5-5", prompt="And 3+4?")
            await thread.run("And 3+4?")
        sent = [request.body for request in server.requests if request.route.endswith("/responses")]
        assert compiled.body == sent[-1]
        assert b"1+2" not in compiled.body
        assert f"stores the earlier messages ({mode} " in compiled.notes[0]
        assert b"1+2" in elsewhere.body

    with serving("openai_responses", "It is 3.", "It is 7.") as server:
        asyncio.run(go(server))


def test_a_model_by_its_name_needs_no_key_no_account_and_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fingerprints are those of a model that is connected: a key changes nothing."""
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "DEEPSEEK_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    async def go() -> None:
        harness = Harness(ScriptedModel(["hello"]), tools=[add], store="memory", effort="low")
        thread = harness.thread()
        await thread.run("hi")
        busy = threading.active_count()
        for wire, (name, dialect) in TARGETS.items():
            compiled = await thread.compile(name, prompt="1+2?")
            violations = check_request(wire, compiled.body, model=name.partition(":")[2], dialect=dialect)
            assert violations == []
            assert compiled.model == name
            assert compiled.url.startswith("https://")
            assert not any("authorization" in header.lower() or "key" in header.lower() for header, _ in compiled.headers)
            with_key = open_model(name, environ=NOWHERE, key=fresh_key(), effort="low")
            assert await thread.compile(with_key, prompt="1+2?") == compiled
        assert others() == set()
        assert threading.active_count() <= busy
        assert json.loads((await thread.compile("openai:gpt-5.5", prompt="x")).text)["model"] == "gpt-5.5"

    asyncio.run(go())


@pytest.mark.parametrize("row", ["azure:gpt-5.5", "vertex:claude-opus-5-5", "claude-aws:claude-opus-5-5", "snowflake:x"])
def test_an_account_that_is_not_set_has_a_placeholder(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AZURE_OPENAI_RESOURCE", "GOOGLE_CLOUD_PROJECT", "ANTHROPIC_AWS_WORKSPACE_ID"):
        monkeypatch.delenv(name, raising=False)
    compiled = asyncio.run(Harness(ScriptedModel([]), store="memory").thread().compile(row, prompt="x"))
    assert "not-set" in compiled.url
    assert b'"x"' in compiled.body


def test_what_headers_say_of_an_account_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_AWS_WORKSPACE_ID", "wrkspc-SENTINEL")
    thread = Harness(ScriptedModel([]), store="memory").thread()
    compiled = asyncio.run(thread.compile("claude-aws:claude-opus-5-5", prompt="x"))
    assert ("anthropic-workspace-id", "***") in compiled.headers
    assert "SENTINEL" not in repr(compiled)


def test_a_model_without_a_wire_and_an_empty_thread_have_nothing_to_show() -> None:
    async def go() -> None:
        harness = Harness(ScriptedModel(["hello"]), store="memory")
        with pytest.raises(UsageError, match="there is no request to show"):
            await harness.thread().compile(prompt="x")
        with pytest.raises(UsageError, match="nothing to send yet"):
            await harness.thread().compile("openai:gpt-5.5")
        thread = harness.thread()
        await thread.run("hi")
        ended = await thread.compile("openai:gpt-5.5")
        assert "is finished" in ended.notes[0]
        assert [item["role"] for item in json.loads(ended.body)["input"]] == ["user", "assistant"]

    asyncio.run(go())


def test_what_is_not_known_before_a_run_is_said() -> None:
    """Calls that would run, decisions that are missing, hooks, media, money: each has its note, and nothing is made up."""

    async def go(server: FakeServer) -> None:
        async with watched() as watch:
            model = model_of(server, "openai_responses", watch)
            harness = agent(model, MemoryStore(), hooks=[Hook(event="user_prompt_submit", handler=lambda _: None)])
            thread = harness.thread()
            waiting = await thread.run("Pay 5.")
            assert waiting.stop == "approval"
            assert "waits" in (await thread.compile()).notes[0]
            await thread.decide({waiting.approvals[0].key: Decision("allow")})
            asked = await thread.fork(at=next(one.id for one in waiting.transcript if one.calls))
            assert "asked first (tool)" in (await asked.compile()).notes[0]
            assert "Hooks" in (await thread.compile(prompt="x")).notes[-1]
            image = Message("user", (TextBlock("see"), ImageBlock(Remote("https://example.org/a.png?x=1"))))
            fetching = await thread.compile("ollama:llava", prompt=image)
            assert any("https://example.org/a.png." in note for note in fetching.notes)
            poor = harness.thread(limits=Limits(cost=Decimal("0.000001")))
            assert "limit" in str((await poor.compile(prompt="x")).notes)

    with serving("openai_responses", turn(Call("pay", {"amount": 5}))) as server:
        asyncio.run(go(server))


def test_a_run_with_little_money_sends_the_shorter_request_that_was_compiled() -> None:
    async def go(server: FakeServer) -> None:
        async with watched() as watch:
            harness = agent(model_of(server, "anthropic_messages", watch), MemoryStore(), limits=Limits(cost=Decimal("0.05")))
            thread = harness.thread()
            compiled = await thread.compile(prompt="1+2?")
            whole = await agent(model_of(server, "anthropic_messages", watch), MemoryStore()).thread().compile(prompt="1+2?")
            await thread.run("1+2?")
        assert compiled.body == server.requests[0].body
        assert json.loads(compiled.body)["max_tokens"] < json.loads(whole.body)["max_tokens"]

    with serving("anthropic_messages", Text("It is 3.")) as server:
        asyncio.run(go(server))
