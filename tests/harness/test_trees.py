"""Trees of agents over pauses, crashes and resumes: their limits hold, one store, names, what they did."""

import asyncio
import re
from collections.abc import Sequence
from decimal import Decimal

import msgspec
import pytest

from evener import Harness, Limits, MemoryStore, Message, tool
from evener import events as ev
from evener import streaming as st
from evener.errors import UsageError
from evener.harness import Subagent
from evener.harness import thread as threads
from evener.harness.approvals import Decision, keyed
from evener.loop.state import fold
from evener.result import RunResult
from evener.store.protocol import Store
from evener.testing.scripted_model import Line, ScriptedModel, calls
from evener.tools.tool import Tool
from evener.transcript.ask import Ask
from evener.transcript.blocks import TextBlock, ToolCall
from evener.transcript.reply import Reply, Stop, Usage
from tests.harness.forest import overspent

DONE: list[int] = []


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    DONE.append(amount)
    return "paid"


@tool(effect="write")
def book(amount: int) -> str:
    """Book."""
    DONE.append(amount)
    return "booked"


@tool(effect="read")
def look(n: int) -> int:
    """Look."""
    return n


def agent(name: str, harness: Harness) -> Subagent:
    return Subagent(name=name, harness=harness, description="Helps.")


def handed(*names: str) -> Reply:
    """A turn that hands a task to each of these agents."""
    return calls(*(ToolCall.of(f"c-{name}", name, {"task": "go"}) for name in names))


def turns(ask: Ask) -> int:
    return sum(message.role == "assistant" for message in ask.transcript)


def looking(ask: Ask) -> Line:
    """Never comes to an end by itself."""
    return calls(ToolCall.of(f"t{turns(ask)}", "look", {"n": turns(ask)}))


async def decided(root: Harness, result: RunResult, verdict: str = "allow", **more: object) -> RunResult:
    """Everything that waits, decided alike; and on."""
    decision = Decision(verdict, **more)  # type: ignore[arg-type]
    await root.decide(result.thread, {name: decision for name in keyed(result.approvals)})
    return await root.resume(result.thread)


def told(result: RunResult, place: int = 0) -> tuple[str, str]:
    """The outcome and the text of a call."""
    record = result.records[place].result
    assert record is not None
    return record.outcome, "\n".join(block.text for block in record.content if isinstance(block, TextBlock))


# Limits.


@pytest.mark.parametrize("seed", range(30))
def test_however_it_pauses_fails_and_dies_a_tree_never_spends_more_than_its_limits(seed: int) -> None:
    """Two levels, each with limits of its own, in a random order, with prices that vary. (`bench control` runs a thousand.)"""
    assert overspent(seed) == []


def test_a_tree_that_forgets_what_it_used_before_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forgetful(beginning: tuple[ev.Event, ...], *_: object, **__: object) -> tuple[ev.Event, ...]:
        return beginning

    monkeypatch.setattr(threads, "with_use", forgetful)
    assert any(overspent(seed) for seed in range(12))


class Lazy(MemoryStore):
    """Opens its logs one after the other, as a disk does."""

    async def open(self, log: str, **more: object):  # type: ignore[no-untyped-def]
        self._opened = getattr(self, "_opened", 0) + 1
        for _ in range(self._opened % 40 * 7):
            await asyncio.sleep(0)
        return await super().open(log, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [2, 20])
@pytest.mark.parametrize("money", [True, False])
def test_those_who_go_on_at_once_after_a_pause_find_the_room_that_is_left(width: int, *, money: bool) -> None:
    price, store = Decimal("0.01"), Lazy()

    def worker(ask: Ask) -> Line:
        at = turns(ask)
        if at > 3:
            return "done"
        return calls(ToolCall.of(f"t{at}", "look" if at else "pay", {"n": at} if at else {"amount": at}))

    models = [ScriptedModel(worker, price=price) for _ in range(width)]
    agents = [agent(f"k{place}", Harness(model, tools=[pay, look], store=store)) for place, model in enumerate(models)]
    top = ScriptedModel([handed(*(one.name for one in agents)), "end"], price=price)
    most = 1 + width + 2  # one for the root, one for each agent before it pauses, two more for all
    limits = Limits(requests=None, cost=price * most) if money else Limits(requests=most)
    root = Harness(top, agents=agents, store=store, limits=limits)

    async def gone_on() -> RunResult:
        return await decided(root, await root.run("go"))

    result = asyncio.run(gone_on())
    assert sum(len(model.asks) for model in (*models, top)) <= most
    assert (result.stop, result.cost <= price * most) == ("limit", True)


