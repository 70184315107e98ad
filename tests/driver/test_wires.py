"""The same agent, tool and transcript on four wires and on the embedded model: nothing but the model's name differs (S4.15).

Each server is strict: what the real provider would refuse, it refuses, and `rejected` must stay empty.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import permutations

import pytest

from evener import Tool, ToolContext, tool
from evener import events as ev
from evener import streaming as st
from evener.harness import Harness
from evener.local import LocalTransport
from evener.local.server import check_installed
from evener.loop.state import Limits
from evener.model import Model, open_model
from evener.result import RunResult
from evener.store.memory import MemoryStore
from evener.testing import Call, FakeServer, Status, Text, Thinking, faults, turn
from evener.transcript.blocks import ReasoningBlock, TextBlock, ToolCall, ToolResult
from evener.transcript.message import Message
from evener.transcript.transcript import Transcript
from evener.transport.exchange import Retries, Transport
from tests.driver.stage import WIRES, others
from tests.local.few_shot import sums
from tests.local.stack import SETTINGS
from tests.model.stage import NOWHERE, fresh_key, nothing_left, watched

TARGETS = {
    "anthropic_messages": ("anthropic:claude-opus-5-5", ""),
    "openai_responses": ("openai:gpt-5.5", ""),
    "openai_chat": ("deepseek:deepseek-v4-pro", "deepseek"),  # the vendor's own models show no reasoning on this wire
    "gemini": ("google:gemini-3-flash-preview", ""),
}
PAIRS = list(permutations(WIRES, 2))
SYSTEM = "You do sums. Be brief."


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def note(text: str) -> str:
    """Note something."""
    return f"noted: {text}"


TOOLS: list[Tool] = [add, note]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evener.loop.plan.WAITS", (0.001,))


@contextmanager
def serving(wire: str, script: list[object]) -> Iterator[FakeServer]:
    """A strict server; it has said all it had to say in the end, and refused nothing."""
    name, dialect = TARGETS[wire]
    with FakeServer(wire, script, dialect=dialect, models=(name.partition(":")[2],)) as server:  # type: ignore[arg-type]
        yield server
        assert [rejected.violations for rejected in server.rejected] == []
        assert server.left == 0


def model_of(server: FakeServer, wire: str, transport: Transport) -> Model:
    return open_model(
        TARGETS[wire][0],
        environ=NOWHERE,
        transport=transport,
        key=fresh_key(),
        base_url=server.url,
        retries=Retries(attempts=2, base=0.001),
        effort="low",
    )


def agent(*models: Model, store: MemoryStore | None = None, limits: Limits | None = None, tools: list[Tool] = TOOLS) -> Harness:
    """The agent: the same for every model."""
    return Harness(list(models), tools=tools, system=SYSTEM, store=store or MemoryStore(), limits=limits, name="summer")


def said(transcript: Transcript) -> list[tuple[str, tuple[str, ...]]]:
    """A conversation without what is the provider's: ids, seals, and what it thought."""
    return [(message.role, tuple(filter(None, map(shown, message.blocks)))) for message in transcript]


def shown(block: object) -> str:
    match block:
        case TextBlock(text=text):
            return text
        case ToolCall(name=name):
            return f"{name}{json.dumps(block.args, sort_keys=True)}"
        case ToolResult():
            return f"-> {block.text}"
        case _:
            return ""


def sums_script() -> list[object]:
    """Thinking, parallel calls, one more call, an answer."""
    return [
        turn(Thinking("Two sums at once."), "Let me see.", Call("add", {"a": 1, "b": 2}), Call("add", {"a": 30, "b": 4})),
        turn(Thinking("Now note it."), Call("note", {"text": "3 and 34"})),
        turn("3 and 34, and it is noted."),
    ]


WHOLE = [
    ("user", ("What is 1+2, and 30+4?",)),
    ("assistant", ("Let me see.", 'add{"a": 1, "b": 2}', 'add{"a": 30, "b": 4}')),
    ("user", ("-> 3", "-> 34")),
    ("assistant", ('note{"text": "3 and 34"}',)),
    ("user", ("-> noted: 3 and 34",)),
    ("assistant", ("3 and 34, and it is noted.",)),
]


