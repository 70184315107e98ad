"""Runs of a harness on a scripted model: what happens, in which order, and what the caller gets."""

import asyncio
import gc
from collections.abc import Callable
from decimal import Decimal

import pytest

from evener import Harness, Limits, MemoryStore, Message, open_model, tool
from evener import events as ev
from evener import streaming as st
from evener.driver import Driver
from evener.errors import AuthFailed, BadValue, EvenerError, LimitReached, Overloaded, TruncatedStream, UsageError
from evener.harness.simple import run
from evener.testing import FakeServer
from evener.testing.scripted_model import Line, ScriptedModel, calls, says
from evener.transcript.ask import Ask
from evener.transcript.blocks import ImageBlock, Inline, TextBlock, ToolCall, ToolResult


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def called(number: int, a: int = 1, b: int = 2) -> ToolCall:
    return ToolCall.of(f"c{number}", "add", {"a": a, "b": b})


def harness(script: object, **settings: object) -> Harness:
    model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)  # type: ignore[arg-type]
    return Harness(model, **{"tools": [add], "store": "memory", **settings})  # type: ignore[arg-type]


def results(ask: Ask) -> list[ToolResult]:
    return [block for message in ask.transcript for block in message.blocks if isinstance(block, ToolResult)]


def events_of(one: Harness, thread: str) -> list[ev.Event]:
    return asyncio.run(one.store.read(thread))


# The loop (S0.47, S0.48, S1.1, S2.1-S2.8).


def test_a_question_without_tools_is_answered() -> None:
    """S1.1."""
    result = harness(["hello"]).run_sync("hi")
    assert (result.text, result.stop, result.ok) == ("hello", "done", True)
    assert [message.role for message in result.transcript] == ["user", "assistant"]


def test_calls_run_and_their_results_go_back_in_call_order() -> None:
    """S0.48, S1.1, S2.7, S2.35, S4.28."""

    @tool(effect="read")
    async def slow(name: str) -> str:
        """Wait, the longer the earlier it was called."""
        await asyncio.sleep({"a": 0.03, "b": 0.01, "c": 0.0}[name])
        return name

    asked = [ToolCall.of(f"c{name}", "slow", {"name": name}) for name in "abc"]
    model = ScriptedModel([calls(*asked), "done"])
    result = Harness(model, tools=[slow], store="memory").run_sync("go")
    assert [one.call_id for one in results(model.asks[1])] == ["ca", "cb", "cc"]
    assert [record.result and record.result.content for record in result.records] == [(TextBlock(name),) for name in "abc"]


def test_a_sequential_tool_makes_the_whole_batch_serial() -> None:
    """S2.26, C6."""
    order: list[str] = []

    @tool(sequential=True)
    async def write(name: str) -> str:
        """Write, slowly."""
        order.append(f"+{name}")
        await asyncio.sleep(0.005)
        order.append(f"-{name}")
        return name

    asked = [ToolCall.of(f"c{name}", "write", {"name": name}) for name in "abc"]
    Harness(ScriptedModel([calls(*asked), "done"]), tools=[write], store="memory").run_sync("go")
    assert order == ["+a", "-a", "+b", "-b", "+c", "-c"]


def test_runs_leak_nothing_into_each_other() -> None:
    """S2.1."""
    model = ScriptedModel(["one", "two"])
    one = harness(model)
    first, second = one.run_sync("a"), one.run_sync("b")
    assert first.thread != second.thread
    assert len(model.asks[1].transcript) == 1
    assert second.usage == says("x").usage


def test_a_thread_goes_on_where_it_was() -> None:
    """S2.2, S3.1."""
    model = ScriptedModel(["one", "two", "three"])
    one = harness(model)
    first = one.run_sync("a")
    second = one.run_sync("b", thread=first.thread)
    assert [message.text for message in second.transcript] == ["a", "one", "b", "two"]

    async def kept() -> None:
        thread = one.thread(first.thread)
        assert (await thread.run("c")).text == "three"

    asyncio.run(kept())


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (ToolCall.of("c", "subtract", {}), "There is no tool 'subtract'"),
        (ToolCall("c", "add", "{"), "not"),
        (ToolCall.of("c", "add", {"a": 1}), "b: "),
        (ToolCall.of("c", "add", {"a": 1, "b": 2, "c": 3}), "c: "),
        (ToolCall.of("c", "add", {"a": 1, "b": "2"}), "b: expected a whole number"),
    ],
)
def test_a_bad_call_is_a_result_and_the_run_goes_on(call: ToolCall, said: str) -> None:
    """S0.48, S1.20, S2.30."""
    model = ScriptedModel([calls(call), "sorry"])
    result = harness(model).run_sync("go")
    assert result.ok
    assert results(model.asks[1])[0].is_error
    assert said in results(model.asks[1])[0].text


