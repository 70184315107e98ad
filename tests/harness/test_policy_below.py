"""The policy of a run holds for every run below it: agents, agents of agents, and runs that a tool starts by itself."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path

import pytest

from evener import Harness, tool
from evener.errors import UsageError
from evener.harness.approvals import Decision
from evener.harness.harness import Subagent
from evener.policy import Defaults, Policy, Rule
from evener.result import RunResult
from evener.store.memory import MemoryStore
from evener.testing import ScriptedModel, calls, says
from evener.tools.tool import Tool
from evener.transcript.ask import Ask
from evener.transcript.blocks import ToolCall, ToolResult
from evener.transcript.reply import Reply


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """The test in an event loop of its own."""

    @wraps(test)
    def run(*given: object, **named: object) -> None:
        async def whole() -> None:
            await test(*given, **named)

        asyncio.run(whole())

    return run


OPEN = Defaults.all("allow")
DENY = Policy((Rule(tool="pay", verdict="deny", name="no payments"),), OPEN)
ASK = Policy((Rule(tool="pay", verdict="ask", name="payments"),), OPEN)
LARGE = Policy(
    (
        Rule(tool="pay", verdict="ask", arguments={"amount": 5}, name="payments"),
        Rule(tool="pay", verdict="deny", arguments={"amount": 99}, name="large"),
    ),
    OPEN,
)


def pays(ledger: list[int], *, name: str = "pay", approval: bool = False) -> Tool:
    @tool(name=name, effect="write", approval=approval)
    def pay(amount: int) -> str:
        """Pay."""
        ledger.append(amount)
        return "paid"

    return pay


def once(name: str, arguments: dict[str, object]) -> ScriptedModel:
    """Calls one tool, then is done, however often it is asked from the start."""
    return ScriptedModel(lambda ask: _next(ask, name, arguments))


def _next(ask: Ask, name: str, arguments: dict[str, object]) -> Reply:
    answered = any(isinstance(block, ToolResult) for message in ask.transcript for block in message.blocks)
    return says("Done.") if answered else calls(ToolCall.of("c", name, arguments))


def tree(ledger: list[int], policies: list[Policy | None], *, approval: bool = False) -> Harness:
    """A boss, the agents below it, and at the lowest level a payer with a tool of its own."""
    *above, own = policies
    found = Harness(once("pay", {"amount": 5}), tools=[pays(ledger, approval=approval)], policy=own, store="memory")
    for level, policy in enumerate(reversed(above)):
        agent = Subagent(name=f"agent{level}", harness=found, description="does it")
        found = Harness(
            once(f"agent{level}", {"task": "Pay 5"}), agents=[agent], policy=policy, store=MemoryStore(), name="boss"
        )
    return found


SILENT = Policy((), OPEN)
ALLOW = Policy((Rule(tool="pay", verdict="allow"),), OPEN)
WRITES_DENIED = Policy((), Defaults(read="allow", idempotent="allow", write="deny"))

CASES: dict[str, tuple[list[Policy | None], bool]] = {
    "nobody says anything": ([None, None], True),
    "the boss denies": ([DENY, None], False),
    "the boss denies, the agent allows": ([DENY, ALLOW], False),
    "the boss allows, the agent denies": ([ALLOW, DENY], False),
    "both allow": ([ALLOW, ALLOW], True),
    "the boss speaks of other tools": ([Policy((Rule(tool="send", verdict="deny"),), OPEN), None], True),
    "the boss denies writes by default": ([WRITES_DENIED, None], False),
    "two levels up": ([DENY, None, None], False),
    "two levels up, all between allow": ([DENY, ALLOW, ALLOW], False),
    "three levels up": ([DENY, None, SILENT, None], False),
    "in the middle": ([SILENT, DENY, ALLOW], False),
    "by a policy that is trusted less": ([Policy((), OPEN, also=(DENY,)), None], False),
}


@pytest.mark.parametrize("case", CASES)
@in_loop
async def test_what_a_run_may_not_no_run_below_it_may(case: str) -> None:
    policies, runs = CASES[case]
    ledger: list[int] = []
    result = await tree(ledger, policies).run("Pay 5")
    assert (result.stop, ledger) == ("done", [5] if runs else [])


@pytest.mark.parametrize("approve", [False, True])
@pytest.mark.parametrize("policies", [[DENY, None], [DENY, None, ALLOW], [ASK, None], [ASK, ALLOW, None]])
@in_loop
async def test_a_tool_that_another_program_calls_is_bound_as_a_run_is(policies: list[Policy | None], approve: bool) -> None:
    ledger: list[int] = []
    asks = policies[0] is ASK
    agent = ToolCall.of("c", f"agent{len(policies) - 2}", {"task": "Pay 5"})
    found = await tree(ledger, policies).call(agent, approve=approve)
    assert (found.ok, ledger) == (not asks, [])
    assert "waits for the user's approval, in thread" in found.text or not asks


@in_loop
async def test_a_run_that_such_a_tool_starts_by_itself_is_bound_too() -> None:
    ledger: list[int] = []
    payer = Harness(once("pay", {"amount": 5}), tools=[pays(ledger)], store="memory")

    @tool
    async def hire() -> str:
        """Have another agent pay."""
        return (await payer.run("Pay 5")).text

    boss = Harness(ScriptedModel([]), tools=[hire], policy=DENY, store="memory")
    assert (await boss.call(ToolCall.of("c", "hire", {}))).ok
    assert ledger == []


@pytest.mark.parametrize("between", [[], [None], [ALLOW]])
@in_loop
async def test_what_the_boss_asks_about_is_asked_in_the_tree_below(between: list[Policy | None]) -> None:
    ledger: list[int] = []
    boss = tree(ledger, [ASK, *between, None])
    result = await boss.run("Pay 5")
    assert (result.stop, ledger, result.approvals[0].rule) == ("approval", [], "payments")
    done = await decided(boss, result, Decision("allow"))
    assert (done.stop, ledger) == ("done", [5])


@in_loop
async def test_what_is_put_in_place_of_the_arguments_is_judged_by_the_boss_too() -> None:
    ledger: list[int] = []
    boss = tree(ledger, [LARGE, None, None])
    result = await boss.run("Pay 5")
    with pytest.raises(UsageError, match="denied by the rule 'large'"):
        await decided(boss, result, Decision("allow", arguments={"amount": 99}))
    done = await decided(boss, result, Decision("allow", arguments={"amount": 7}))
    assert (done.stop, ledger) == ("done", [7])


async def decided(boss: Harness, result: RunResult, decision: Decision) -> RunResult:
    await boss.decide(result.thread, {one.key: decision for one in result.approvals})
    return await boss.resume(result.thread)


@in_loop
async def test_a_tool_that_wants_approval_keeps_asking_below_a_boss_with_other_rules() -> None:
    ledger: list[int] = []
    asked = await tree(ledger, [SILENT, None], approval=True).run("Pay 5")
    allowed = await tree(ledger, [SILENT, ALLOW], approval=True).run("Pay 5")
    assert (asked.stop, allowed.stop, ledger) == ("approval", "done", [5])


@pytest.mark.parametrize("made", ["inside", "before"])
@in_loop
async def test_a_run_that_a_tool_starts_is_bound_by_the_run_around_it(made: str) -> None:
    ledger: list[int] = []
    inner = Harness(once("pay", {"amount": 5}), tools=[pays(ledger)], store="memory")
    early = [inner.thread(), inner.thread()]

    @tool(effect="read")
    async def delegate() -> str:
        """Hand it on."""
        thread = early.pop() if made == "before" else inner.thread()
        return (await thread.run("Pay 5")).text

    for policy, paid in ((DENY, []), (None, [5])):
        boss = Harness(once("delegate", {}), tools=[delegate], policy=policy, store="memory")
        await boss.run("Go")
        assert ledger == paid


@in_loop
async def test_the_same_tool_runs_when_the_agent_is_used_alone(tmp_path: Path) -> None:
    ledger: list[int] = []
    inner = Harness(once("pay", {"amount": 5}), tools=[pays(ledger)], store=str(tmp_path / "runs.db"))
    agent = Subagent(name="payer", harness=inner, description="pays")
    boss = Harness(once("payer", {"task": "Pay 5"}), agents=[agent], policy=DENY, store="memory")
    await boss.run("Pay 5")
    assert ledger == []
    await inner.run("Pay 5")
    assert ledger == [5], "its own harness has no policy"
    await inner.aclose()