def test_what_a_paused_agent_used_is_in_the_result_and_once() -> None:
    inner = Harness(ScriptedModel([calls(ToolCall.of("p", "pay", {"amount": 5})), "paid"]), tools=[pay], store="memory")
    root = Harness(ScriptedModel([handed("kid"), "end"]), agents=[agent("kid", inner)], store="memory")
    result = root.run_sync("go")
    assert (result.stop, result.usage.input_total) == ("approval", 20)
    assert asyncio.run(decided(root, result)).usage.input_total == 40


def test_an_agent_that_is_allowed_beyond_its_limit_does_not_renew_that_of_the_tree() -> None:
    inner = ScriptedModel(looking)
    kid = Harness(
        inner, tools=[look], store="memory", limits=Limits(requests=2, repeats=99, repeats_stop=99), interrupts=["limit"]
    )
    root = Harness(ScriptedModel([handed("kid"), "end"]), agents=[agent("kid", kid)], store="memory", limits=Limits(requests=7))

    async def allowing() -> RunResult:
        result = await root.run("go")
        for _ in range(20):
            if result.stop != "approval":
                break
            result = await decided(root, result)
        return result

    result = asyncio.run(allowing())
    assert (result.stop, len(inner.asks)) == ("limit", 6)
    assert "tree of runs has used 7 of 7" in told(result)[1]


def test_limits_of_an_agent_hold_for_the_agents_inside_it() -> None:
    models = [ScriptedModel(looking) for _ in range(3)]
    lazy = Limits(repeats=99, repeats_stop=99)
    inner = [agent(f"w{at}", Harness(model, tools=[look], store="memory", limits=lazy)) for at, model in enumerate(models)]
    middle = Harness(ScriptedModel([handed("w0", "w1", "w2"), "end"]), agents=inner, store="memory", limits=Limits(requests=5))
    root = Harness(ScriptedModel([handed("mid"), "end"]), agents=[agent("mid", middle)], store="memory")
    assert root.run_sync("go").ok
    assert sum(len(model.asks) for model in models) == 4


def test_an_old_log_of_a_paused_call_is_read_as_it_was() -> None:
    """Logs of before say nothing of what a paused agent used."""
    old = b'{"kind":"call_paused","call":"c","thread":"t","at":5.0}'
    paused = ev.decode_event(old)
    assert isinstance(paused, ev.CallPaused)
    assert (paused.nested, ev.encode_event(paused)) == (None, old)
    message = Message("assistant", (ToolCall.of("c", "kid", {}),), usage=Usage(10, 10, 0, 0, 5))
    events = (
        ev.Opened(at=1.0, thread="r"),
        ev.Prompted(at=2.0, run="x", message=Message.user_text("go")),
        ev.ModelCalled(at=3.0, model="m"),
        ev.Replied(at=4.0, message=message, stop=Stop("tools")),
        ev.CallStarted(at=4.5, call="c", tool="kid", key="k"),
        paused,
        ev.Resumed(at=6.0, epoch=1),
        ev.CallFinished(at=7.0, call="c", ok=True, nested=ev.Nested(requests=3)),
    )
    assert [fold(events[:count]).spent.requests for count in (6, 7, 8)] == [1, 1, 4]


# Somebody is asked at a limit on money.


def paying(**more: object) -> tuple[Harness, ScriptedModel]:
    model = ScriptedModel(lambda ask: looking(ask) if turns(ask) < 4 else "done", price=Decimal("0.04"))
    return Harness(model, tools=[look], store="memory", interrupts=["limit"], **more), model  # type: ignore[arg-type]


def test_at_a_limit_on_the_cost_somebody_is_asked_who_can_allow_more() -> None:
    root, model = paying(limits=Limits(cost=Decimal("0.09")))
    result = root.run_sync("go")
    assert (result.stop, [one.interrupt for one in result.approvals], len(model.asks)) == ("approval", ["limit"], 2)
    assert "may cost $0.04, and $0.01 of $0.09 are left" in result.approvals[0].why
    again = asyncio.run(decided(root, result))
    assert (again.stop, len(model.asks)) == ("approval", 4), "a fresh allowance, and no more than that"
    assert asyncio.run(decided(root, again)).ok


