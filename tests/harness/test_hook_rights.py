"""What hooks see and keep out: what they refuse never reaches a model, what they are shown is what runs (S2.43, S2.59)."""

import asyncio
import json

import pytest

from evener import Harness, Limits, MemoryStore, tool
from evener import events as ev
from evener import streaming as st
from evener.errors import UsageError
from evener.events import Effect
from evener.harness import Subagent
from evener.harness.approvals import Decision
from evener.hooks import AddContext, Cancel, Hook, HookAnswer, Moment, Rewrite
from evener.loop.state import fold
from evener.replay import replay
from evener.result import RunResult
from evener.testing.scripted_model import ScriptedModel, calls
from evener.transcript.ask import Ask
from evener.transcript.blocks import ToolCall, ToolResult

SECRET = "the SECRET is 42"


def all_words(asks: list[Ask]) -> str:
    return str([ask.transcript.messages for ask in asks])


def no_secrets(moment: Moment) -> HookAnswer:
    assert moment.prompt is not None
    return Cancel("it holds a secret") if "SECRET" in moment.prompt.text else None


GUARD = Hook(event="user_prompt_submit", handler=no_secrets)


# Prompts.


def test_a_prompt_that_a_hook_refused_never_reaches_the_model() -> None:
    """S2.43: not in the next run either, nor in another process, nor when the run is resumed."""
    store, model = MemoryStore(), ScriptedModel(["hello", "again"])
    one = Harness(model, store=store, hooks=[GUARD])

    async def go() -> None:
        thread = one.thread()
        refused = await thread.run(SECRET)
        assert (refused.stop, refused.detail, len(refused.transcript)) == ("cancelled", "it holds a secret", 0)
        with pytest.raises(UsageError, match="A hook refused the last prompt"):
            await thread.resume()
        assert (await thread.run("hi")).text == "hello"
        assert (await Harness(model, store=store).run("and?", thread=thread.id)).text == "again"

    asyncio.run(go())
    assert len(model.asks) == 2
    assert "SECRET" not in all_words(model.asks)


def test_a_refused_prompt_whose_process_died_is_only_ended_by_a_resume() -> None:
    store, model = MemoryStore(), ScriptedModel(["never"])
    one = Harness(model, store=store, hooks=[GUARD])

    async def go() -> RunResult:
        thread = (await one.run(SECRET)).thread
        events = await store.read(thread)
        assert isinstance(events[-1], ev.Finished)
        died = MemoryStore()
        log = await died.create("t", events[0], holder="dead")
        await log.append(*events[1:-1])
        await log.aclose()
        return await Harness(model, store=died).resume("t")

    result = asyncio.run(go())
    assert (result.stop, model.asks) == ("cancelled", [])


def test_the_log_has_what_was_refused_and_why() -> None:
    store = MemoryStore()
    result = Harness(ScriptedModel(["x"]), store=store, hooks=[GUARD]).run_sync(SECRET)
    [prompted] = [event for event in asyncio.run(store.read(result.thread)) if isinstance(event, ev.Prompted)]
    assert (prompted.message.text, prompted.refused) == (SECRET, "it holds a secret")


def test_a_rollback_takes_back_what_was_said_and_not_what_was_refused() -> None:
    one = Harness(ScriptedModel(["one", "two", "three"]), store="memory", hooks=[GUARD])

    async def go() -> list[str]:
        thread = one.thread()
        for prompt in ("first", "second", SECRET):
            await thread.run(prompt)
        await thread.rollback()
        return [message.text for message in (await thread.run("other")).transcript]

    assert asyncio.run(go()) == ["first", "one", "other", "three"]


# Steering.


