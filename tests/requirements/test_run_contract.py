"""What a run owes its caller, whatever the model: one door to the model, a full result, and a pause that holds everything."""

import asyncio
from decimal import Decimal
from pathlib import Path

import pytest

from evener import Harness, Limits, MemoryStore, RunResult, SqliteStore, tool
from evener import events as ev
from evener import streaming as st
from evener.errors import AuthFailed, Overloaded
from evener.harness.approvals import Decision
from evener.hooks import Cancel, Hook, HookAnswer, Moment
from evener.testing.scripted_model import Line, ScriptedModel, calls, says
from evener.transcript.blocks import TextBlock, ToolCall
from evener.transcript.reply import Usage

USAGE = Usage(100, 60, 40, 0, 20, 5)
ADD = ToolCall.of("c1", "add", {"a": 1, "b": 2})
PAY = ToolCall.of("c2", "pay", {"amount": 5})
NOTE = ToolCall.of("c3", "note", {"text": "tea"})
SHAPE = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"], "additionalProperties": False}


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def note(text: str) -> str:
    """Note something."""
    return text


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evener.loop.plan.WAITS", (0.001,))


def watched(harness: Harness, prompt: str = "go") -> list[st.StreamEvent]:
    async def go() -> list[st.StreamEvent]:
        async with harness.stream(prompt) as stream:
            return [event async for event in stream]

    return asyncio.run(go())


def kinds(events: list[st.StreamEvent]) -> list[str]:
    return [type(event).__name__ for event in events]


def test_one_door_to_the_model_counts_tells_and_judges_every_request() -> None:
    """S2.3: first answers, those after tools, those after a failure and corrections are all counted, priced and noticed."""
    wrong, right = says("three", usage=USAGE), says('{"sum":3}', usage=USAGE)
    script: list[Line] = [Overloaded("busy", status=529), calls(ADD, usage=USAGE), wrong, right]
    model = ScriptedModel(script, price=Decimal("0.01"))
    limits = Limits(requests=4, warn_at=0.75)
    result = Harness(model, tools=[add], output=SHAPE, limits=limits, store="memory", page_output=False).run_sync("1+2?")
    assert (result.ok, result.output, len(model.asks)) == (True, {"sum": 3}, 4)
    assert [bool(request.error) for request in result.requests] == [True, False, False, False]
    assert (result.usage, result.cost) == (USAGE + USAGE + USAGE, Decimal("0.03"))
    texts = [block.text for message in model.asks[-1].transcript for block in message.blocks if isinstance(block, TextBlock)]
    assert sum("model requests are left" in text for text in texts) == 1


def test_each_request_is_recorded_with_tokens_cost_and_time() -> None:
    """S0.52, S1.3: input, cached and output tokens, and an estimated price of each call."""
    model = ScriptedModel([calls(ADD, usage=USAGE), says("three", usage=USAGE)], price=Decimal("0.01"))
    result = Harness(model, tools=[add], store="memory").run_sync("1+2?")
    assert [(request.model, request.usage, request.cost) for request in result.requests] == [
        ("scripted:model", USAGE, Decimal("0.01"))
    ] * 2
    assert result.seconds > 0
    assert (USAGE.input_total, USAGE.cache_read, USAGE.output_total, USAGE.reasoning) == (100, 40, 20, 5)


def test_a_result_holds_all_that_the_run_came_to() -> None:
    """S2.8: text, parsed output, tool records, usage, stop, and where to go on; `run_end` was told."""
    ended: list[Moment] = []
    hook = Hook(event="run_end", handler=ended.append)
    model = ScriptedModel([calls(ADD, usage=USAGE), says('{"sum":3}', usage=USAGE)])
    result = Harness(model, tools=[add], output=SHAPE, hooks=[hook], store="memory").run_sync("1+2?")
    assert (result.stop, result.text, result.output) == ("done", '{"sum":3}', {"sum": 3})
    assert [(record.call, record.ok, record.starts) for record in result.records] == [(ADD, True, 1)]
    assert result.usage == USAGE + USAGE
    assert result.thread
    assert [message.role for message in result.transcript] == ["user", "assistant", "user", "assistant"]
    assert [(moment.stop, moment.run) for moment in ended] == [("done", result.run)]


def test_a_provider_that_fails_is_an_error_of_ours_with_its_cause_in_the_log() -> None:
    """S2.9."""
    harness = Harness(ScriptedModel([AuthFailed("bad key", status=401)]), store="memory")
    with pytest.raises(AuthFailed) as caught:
        harness.run_sync("go")
    events = asyncio.run(harness.store.read(caught.value.thread))
    assert isinstance(events[-1], ev.Finished)
    assert (events[-1].cause, "bad key" in events[-1].detail) == ("provider_error", True)


# Streaming.


def agent(script: list[Line], **more: object) -> Harness:
    return Harness(ScriptedModel(script), tools=[add, pay], store=MemoryStore(), page_output=False, **more)  # type: ignore[arg-type]