def test_rejected_it_ends_at_the_limit() -> None:
    root, model = paying(limits=Limits(cost=Decimal("0.09")))
    ended = asyncio.run(decided(root, root.run_sync("go"), "reject"))
    assert (ended.stop, len(model.asks)) == ("limit", 2)


def test_nobody_is_asked_about_what_no_allowance_could_pay() -> None:
    root, model = paying(limits=Limits(cost=Decimal("0.03")))
    assert (root.run_sync("go").stop, len(model.asks)) == ("limit", 0)


def test_an_agent_does_not_ask_for_more_than_the_tree_has() -> None:
    kid, model = paying()
    top = ScriptedModel([handed("kid"), "end"])
    root = Harness(top, agents=[agent("kid", kid)], store="memory", limits=Limits(cost=Decimal("0.09")))
    result = root.run_sync("go")
    assert (result.ok, len(model.asks)) == (True, 2)
    assert "left for the tree of runs" in told(result)[1]


# What an agent gives.


class Found(msgspec.Struct):
    a: int


@pytest.mark.parametrize(
    ("form", "line"), [("tool", calls(ToolCall.of("f", "final_result", {"a": 7}))), ("native", '{"a": 7}')]
)
def test_a_structured_answer_of_an_agent_reaches_its_caller(form: str, line: Line) -> None:
    """S2.76."""
    kid = Harness(ScriptedModel([line]), store="memory", output=Found, output_form=form)  # type: ignore[arg-type]
    result = Harness(ScriptedModel([handed("kid"), "end"]), agents=[agent("kid", kid)], store="memory").run_sync("go")
    assert msgspec.json.decode(told(result)[1]) == {"a": 7}


# One store, and names.


@pytest.mark.parametrize("store", ["memory", "shared"])
def test_a_decision_two_levels_deep_is_made_at_the_root_whatever_store_the_agents_have(store: str) -> None:
    """S2.68."""
    DONE.clear()
    place: Store | str = MemoryStore() if store == "shared" else "memory"
    script: list[Line] = [calls(ToolCall.of("p", "pay", {"amount": 5})), "deep done"]
    deep = Harness(ScriptedModel(script), tools=[pay], store=place)
    kid = Harness(ScriptedModel([handed("deep"), "kid done"]), agents=[agent("deep", deep)], store=place)
    root = Harness(ScriptedModel([handed("kid"), "done"]), agents=[agent("kid", kid)], store=place)
    result = root.run_sync("go")
    assert (result.stop, DONE) == ("approval", [])
    final = asyncio.run(decided(root, result, arguments={"amount": 50}))
    assert (final.text, DONE) == ("done", [50])
    names = {one.harness for one in asyncio.run(root.store.logs())}
    assert names == {"", "/kid", "/kid/deep"}


def test_an_agent_with_a_store_of_its_own_reads_the_output_that_was_too_large() -> None:
    @tool(effect="read")
    def big() -> str:
        """Big."""
        return "\n".join(f"line {number}" for number in range(20_000))

    def reading(ask: Ask) -> Line:
        shown = str(ask.transcript.messages[-1].blocks)
        match turns(ask):
            case 0:
                return calls(ToolCall.of("b", "big", {}))
            case 1:
                found = re.search(r'id="(\w+)"', shown)
                assert found
                return calls(ToolCall.of("r", "read_output", {"id": found[1], "offset": 100_000}))
            case _:
                return "read" if "Go on with offset" in shown else "nothing there"

    kid = Harness(ScriptedModel(reading), tools=[big], store="memory")
    root = Harness(ScriptedModel([handed("kid"), "end"]), agents=[agent("kid", kid)], store="memory")
    assert told(root.run_sync("go"))[1] == "read"


def test_agents_of_the_same_name_at_different_depths_are_told_apart() -> None:
    DONE.clear()

    @tool(approval=True, name="pay")
    def other_pay(amount: int, currency: str = "") -> str:
        """Pay otherwise."""
        raise AssertionError(f"{amount} {currency}")

    script: list[Line] = [calls(ToolCall.of("p", "pay", {"amount": 5})), "deep done"]
    deep = Harness(ScriptedModel(script), tools=[pay], store="memory")
    boss = Harness(ScriptedModel([handed("worker"), "kid done"]), agents=[agent("worker", deep)], store="memory")
    near = Harness(ScriptedModel(["unused"]), tools=[other_pay], store="memory")
    agents = [agent("worker", near), agent("boss", boss)]
    root = Harness(ScriptedModel([handed("boss"), "done"]), agents=agents, store="memory", name="worker")
    assert asyncio.run(decided(root, root.run_sync("go"))).text == "done"
    assert DONE == [5]


