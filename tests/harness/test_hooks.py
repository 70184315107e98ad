"""Hooks: eight events, each with its rights and no others (S2.13, S2.29, S2.34, S2.42-S2.44)."""

import asyncio

import pytest

from evener import Harness, Limits, tool
from evener import streaming as st
from evener.errors import BadValue, UsageError
from evener.harness import Subagent
from evener.hooks import AddContext, Cancel, Hook, HookAnswer, HookEvent, HookFailed, Moment, Rewrite
from evener.testing.scripted_model import ScriptedModel, calls
from evener.transcript.blocks import TextBlock, ToolCall, ToolResult

RAN: list[str] = []


@tool(effect="read")
def look(item: str) -> str:
    """Look."""
    RAN.append(item)
    return f"{item}: 3 left"


CALL = ToolCall.of("c1", "look", {"item": "tea"})


def hooked(*hooks: Hook, script: object = None, **more: object) -> tuple[Harness, ScriptedModel]:
    RAN.clear()
    model = ScriptedModel(script or [calls(CALL), "done"])  # type: ignore[arg-type]
    return Harness(model, tools=[look], store="memory", hooks=hooks, **more), model  # type: ignore[arg-type]


def noting(seen: list[str], event: HookEvent, answer: HookAnswer = None, **more: object) -> Hook:
    def handler(moment: Moment) -> HookAnswer:
        seen.append(moment.event)
        return answer

    return Hook(event=event, handler=handler, **more)  # type: ignore[arg-type]


def test_they_are_called_in_order() -> None:
    """S2.29, S2.42, S2.43."""
    seen: list[str] = []
    events: list[HookEvent] = ["run_end", "after_tool_call", "before_tool_call", "user_prompt_submit", "run_start"]
    one, _ = hooked(*(noting(seen, event) for event in events))
    assert one.run_sync("go").ok
    assert seen == ["run_start", "user_prompt_submit", "before_tool_call", "after_tool_call", "run_end"]


def test_a_prompt_may_get_context_or_be_cancelled() -> None:
    """S2.43."""
    one, model = hooked(noting([], "user_prompt_submit", AddContext("It is Monday.")))
    one.run_sync("go")
    assert model.asks[0].transcript.messages[0].text == "goIt is Monday."
    one, model = hooked(noting([], "user_prompt_submit", Cancel("not today")))
    result = one.run_sync("go")
    assert (result.stop, result.detail, model.asks) == ("cancelled", "not today", [])


def test_a_call_may_be_cancelled_and_counts_as_a_result() -> None:
    """S2.29, S2.43, S2.59."""
    one, model = hooked(noting([], "before_tool_call", Cancel("no looking")))
    result = one.run_sync("go")
    assert (result.ok, RAN) == (True, [])
    told = model.asks[1].transcript.messages[-1].blocks[0]
    assert isinstance(told, ToolResult)
    assert told.text == "Cancelled by a hook: no looking"
    assert result.records[0].starts == 0


def test_a_result_may_be_rewritten_but_not_its_retry() -> None:
    """S2.34, S2.43."""
    one, model = hooked(noting([], "after_tool_call", Rewrite("secret")), script=[calls(ToolCall.of("c", "look", {})), "done"])
    result = one.run_sync("go")
    assert model.asks[1].transcript.messages[-1].blocks[0].text == "secret"  # type: ignore[union-attr]
    assert result.records[0].result is not None
    assert result.records[0].result.retry


def test_filters_narrow_a_hook_to_tools() -> None:
    """S2.42."""
    seen: list[str] = []
    one, _ = hooked(noting(seen, "before_tool_call", tools=("other",)), noting(seen, "after_tool_call", tools=("look",)))
    one.run_sync("go")
    assert seen == ["after_tool_call"]
    with pytest.raises(BadValue, match="not about a tool"):
        noting([], "run_start", tools=("look",))
    with pytest.raises(BadValue, match="There is no hook event"):
        noting([], "whenever")  # type: ignore[arg-type]


def test_a_limit_is_told_and_run_end_comes_once() -> None:
    """S2.13, S2.43, S2.44."""
    seen: list[str] = []
    one, _ = hooked(noting(seen, "limit_reached"), noting(seen, "run_end"), limits=Limits(requests=1))
    assert one.run_sync("go").stop == "limit"
    assert seen == ["limit_reached", "run_end"]


def test_run_end_comes_once_on_errors_and_cancellation() -> None:
    """S2.13."""
    seen: list[str] = []
    one, _ = hooked(noting(seen, "run_end"), script=[calls(CALL)])
    with pytest.raises(UsageError):
        one.run_sync("go")
    assert seen == ["run_end"]

    async def closed() -> None:
        other, _ = hooked(noting(seen, "run_end"))
        async with other.stream("go") as stream:
            async for event in stream:
                if isinstance(event, st.RequestStarted):
                    break

    asyncio.run(closed())
    assert seen == ["run_end", "run_end"]


def failing(event: HookEvent, *, fatal: bool = False) -> Hook:
    def handler(_moment: Moment) -> HookAnswer:
        raise RuntimeError("broken hook")

    return Hook(event=event, handler=handler, fatal=fatal)


def test_a_hook_that_raises_is_reported_and_passed_over() -> None:
    one, _ = hooked(failing("before_tool_call"))
    result = one.run_sync("go")
    assert result.ok
    assert result.warnings == ("A hook for 'before_tool_call' failed with RuntimeError: broken hook",)


def test_a_hook_without_the_right_is_reported() -> None:
    """S2.43."""
    one, _ = hooked(noting([], "run_start", Cancel("no")))
    result = one.run_sync("go")
    assert result.ok
    assert "may not" in result.warnings[0]


def test_a_fatal_hook_ends_the_run_which_can_be_resumed() -> None:
    one, _ = hooked(failing("before_tool_call", fatal=True))
    with pytest.raises(HookFailed, match="broken hook"):
        one.run_sync("go")


def test_agents_have_hooks_of_their_own() -> None:
    """S2.42, S2.43."""
    seen: list[str] = []
    child = Harness(ScriptedModel(lambda _: "child"), store="memory")
    agent = Subagent(name="helper", harness=child, description="Helps.")
    ask = ToolCall.of("c", "helper", {"task": "help"})
    one, model = hooked(
        noting(seen, "before_subagent_run", agents=("helper",)), noting(seen, "after_subagent_run"),
        script=[calls(ask), "done"], agents=[agent],
    )  # fmt: skip
    assert one.run_sync("go").ok
    assert seen == ["before_subagent_run", "after_subagent_run"]
    one, model = hooked(noting(seen, "before_subagent_run", Cancel("alone")), script=[calls(ask), "done"], agents=[agent])
    assert one.run_sync("go").ok
    last = model.asks[1].transcript.messages[-1].blocks[0]
    assert isinstance(last, ToolResult)
    assert "a hook cancelled it. alone" in last.text
    assert isinstance(last.content[0], TextBlock)
