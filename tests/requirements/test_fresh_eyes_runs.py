"""Requirements about runs whose tests looked at a part only, shown once more through the public API."""

import asyncio
import json
import threading
from typing import Any

import pytest

from evener import Harness, Limits, MemoryStore, ModelRetry, tool
from evener import streaming as st
from evener.errors import ApprovalStale
from evener.harness import Decision, Subagent
from evener.hooks import Cancel, Hook, Moment
from evener.testing import ScriptedModel, calls
from evener.testing.scripted_model import Line
from evener.transcript import Reply, Stop, TextBlock, ToolCall, ToolResult
from evener.transcript.ask import Ask, OutputForm
from evener.transcript.reply import StopReason

TRIP = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
GOOD = '{"city":"Ulm"}'
TURNS = 500
"""Turns of the event loop: many more than it takes to start what may be started."""


@tool(effect="read")
def look(item: str) -> str:
    """Look at an item."""
    return f"a blue {item}"


def looking(id: str, item: str = "cup") -> ToolCall:
    return ToolCall.of(id, "look", {"item": item})


def final(id: str, city: object) -> Reply:
    return calls(ToolCall.of(id, "final_result", {"city": city}))


def results(ask: Ask) -> list[ToolResult]:
    return [block for message in ask.transcript for block in message.blocks if isinstance(block, ToolResult)]


# What a turn means.


@pytest.mark.parametrize(
    ("form", "script", "told", "words"),
    [
        ("native", [GOOD], None, ""),
        ("native", [calls(looking("c")), GOOD], ToolResult, "a blue cup"),
        ("native", ["Ulm, I say.", GOOD], TextBlock, "JSON"),
        ("tool", [final("f", 7), final("g", "Ulm")], ToolResult, "city: expected"),
    ],
    ids=["final", "run tools", "retry by a user's message", "retry by a tool's output"],
)
def test_s2_5_what_a_turn_means_decides_what_the_model_is_told_next(
    form: OutputForm, script: list[Line], told: type[ToolResult | TextBlock] | None, words: str
) -> None:
    model = ScriptedModel(script)
    result = Harness(model, tools=[look], store="memory", output=TRIP, output_form=form).run_sync("Where to?")
    assert (result.stop, result.output, len(model.asks)) == ("done", {"city": "Ulm"}, 1 + bool(told))
    if told:
        last = model.asks[1].transcript.messages[-1].blocks[0]
        assert isinstance(last, told)
        assert words in last.text


@pytest.mark.parametrize(
    ("reason", "stop", "words"), [("length", "length", "cut off"), ("cancelled", "unexpected", "cancelled")]
)
def test_s2_5_a_turn_that_did_not_end_is_no_answer_even_if_it_fits(reason: StopReason, stop: str, words: str) -> None:
    model = ScriptedModel([Reply((TextBlock(GOOD),), Stop(reason))])
    result = Harness(model, store="memory", output=TRIP, output_form="native").run_sync("Where to?")
    assert (result.stop, result.output, words in result.detail) == (stop, None, True)


# Streams.


def test_s2_20_a_stream_begins_unread_and_leaves_its_harness_usable() -> None:
    async def go() -> str:
        began = asyncio.Event()

        @tool(effect="read")
        async def wait() -> str:
            """Wait."""
            began.set()
            await asyncio.Event().wait()
            return "never"

        harness = Harness(ScriptedModel([calls(ToolCall.of("c", "wait", {})), "again"]), tools=[wait], store="memory")
        async with harness.stream("go"):
            for _ in range(TURNS):
                await asyncio.sleep(0)
            assert began.is_set()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return (await harness.run("go")).text

    assert asyncio.run(go()) == "again"


def test_s4_15_the_pieces_of_a_call_and_of_a_text_are_the_whole_for_every_reader() -> None:
    """Who called it stands with each piece; a further subscriber sees the same events."""

    async def go() -> tuple[list[st.StreamEvent], list[st.StreamEvent]]:
        script: list[Line] = [calls(looking("a", "cup"), looking("b", "jug"), text="Let me see."), "Both are blue."]
        async with Harness(ScriptedModel(script), tools=[look], store="memory").stream("go") as stream:
            other = stream.subscribe()
            first = [event async for event in stream]
            return first, [event async for event in other]

    first, second = asyncio.run(go())
    assert first == second
    told = [event for event in first if isinstance(event, st.ArgumentsStreamed)]
    for id, item in (("a", "cup"), ("b", "jug")):
        pieces = [event for event in told if event.call == id]
        assert {event.tool for event in pieces} == {"look"}
        assert json.loads("".join(event.text for event in pieces)) == {"item": item}
    assert "".join(event.text for event in first if isinstance(event, st.TextStreamed)) == "Let me see.Both are blue."