def test_running_and_streaming_are_one_loop() -> None:
    """S2.14: the same script gives the same facts in the log, watched or not."""
    script: list[Line] = [calls(ADD), Overloaded("busy", status=529), "three"]
    alone, seen = agent(script), agent(script)
    result = alone.run_sync("1+2?")
    last = watched(seen, "1+2?")[-1]
    assert isinstance(last, st.RunFinished)
    assert (last.result.text, last.result.stop, last.result.usage) == (result.text, result.stop, result.usage)
    logs = [asyncio.run(one.store.read(thread)) for one, thread in ((alone, result.thread), (seen, last.result.thread))]
    assert [type(event) for event in logs[0]] == [type(event) for event in logs[1]]


def test_every_kind_of_event_comes_where_it_belongs() -> None:
    """S2.15, S2.16, S4.15: run, request, pieces, turn, tool, retry and limit events; the last one holds the result."""
    one = agent([calls(ADD, text="let me"), Overloaded("busy", status=529), "three"], limits=Limits(requests=3, warn_at=0.6))
    events = watched(one)
    assert kinds(events) == [
        "RunStarted", "RequestStarted", "TextStreamed", "ArgumentsStreamed", "ArgumentsStreamed", "TurnFinished", "ToolStarted",
        "ToolFinished", "RequestStarted", "RetryScheduled", "NoticeGiven", "RequestStarted", "TextStreamed", "TurnFinished",
        "RunFinished",
    ]  # fmt: skip
    assert isinstance(events[5], st.TurnFinished)
    assert events[5].usage.output_total == 5
    last = events[-1]
    assert isinstance(last, st.RunFinished)
    assert last.result.text == "three"


def test_a_run_that_fails_says_so_last() -> None:
    """S2.15, S4.15."""
    last = watched(agent([AuthFailed("bad key", status=401)]))[-1]
    assert isinstance(last, st.RunFailed)
    assert "bad key" in str(last.error)


def test_a_run_that_was_approved_says_that_it_goes_on() -> None:
    """S2.15, S2.71, S4.20: asked about while streaming, decided, and resumed with an event that says so."""
    one = agent([calls(PAY), "done"])
    first = watched(one)
    assert kinds(first)[-2:] == ["ApprovalRequested", "RunFinished"]
    thread = first[0].place.thread

    async def resumed() -> list[st.StreamEvent]:
        await one.decide(thread, {"c2": Decision("allow")})
        async with one.thread(thread).resume_stream() as stream:
            return [event async for event in stream]

    second = asyncio.run(resumed())
    assert isinstance(second[0], st.RunStarted)
    assert second[0].resumed
    assert kinds(second)[1:3] == ["ToolStarted", "ToolFinished"]


# Hooks.


def test_a_hook_at_a_limit_is_told_and_changes_nothing() -> None:
    """S2.44."""

    def refuse(_moment: Moment) -> HookAnswer:
        return Cancel("go on, please")

    stopped: list[tuple[str, int]] = []
    for hooks in ([], [Hook(event="limit_reached", handler=refuse)]):
        model = ScriptedModel([calls(ADD), "never asked"])
        result = Harness(model, tools=[add], limits=Limits(requests=1), hooks=hooks, store="memory").run_sync("go")
        stopped.append((result.stop, len(model.asks)))
    assert stopped == [("limit", 1)] * 2


def test_calls_that_a_hook_cancelled_are_told_from_those_that_ran() -> None:
    """S2.58, S2.59: both count against the limit of calls; only one was started."""
    hook = Hook(event="before_tool_call", handler=lambda _: Cancel("no"), tools=("note",))
    model = ScriptedModel([calls(ADD, NOTE), calls(ToolCall.of("c4", "add", {"a": 2, "b": 2})), "done"])
    result = Harness(model, tools=[add, note], hooks=[hook], limits=Limits(tool_calls=2), store="memory").run_sync("go")
    assert [record.starts for record in result.records] == [1, 0, 0]
    assert (result.stop, [call.id for call in result.pending]) == ("limit", ["c4"])


# Pauses.


def test_a_pause_holds_everything_and_goes_on_elsewhere(tmp_path: Path) -> None:
    """S2.69, S2.73: batch, usage, records, warnings given and the conversation survive; the batch counts once."""
    limits = Limits(requests=5, warn_at=0.4)

    async def held(model: ScriptedModel, thread: str = "") -> tuple[RunResult, list[ev.Event]]:
        store = SqliteStore(tmp_path / "runs.db")
        harness = Harness(model, tools=[add, pay], store=store, limits=limits)
        if thread:
            await harness.decide(thread, {"c2": Decision("allow")})
        result = await (harness.resume(thread) if thread else harness.run("go"))
        events = await store.read(result.thread)
        await store.aclose()
        return result, events

    paused, _ = asyncio.run(held(ScriptedModel([calls(ADD, usage=USAGE), calls(PAY, usage=USAGE)])))
    assert (paused.stop, paused.pending, paused.usage) == ("approval", (PAY,), USAGE + USAGE)
    final, events = asyncio.run(held(ScriptedModel([says("done", usage=USAGE)], name="other:m"), paused.thread))
    assert (final.text, final.run, final.usage) == ("done", paused.run, USAGE + USAGE + USAGE)
    assert [(record.call.id, record.starts) for record in final.records] == [("c1", 1), ("c2", 1)]
    assert [request.model for request in final.requests] == ["scripted:model", "scripted:model", "other:m"]
    keys = [key for event in events if isinstance(event, ev.ModelCalled) for key, _ in event.notices]
    assert len(keys) == len(set(keys)) >= 1
