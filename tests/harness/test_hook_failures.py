"""Hooks that fail, and the end of a run: told once, whatever happens; a fatal hook ends the run and loses nothing."""

import asyncio
from typing import get_args

import pytest

from evener import Harness, Limits, MemoryStore, tool
from evener import events as ev
from evener import streaming as st
from evener.harness import Subagent
from evener.harness.approvals import Decision
from evener.hooks import Cancel, Hook, HookAnswer, HookEvent, HookFailed, Moment
from evener.loop.state import fold
from evener.result import RunResult
from evener.store.protocol import Store
from evener.testing.scripted_model import Line, Script, ScriptedModel, calls, says
from evener.transcript.blocks import ToolCall

DONE: list[int] = []
PAY = ToolCall.of("c1", "pay", {"amount": 5})
KID = ToolCall.of("k1", "kid", {"task": "t"})


def pay(amount: int) -> str:
    """Pay."""
    DONE.append(amount)
    return f"paid {amount}"


def failing(event: HookEvent, *, fatal: bool = True) -> Hook:
    def handler(_moment: Moment) -> HookAnswer:
        raise RuntimeError("broken hook")

    return Hook(event=event, handler=handler, fatal=fatal)


def noting(ends: list[tuple[str, str | None]], *events: HookEvent) -> list[Hook]:
    def handler(moment: Moment) -> HookAnswer:
        ends.append((moment.event, moment.stop))
        return None

    return [Hook(event=event, handler=handler) for event in events or ("run_start", "run_end")]


def kid(**more: object) -> Subagent:
    child = Harness(ScriptedModel(lambda _: "child says"), store="memory", **more)  # type: ignore[arg-type]
    return Subagent(name="kid", harness=child, description="d")


# Fatal hooks.

BATCH = calls(PAY, KID)
EVENTS: tuple[HookEvent, ...] = get_args(HookEvent)


def made(store: Store | str, *hooks: Hook, script: Script, event: HookEvent) -> Harness:
    limits = Limits(requests=2) if event == "limit_reached" else Limits()
    return Harness(ScriptedModel(script), tools=[tool(pay)], agents=[kid()], store=store, hooks=hooks, limits=limits)


@pytest.mark.parametrize("event", EVENTS)
def test_a_fatal_hook_ends_the_run_with_its_error_and_the_thread_goes_on(event: HookEvent) -> None:
    """S2.43: for each event. Nothing is paid twice, and no result is lost."""
    DONE.clear()
    store = MemoryStore()

    async def broken() -> tuple[list[str], HookFailed]:
        async with made(store, failing(event), script=[BATCH, "done"], event=event).stream("go") as stream:
            seen = [type(one).__name__ async for one in stream if not one.place.parent_run]
            with pytest.raises(HookFailed, match="broken hook") as caught:
                await stream.result()
        return seen, caught.value

    async def mended(thread: str) -> RunResult:
        later = made(store, script=lambda ask: "done" if len(ask.transcript) > 1 else BATCH, event=event)
        state = fold(await store.read(thread))
        going_on = state.run and (state.finished is None or state.finished.cause != "done")
        return await (later.resume(thread) if going_on else later.run("go on", thread=thread))

    seen, error = asyncio.run(broken())
    assert (seen[-1], seen.count("RunFailed"), seen.count("RunFinished")) == ("RunFailed", 1, 0)
    assert error.thread, "it says which thread to go on with"
    result = asyncio.run(mended(error.thread))
    assert (result.text, DONE) == ("done", [5])
    assert {record.result.outcome for record in result.records if record.result} <= {"done"}


@pytest.mark.parametrize("event", EVENTS)
def test_a_hook_that_is_not_fatal_warns_with_the_result_and_before_its_end(event: HookEvent) -> None:
    one = made("memory", failing(event, fatal=False), script=[BATCH, "done"], event=event)

    async def watched() -> tuple[list[str], RunResult]:
        async with one.stream("go") as stream:
            return [type(event).__name__ async for event in stream], await stream.result()

    seen, result = asyncio.run(watched())
    assert set(result.warnings) == {f"A hook for {event!r} failed with RuntimeError: broken hook"}
    assert "Warned" in seen
    assert seen[-1] == "RunFinished"


def test_a_fatal_hook_about_one_call_leaves_the_results_of_all() -> None:
    """The other calls of the batch are not torn down: their results are kept, too."""
    begun, go = asyncio.Event(), asyncio.Event()

    @tool
    async def slow() -> str:
        """Slow."""
        begun.set()
        await go.wait()
        return "slow is done"

    @tool
    async def quick() -> str:
        """Quick."""
        await begun.wait()
        return "quick is done"

    def handler(moment: Moment) -> HookAnswer:
        go.set()
        if moment.call and moment.call.name == "quick":
            raise RuntimeError("broken hook")
        return None

    store = MemoryStore()
    hook = Hook(event="after_tool_call", handler=handler, fatal=True)
    batch = calls(ToolCall.of("q", "quick", {}), ToolCall.of("s", "slow", {}))

    async def run() -> RunResult:
        one = Harness(ScriptedModel([batch]), tools=[slow, quick], store=store, hooks=[hook])
        with pytest.raises(HookFailed) as caught:
            await one.run("go")
        return await Harness(ScriptedModel(["end"]), tools=[slow, quick], store=store).resume(caught.value.thread)

    result = asyncio.run(run())
    assert [(record.ok, record.starts) for record in result.records] == [(True, 1), (True, 1)]


