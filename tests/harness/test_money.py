"""Limits on the cost: all that is sent counts, at the dearest rate; so does what nobody heard; what has no price is told."""

import asyncio
from collections.abc import Sequence
from decimal import Decimal

import pytest

from evener import Harness, Limits, MemoryStore, tool
from evener import events as ev
from evener import streaming as st
from evener.context import SystemPrompt
from evener.errors import AuthFailed, ConnectFailed, EvenerError, Overloaded, TimedOut, TruncatedStream, WireError
from evener.harness import Subagent
from evener.loop.state import fold
from evener.model import open_model
from evener.result import RunResult
from evener.testing import FakeServer, Tokens, Turn, faults, turn
from evener.testing.scripted_model import Line, ScriptedModel, calls
from evener.transcript.ask import Ask
from evener.transcript.blocks import ToolCall
from tests.model.stage import MODELS, NOWHERE, WIRES, fresh_key, run, watched

PRICE = Decimal("0.04")
CHINESE = "中文系统提示规则说明" * 4_000  # 40,000 characters, 120,000 bytes


@tool(effect="read")
def look(n: int) -> int:
    """Look."""
    return n


@tool(effect="read")
def read() -> str:
    """Read."""
    return "x" * 9_000


# With prices of the list.


async def asked(
    wire: str, script: Sequence[Turn], limit: str, *, system: object = None, most: int = 100
) -> tuple[RunResult, int]:
    """A run against a fake, with so many dollars; and how many requests came to it."""
    with FakeServer(wire, script) as server:
        async with watched() as transport:
            model = open_model(
                MODELS[wire], environ=NOWHERE, transport=transport, base_url=server.url, key=fresh_key(), max_output_tokens=most
            )
            limits = Limits(cost=Decimal(limit), retries=2)
            harness = Harness(model, store="memory", system=system, limits=limits)  # type: ignore[arg-type]
            result = await harness.run("q")
        return result, len(server.requests)


@pytest.mark.parametrize(
    ("wire", "system", "limit", "tokens"),
    [
        ("openai_chat", CHINESE, "0.04", Tokens(input=48_000, output=10)),
        ("anthropic_messages", SystemPrompt(role=CHINESE, cache="1h"), "0.15", Tokens(input=48_000, written=47_000, output=10)),
        ("anthropic_messages", CHINESE, "0.25", Tokens(input=48_000, written=47_000, output=10)),
        ("openai_chat", "🙂" * 20_000, "0.10", Tokens(input=60_000, output=10)),
    ],
    ids=["characters of three bytes", "written for an hour", "written for minutes", "characters of four bytes"],
)
def test_a_request_that_may_cost_more_than_there_is_is_not_made(wire: str, system: object, limit: str, tokens: Tokens) -> None:
    result, requests = run(asked(wire, [turn("ok", usage=tokens)], limit, system=system))
    assert (result.stop, result.cost <= Decimal(limit), requests) == ("limit", True, 0)


def test_what_is_written_for_an_hour_costs_what_an_hour_costs() -> None:
    def cost(system: object) -> Decimal:
        tokens = Tokens(input=48_000, written=47_000, output=10)
        return run(asked("anthropic_messages", [turn("ok", usage=tokens)], "9.0", system=system))[0].cost

    assert cost(SystemPrompt(role="x", cache="1h")) > cost("x") * Decimal("1.4")


@pytest.mark.parametrize("wire", WIRES)
def test_an_answer_that_breaks_off_counts_with_the_most_that_it_may_have_cost(wire: str) -> None:
    used = Tokens(input=1_000, output=900)
    broken = turn("x" * 400, usage=used, faults=(faults.Cut(after=2),))
    result, requests = run(asked(wire, [broken, turn("fine", usage=used)], "5.00", most=1_000))
    whole, _ = run(asked(wire, [turn("fine", usage=used)], "5.00", most=1_000))
    assert (result.ok, requests, result.exact, whole.exact) == (True, 2, False, True)
    assert result.cost >= 2 * whole.cost


# What counts when nobody heard what it cost.


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (TruncatedStream("cut"), True),
        (WireError("not the protocol"), True),
        (TimedOut("too slow"), True),
        (Overloaded("busy", retry_after=0.001), True),  # inside the stream
        (Overloaded("busy", status=529, retry_after=0.001), False),
        (AuthFailed("no", status=401), False),
        (ConnectFailed("nobody there"), False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, EvenerError) else "",
)
def test_only_a_request_that_was_never_worked_on_costs_nothing(error: EvenerError, *, counts: bool) -> None:
    store = MemoryStore()
    harness = Harness(ScriptedModel([error], price=PRICE), store=store, limits=Limits(cost=Decimal(1), retries=0))
    with pytest.raises(type(error)) as raised:
        harness.run_sync("go")
    state = fold(asyncio.run(store.read(raised.value.thread)))
    assert (state.spent.cost, state.spent.exact) == ((PRICE, False) if counts else (Decimal(0), True))