async def steered(hook: Hook, text: str, *, now: bool = False) -> tuple[RunResult, ScriptedModel, list[ev.Event]]:
    begun = asyncio.Event()

    @tool(effect="read")
    async def nap() -> str:
        """Nap until somebody has spoken."""
        await begun.wait()
        return "slept"

    store, model = MemoryStore(), ScriptedModel([calls(ToolCall.of("c", "nap", {})), "ok"])
    async with Harness(model, tools=[nap], store=store, hooks=[hook]).stream("hi") as stream:
        async for event in stream:
            if isinstance(event, st.ToolStarted):
                await stream.steer(text, now=now)
                begun.set()
        result = await stream.result()
    return result, model, await store.read(result.thread)


@pytest.mark.parametrize("now", [False, True])
def test_what_is_said_to_a_run_under_way_passes_the_same_hooks(now: bool) -> None:
    """S2.43."""
    result, model, events = asyncio.run(steered(GUARD, SECRET, now=now))
    assert (result.stop, result.text) == ("done", "ok")
    assert "SECRET" not in all_words(model.asks)
    assert "SECRET" not in str(fold(events).transcript.messages)
    assert result.warnings == ("A hook refused a message to the run: it holds a secret",)
    [said] = [event for event in events if isinstance(event, ev.Steered)]
    assert said.refused == "it holds a secret"
    assert asyncio.run(replay(events)).ok


def test_hooks_may_add_to_what_is_said_to_a_run_under_way() -> None:
    """S2.43."""
    added = Hook(event="user_prompt_submit", handler=lambda _: AddContext(" (it is Monday)"))
    _, model, events = asyncio.run(steered(added, "hurry"))
    assert asyncio.run(replay(events)).ok
    assert "hurry (it is Monday)" in [message.text for message in model.asks[1].transcript.messages]


# Calls.


def limited(most: int, seen: list[str]) -> Hook:
    def handler(moment: Moment) -> HookAnswer:
        assert moment.call is not None
        seen.append(moment.call.raw)
        return Cancel("too much") if json.loads(moment.call.raw)["amount"] > most else None

    return Hook(event="before_tool_call", handler=handler)


@pytest.mark.parametrize(("amount", "ran"), [(9, [9]), (1000, [])])
def test_hooks_and_watchers_see_the_arguments_that_run(amount: int, ran: list[int]) -> None:
    """S2.43: those that somebody put in place of the model's."""
    done: list[int] = []

    def pay(amount: int) -> str:
        """Pay."""
        done.append(amount)
        return f"paid {amount}"

    seen: list[str] = []
    after: list[str] = []
    hooks = [limited(10, seen), Hook(event="after_tool_call", handler=lambda moment: after.append(moment.call.raw))]  # type: ignore[union-attr]
    model = ScriptedModel([calls(ToolCall.of("c1", "pay", {"amount": 5})), "done"])
    one = Harness(model, tools=[tool(pay, approval=True)], store="memory", hooks=hooks)

    async def go() -> list[str]:
        paused = await one.run("pay")
        await one.decide(paused.thread, {"c1": Decision("allow", arguments={"amount": amount})})
        async with one.thread(paused.thread).resume_stream() as stream:
            return [event.call.raw async for event in stream if isinstance(event, st.ToolStarted | st.ToolFinished)]

    shown = asyncio.run(go())
    edited = json.dumps({"amount": amount}, separators=(",", ":"))
    assert (seen, done) == ([edited], ran)
    assert shown == ([edited, edited] if ran else [edited])  # what did not run has a result, too
    assert after == [edited] * bool(ran)
    told = [block for block in model.asks[1].transcript.messages if block.role == "assistant"]
    assert told[0].calls[0].raw == '{"amount":5}', "the model's own call is never altered"


