"""A log holds the setup of its runs, the numbers of its stops and the digests of its requests; replay reads these facts."""

import asyncio
from collections.abc import Callable
from decimal import Decimal
from hashlib import sha256
from importlib import import_module
from pathlib import Path

import pytest

from evener import Harness, Limits, tool
from evener import events as ev
from evener.errors import EvenerError
from evener.events import LimitHit, ToolFacts
from evener.hooks import Cancel, Hook
from evener.loop.state import fold
from evener.model import open_model
from evener.model.stream import prepare_request
from evener.policy.rules import Defaults, Policy, Rule
from evener.replay import replay
from evener.store.memory import MemoryStore
from evener.testing import Call, FakeServer, Status, turn
from evener.testing.scripted_model import ScriptedModel, calls
from evener.transcript.ask import Ask
from evener.transcript.blocks import ToolCall
from evener.transcript.loss import LossRefused
from evener.transcript.reply import Reply
from evener.transport.http import HttpTransport
from tests.driver.stage import WIRES, quick_folder
from tests.driver.test_wires import TARGETS, model_of
from tests.model.stage import NOWHERE, fresh_key
from tests.replay.recordings import recorded
from tests.replay.wired import KINDS


@tool(effect="read", timeout=5.0)
def look(x: str) -> str:
    """Look something up."""
    return f"Denied: not really, but {x}"


@tool(effect="write", approval=True, retries=0, sequential=True)
def pay(x: str) -> str:
    """Pay for it."""
    return f"paid {x}"


def call_again(name: str = "look") -> Callable[[Ask], Reply]:
    return lambda ask: calls(ToolCall.of(f"c{len(ask.transcript)}", name, {"x": str(len(ask.transcript))}))


def run(harness: Harness) -> tuple[ev.Event, ...]:
    """The log of one run."""

    async def go() -> tuple[ev.Event, ...]:
        result = await harness.run("go")
        return tuple(await harness.store.read(result.thread))

    return asyncio.run(go())


def last(events: tuple[ev.Event, ...]) -> ev.Finished:
    assert isinstance(events[-1], ev.Finished)
    return events[-1]


def differences(events: tuple[ev.Event, ...]) -> list[str]:
    return [str(one) for one in asyncio.run(replay(events)).differences]


def test_the_setup_of_a_run_is_in_its_log() -> None:
    limits = Limits(requests=2, cost=Decimal("0.5"), seconds=60.0)
    models = [ScriptedModel(["hello"], name=name) for name in ("first:model", "second:model")]
    harness = Harness(
        models, tools=[look, pay], page_output=False, store="memory", limits=limits, interrupts=["limit"], decide_within=30
    )
    events = run(harness)
    config = next(event for event in events if isinstance(event, ev.Configured))
    assert config.setup == ev.RunSetup(
        limits=limits,
        tools={
            "look": ToolFacts("read", False, 2, False, False, 5.0),
            "pay": ToolFacts("write", True, 0, False, True, pay.timeout),
        },
        fallbacks=("second:model",),
        fetches=(False, False),
        interrupts=("limit",),
        decide_within=30.0,
        shortens=True,
    )
    assert ev.decode_event(ev.encode_event(config)) == config
    assert differences(events) == []


def test_it_is_written_anew_only_when_it_has_changed() -> None:
    async def go() -> list[ev.RunSetup | None]:
        harness = Harness(ScriptedModel(["a", "b", "c"]), store="memory")
        thread = (await harness.run("one")).thread
        await harness.run("two", thread=thread)
        await harness.run("three", thread=thread, limits=Limits(requests=7))
        return [event.setup for event in await harness.store.read(thread) if isinstance(event, ev.Configured)]

    found = asyncio.run(go())
    assert [one.limits.requests for one in found if one] == [50, 7]


@pytest.mark.parametrize(
    ("limits", "hit"),
    [
        (Limits(requests=3), LimitHit("requests", 3, 3)),
        (Limits(tool_calls=2), LimitHit("tool_calls", 2, 3)),
        (Limits(output_tokens=2), LimitHit("output_tokens", 2, 5)),
        (Limits(cost=Decimal("1.0")), LimitHit("cost", Decimal("1.0"), Decimal("0.9"), Decimal("0.3"))),
    ],
)
def test_a_stop_at_a_limit_says_which_and_how_much(limits: Limits, hit: LimitHit) -> None:
    model = ScriptedModel(call_again(), price=Decimal("0.3"))
    for interrupts in ((), ("limit",)):
        events = run(Harness(model, tools=[look], store="memory", limits=limits, interrupts=interrupts))
        if interrupts:
            asked = events[-1]
            assert isinstance(asked, ev.ApprovalAsked)
            assert [question.limit for question in asked.questions] == [hit]
        else:
            assert last(events).limit == hit
        assert differences(events) == []


def test_a_run_that_had_no_more_time_says_so_in_numbers(tmp_path: Path) -> None:
    with quick_folder(tmp_path) as folder:
        events = asyncio.run(recorded("out_of_time", 0, folder)).events
    found = last(events).limit
    assert found is not None
    assert (found.which, found.limit) == ("seconds", 1.0)
    assert found.used >= 1.0  # more, if the second request could not begin in time


