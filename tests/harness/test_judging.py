"""What a policy is asked about: calls as they would run, and none that cannot (S1.8, S1.18, S1.20, S1.29, S2.6)."""

import asyncio

import pytest

from evener import Harness, tool
from evener.errors import UsageError
from evener.harness.approvals import Decision
from evener.policy import Defaults, Policy, Rule
from evener.testing.scripted_model import ScriptedModel, calls
from evener.transcript.ask import HostedTool
from evener.transcript.blocks import ToolCall

DONE: list[tuple[str, bool]] = []


def push(branch: str = "main", force: bool = False) -> str:
    """Push."""
    DONE.append((branch, force))
    return "pushed"


POLICY = Policy(
    rules=(
        Rule(tool="push", verdict="deny", arguments={"branch": "main"}, name="not main"),
        Rule(tool="push", verdict="ask", arguments={"force": True}, name="force"),
        Rule(tool="push", verdict="allow", arguments={"force": False}, name="gently"),
    ),
    default=Defaults.all("deny"),
)


def pushed(arguments: dict[str, object], policy: Policy = POLICY) -> tuple[str, list[tuple[str, bool]], str]:
    DONE.clear()
    model = ScriptedModel([calls(ToolCall.of("c", "push", arguments)), "done"])
    result = Harness(model, tools=[tool(push)], store="memory", policy=policy).run_sync("go")
    done = result.records[0].result
    return result.stop, list(DONE), "" if done is None else str(done.content[0])


@pytest.mark.parametrize("arguments", [{"branch": "main"}, {}, {"force": True}, {"force": False}])
def test_a_rule_cannot_be_passed_by_leaving_an_argument_out(arguments: dict[str, object]) -> None:
    """S2.6: the default is what would run."""
    stop, done, told = pushed(arguments)
    assert (stop, done) == ("done", [])
    assert "Denied by the rule 'not main'" in told
    assert ".." not in told


@pytest.mark.parametrize(
    ("arguments", "stop", "done"),
    [
        ({"branch": "dev"}, "done", [("dev", False)]),
        ({"branch": "dev", "force": False}, "done", [("dev", False)]),
        ({"branch": "dev", "force": True}, "approval", []),
    ],
)
def test_a_rule_that_allows_or_asks_sees_defaults_too(
    arguments: dict[str, object], stop: str, done: list[tuple[str, bool]]
) -> None:
    """S2.6."""
    assert pushed(arguments)[:2] == (stop, done)


def test_edited_arguments_are_judged_with_their_defaults() -> None:
    """S2.6, S2.68."""
    DONE.clear()
    call = ToolCall.of("c", "push", {"branch": "dev", "force": True})
    one = Harness(ScriptedModel([calls(call), "done"]), tools=[tool(push)], store="memory", policy=POLICY)

    async def go() -> None:
        paused = await one.run("go")
        with pytest.raises(UsageError, match="denied by the rule 'not main'"):
            await one.decide(paused.thread, {"c": Decision("allow", arguments={"force": True})})

    asyncio.run(go())
    assert DONE == []


@pytest.mark.parametrize("raw", ["{bad", '{"branch":1}', '{"branch":"a","branch":"b"}', '{"nothing":1}'])
@pytest.mark.parametrize("policy", [None, Policy(default=Defaults.all("ask"))])
def test_nobody_is_asked_about_a_call_that_cannot_run(raw: str, policy: Policy | None) -> None:
    """S1.20: the model is told what is wrong with it, and nothing runs."""
    DONE.clear()
    model = ScriptedModel([calls(ToolCall("c", "push", raw)), "done"])
    result = Harness(model, tools=[tool(push, approval=True)], store="memory", policy=policy).run_sync("go")
    assert (result.stop, DONE, result.approvals) == ("done", [], ())
    [record] = result.records
    assert record.result is not None
    assert not record.result.ok


def test_s1_18_s1_29_a_run_offers_hosted_tools_in_neutral_words_only() -> None:
    """S1.18, S1.29: no declaration carries an authorisation, and nothing that a policy must allow is left to a provider."""
    search = HostedTool("openai_responses", '{"type":"web_search"}')
    with pytest.raises(UsageError, match=r"only from evener\.toolset\.hosted"):
        Harness(ScriptedModel([]), tools=[search], store="memory", policy=Policy())
    model = ScriptedModel(["done"])
    Harness(model, tools=[push], store="memory").run_sync("go")
    assert not any(isinstance(one, HostedTool) for one in model.asks[0].tools)
