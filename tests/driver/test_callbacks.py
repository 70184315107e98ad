"""Tools that call back into the harness they run in: another conversation is welcome, their own one is busy (S0.48)."""

import asyncio
from pathlib import Path

import pytest

from evener import ToolContext, tool
from evener.harness import Harness
from evener.result import RunResult
from evener.store.memory import MemoryStore
from evener.store.sqlite.store import SqliteStore
from evener.testing.scripted_model import Line, ScriptedModel, calls, says
from evener.transcript.ask import Ask
from evener.transcript.blocks import ToolCall
from tests.driver.test_bad_tools import results, shown


def nested(ask: Ask) -> Line:
    """The outer run calls the tool; the inner one, which the tool starts, just answers."""
    if ask.transcript.messages[0].text == "inner":
        return says("inner answer")
    told = results(ask)
    return says(f"outer: {told[0].text}") if told else calls(ToolCall.of("c1", "again", {}))


@pytest.mark.parametrize("kind", ["memory", "file"])
@pytest.mark.parametrize("awaits", [False, True], ids=["run_sync in a thread", "run on the loop"])
def test_a_tool_may_run_the_harness_again(kind: str, awaits: bool, tmp_path: Path) -> None:
    def again() -> str:
        """Run another conversation."""
        return harness.run_sync("inner").text

    async def again_on_the_loop() -> str:
        """Run another conversation."""
        return (await harness.run("inner")).text

    made = tool(again_on_the_loop if awaits else again, name="again", timeout=120.0)
    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "store.db")
    harness = Harness(ScriptedModel(nested), tools=[made], store=store)

    async def go() -> str:
        async with asyncio.timeout(120):
            text = (await harness.run("outer")).text
        await store.aclose()
        return text

    assert asyncio.run(go()) == "outer: inner answer"


@pytest.mark.parametrize("awaits", [False, True], ids=["in a thread", "on the loop"])
def test_a_tool_that_runs_its_own_thread_again_is_told_that_it_is_busy(awaits: bool) -> None:
    found: list[str] = []

    def again(context: ToolContext[object]) -> str:
        """Say something to the conversation it belongs to."""
        del context
        return harness.run_sync("inner", thread=found[0]).text

    async def again_on_the_loop() -> str:
        """Say something to the conversation it belongs to."""
        return (await harness.run("inner", thread=found[0])).text

    made = tool(again_on_the_loop if awaits else again, name="again", timeout=120.0)
    harness = Harness(ScriptedModel(nested), tools=[made], store="memory")

    async def go() -> RunResult:
        stream = harness.stream("outer")
        async for event in stream:
            found.append(event.place.thread)
        return await stream.result()

    result = asyncio.run(go())
    assert not result.records[0].ok
    assert "LeaseHeld" in shown(result.records[0])
    assert "is being written by" in shown(result.records[0])
    assert result.stop == "done"
