"""A limit on the seconds of a run holds while something is under way, too: what hangs is given up, and the run resumes."""

import asyncio
from threading import Event

import pytest

from evener import Harness, Limits, open_model, tool
from evener import streaming as st
from evener.testing import FakeServer, ScriptedModel, Text, calls, faults, turn
from evener.tools.tool import Tool
from evener.transcript import ToolCall
from tests.patience import PATIENCE, at_some_pace

GATE = Event()
"""What the tool in a thread waits for; opened when the run was given up, so that its thread ends."""


@tool(effect="read")
def waits() -> str:
    """Take its time, in a thread."""
    GATE.wait(120)
    return "late"


@tool(effect="read")
async def lingers() -> str:
    """Take its time, on the loop."""
    await asyncio.Event().wait()
    return "late"


@pytest.mark.parametrize("hanging", [waits, lingers], ids=lambda one: str(one.name))
def test_a_tool_is_given_up_when_the_time_of_the_run_is_over(hanging: Tool) -> None:
    def attempt(pace: float) -> None:
        GATE.clear()
        model = ScriptedModel([calls(ToolCall.of("c1", hanging.name, {})), "Never mind."])
        harness = Harness(model, tools=[hanging], store="memory", limits=Limits(seconds=pace))
        result = harness.run_sync("Go.")
        GATE.set()
        assert result.stop == "limit"
        [record] = result.records
        assert record.result is not None
        assert not record.ok
        assert harness.resume_sync(result.thread, limits=Limits()).text == "Never mind."

    at_some_pace(attempt)


def test_a_model_that_stalls_is_given_up_and_what_it_said_is_retracted() -> None:
    stalled = turn(Text("A long answer.", pieces=4), faults=[faults.Stall(after=2)])

    def attempt(pace: float) -> None:
        with FakeServer("openai_chat", [stalled, "Here it is."]) as server:
            model = open_model("openai-chat:gpt-5.1", base_url=server.url, key="k", environ={})
            harness = Harness(model, store="memory", limits=Limits(seconds=1.5 * pace))

            async def go() -> list[st.StreamEvent]:
                async with asyncio.timeout(PATIENCE), harness.stream("Go.") as stream:
                    return [event async for event in stream]

            events = asyncio.run(go())
            last = events[-1]
            assert isinstance(last, st.RunFinished)
            detail = f"The run has used its {1.5 * pace:g} seconds"
            assert (last.result.stop, last.result.detail.partition(",")[0]) == ("limit", detail)
            assert any(isinstance(event, st.Retracted) for event in events)
            assert harness.resume_sync(last.result.thread, limits=Limits()).text == "Here it is."

    at_some_pace(attempt)
