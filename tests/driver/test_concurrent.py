"""200 runs at once in one process: none sees anything of another, and what a thread costs in memory is bounded (issue 5, 4)."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from evener import ToolContext, tool
from evener import events as ev
from evener import streaming as st
from evener.harness import Harness
from evener.model import Model
from evener.result import RunResult
from evener.store.memory import MemoryStore
from evener.store.protocol import Store
from evener.store.sqlite.store import SqliteStore
from evener.testing import Call, FakeServer, Received, Turn, turn
from evener.testing.scripted_model import Line, ScriptedModel, calls, says
from evener.tools.tool import Tool
from evener.transcript.ask import Ask
from evener.transcript.blocks import Origin, ToolCall, ToolResult
from evener.transcript.message import Message
from evener.wire import CODECS
from evener.wire.quirks import Quirks
from tests.driver.stage import WIRES, model_at, others, quick_folder, served, settled
from tests.model.stage import nothing_left, watched

ROOT = Path(__file__).resolve().parents[2]
RUNS = 200
TURNS = 3
SECONDS = 240.0
MARK = re.compile(r"<\w+>")


def mark(number: int) -> str:
    """What everything of a run carries, and nothing of another."""
    return f"<run{number}>"


class Keeper:
    """Tools that remember under which run's id they saw which run's mark."""

    def __init__(self) -> None:
        self.seen: dict[str, set[str]] = {}

    def note(self, text: str, context: ToolContext[object]) -> str:
        self.seen.setdefault(context.run_id, set()).update(MARK.findall(text))
        context.progress(f"at {text}")
        return f"noted {text}"

    def tools(self) -> list[Tool]:
        async def soon(text: str, context: ToolContext[object]) -> str:
            """Note something, and give way to others first."""
            await asyncio.sleep(0.001 * (hash(text) % 5))
            return self.note(text, context)

        def later(text: str, context: ToolContext[object]) -> str:
            """Note something in a thread."""
            return self.note(text, context)

        return [tool(soon, effect="read"), tool(later)]


def texts(message: Message) -> list[str]:
    return [message.text, *(block.text for block in message.blocks if isinstance(block, ToolResult))]


def plan_of(ask: Ask) -> tuple[str, int]:
    """The mark of the run that asks, and how many turns it has had. Everything that is sent must carry that mark."""
    marks = {found for message in ask.transcript for text in texts(message) for found in MARK.findall(text)}
    assert len(marks) == 1, f"a request holds the marks {marks}"
    return marks.pop(), sum(message.role == "assistant" for message in ask.transcript)


def scripted(ask: Ask) -> Line:
    own, past = plan_of(ask)
    if past == TURNS:
        return says(f"done {own}")
    made = [ToolCall.of(f"c{past}-{name}", name, {"text": f"{own} {past}"}) for name in ("soon", "later")]
    return calls(*made, text=f"turn {past} of {own}")


def spoken(wire: str, received: Received) -> Turn:
    own, past = plan_of(CODECS[wire].read_request(received.body, Quirks(), Origin(wire=wire)))
    if past == TURNS:
        return turn(f"done {own}")
    return turn(f"turn {past} of {own}", *(Call(name, {"text": f"{own} {past}"}) for name in ("soon", "later")))


async def watched_run(harness: Harness, number: int) -> tuple[RunResult, list[st.StreamEvent]]:
    """A run; every second one is watched."""
    if number % 2:
        return await harness.run(f"go {mark(number)}"), []
    async with harness.stream(f"go {mark(number)}") as stream:
        seen = [event async for event in stream]
        return await stream.result(), seen


def check(number: int, result: RunResult, seen: list[st.StreamEvent]) -> None:
    own = {mark(number)}
    assert result.text == f"done {mark(number)}"
    assert len(result.records) == 2 * TURNS
    for message in result.transcript:
        assert all(set(MARK.findall(text)) <= own for text in texts(message))
    for record in result.records:
        assert record.ok
        assert str(record.call.args["text"]).startswith(mark(number))
        assert record.result is not None
        assert [set(MARK.findall(str(block))) for block in record.result.content] == [own]
    for event in seen:
        assert (event.place.run, event.place.thread) == (result.run, result.thread)
        if isinstance(event, st.TextStreamed | st.ToolProgressed | st.ArgumentsStreamed):
            assert set(MARK.findall(event.text)) <= own


async def all_at_once(harness: Harness, numbers: range) -> list[RunResult]:
    async with asyncio.timeout(SECONDS):
        ended = await asyncio.gather(*(watched_run(harness, number) for number in numbers))
    for number, (result, seen) in zip(numbers, ended, strict=True):
        check(number, result, seen)
    assert await settled(lambda: harness.tool_threads.busy == 0)
    return [result for result, _ in ended]


async def separate(harness: Harness, keeper: Keeper, numbers: range) -> None:
    results = await all_at_once(harness, numbers)
    assert len({result.thread for result in results}) == len({result.run for result in results}) == len(numbers)
    keys = [record.key for result in results for record in result.records]
    assert len(set(keys)) == len(keys)
    for number, result in zip(numbers, results, strict=True):
        assert keeper.seen[result.run] == {mark(number)}
        events = await harness.store.read(result.thread)
        assert sum(isinstance(event, ev.Prompted) for event in events) == 1
        assert all(set(MARK.findall(str(event))) <= {mark(number)} for event in events)


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_two_hundred_runs_at_once_do_not_meet(kind: str, tmp_path: Path) -> None:
    async def go(folder: Path) -> None:
        keeper = Keeper()
        store: Store = MemoryStore() if kind == "memory" else SqliteStore(folder / "store.db")
        harness = Harness(ScriptedModel(scripted), tools=keeper.tools(), store=store)
        await separate(harness, keeper, range(RUNS))
        assert others() == set()
        await store.aclose()

    with quick_folder(tmp_path) as folder, nothing_left():
        asyncio.run(go(folder))


def test_two_hundred_runs_at_once_on_four_wires_do_not_meet() -> None:
    async def go(servers: dict[str, FakeServer]) -> None:
        async with watched() as watch:

            async def on(wire: str, numbers: range) -> None:
                keeper = Keeper()
                model: Model = model_at(servers[wire], wire, watch)
                await separate(Harness(model, tools=keeper.tools(), store="memory"), keeper, numbers)

            share = RUNS // len(WIRES)
            await asyncio.gather(*(on(wire, range(place * share, (place + 1) * share)) for place, wire in enumerate(WIRES)))
            assert others() == set()

    def script(wire: str) -> FakeServer:
        return served(wire, lambda received: spoken(wire, received))

    with nothing_left():
        servers = {wire: script(wire).start() for wire in WIRES}
        try:
            asyncio.run(go(servers))
            assert [server.rejected for server in servers.values()] == [[]] * len(WIRES)
        finally:
            for server in servers.values():
                server.close()


@pytest.mark.parametrize("wire", WIRES)
def test_an_idle_thread_costs_its_bytes_and_a_live_one_a_few_times_what_it_sends(wire: str) -> None:
    """200 messages each, in a process of its own. A live one has its state, the last request, and what makes the next cheap."""
    command = [sys.executable, "-W", "error", "-m", "tests.driver.memory_child", wire, "2", "100"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stderr) == (0, "")
    sizes = json.loads(done.stdout)
    assert sizes["sent"] > 50_000
    assert sizes["idle"] <= 1.2
    assert sizes["live"] <= 6.0