# Calls.


def test_s2_24_a_plain_function_is_run_in_a_thread_and_an_async_one_on_the_loop() -> None:
    seen: list[bool] = []

    @tool(effect="read")
    def plain() -> str:
        """Be plain."""
        seen.append(threading.current_thread() is threading.main_thread())
        return "ok"

    @tool(effect="read")
    async def awaited() -> str:
        """Be awaited."""
        seen.append(threading.current_thread() is threading.main_thread())
        return "ok"

    asked: list[Line] = [calls(ToolCall.of("a", "plain", {})), calls(ToolCall.of("b", "awaited", {})), "done"]
    assert Harness(ScriptedModel(asked), tools=[plain, awaited], store="memory").run_sync("go").ok
    assert seen == [False, True]


@pytest.mark.parametrize("sequential", [True, False])
def test_s2_26_one_sequential_tool_makes_its_batch_serial_and_without_one_calls_overlap(sequential: bool) -> None:
    order: list[str] = []

    async def go() -> None:
        async def work(name: str) -> str:
            order.append(f"+{name}")
            for _ in range(TURNS):
                await asyncio.sleep(0)
            order.append(f"-{name}")
            return name

        @tool(effect="read")
        async def get(name: str) -> str:
            """Get it."""
            return await work(name)

        @tool(effect="read", sequential=sequential)
        async def put(name: str) -> str:
            """Put it."""
            return await work(name)

        batch = calls(*(ToolCall.of(name, kind, {"name": name}) for name, kind in (("a", "get"), ("b", "put"), ("c", "get"))))
        assert (await Harness(ScriptedModel([batch, "done"]), tools=[get, put], store="memory").run("go")).ok

    asyncio.run(go())
    serial = ["+a", "-a", "+b", "-b", "+c", "-c"]
    assert order == (serial if sequential else ["+a", "+b", "+c", "-a", "-b", "-c"])


@pytest.mark.parametrize("cancel", [False, True])
def test_s2_29_hooks_stand_around_checks_and_function(cancel: bool) -> None:
    """Before hooks see a call that is not valid, too, and may cancel it; after hooks see each result."""
    seen: list[str] = []

    @tool(effect="read")
    def note(number: int) -> str:
        """Note a number."""
        seen.append(f"run {number}")
        return "noted"

    def before(moment: Moment) -> Cancel | None:
        seen.append(f"before {moment.call and moment.call.id}")
        return Cancel("no") if cancel else None

    def after(moment: Moment) -> None:
        seen.append(f"after {moment.call and moment.call.id} {moment.result and moment.result.ok}")

    hooks = [Hook(event="after_tool_call", handler=after), Hook(event="before_tool_call", handler=before)]
    batches: list[Line] = [calls(ToolCall.of("a", "note", {"number": 1})), calls(ToolCall("b", "note", '{"number":')), "done"]
    model = ScriptedModel(batches)
    assert Harness(model, tools=[note], store="memory", hooks=hooks).run_sync("go").ok
    texts = [one.text for one in results(model.asks[-1])]
    if cancel:
        assert (seen, texts) == (["before a", "before b"], ["Cancelled by a hook: no"] * 2)
    else:
        assert seen == ["before a", "run 1", "after a True", "before b", "after b False"]
        assert "not JSON" in texts[1]