class Silent(ScriptedModel):
    """Is asked, and never answers."""

    def stream(self, ask: Ask, *, after: object = None):  # type: ignore[no-untyped-def]
        stream = super().stream(ask, after=after)

        async def never():  # type: ignore[no-untyped-def]
            await asyncio.Event().wait()

        stream.read = never  # type: ignore[method-assign]
        return stream


@pytest.mark.parametrize("limit", [Decimal(1), None])
def test_a_request_that_is_given_up_is_counted_and_known_to_be_inexact(limit: Decimal | None) -> None:
    harness = Harness(Silent(["never heard"], price=PRICE), store="memory", limits=Limits(cost=limit))

    async def cancelled() -> RunResult:
        async with harness.stream("go") as stream:
            async for event in stream:
                if isinstance(event, st.RequestStarted):
                    await stream.cancel()
            return await stream.result()

    result = asyncio.run(cancelled())
    assert (result.cost, result.exact) == (PRICE if limit else Decimal(0), False)


def test_so_is_one_whose_process_died() -> None:
    store = MemoryStore()
    limits = Limits(cost=PRICE * 2)
    first = Harness(Silent(["never heard"], price=PRICE), store=store, limits=limits)

    async def died() -> str:
        thread = first.thread()
        task = asyncio.ensure_future(thread.run("go"))
        while not thread.id or not (await thread.state()).asking:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait((task,))
        return thread.id

    again = Harness(ScriptedModel([calls(ToolCall.of("l", "look", {"n": 1})), "x"], price=PRICE), tools=[look], store=store)
    result = again.resume_sync(asyncio.run(died()), limits=limits)
    assert (result.stop, result.cost, result.exact) == ("limit", PRICE * 2, False)


# What is counted before a request.


class Measured(ScriptedModel):
    """Costs a cent for each 1,000 characters of results that it is shown."""

    def most_cost(self, ask: Ask) -> Decimal:
        shown = sum(len(str(block)) for message in ask.transcript for block in message.blocks)
        return Decimal(shown // 1_000) / 100

    def capped(self, ask: Ask, money: Decimal) -> Ask | None:
        return ask if self.most_cost(ask) <= money else None


def test_what_tools_have_just_given_is_part_of_what_the_next_request_may_cost() -> None:
    model = Measured([calls(ToolCall.of("r", "read", {})), "done"])
    result = Harness(model, tools=[read], store="memory", limits=Limits(cost=Decimal("0.05"))).run_sync("go")
    assert (result.stop, len(model.asks)) == ("limit", 1)
    assert "may cost $0.09" in result.detail


# No price.


class _Unknown(ScriptedModel):
    """Nobody knows what it costs."""

    def stream(self, ask: Ask, *, after: object = None):  # type: ignore[no-untyped-def]
        stream = super().stream(ask, after=after)
        stream._price = type(stream._price)(Decimal(0), False)
        return stream


def looked(ask: Ask) -> Line:
    at = sum(message.role == "assistant" for message in ask.transcript)
    return calls(ToolCall.of(f"l{at}", "look", {"n": at})) if at < 3 else "done"


@pytest.mark.parametrize("nested", [False, True])
def test_a_limit_on_the_cost_that_cannot_hold_is_told_once(*, nested: bool) -> None:
    one = Harness(_Unknown(looked, name="far:away"), tools=[look], store="memory", limits=Limits(cost=Decimal(1)))
    if nested:
        task = calls(ToolCall.of("k", "kid", {"task": "go"}))
        agents = [Subagent(name="kid", harness=one, description="Helps.")]
        one = Harness(ScriptedModel([task, "done"]), agents=agents, store="memory", limits=Limits(cost=Decimal(1)))

    async def watching() -> tuple[list[str], RunResult]:
        async with one.stream("go") as stream:
            told = [event.text async for event in stream if isinstance(event, st.Warned)]
            return told, await stream.result()

    told, result = asyncio.run(watching())
    assert result.ok
    assert told == list(result.warnings)
    assert len(told) == 1
    assert "The price of far:away is not known" in told[0]


def test_without_a_limit_on_the_cost_nothing_is_told() -> None:
    assert Harness(_Unknown(looked), tools=[look], store="memory").run_sync("go").warnings == ()


def test_an_answer_whose_tokens_nobody_counted_counts_with_the_most_that_it_may_have_cost() -> None:
    class Uncounted(_Unknown):
        def most_cost(self, ask: Ask) -> Decimal:
            del ask
            return PRICE

    harness = Harness(Uncounted(looked), tools=[look], store="memory", limits=Limits(cost=PRICE * 2))
    result = harness.run_sync("go")
    assert (result.stop, result.cost, result.exact, result.warnings) == ("limit", PRICE * 2, False, ())


def test_logs_of_before_say_nothing_of_what_a_failed_request_cost() -> None:
    failed = ev.decode_event(b'{"kind":"model_failed","at":1.0,"error":"TimedOut","message":"late"}')
    assert isinstance(failed, ev.ModelFailed)
    assert (failed.cost, failed.exact) == (Decimal(0), True)