def test_two_agents_of_one_name_are_refused() -> None:
    kid = Harness(ScriptedModel([]), store="memory")
    with pytest.raises(UsageError, match="Two agents are named 'a'"):
        Harness(ScriptedModel([]), agents=[agent("a", kid), agent("a", kid)], store="memory")


# An agent that is given up.


class Slow(ScriptedModel):
    """Answers so many times, and then no more."""

    def __init__(self, script: Sequence[Line], *, answers: int = 1) -> None:
        super().__init__(script)
        self._answers = answers

    def stream(self, ask: Ask, *, after: object = None):  # type: ignore[no-untyped-def]
        stream = super().stream(ask, after=after)

        async def never():  # type: ignore[no-untyped-def]
            await asyncio.Event().wait()

        if len(self.asks) > self._answers:
            stream.read = never  # type: ignore[method-assign]
        return stream


def acting(levels: int, act: Tool, arguments: dict[str, object], *, limits: Limits | None = None) -> Harness:
    """A root whose agent, so many levels down, calls a tool and then hangs."""
    one = Harness(Slow([calls(ToolCall.of("t", act.name, arguments)), "unheard"]), tools=[act], store="memory")
    for level in range(levels):
        own = limits if level == levels - 1 else None
        one = Harness(ScriptedModel([handed("kid"), "end"]), agents=[agent("kid", one)], store="memory", limits=own)
    return one


async def stopped(root: Harness, levels: int) -> RunResult:
    """Cancelled as soon as the agent hangs."""
    asked = 0
    async with root.stream("go") as stream:
        async for event in stream:
            asked += isinstance(event, st.RequestStarted)
            if asked == levels + 2:
                asked = -99
                await stream.cancel("halt")
        return await stream.result()


@pytest.mark.parametrize("levels", [1, 2])
def test_what_became_of_a_cancelled_agent_that_had_acted_is_not_known(levels: int) -> None:
    result = asyncio.run(stopped(acting(levels, book, {"amount": 5}), levels))
    outcome, text = told(result)
    assert (result.stop, outcome) == ("cancelled", "unknown")
    assert "had begun to change things" in text
    nested = result.records[0].result.nested if result.records[0].result else None
    assert nested is not None
    assert (nested.requests, nested.acted, nested.exact) == (levels + 1, True, False)
    assert result.usage.input_total == 10 * (levels + 1), "what it used is counted"


def test_a_cancelled_agent_that_only_looked_has_failed() -> None:
    result = asyncio.run(stopped(acting(1, look, {"n": 5}), 1))
    assert told(result) == ("failed", "Cancelled before it ended.")
    assert result.usage.input_total == 20


def test_what_became_of_an_agent_whose_time_is_over_is_not_known_either() -> None:
    root = acting(1, book, {"amount": 5}, limits=Limits(seconds=1.5))
    result = root.run_sync("go")
    assert (result.stop, told(result)[0], result.usage.input_total) == ("limit", "unknown", 20)


def test_it_is_known_after_a_pause_that_an_agent_has_acted() -> None:
    """It booked, waited for a decision, went on in another process and was cancelled there."""
    store, steps = MemoryStore(), [ToolCall.of("b", "book", {"amount": 1}), ToolCall.of("p", "pay", {"amount": 5})]

    def made(model: ScriptedModel) -> Harness:
        kid = Harness(model, tools=[pay, book], store=store)
        return Harness(ScriptedModel([handed("kid")]), agents=[agent("kid", kid)], store=store)

    paused = made(ScriptedModel([calls(steps[0]), calls(steps[1])])).run_sync("go")
    second = made(Slow(["unheard"], answers=0))

    async def cancelled() -> RunResult:
        await second.decide(paused.thread, {"p": Decision("reject")})
        async with second.thread(paused.thread).resume_stream() as stream:
            async for event in stream:
                if isinstance(event, st.RequestStarted):
                    await stream.cancel("halt")
            return await stream.result()

    result = asyncio.run(cancelled())
    assert (result.stop, told(result)[0]) == ("cancelled", "unknown")