def test_a_fatal_hook_of_an_agent_ends_the_agent_only() -> None:
    DONE.clear()
    one = Harness(
        ScriptedModel([calls(KID), "done"]), agents=[kid(hooks=[failing("run_start")])], store="memory"
    )  # fmt: skip
    result = one.run_sync("go")
    assert (result.ok, result.records[0].ok) == (True, False)


def test_a_fatal_hook_for_the_end_does_not_hide_a_cancellation() -> None:
    one = Harness(ScriptedModel(["never"]), store="memory", hooks=[failing("run_end")])

    async def go() -> None:
        task = asyncio.create_task(one.run("go"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())


# The end of a run.


def test_a_pause_is_no_end_and_the_end_comes_once() -> None:
    """S2.13, S2.43."""
    DONE.clear()
    ends: list[tuple[str, str | None]] = []
    store = MemoryStore()

    def made(*script: Line) -> Harness:
        return Harness(
            ScriptedModel(list(script)),
            tools=[tool(pay, approval=True)],
            store=store,
            hooks=noting(ends),
        )

    async def go() -> None:
        paused = await made(calls(PAY)).run("go")
        assert (paused.stop, ends) == ("approval", [("run_start", None)])
        again = await made().resume(paused.thread)
        assert (again.stop, ends) == ("approval", [("run_start", None)])
        await made().decide(paused.thread, {"c1": Decision("allow")})
        assert (await made("done").resume(paused.thread)).ok

    asyncio.run(go())
    assert ends == [("run_start", None), ("run_end", "done")]


def test_the_end_of_an_agent_that_paused_comes_once() -> None:
    """S2.13."""
    ends: list[tuple[str, str | None]] = []
    outer: list[tuple[str, str | None]] = []
    child = Harness(
        ScriptedModel([calls(PAY), "child says"]), tools=[tool(pay, approval=True)], store="memory", hooks=noting(ends)
    )
    one = Harness(
        ScriptedModel([calls(KID), "done"]), store="memory", hooks=noting(outer),
        agents=[Subagent(name="kid", harness=child, description="d")],
    )  # fmt: skip

    async def go() -> RunResult:
        paused = await one.run("go")
        await one.decide(paused.thread, {"c1": Decision("allow")})
        return await one.resume(paused.thread)

    assert asyncio.run(go()).ok
    assert ends == outer == [("run_start", None), ("run_end", "done")]


def test_a_run_that_stopped_has_ended_for_hooks_also_if_it_is_resumed() -> None:
    """S2.13: at most once a run, in any process."""
    ends: list[tuple[str, str | None]] = []
    store = MemoryStore()

    def made(*script: Line, requests: int) -> Harness:
        model = ScriptedModel(list(script))
        return Harness(model, tools=[tool(pay)], store=store, hooks=noting(ends), limits=Limits(requests=requests))

    stopped = made(calls(PAY), requests=1).run_sync("go")
    assert (stopped.stop, ends) == ("limit", [("run_start", None), ("run_end", "limit")])
    resumed = made("done", requests=5).resume_sync(stopped.thread)
    assert (resumed.ok, resumed.run) == (True, stopped.run)
    assert ends == [("run_start", None), ("run_end", "limit")]


def test_a_run_that_is_broken_off_is_told_once_also_if_it_is_resumed() -> None:
    """S2.13."""
    ends: list[tuple[str, str | None]] = []
    one = Harness(ScriptedModel(["never seen", "done"]), store="memory", hooks=noting(ends))

    async def go() -> RunResult:
        thread = one.thread()
        async with thread.stream("go") as stream:
            async for event in stream:
                if isinstance(event, st.RequestStarted):
                    break
        assert ends == [("run_start", None), ("run_end", "cancelled")]
        return await thread.resume()

    assert asyncio.run(go()).ok
    assert ends == [("run_start", None), ("run_end", "cancelled")]


@pytest.mark.parametrize(
    ("hooks", "script", "stop"),
    [
        ([], [says("hi")], "done"),
        ([Hook(event="user_prompt_submit", handler=lambda _: Cancel("no"))], [], "cancelled"),
        ([Hook(event="before_tool_call", handler=lambda _: Cancel("no"))], [calls(PAY), "done"], "done"),
    ],
    ids=["success", "a prompt that is cancelled", "a call that is cancelled"],
)
def test_the_end_comes_once_however_it_comes(hooks: list[Hook], script: list[Line], stop: str) -> None:
    """S2.13."""
    ends: list[tuple[str, str | None]] = []
    model = ScriptedModel(script)
    Harness(model, tools=[tool(pay)], store="memory", hooks=[*hooks, *noting(ends)]).run_sync("go")
    assert ends == [("run_start", None), ("run_end", stop)]


def test_the_end_after_a_wish_to_stop_comes_once() -> None:
    """S2.13: an external cancel."""
    ends: list[tuple[str, str | None]] = []
    one = Harness(ScriptedModel(["never"]), store="memory", hooks=noting(ends))

    async def go() -> RunResult:
        async with one.stream("go") as stream:
            await stream.cancel("enough")
            return await stream.result()

    assert asyncio.run(go()).stop in ("cancelled", "done")
    assert [name for name, _ in ends] == ["run_start", "run_end"]


def test_the_hooks_see_the_result_before_the_watchers_see_the_end() -> None:
    """What a hook got wrong at the end stands in the result that is shown."""

    async def watched() -> tuple[ev.StopCause, tuple[str, ...]]:
        one = Harness(ScriptedModel(["ok"]), store="memory", hooks=[failing("run_end", fatal=False)])
        async with one.stream("go") as stream:
            [shown] = [event.result async for event in stream if isinstance(event, st.RunFinished)]
        return shown.stop, shown.warnings

    stop, warnings = asyncio.run(watched())
    assert stop == "done"
    assert len(warnings) == 1