def test_a_tool_that_never_gets_it_right_spends_its_retries() -> None:
    """S2.11, S2.33."""
    model = ScriptedModel(lambda ask: calls(ToolCall.of(f"c{len(ask.transcript)}", "add", {"a": len(ask.transcript)})))
    result = harness(model).run_sync("go")
    assert result.stop == "tool_retries"
    assert len(result.records) == add.retries + 1


# Limits (S2.12, S2.57, S2.58, S2.61).


def test_a_run_stops_at_its_requests_and_can_be_resumed() -> None:
    """S2.57."""
    model = ScriptedModel(lambda ask: calls(called(len(ask.transcript), len(ask.transcript))))
    one = harness(model, limits=Limits(requests=3))
    result = one.run_sync("go")
    assert (result.stop, len(model.asks)) == ("limit", 3)
    assert "3 of 3 model requests" in result.detail
    again = one.resume_sync(result.thread)
    assert (again.stop, len(model.asks)) == ("limit", 6)
    assert again.run == result.run
    assert len(again.records) == 6


def test_a_batch_beyond_the_tool_limit_is_refused_before_anything_runs() -> None:
    """S2.12, S2.58."""
    ran: list[int] = []

    @tool(effect="read")
    def note(x: int) -> str:
        """Note it."""
        ran.append(x)
        return "ok"

    batch = [ToolCall.of(f"c{x}", "note", {"x": x}) for x in range(3)]
    one = Harness(ScriptedModel([calls(*batch), "done"]), tools=[note], store="memory", limits=Limits(tool_calls=2))
    result = one.run_sync("go")
    assert (result.stop, ran, len(result.pending)) == ("limit", [], 3)
    assert one.resume_sync(result.thread, limits=Limits(tool_calls=5)).ok
    assert sorted(ran) == [0, 1, 2]


@pytest.mark.parametrize(
    "wrong",
    [{"requests": 0}, {"cost": Decimal("nan")}, {"cost": Decimal(-1)}, {"seconds": float("nan")}],
    ids=str,
)
def test_a_limit_that_is_none_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadValue, match=r"must be more than 0, or None for no limit"):
        Limits(**wrong)  # type: ignore[arg-type]


def test_little_left_of_a_limit_is_told_once() -> None:
    """S2.61."""
    model = ScriptedModel(lambda ask: calls(called(len(ask.transcript), len(ask.transcript))))
    harness(model, limits=Limits(requests=5, warn_at=0.6)).run_sync("go")
    told = [
        sum(
            "model requests are left" in block.text
            for message in ask.transcript
            for block in message.blocks
            if isinstance(block, TextBlock)
        )
        for ask in model.asks
    ]
    assert told == [0, 0, 0, 1, 1]


def test_money_stops_a_run() -> None:
    model = ScriptedModel(lambda ask: calls(called(len(ask.transcript), len(ask.transcript))), price=Decimal("0.004"))
    result = harness(model, limits=Limits(cost=Decimal("0.01"))).run_sync("go")
    assert (result.stop, result.cost, len(model.asks)) == ("limit", Decimal("0.008"), 2), "not one cent too much"


def test_the_same_call_over_and_over_is_told_and_then_ends() -> None:
    model = ScriptedModel(lambda ask: calls(called(len(ask.transcript))))
    result = harness(model).run_sync("go")
    assert result.stop == "repeated"
    assert len(model.asks) == Limits().repeats_stop
    texts = [block.text for message in model.asks[-1].transcript for block in message.blocks if isinstance(block, TextBlock)]
    assert sum("same call" in text for text in texts) == 1


# Failures, retries, the chain, retractions (S2.9, DESIGN: one owner of retries).