@pytest.mark.parametrize("wire", WIRES)
def test_the_same_agent_runs_unchanged_on_every_wire(wire: str) -> None:
    """S0.3, S0.4, S0.25, S0.40, S1.1, S1.2, S2.37, S2.64, S4.1, S4.26-S4.28."""

    async def go(server: FakeServer) -> RunResult:
        async with watched() as watch:
            async with agent(model_of(server, wire, watch)).stream(WHOLE[0][1][0]) as stream:
                events = [event async for event in stream]
                result = await stream.result()
            assert others() == set()
        thoughts = "".join(event.text for event in events if isinstance(event, st.ReasoningStreamed))
        assert thoughts == ("" if wire == "gemini" else "Two sums at once.Now note it."), "there they are shown on demand only"
        assert not any(isinstance(event, st.Retracted | st.RetryScheduled) for event in events)
        return result

    with nothing_left(), serving(wire, sums_script()) as server:
        result = asyncio.run(go(server))
        bodies = [request.body.decode() for request in server.requests]
    assert said(result.transcript) == WHOLE
    assert result.losses == ()
    assert (result.stop, len(result.requests)) == ("done", 3)
    assert result.usage.output_total > 0
    sealed = [
        block.seal.data
        for message in result.transcript
        for block in message.blocks
        if isinstance(block, ReasoningBlock | ToolCall) and block.seal is not None
    ]
    for data in sealed[:1]:
        values = [value for value in json.loads(data).values() if isinstance(value, str) and len(value) > 20]
        assert all(json.dumps(value)[1:-1] in bodies[1] and json.dumps(value)[1:-1] in bodies[2] for value in values)
    assert bool(sealed) is (wire != "openai_chat"), "a wire that signs its thinking gets it back"


def test_all_wires_send_the_agent_the_same_conversation() -> None:
    """One thread goes round all four wires, a prompt on each. (S0.4, S1.2, S3.1, S4.27)"""

    async def go(servers: list[FakeServer]) -> Transcript:
        store, thread = MemoryStore(), ""
        async with watched() as watch:
            for wire, server in zip(WIRES, servers, strict=True):
                result = await agent(model_of(server, wire, watch), store=store).run(f"Sum for {wire}", thread=thread)
                thread = result.thread
        return result.transcript

    with ExitStack() as stack:
        servers = [stack.enter_context(serving(wire, sums_script())) for wire in WIRES]
        conversation = said(asyncio.run(go(servers)))
    assert conversation == [row for wire in WIRES for row in (("user", (f"Sum for {wire}",)), *WHOLE[1:])]


MIDDLE = 8
"""Frames after which every wire is in the middle of a text of 12 pieces."""
BREAKS: dict[str, faults.Fault] = {
    "cut": faults.Cut(after=MIDDLE),
    "torn": faults.Torn(after=MIDDLE),
    "reset": faults.Reset(after=MIDDLE),
    "overloaded": faults.ErrorEvent(after=MIDDLE),
}


@pytest.mark.parametrize("fault", BREAKS)
@pytest.mark.parametrize("wire", WIRES)
def test_a_stream_that_breaks_is_retracted_and_asked_for_again(wire: str, fault: str) -> None:
    """S1.30, S4.16."""
    half = Text("Half of an answer that never ends.", pieces=12)
    paced = faults.Slow(between=0.002)  # a reset takes away what was not read yet
    broken = turn(half, Call("note", {"text": "never"}), faults=[BREAKS[fault], paced])

    async def go(server: FakeServer) -> tuple[list[st.StreamEvent], RunResult]:
        async with watched() as watch, agent(model_of(server, wire, watch)).stream("What is 1+2, and 30+4?") as stream:
            return [event async for event in stream], await stream.result()

    first, *rest = sums_script()
    with serving(wire, [first, broken, *rest]) as server:
        events, result = asyncio.run(go(server))
    assert said(result.transcript) == WHOLE
    assert [bool(request.error) for request in result.requests] == [False, True, False, False]
    kinds = [type(event).__name__ for event in events]
    retracted = kinds.index("Retracted")
    assert kinds[retracted : retracted + 3] == ["Retracted", "RetryScheduled", "RequestStarted"]
    counted = [event.text for event in events[retracted:] if isinstance(event, st.TextStreamed)]
    assert "".join(counted) == "3 and 34, and it is noted."
    assert [record.call.name for record in result.records] == ["add", "add", "note"]


