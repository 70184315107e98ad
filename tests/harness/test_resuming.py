"""After any stop, on any provider: the same one gets back what it sealed, byte for byte; another a legal request and a report.

Five ways to stop, four wires to come from, four to go on with; the servers are strict (prefix-bound thinking enforced).
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from evener import Harness, Limits, MemoryStore, RunResult, Thread, tool
from evener import events as ev
from evener.errors import AuthFailed, UsageError
from evener.harness.approvals import Decision
from evener.loop.state import RunState
from evener.model import Model, open_model
from evener.store.protocol import Store
from evener.testing import Call, FakeServer, Status, Thinking, turn
from evener.testing.scripted_model import ScriptedModel, calls
from evener.transcript.blocks import ReasoningBlock, TextBlock, ToolCall, ToolResult
from evener.transcript.transcript import Transcript
from evener.transport.exchange import Retries, Transport
from tests.driver.stage import WIRES, others
from tests.model.stage import NOWHERE, fresh_key, watched

TARGETS = {
    "anthropic_messages": ("anthropic:claude-opus-5-5", ""),
    "openai_responses": ("openai:gpt-5.5", ""),
    "openai_chat": ("deepseek:deepseek-v4-pro", "deepseek"),
    "gemini": ("google:gemini-3-flash-preview", ""),
}
SAID = {"anthropic_messages": "messages", "openai_responses": "input", "openai_chat": "messages", "gemini": "contents"}
STOPS = ("crash", "error", "limit", "cancel", "approval")
FIRST = turn(Thinking("First the sum."), "Let me see.", Call("add", {"a": 1, "b": 2}))
SECOND = turn(Thinking("Now the rest."), Call("pay", {"amount": 5}))


@contextmanager
def serving(wire: str, *script: object) -> Iterator[FakeServer]:
    name, dialect = TARGETS[wire]
    with FakeServer(wire, list(script), dialect=dialect, models=(name.partition(":")[2],)) as server:  # type: ignore[arg-type]
        yield server
        assert [rejected.violations for rejected in server.rejected] == []
        assert server.left == 0


def model_of(server: FakeServer, wire: str, transport: Transport) -> Model:
    return open_model(
        TARGETS[wire][0], environ=NOWHERE, transport=transport, key=fresh_key(), base_url=server.url,
        retries=Retries(attempts=1), effort="low",
    )  # fmt: skip


class Shop:
    """The tools of the agent. `stop` says how the run ends at the second turn."""

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.begun = asyncio.Event()
        self.paid: list[int] = []
        self.thread: Thread | None = None

    def harness(self, model: Model, store: Store, **more: object) -> Harness:
        @tool(effect="read")
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        @tool(effect="idempotent", approval=self.stop == "approval")
        async def pay(amount: int) -> str:
            """Pay."""
            if not self.begun.is_set() and self.stop in ("crash", "cancel"):
                self.begun.set()
                if self.thread is not None and self.stop == "cancel":
                    await self.thread.cancel("enough")
                await asyncio.sleep(30)
            self.paid.append(amount)
            return f"paid {amount}"

        return Harness(model, tools=[add, pay], system="You do sums, and pay.", store=store, **more)  # type: ignore[arg-type]


async def stopped(shop: Shop, model: Model, store: Store) -> str:
    """A run that came to its stop, as asked for; the thread."""
    limits = Limits(requests=2) if shop.stop == "limit" else None
    thread = shop.thread = shop.harness(model, store).thread(limits=limits)
    match shop.stop:
        case "crash":
            task = asyncio.create_task(thread.run("1+2, then pay 5."))
            await shop.begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        case "error":
            with pytest.raises(AuthFailed) as failed:
                await thread.run("1+2, then pay 5.")
            assert failed.value.thread == thread.log
        case "cancel":
            assert (await thread.run("1+2, then pay 5.")).stop == "cancelled"
        case stop:
            assert (await thread.run("1+2, then pay 5.")).stop == stop
    return thread.log


def sealed(transcript: Transcript) -> list[str]:
    """What a provider sealed: the strings that nobody else can make."""
    found = []
    for message in transcript:
        for block in message.blocks:
            if isinstance(block, ReasoningBlock | ToolCall | TextBlock) and block.seal is not None:
                found += [value for value in json.loads(block.seal.data).values() if isinstance(value, str) and len(value) > 20]
    return found


def bare(value: Any) -> Any:
    """Without cache marks, which move."""
    if isinstance(value, dict):
        return {key: bare(inner) for key, inner in value.items() if key != "cache_control"}
    return [bare(inner) for inner in value] if isinstance(value, list) else value


def turns(body: bytes, wire: str) -> list[object]:
    found = bare(json.loads(body)[SAID[wire]])
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("there", WIRES)
@pytest.mark.parametrize("here", WIRES)
@pytest.mark.parametrize("stop", STOPS)
def test_s2_64_any_stop_is_resumed_on_any_provider(stop: str, here: str, there: str) -> None:
    """S2.64, S2.65, S2.66, S3.1, S3.3, S3.26, S1.21: stateless requests, all state in the log."""

    async def go(server: FakeServer, other: FakeServer) -> None:
        store, shop = MemoryStore(), Shop(stop)
        async with watched() as watch:
            ours = model_of(server, here, watch)
            log = await stopped(shop, ours, store)
            theirs = ours if here == there else model_of(other, there, watch)
            again = shop.harness(theirs, store).thread(log)
            if stop == "approval":
                [waits] = (await again.state()).open_questions
                await again.decide({waits.question.key: Decision("allow")})
            before = len(server.requests)
            seals = sealed((await again.state()).transcript)
            result = await again.resume()
            assert others() == set()
        assert (result.stop, result.text) == ("done", "All done.")
        assert shop.paid == ([] if stop == "cancel" else [5]), "what was cancelled has its result"
        assert result.thread == log
        last = other.requests[-1]
        if here == there:
            past = server.requests[before - 1]
            assert turns(last.body, here)[: len(turns(past.body, here))] == turns(past.body, here), "the old part is the same"
            assert all(json.dumps(value)[1:-1] in last.body.decode() for value in seals)
            assert bool(seals) is (here != "openai_chat")
            lost = {loss.what for loss in result.losses}
            assert lost <= {"reasoning" if here == "openai_chat" else "", "tool_result error flag" if stop == "cancel" else ""}
            if stop == "error":
                assert server.requests[before].body == past.body, "the request that failed, byte for byte"
        else:
            assert not any(json.dumps(value)[1:-1] in last.body.decode() for value in seals), "a seal never leaves its maker"
            assert result.losses

    first = (FIRST, Status(401), *((SECOND,) if here == there else ())) if stop == "error" else (FIRST, SECOND)
    rest = ("All done.",) if stop != "error" or here == there else (SECOND, "All done.")
    with ExitStack() as stack:
        server = stack.enter_context(serving(here, *first, *(rest if here == there else ())))
        other = server if here == there else stack.enter_context(serving(there, *rest))
        asyncio.run(go(server, other))


# A wish to stop, and a death before its end was written.


def waiting_script(ask: Any) -> object:
    results = [block for message in ask.transcript for block in message.blocks if isinstance(block, ToolResult)]
    return f"end: {results[-1].text}" if results else calls(ToolCall.of("c", "look", {}))


@pytest.mark.parametrize("under_way", [True, False])
def test_a_crash_between_the_cancel_and_its_end_needs_one_resume(under_way: bool) -> None:
    """The resume is the later wish: it goes on, and does not first write down the end that nobody has seen."""

    @tool(effect="read")
    def look() -> str:
        """Look."""
        return "seen"

    async def go() -> RunResult:
        store = MemoryStore()
        harness = Harness(ScriptedModel(waiting_script), tools=[look], store=store)  # type: ignore[arg-type]
        thread = harness.thread()
        await thread.run("go")
        events = await store.read(thread.log)
        cut = next(number for number, event in enumerate(events, 1) if isinstance(event, ev.CallStarted))
        fork = await thread.fork(at=cut if under_way else cut - 1)
        log, _ = await store.open(fork.log, holder="h")
        await log.append(
            *((ev.CallStarted(at=9.0, call="c", tool="look", key="k"),) if under_way else ()), ev.Cancelled(at=9.0, why="stop")
        )
        await log.aclose()
        state: RunState = await fork.state()
        assert (state.cancelled, state.finished) == ("stop", None)
        result = await fork.resume()
        assert result.seconds < 1_000_000, "the decades since the call began do not count as work"
        return result

    result = asyncio.run(go())
    assert (result.stop, result.text) == ("done", "end: seen")


def test_a_run_that_came_to_its_end_is_not_resumed_and_says_so() -> None:
    async def go() -> None:
        harness = Harness(ScriptedModel(["one"]), store="memory")
        thread = harness.thread()
        await thread.run("x")
        for there in (thread, await thread.fork(), harness.thread(thread.id)):
            with pytest.raises(UsageError, match="is finished"):
                await there.resume()
        with pytest.raises(UsageError, match="no thread to resume"):
            await harness.thread().resume()

    asyncio.run(go())
