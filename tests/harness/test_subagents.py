"""Agents inside agents: fresh starts, nested events, limits over the whole tree, decisions that bubble up."""

import asyncio
import random
from decimal import Decimal

import pytest

from evener import Harness, Limits, MemoryStore, tool
from evener import streaming as st
from evener.errors import UsageError
from evener.harness import Subagent
from evener.harness.approvals import Decision
from evener.policy import Defaults, Policy, Rule
from evener.result import RunResult
from evener.testing.scripted_model import Line, ScriptedModel, calls
from evener.tools.context import ToolContext
from evener.transcript.ask import Ask
from evener.transcript.blocks import ToolCall, ToolResult

DONE: list[str] = []


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    DONE.append(f"paid {amount}")
    return "paid"


def child(script: object, **more: object) -> Harness:
    return Harness(ScriptedModel(script), store="memory", **more)  # type: ignore[arg-type]


def parent(script: object, *agents: Subagent, **more: object) -> Harness:
    return Harness(ScriptedModel(script), agents=agents, **{"store": "memory", **more})  # type: ignore[arg-type]


def agent(harness: Harness, name: str = "helper") -> Subagent:
    return Subagent(name=name, harness=harness, description="Helps.")


def ask(id: str, task: str, name: str = "helper") -> ToolCall:
    return ToolCall.of(id, name, {"task": task})


def test_a_task_is_handed_over_and_the_answer_comes_back() -> None:
    """S2.76."""
    model = ScriptedModel(["the answer"])
    one = parent([calls(ask("c", "find out")), "so it is"], agent(Harness(model, store="memory", system="You help.")))
    result = one.run_sync("go")
    assert result.text == "so it is"
    assert [message.text for message in model.asks[0].transcript] == ["find out"]
    assert result.records[0].result is not None
    assert result.records[0].result.nested is not None
    assert result.usage.input_total == 30, "what the agent used is counted"


def test_events_of_the_agent_are_nested() -> None:
    """S2.19."""

    async def watched() -> list[st.StreamEvent]:
        one = parent([calls(ask("c", "x")), "end"], agent(child(["inner"])))
        async with one.stream("go") as stream:
            return [event async for event in stream]

    seen = asyncio.run(watched())
    inner = [event for event in seen if event.place.parent_call == "c"]
    assert [type(event).__name__ for event in inner] == [
        "RunStarted",
        "RequestStarted",
        "TextStreamed",
        "TurnFinished",
        "RunFinished",
    ]
    assert {event.place.parent_run for event in inner} == {seen[0].place.run}


def test_an_agent_that_fails_is_a_result() -> None:
    one = parent([calls(ask("c", "x")), "end"], agent(child([])))
    result = one.run_sync("go")
    assert result.ok
    assert result.records[0].result is not None
    assert not result.records[0].result.ok


def test_nesting_is_bounded() -> None:
    """S2.76."""
    one = child(["deep down"])
    for level in range(8):
        one = parent(
            lambda ask_: calls(ask(f"c{len(ask_.transcript)}", "deeper", "next")) if len(ask_.transcript) < 2 else "up",
            agent(one, "next"),
            name=f"level{level}",
        )
    assert one.run_sync("go").text == "up"
    depths = []

    async def watched() -> None:
        async with one.stream("go") as stream:
            async for event in stream:
                if isinstance(event, st.RunStarted):
                    depths.append(event.place.run)

    asyncio.run(watched())
    assert len(depths) == 5


def test_a_decision_inside_an_agent_bubbles_up() -> None:
    """S2.68."""
    DONE.clear()
    inner = child([calls(ToolCall.of("p", "pay", {"amount": 5})), "it is paid"], tools=[pay])
    one = parent([calls(ask("c", "pay 5")), "all done"], agent(inner))
    result = one.run_sync("go")
    assert (result.stop, DONE) == ("approval", [])
    [approval] = result.approvals
    assert approval.call is not None
    assert (approval.key, approval.call.name, approval.thread != result.thread) == ("p", "pay", True)

    async def decided() -> RunResult:
        await one.decide(result.thread, {"p": Decision("allow")})
        return await one.resume(result.thread)

    final = asyncio.run(decided())
    assert (final.text, DONE) == ("all done", ["paid 5"])


def test_undecided_it_waits_again() -> None:
    DONE.clear()
    inner = child([calls(ToolCall.of("p", "pay", {"amount": 5})), "paid"], tools=[pay])
    one = parent([calls(ask("c", "pay 5")), "all done"], agent(inner))
    result = one.run_sync("go")
    again = one.resume_sync(result.thread)
    assert (again.stop, DONE, len(again.approvals)) == ("approval", [], 1)


# Limits over the whole tree.


def tree(
    width: int, limits: Limits, price: Decimal, store: MemoryStore, rng: random.Random
) -> tuple[Harness, list[ScriptedModel]]:
    """A root with agents that each ask several times, in an order that the seed decides."""
    models: list[ScriptedModel] = []

    class Shuffled(ScriptedModel):
        def stream(self, ask: Ask, *, after: object = None):  # type: ignore[no-untyped-def]
            stream = super().stream(ask, after=after)
            read, waits = stream.read, rng.randrange(4)

            async def slowly():  # type: ignore[no-untyped-def]
                for _ in range(waits):
                    await asyncio.sleep(0)
                return await read()

            stream.read = slowly  # type: ignore[method-assign]
            return stream

    def worker(ask_: Ask) -> Line:
        turns = sum(message.role == "assistant" for message in ask_.transcript)
        return calls(ToolCall.of(f"t{turns}", "step", {"n": turns})) if turns < 3 else "done"

    @tool(effect="read")
    async def step(n: int) -> int:
        """Step."""
        await asyncio.sleep(0)
        return n

    agents = []
    for number in range(width):
        model = Shuffled(worker, price=price)
        models.append(model)
        agents.append(agent(Harness(model, tools=[step], store=store, page_output=False), f"a{number}"))
    batch = calls(*(ask(f"c{number}", "go", f"a{number}") for number in range(width)))
    root = Shuffled([batch, "done"], price=price)
    models.append(root)
    return Harness(root, agents=agents, store=store, limits=limits, page_output=False), models