@pytest.mark.parametrize("wire", WIRES)
def test_a_rate_limit_is_waited_out_by_the_transport_and_then_by_the_loop(wire: str) -> None:
    async def go(server: FakeServer) -> RunResult:
        async with watched() as watch:
            return await agent(model_of(server, wire, watch)).run("What is 1+2, and 30+4?")

    slow_down = Status(429, retry_after=0.01)
    first, second, third = sums_script()
    with serving(wire, [first, slow_down, second, slow_down, slow_down, third]) as server:
        result = asyncio.run(go(server))
    assert said(result.transcript) == WHOLE
    assert [(bool(request.error), request.tries) for request in result.requests] == [
        (False, 1),
        (False, 2),
        (True, 1),
        (False, 1),
    ]


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_another_model_on_another_wire_takes_over_in_the_middle_of_a_run(before: str, after: str) -> None:
    """S1.2."""

    async def go(first: FakeServer, second: FakeServer) -> RunResult:
        async with watched() as watch:
            return await agent(model_of(first, before, watch), model_of(second, after, watch)).run("What is 1+2, and 30+4?")

    start, *rest = sums_script()
    with serving(before, [start, Status(401)]) as first, serving(after, rest) as second:
        result = asyncio.run(go(first, second))
    assert said(result.transcript) == WHOLE
    assert [request.model for request in result.requests] == [TARGETS[before][0]] * 2 + [TARGETS[after][0]] * 2
    assert result.losses, "what the first one had sealed cannot be given to the second, and that is told"


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_a_run_that_stopped_resumes_on_another_wire(before: str, after: str) -> None:
    async def go(first: FakeServer, second: FakeServer) -> tuple[RunResult, RunResult]:
        store = MemoryStore()
        async with watched() as watch:
            started = agent(model_of(first, before, watch), store=store, limits=Limits(requests=1, warn_at=1.0))
            stopped = await started.run("What is 1+2, and 30+4?")
            return stopped, await agent(model_of(second, after, watch), store=store).resume(stopped.thread)

    start, *rest = sums_script()
    with serving(before, [start]) as first, serving(after, rest) as second:
        stopped, result = asyncio.run(go(first, second))
    assert (stopped.stop, result.stop, result.run) == ("limit", "done", stopped.run)
    assert said(result.transcript) == WHOLE
    assert len(result.records) == 3


@pytest.mark.parametrize("wire", [wire for wire in WIRES if wire != "gemini"])  # there the order tells calls apart
def test_calls_that_share_an_id_have_a_result_and_a_key_each(wire: str) -> None:
    keys: list[str] = []

    @tool(effect="idempotent")
    def keep(text: str, context: ToolContext[None]) -> str:
        """Keep something."""
        keys.append(context.key)
        return f"kept {text}"

    async def go(server: FakeServer) -> RunResult:
        async with watched() as watch:
            return await Harness(model_of(server, wire, watch), tools=[keep], store="memory").run("Keep both.")

    both = turn(Call("keep", {"text": "one"}, id="same"), Call("keep", {"text": "two"}, id="same"))
    with nothing_left(), serving(wire, [both, "Done."]) as server:
        result = asyncio.run(go(server))
    assert said(result.transcript)[2] == ("user", ("-> kept one", "-> kept two"))
    assert [(record.call.args["text"], record.starts) for record in result.records] == [("one", 1), ("two", 1)]
    assert len(set(keys)) == 2
    assert [(loss.kind, loss.what) for loss in result.losses] == [("renamed", "tool_call id")]


@pytest.mark.parametrize("wire", WIRES)
def test_steering_reaches_the_model_with_its_next_request(wire: str) -> None:
    async def go(server: FakeServer) -> RunResult:
        steered = asyncio.Event()

        @tool(effect="read")
        async def linger() -> str:
            """Wait until the run was steered."""
            await steered.wait()
            return "lingered"

        async with watched() as watch, agent(model_of(server, wire, watch), tools=[linger]).stream("go") as stream:
            async for event in stream:
                if isinstance(event, st.ToolStarted):
                    await stream.steer("and be quick")
                    steered.set()
            return await stream.result()

    with serving(wire, [turn(Thinking("hm"), Call("linger")), "quick enough?"]) as server:
        result = asyncio.run(go(server))
        assert ["and be quick" in request.body.decode() for request in server.requests] == [False, True]
    assert said(result.transcript) == [
        ("user", ("go",)),
        ("assistant", ("linger{}",)),
        ("user", ("-> lingered",)),
        ("user", ("and be quick",)),
        ("assistant", ("quick enough?",)),
    ]