class Broken(ScriptedModel):
    """Breaks off after some pieces, as often as it is told to."""

    def __init__(self, failures: int, *, name: str = "broken:model", error: EvenerError | None = None) -> None:
        super().__init__(self._next, name=name)
        self.failures = failures
        self.error = error or TruncatedStream("The stream ended in mid-turn.")

    def _next(self, _ask: Ask) -> Line:
        if len(self.asks) <= self.failures:
            return self.error
        return says("at last")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evener.loop.plan.WAITS", (0.001,))


def test_a_broken_answer_is_asked_for_again_and_counts() -> None:
    result = harness(Broken(2)).run_sync("go")
    assert (result.text, len(result.requests)) == ("at last", 3)
    assert [bool(request.error) for request in result.requests] == [True, True, False]


def test_the_next_model_of_the_chain_answers() -> None:
    """S1.2."""
    broken, whole = Broken(99, error=AuthFailed("no", status=401)), ScriptedModel(["hello"], name="whole:model")
    result = Harness([broken, whole], store="memory").run_sync("go")
    assert (result.text, len(broken.asks), len(whole.asks)) == ("hello", 1, 1)
    retried = Broken(99, error=Overloaded("busy", status=529))
    assert Harness([retried, ScriptedModel(["hello"], name="whole:model")], store="memory").run_sync("go").ok
    assert len(retried.asks) == 1 + Limits().retries


def test_a_provider_that_says_no_is_raised_and_the_thread_can_be_resumed() -> None:
    """S2.9."""
    model = Broken(1, error=AuthFailed("bad key", status=401))
    one = harness(model)
    with pytest.raises(AuthFailed) as caught:
        one.run_sync("go")
    assert caught.value.thread
    assert one.resume_sync(caught.value.thread).text == "at last"


def test_what_was_shown_and_broke_off_is_retracted() -> None:
    """S2.15."""

    async def watched() -> list[st.StreamEvent]:
        class Cut(ScriptedModel):
            def stream(self, ask: Ask, *, after: object = None):  # type: ignore[no-untyped-def]
                stream = super().stream(ask, after=after)
                if len(self.asks) > 1:
                    return stream
                read = stream.read
                seen = []

                async def cut() -> list[object]:
                    seen.append(1)
                    if len(seen) > 2:
                        raise TruncatedStream("cut")
                    return await read()  # type: ignore[return-value]

                stream.read = cut  # type: ignore[method-assign, assignment]
                return stream

        async with harness(Cut(["half of it", "all of it"])).stream("go") as stream:
            return [event async for event in stream]

    kinds = [type(event).__name__ for event in asyncio.run(watched())]
    assert kinds == [
        "RunStarted", "RequestStarted", "TextStreamed", "Retracted", "RetryScheduled", "RequestStarted", "TextStreamed",
        "TurnFinished", "RunFinished",
    ]  # fmt: skip


# Streaming (S2.14-S2.20, S4.15).


def test_events_come_in_order_and_the_last_carries_the_result() -> None:
    """S2.14, S2.16, S2.19."""

    async def watched() -> tuple[list[st.StreamEvent], str]:
        one = harness([calls(called(1), text="let me"), "three"], name="adder")
        async with one.stream("1+2?") as stream:
            seen = [event async for event in stream]
        return seen, (await stream.result()).text

    seen, text = asyncio.run(watched())
    assert [event.sequence for event in seen] == list(range(1, len(seen) + 1))
    assert {event.place.agent for event in seen} == {"adder"}
    assert len({event.place.run for event in seen}) == 1
    last = seen[-1]
    assert isinstance(last, st.RunFinished)
    assert last.result.text == text == "three"


def test_closing_a_stream_cancels_the_run_and_it_can_be_resumed() -> None:
    """S2.20."""

    async def closed() -> None:
        store = MemoryStore()
        hold = asyncio.Event()

        @tool(effect="read")
        async def wait() -> str:
            """Wait."""
            await hold.wait()
            return "waited"

        model = ScriptedModel([calls(ToolCall.of("c", "wait", {})), "done"])
        one = Harness(model, tools=[wait], store=store)
        stream = one.stream("go")
        async for event in stream:
            if isinstance(event, st.ToolStarted):
                break
        thread = event.place.thread
        await stream.aclose()
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
        hold.set()
        assert (await one.resume(thread)).text == "done"

    asyncio.run(closed())