def test_s2_31_only_a_tool_that_asks_for_another_try_uses_up_its_own_retries() -> None:
    """S2.31, S2.32, S2.33: the hint reaches the model; other failures count nowhere; each tool and each run has its own."""

    def odd(number: int) -> str:
        """Take an even number."""
        raise ModelRetry(f"{number} is odd, give an even one")

    def broken(number: int) -> str:
        """Break."""
        raise ValueError(f"disk {number} is full")

    tools = [tool(odd, retries=1), tool(odd, name="other", retries=1), tool(broken, retries=0)]
    count = iter(range(1, 99))

    def made(*names: str) -> list[Line]:
        return [calls(ToolCall.of(f"c{number}", name, {"number": number})) for name, number in zip(names, count, strict=False)]

    script = [*made("broken", "broken", "odd", "other"), "one", *made("odd"), "two", *made("odd", "odd"), "three"]
    model = ScriptedModel(script)
    harness = Harness(model, tools=tools, store=MemoryStore())
    first = harness.run_sync("go")
    assert (first.text, first.used.tool_retries) == ("one", (("odd", 1), ("other", 1)))
    assert [record.result and record.result.retry for record in first.records] == [False, False, True, True]
    assert "3 is odd, give an even one" in results(model.asks[3])[-1].text
    second = harness.run_sync("go on", thread=first.thread)
    third = harness.run_sync("and on", thread=first.thread)
    assert (second.text, third.stop, third.used.tool_retries) == ("two", "tool_retries", (("odd", 2),))


# Hooks.


def test_s2_42_hooks_of_one_event_are_called_in_order_and_narrowed_to_agents() -> None:
    seen: list[str] = []

    def noting(name: str, **more: Any) -> Hook:
        return Hook(event="before_subagent_run", handler=lambda moment: seen.append(f"{name} {moment.subagent}"), **more)

    agents = [
        Subagent(name=name, harness=Harness(ScriptedModel(["done"]), store="memory"), description="Helps.") for name in "ab"
    ]
    hooks = [noting("1"), noting("2", agents=("b",)), noting("3")]
    script: list[Line] = [calls(ToolCall.of("x", "a", {"task": "t"})), calls(ToolCall.of("y", "b", {"task": "t"})), "done"]
    assert Harness(ScriptedModel(script), agents=agents, store="memory", hooks=hooks).run_sync("go").ok
    assert seen == ["1 a", "3 a", "1 b", "2 b", "3 b"]


# Limits.


def test_s2_61_calls_that_are_left_are_told_once_too() -> None:
    model = ScriptedModel([*(calls(looking(f"c{number}", f"cup {number}")) for number in range(4)), "done"])
    Harness(model, tools=[look], store="memory", limits=Limits(tool_calls=4, warn_at=0.5)).run_sync("go")
    told = [
        [block.text for message in ask.transcript for block in message.blocks if isinstance(block, TextBlock)][1:]
        for ask in model.asks
    ]
    said = ["Only 2 of 4 tool calls are left. Come to an end soon."]
    assert told == [[], [], said, said, said]


# Approvals.


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


BATCH = calls(looking("a"), ToolCall.of("b", "pay", {"amount": 5}), looking("c", "jug"))


def test_s2_71_a_tool_that_is_gone_when_its_call_is_approved_is_not_run() -> None:
    store = MemoryStore()
    one = Harness(ScriptedModel([BATCH]), tools=[look, pay], store=store)
    paused = one.run_sync("go")
    model = ScriptedModel(["done"])
    other = Harness(model, tools=[look], store=store)
    with pytest.raises(ApprovalStale, match="There is no tool 'pay'"):
        other.decide_sync(paused.thread, {"b": Decision("allow")})
    one.decide_sync(paused.thread, {"b": Decision("allow")})
    result = other.resume_sync(paused.thread)
    assert (result.text, [record.ok for record in result.records]) == ("done", [True, False, True])
    assert "There is no tool 'pay'" in results(model.asks[0])[1].text


def test_s2_72_a_rejected_call_has_a_failed_result_in_its_place_and_no_hook_is_told() -> None:
    """S2.72, S2.73: the batch counts once, before and after the decision."""
    seen: list[str] = []
    hooks = [
        Hook(event=event, handler=lambda moment: seen.append(moment.call.name if moment.call else ""))
        for event in ("before_tool_call", "after_tool_call")
    ]
    model = ScriptedModel([BATCH, "done"])
    harness = Harness(model, tools=[look, pay], store=MemoryStore(), hooks=hooks, limits=Limits(tool_calls=3))
    paused = harness.run_sync("go")
    assert (paused.stop, seen, paused.used.tool_calls) == ("approval", [], 3)
    harness.decide_sync(paused.thread, {"b": Decision("reject", "too dear")})
    result = harness.resume_sync(paused.thread)
    assert (result.text, seen, result.used.tool_calls, result.used.requests) == ("done", ["look"] * 4, 3, 2)
    told = results(model.asks[1])
    assert [(one.call_id, one.is_error) for one in told] == [("a", False), ("b", True), ("c", False)]
    assert told[1].text == "ApprovalRejected: too dear"