@pytest.mark.parametrize("wire", WIRES)
def test_steering_now_gives_up_the_answer_that_is_on_its_way(wire: str) -> None:
    async def go(server: FakeServer) -> tuple[list[str], RunResult]:
        kinds: list[str] = []
        async with watched() as watch, agent(model_of(server, wire, watch)).stream("go") as stream:
            async for event in stream:
                if isinstance(event, st.TextStreamed) and "TextStreamed" not in kinds:
                    await stream.steer("something else", now=True)
                kinds.append(type(event).__name__)
            result = await stream.result()
            assert watch.open == 0
        return kinds, result

    slow = turn(Text("A long and slow answer.", pieces=12), faults=[faults.Stall(after=MIDDLE)])
    with nothing_left(), serving(wire, [slow, "As you wish."]) as server:
        kinds, result = asyncio.run(go(server))
    assert "Retracted" in kinds
    assert said(result.transcript) == [("user", ("go",)), ("user", ("something else",)), ("assistant", ("As you wish.",))]


# The embedded model, beside the others.


@tool(effect="read")
def calculator(expression: str) -> str:
    """Calculates."""
    left, sign, right = expression.split()
    assert sign == "*"
    return str(int(left) * int(right))


async def calculated(model: Model) -> RunResult:
    """The agent with two examples before it: a model of 135 million parameters needs them, and others may have them."""
    *examples, question = sums("What is 17 * 23?")
    harness = Harness(model, tools=[calculator], store="memory", page_output=False)
    return await harness.thread(history=examples).run(question)


def calculation(transcript: Transcript) -> list[tuple[str, tuple[str, ...]]]:
    return said(transcript)[len(sums("")) - 1 :]


EXPECTED = [
    ("user", ("What is 17 * 23?",)),
    ("assistant", ('calculator{"expression": "17 * 23"}',)),
    ("user", ("-> 391",)),
]


@pytest.mark.parametrize("wire", WIRES)
def test_an_agent_with_examples_calculates_on_every_wire(wire: str) -> None:
    async def go(server: FakeServer) -> RunResult:
        async with watched() as watch:
            return await calculated(model_of(server, wire, watch))

    with serving(wire, [Call("calculator", {"expression": "17 * 23"}), "17 * 23 = 391"]) as server:
        result = asyncio.run(go(server))
    assert calculation(result.transcript) == [*EXPECTED, ("assistant", ("17 * 23 = 391",))]


def test_the_same_agent_calculates_on_the_embedded_model() -> None:
    """Fails, with the words a user would see, where the model cannot be had. (S0.4, S0.45)"""
    check_installed()

    async def go() -> RunResult:
        async with LocalTransport("smollm2", settings=SETTINGS) as transport:
            model = open_model("local:smollm2", environ=NOWHERE, transport=transport, temperature=0.0, max_output_tokens=60)
            result = await calculated(model)
            assert others() == set()
            return result

    result = asyncio.run(go())
    conversation = calculation(result.transcript)
    assert conversation[:-1] == EXPECTED
    role, (text,) = conversation[-1]
    assert (role, result.stop) == ("assistant", "done")
    assert "391" in text
    assert result.records[0].starts == 1


def test_a_log_of_one_wire_is_read_by_another_as_it_was_written() -> None:
    """The transcript in the log does not depend on who reads it. (S4.29)"""

    async def go(server: FakeServer) -> None:
        store = MemoryStore()
        async with watched() as watch:
            result = await agent(model_of(server, "gemini", watch), store=store).run("What is 1+2, and 30+4?")
        replies = [event.message for event in await store.read(result.thread) if isinstance(event, ev.Replied)]
        kept: list[Message] = [message for message in result.transcript if message.role == "assistant"]
        assert [message.blocks for message in replies] == [message.blocks for message in kept]

    with serving("gemini", sums_script()) as server:
        asyncio.run(go(server))