def test_steering_reaches_the_model_with_the_next_request() -> None:
    async def steered() -> list[str]:
        said = asyncio.Event()

        @tool(effect="read")
        async def wait() -> str:
            """Wait until something was said."""
            await said.wait()
            return "waited"

        model = ScriptedModel([calls(ToolCall.of("c", "wait", {})), "done"])
        async with Harness(model, tools=[wait], store="memory").stream("go") as stream:
            async for event in stream:
                if isinstance(event, st.ToolStarted):
                    await stream.steer("and be quick")
                    said.set()
        return [message.text for message in model.asks[1].transcript]

    assert asyncio.run(steered()) == ["go", "", "", "and be quick"]


def test_steering_now_gives_up_the_present_request() -> None:
    async def steered() -> tuple[list[str], list[str]]:
        hold = asyncio.Event()

        class Slow(ScriptedModel):
            def stream(self, ask: Ask, *, after: object = None):  # type: ignore[no-untyped-def]
                stream = super().stream(ask, after=after)
                if len(self.asks) == 1:
                    stream.read = hold.wait  # type: ignore[method-assign, assignment]
                return stream

        model = Slow(["never", "changed"])
        async with harness(model).stream("go") as stream:
            kinds = []
            async for event in stream:
                kinds.append(type(event).__name__)
                if isinstance(event, st.RequestStarted) and event.number == 1:
                    await stream.steer("something else", now=True)
        return [message.text for message in model.asks[1].transcript], kinds

    texts, _ = asyncio.run(steered())
    assert texts == ["go", "something else"]


def test_cancelling_ends_with_a_result_and_can_be_resumed() -> None:
    async def cancelled() -> None:
        hold = asyncio.Event()

        @tool(effect="write")
        async def pay() -> str:
            """Pay."""
            await hold.wait()
            return "paid"

        model = ScriptedModel([calls(ToolCall.of("c", "pay", {})), "as you wish"])
        one = Harness(model, tools=[pay], store="memory")
        async with one.stream("go") as stream:
            async for event in stream:
                if isinstance(event, st.ToolStarted):
                    await stream.cancel("enough")
            result = await stream.result()
        assert (result.stop, result.detail) == ("cancelled", "enough")
        assert result.records[0].result is not None
        assert result.records[0].result.outcome == "unknown"
        again = await one.resume(result.thread)
        assert again.text == "as you wish"
        assert again.records[0].starts == 1

    asyncio.run(cancelled())


# The doors.


def test_run_sync_works_inside_a_running_loop() -> None:
    async def inside() -> str:
        return harness(["hello"]).run_sync("hi").text

    assert asyncio.run(inside()) == "hello"


def test_a_prompt_may_be_a_message_or_blocks() -> None:
    model = ScriptedModel(["a", "b"])
    one = harness(model)
    one.run_sync(Message.user_text("x"))
    one.run_sync([TextBlock("look"), ImageBlock(Inline("aGk="), "image/png")])
    assert [block.kind for block in model.asks[1].transcript.messages[0].blocks] == ["text", "image"]


def test_the_simple_run_is_three_lines() -> None:
    """S0.47, S0.49."""
    schemas = [
        {
            "name": "add",
            "description": "Add.",
            "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
        }
    ]
    model = ScriptedModel([calls(ToolCall.of("c", "add", {"a": 2})), "three"])
    assert run(model, {"add": lambda a: a + 1}, tool_schemas=schemas, user_message="2+1?", system="be brief") == "three"
    assert results(model.asks[1])[0].text == "3"
    endless = ScriptedModel(lambda ask: calls(ToolCall.of(f"c{len(ask.transcript)}", "add", {"a": len(ask.transcript)})))
    with pytest.raises(LimitReached, match="20 of 20 model requests"):
        run(endless, {"add": lambda a: a}, tool_schemas=schemas, user_message="go")
    assert len(endless.asks) == 20


def test_a_script_that_runs_out_says_so() -> None:
    """S0.49."""
    with pytest.raises(UsageError, match="has 1 lines, and this is request 2"):
        harness([calls(called(1))]).run_sync("go")


@pytest.mark.parametrize("cause", ["done"])
def test_a_run_that_came_to_its_end_cannot_be_resumed(cause: str) -> None:
    one = harness(["hello"])
    result = one.run_sync("hi")
    assert result.stop == cause
    with pytest.raises(UsageError, match="is finished"):
        one.resume_sync(result.thread)