def test_calls_that_hooks_cancelled_are_counted_apart() -> None:
    """S2.58, S2.59: they count toward the limit, and by themselves."""

    def look(item: str) -> str:
        """Look."""
        return f"Cancelled by a hook: {item}"  # whatever a tool says, it was not cancelled

    no_tea = Hook(
        event="before_tool_call",
        handler=lambda moment: Cancel("no tea") if "tea" in moment.call.raw else None,  # type: ignore[union-attr]
    )
    batch = [ToolCall.of(name, "look", {"item": name}) for name in ("tea", "milk", "green tea")]
    model = ScriptedModel([calls(*batch), calls(ToolCall.of("c", "look", {"item": "rice"})), "done"])
    one = Harness(model, tools=[tool(look, effect="read")], store="memory", hooks=[no_tea], limits=Limits(tool_calls=3))
    result = one.run_sync("go")
    assert result.stop == "limit"
    assert (len(result.records), result.cancelled_calls) == (4, 2)
    assert [record.by_hook for record in result.records] == [True, False, True, False]
    assert [record.starts for record in result.records] == [0, 1, 0, 0]


@pytest.mark.parametrize(("effect", "outcome"), [("read", "failed"), ("idempotent", "unknown")])
def test_a_hook_that_cancels_a_repetition_does_not_say_that_nothing_happened(effect: Effect, outcome: str) -> None:
    """An earlier start was interrupted: what may have taken effect is not known."""
    ran = asyncio.Event()

    @tool(effect=effect)
    async def send(to: str) -> str:
        """Send."""
        ran.set()
        await asyncio.Event().wait()
        return to

    store = MemoryStore()
    hook = Hook(event="before_tool_call", handler=lambda _: Cancel("not today"))

    async def go() -> RunResult:
        first = Harness(ScriptedModel([calls(ToolCall.of("s", "send", {"to": "a"}))]), tools=[send], store=store).thread()
        task = asyncio.create_task(first.run("x"))
        await asyncio.wait_for(ran.wait(), 120)
        task.cancel()
        await asyncio.wait((task,))
        return await Harness(ScriptedModel(["ok"]), tools=[send], store=store, hooks=[hook]).resume(first.id)

    result = asyncio.run(go())
    [record] = result.records
    assert record.result is not None
    assert (record.result.outcome, result.cancelled_calls) == (outcome, 1)
    told = next(block for message in result.transcript for block in message.blocks if isinstance(block, ToolResult))
    assert told.text.startswith("Cancelled by a hook: not today")
    assert ("not known whether it took effect" in told.text) == (outcome == "unknown")
    assert asyncio.run(replay(asyncio.run(store.read(result.thread)))).ok


def test_a_call_that_never_started_failed_when_a_hook_cancels_it() -> None:
    def send(to: str) -> str:
        """Send."""
        return to

    hook = Hook(event="before_tool_call", handler=lambda _: Cancel())
    model = ScriptedModel([calls(ToolCall.of("s", "send", {"to": "a"})), "ok"])
    result = Harness(model, tools=[send], store="memory", hooks=[hook]).run_sync("x")
    assert result.records[0].result is not None
    assert result.records[0].result.outcome == "failed"


# Agents.


def test_a_hook_about_an_agent_that_fails_warns_with_the_result() -> None:
    def boom(_moment: Moment) -> HookAnswer:
        raise RuntimeError("broken")

    child = Harness(ScriptedModel(["child"]), store="memory")
    one = Harness(
        ScriptedModel([calls(ToolCall.of("c", "kid", {"task": "t"})), "done"]), store="memory",
        agents=[Subagent(name="kid", harness=child, description="d")],
        hooks=[Hook(event="before_subagent_run", handler=boom), Hook(event="after_subagent_run", handler=boom)],
    )  # fmt: skip
    result = one.run_sync("go")
    assert result.ok
    assert result.warnings == (
        "A hook for 'before_subagent_run' failed with RuntimeError: broken",
        "A hook for 'after_subagent_run' failed with RuntimeError: broken",
    )


def test_an_async_hook_is_reported_and_never_awaited() -> None:
    """S2.42."""

    async def late(_moment: Moment) -> HookAnswer:
        return Rewrite("never")

    hook = Hook(event="run_start", handler=lambda moment: late(moment))  # type: ignore[arg-type, return-value]
    result = Harness(ScriptedModel(["ok"]), store="memory", hooks=[hook]).run_sync("go")
    assert result.ok
    assert "hooks are called synchronously" in result.warnings[0]