@pytest.mark.parametrize("seed", range(40))
def test_a_tree_of_twenty_never_spends_more_than_its_budget(seed: int) -> None:
    rng = random.Random(seed)
    price = Decimal("0.004")
    most, money = rng.randrange(5, 70), Decimal(rng.randrange(20, 300)) / 1000
    one, models = tree(20, Limits(requests=most, cost=money, tool_calls=None), price, MemoryStore(), rng)
    result = asyncio.run(one.run("go"))
    asked = sum(len(model.asks) for model in models)
    assert asked <= most
    assert asked * price <= money
    assert result.cost <= money
    assert result.stop in ("done", "limit")


def test_results_say_which_agent_stopped_at_the_limit() -> None:
    one, _ = tree(4, Limits(requests=6), Decimal(0), MemoryStore(), random.Random(1))
    result = asyncio.run(one.run("go"))
    told = [record.result for record in result.records if record.result and not record.result.ok]
    assert told
    assert "of 6 model requests" in str(told[0].content)
    assert isinstance(result.transcript.messages[-1].blocks[0], ToolResult) or result.stop == "limit"


def test_what_an_agent_used_before_it_paused_counts_when_it_goes_on() -> None:
    DONE.clear()

    def inner(seen: Ask) -> Line:
        turns = sum(message.role == "assistant" for message in seen.transcript)
        return calls(ToolCall.of(f"p{turns}", "pay", {"amount": turns})) if turns < 9 else "paid"

    one = parent([calls(ask("c", "pay a lot")), "end"], agent(child(inner, tools=[pay])), limits=Limits(requests=5))

    async def approving() -> RunResult:
        result = await one.run("go")
        while result.stop == "approval":
            await one.decide(result.thread, {approval.key: Decision("allow") for approval in result.approvals})
            result = await one.resume(result.thread)
        return result

    result = asyncio.run(approving())
    assert result.stop == "limit"
    assert len(DONE) <= 4


# Tools that an agent inherits.


def test_an_agent_has_the_tools_that_it_inherits_as_they_are_when_it_is_asked() -> None:
    """S2.76: with the deps of the harness that it has them from."""
    seen: list[object] = []

    @tool(effect="read")
    def look(item: str, context: ToolContext[object]) -> str:
        """Look."""
        seen.append((item, context.deps))
        return f"{item}: 3 left"

    model = ScriptedModel([calls(ToolCall.of("l", "look", {"item": "tea"})), "3 left"])
    heir = Subagent(name="helper", harness=Harness(model, store="memory"), description="Helps.", inherits=("look",))
    result = parent([calls(ask("c", "count")), "end"], heir, tools=[look], deps="ours").run_sync("go")
    assert result.records[0].ok
    assert seen == [("tea", "ours")]
    assert [spec.name for spec in model.asks[0].tools] == ["look"]
    alone = ScriptedModel([calls(ToolCall.of("l", "look", {"item": "tea"})), "no idea"])
    parent([calls(ask("c", "count")), "end"], agent(Harness(alone, store="memory")), tools=[look]).run_sync("go")
    assert (alone.asks[0].tools, len(seen)) == ((), 1)


@pytest.mark.parametrize("own", [None, Policy(default=Defaults.all("allow"))])
def test_what_the_parent_may_not_its_heirs_may_not_either(own: Policy | None) -> None:
    """S2.76, S1.8."""
    DONE.clear()
    deny = Policy((Rule(tool="pay", verdict="deny", name="no money"),), Defaults.all("allow"))
    inner = child([calls(ToolCall.of("p", "pay", {"amount": 5})), "not paid"], policy=own)
    heir = Subagent(name="helper", harness=inner, description="Helps.", inherits=("pay",))
    result = parent([calls(ask("c", "pay 5")), "end"], heir, tools=[tool(pay.function, name="pay")], policy=deny).run_sync("go")
    assert (result.ok, DONE) == (True, [])


def test_a_decision_about_an_inherited_tool_is_made_at_the_root() -> None:
    """S2.68, S2.76."""
    DONE.clear()
    inner = child([calls(ToolCall.of("p", "pay", {"amount": 5})), "it is paid"])
    heir = Subagent(name="helper", harness=inner, description="Helps.", inherits=("pay",))
    one = parent([calls(ask("c", "pay 5")), "all done"], heir, tools=[pay])

    async def go() -> RunResult:
        waits = await one.run("go")
        assert (waits.stop, DONE) == ("approval", [])
        await one.decide(waits.thread, {"p": Decision("allow", arguments={"amount": 4})})
        return await one.resume(waits.thread)

    assert asyncio.run(go()).text == "all done"
    assert DONE == ["paid 4"]


@pytest.mark.parametrize("name", ["nowhere", "helper", "other"])
def test_agents_and_what_is_not_there_cannot_be_inherited(name: str) -> None:
    """S2.76: so that nobody goes round in circles."""
    heir = Subagent(name="helper", harness=child([]), description="Helps.", inherits=(name,))
    with pytest.raises(UsageError, match="cannot inherit"):
        parent([], heir, agent(child([]), "other"))