def phases(events: list[ev.Event]) -> list[str]:
    from evener.loop.state import fold

    return [fold(events[:end]).phase for end in range(1, len(events) + 1)]


def test_the_state_machine_is_visible() -> None:
    """S4.22."""
    one = harness([calls(called(1)), "three"])
    seen = phases(events_of(one, one.run_sync("go").thread))
    assert list(dict.fromkeys(seen)) == ["awaiting_input", "processing", "executing_tools", "respond"]
    assert seen[-1] == "awaiting_input"


CONFIGURED: list[tuple[str, Callable[[], Harness], int]] = [
    ("the same", lambda: harness(["x"]), 1),
    ("another system prompt", lambda: harness(["x"], system="other"), 2),
    ("other tools", lambda: harness(["x"], tools=[]), 2),
]


@pytest.mark.parametrize(("name", "make", "written"), CONFIGURED)
def test_the_configuration_is_written_when_it_changes(name: str, make: Callable[[], Harness], written: int) -> None:
    """S1.32."""
    store = MemoryStore()
    first = harness(["a"], store=store)
    thread = first.run_sync("hi").thread
    second = make()
    second._store = store
    second.run_sync("more", thread=thread)
    assert sum(isinstance(event, ev.Configured) for event in events_of(first, thread)) == written, name


def test_a_small_purse_makes_the_answer_shorter_and_not_impossible() -> None:
    """A call may cost no more than is left: the request says so to the provider."""
    with FakeServer("anthropic_messages", ["short"]) as server:
        model = open_model("anthropic:claude-opus-4-5", base_url=server.url, key="k", environ={})
        result = Harness(model, store="memory", limits=Limits(cost=Decimal("0.50"))).run_sync("hi")
        assert result.ok
        body = server.requests[-1].json
    assert 0 < body["max_tokens"] < 20_000
    with FakeServer("anthropic_messages", ["short"]) as server:
        model = open_model("anthropic:claude-opus-4-5", base_url=server.url, key="k", environ={})
        stopped = Harness(model, store="memory", limits=Limits(cost=Decimal("0.001"))).run_sync("hi")
        assert (stopped.stop, len(server.requests)) == ("limit", 0)


def test_the_same_agent_goes_on_with_another_model() -> None:
    one = harness(["first"])
    first = one.run_sync("hi")
    other = one.with_model(ScriptedModel(["second"], name="other:model"))
    assert other.run_sync("and?", thread=first.thread).text == "second"
    assert one.models[0].name != other.models[0].name


def test_a_cancel_that_comes_too_late_is_not_about_the_next_run() -> None:
    async def late() -> str:
        thread = harness(["one", "two"]).thread()
        await thread.run("a")
        await thread.cancel("late")
        return (await thread.run("b")).stop

    assert asyncio.run(late()) == "done"


def test_a_run_inside_an_async_tool_draws_on_the_same_budget_by_any_door() -> None:
    inner = ScriptedModel(lambda _: "inner")

    @tool(effect="read")
    async def ask(number: int) -> str:
        """Ask another agent."""
        return Harness(inner, store="memory").run_sync(f"go {number}").stop

    def outer(seen: Ask) -> Line:
        return calls(ToolCall.of(f"c{len(seen.transcript)}", "ask", {"number": len(seen.transcript)}))

    result = Harness(ScriptedModel(outer), tools=[ask], store="memory", limits=Limits(requests=4)).run_sync("go")
    assert result.stop == "limit"
    assert len(inner.asks) <= 2, "four requests for the whole tree"


def test_nothing_is_resumed_without_an_id() -> None:
    with pytest.raises(UsageError, match="no id was given"):
        harness(["x"]).resume_sync("")


def test_what_a_finished_run_held_is_freed_without_the_garbage_collector() -> None:
    """Its events and messages would be kept until a collection, which then costs more than they did."""

    def drivers() -> list[object]:
        return [held for held in gc.get_objects() if type(held) is Driver]

    one = harness([calls(called(1)), "done"])
    gc.collect()
    gc.disable()
    try:
        before = drivers()  # what other tests hold on to
        result = one.run_sync("go")
        assert [driver for driver in drivers() if driver not in before] == []
    finally:
        gc.enable()
    assert result.ok