def test_a_refused_call_says_who_refused_it_and_why() -> None:
    script: list[Reply | str | EvenerError] = [
        calls(ToolCall.of("a", "look", {"x": "1"}), ToolCall.of("b", "pay", {"x": "1"})),
        "done",
    ]
    rules = Policy((Rule(tool="pay", verdict="deny", reason="no money.", name="thrift"),), Defaults.all("allow"))
    stop = Hook(event="before_tool_call", handler=lambda _: Cancel("not today"))
    events = run(Harness(ScriptedModel(script), tools=[look, pay], store="memory", policy=rules, hooks=[stop]))
    done = {event.call: event for event in events if isinstance(event, ev.CallFinished)}
    assert (done["a"].by_hook, done["a"].denied, done["a"].why) == (True, False, "not today")
    assert (done["b"].by_hook, done["b"].denied, done["b"].rule, done["b"].why) == (False, True, "thrift", "no money")
    assert differences(events) == []


def test_what_a_tool_says_is_not_taken_for_a_denial() -> None:
    """Its result begins with a word of ours, which only a log without facts is read by."""
    script: list[Reply | str | EvenerError] = [calls(ToolCall.of("a", "look", {"x": "1"})), "done"]
    assert differences(run(Harness(ScriptedModel(script), tools=[look], store="memory"))) == []


@pytest.mark.parametrize("name", KINDS)
def test_no_sentence_is_read_where_there_are_facts(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a sentence of ours was read")

    for module, function in (("old_logs", "_hit"), ("old_logs", "_with_reason"), ("replay", "infer_setup")):
        monkeypatch.setattr(import_module(f"evener.replay.{module}"), function, refuse)
    with quick_folder(tmp_path) as folder:
        made = asyncio.run(recorded(name, 0, folder))
    assert [str(one) for one in asyncio.run(replay(made.events, log=made.log)).differences] == []


# What was sent.


@pytest.mark.parametrize("wire", WIRES)
def test_the_digest_of_each_request_is_in_the_log(wire: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is that of the bytes which the server got, and of the request which is made again from the log, long after."""
    monkeypatch.setattr("evener.loop.plan.WAITS", (0.001,))
    script = [turn("Let me see.", Call("look", {"x": "1"})), Status(400), turn("done")]
    name, dialect = TARGETS[wire]

    async def go(server: FakeServer) -> None:
        transport = HttpTransport()
        model = model_of(server, wire, transport)
        harness = Harness(model, tools=[look], system="Be brief.", store=MemoryStore())
        thread = harness.thread()
        with pytest.raises(EvenerError):
            await thread.run("go")
        await thread.resume()
        events = await harness.store.read(thread.id)
        sent = [event.request for event in events if isinstance(event, ev.Replied | ev.ModelFailed)]
        assert sent == [sha256(received.body).hexdigest() for received in server.requests]
        assert len(set(sent)) == 2  # what was refused was sent again
        asked = [place for place, event in enumerate(events, 1) if isinstance(event, ev.ModelCalled)]
        for digest, place in zip(sent, asked, strict=True):
            ask = model.ask(fold(events[:place]).transcript, harness.tools.specs)
            assert sha256(prepare_request(ask, model.endpoint).encoded.body).hexdigest() == digest
        await transport.aclose()

    with FakeServer(wire, script, dialect=dialect, models=(name.partition(":")[2],)) as server:  # type: ignore[arg-type]
        asyncio.run(go(server))


@pytest.mark.parametrize("wire", WIRES)
def test_the_digest_is_right_however_a_conversation_grows(wire: str) -> None:
    """Only what is new is hashed. A system prompt that changes between runs leaves nothing as it was."""
    script = [*(turn("Let me see.", Call("fetch", {"x": str(number)})) for number in range(6)), turn("done"), turn("done")]
    name, dialect = TARGETS[wire]

    @tool
    def fetch(x: str) -> str:
        """Fetch a page."""
        return f"{x}: " + "a long page " * 40

    async def go(server: FakeServer) -> None:
        transport = HttpTransport()
        store, model = MemoryStore(), model_of(server, wire, transport)
        done = await Harness(model, tools=[fetch], system="Be brief.", store=store).run("go")
        await Harness(model, tools=[fetch], system="Be verbose.", store=store).thread(done.thread).run("again")
        sent = [event.request for event in await store.read(done.thread) if isinstance(event, ev.Replied)]
        assert len(sent) == len(script)
        assert sent == [sha256(received.body).hexdigest() for received in server.requests]
        await transport.aclose()

    with FakeServer(wire, script, dialect=dialect, models=(name.partition(":")[2],)) as server:
        asyncio.run(go(server))


def test_what_was_not_sent_has_no_digest() -> None:
    """A loss that is refused keeps the request from being sent."""

    async def go(server: FakeServer) -> list[ev.Event]:
        model = open_model("openai:gpt-5.5", environ=NOWHERE, key=fresh_key(), base_url=server.url, temperature=0.5)
        harness = Harness(model, store="memory", refuse_losses=["setting.temperature"])
        thread = harness.thread()
        with pytest.raises(LossRefused):
            await thread.run("go")
        return await harness.store.read(thread.id)

    with FakeServer("openai_responses", []) as server:
        events = asyncio.run(go(server))
        assert server.requests == []
    assert [event.request for event in events if isinstance(event, ev.ModelFailed)] == [""]
