"""Rules about arguments that a tool does not have are refused as soon as the tool is known."""

from typing import Annotated

import msgspec
import pytest

from evener import Harness, tool
from evener.errors import UsageError
from evener.harness.harness import Subagent
from evener.policy import Policy, Rule
from evener.testing import ScriptedModel
from evener.tools.tool import Tool


class Options(msgspec.Struct, rename="camel"):
    dry_run: bool = False
    labels: dict[str, str] = {}
    steps: list["Step"] = []


class Step(msgspec.Struct):
    note: Annotated[str, msgspec.Meta(description="why")] = ""


class Payment(msgspec.Struct):
    amount: int
    to_whom: str = msgspec.field(name="recipient", default="")
    options: Options | None = None


def pay(payment: Payment) -> str:
    """Pay."""
    return f"paid {payment.amount}"


TYPED = Tool.of("pay", Payment, function=pay)
OPEN = Tool.of(
    "pay", {"type": "object", "properties": {"a": {}}, "additionalProperties": True}, function=lambda given: f"paid {given}"
)
CLOSED = Tool.of("pay", {"type": "object", "properties": {"a": {"type": "string"}}}, function=lambda given: f"paid {given}")
MIXED = Tool.of(
    "pay",
    {"allOf": [{"properties": {"a": {}}}], "properties": {"b": {}}, "type": "object"},
    function=lambda given: f"paid {given}",
)


@tool
def pay_later(amount: int) -> str:
    """Pay later."""
    return f"paid {amount}"


def harness(*tools: Tool, **rule: object) -> Harness:
    made = Rule(**{"tool": "pay", "verdict": "deny", **rule})  # type: ignore[arg-type]  # for tables of cases
    return Harness(ScriptedModel(["Hi"]), tools=tools, policy=Policy((made,)), store="memory")


KNOWN = (
    (TYPED, "amount"),
    (TYPED, "recipient"),
    (TYPED, "options.dryRun"),
    (TYPED, "options.labels.anything"),
    (TYPED, "options.labels.*"),
    (TYPED, "options.steps.*.note"),
    (TYPED, "*"),
    (OPEN, "b"),
    (OPEN, "b.c.d"),
    (OPEN, "a.anything"),
    (CLOSED, "a"),
    (MIXED, "a"),
    (MIXED, "z"),
)
UNKNOWN = (
    (TYPED, "to_whom"),
    (TYPED, "amuont"),
    (TYPED, "Amount"),
    (TYPED, "options.dry_run"),
    (TYPED, "options.steps.*.nope"),
    (TYPED, "options.steps.note"),
    (TYPED, "amount.value"),
    (TYPED, "a\\.b"),
    (CLOSED, "b"),
    (CLOSED, "a.b"),
)


@pytest.mark.parametrize(("known", "path"), KNOWN)
def test_an_argument_that_the_tool_has_or_may_have_is_in_order(known: Tool, path: str) -> None:
    assert harness(known, arguments={path: "x"})


@pytest.mark.parametrize("verdict", ["deny", "ask", "allow"])
@pytest.mark.parametrize(("known", "path"), UNKNOWN)
def test_an_argument_that_the_tool_does_not_have_is_an_error(known: Tool, path: str, verdict: str) -> None:
    with pytest.raises(UsageError, match=r"has none of that name.*Its arguments are"):
        harness(known, arguments={path: "x"}, verdict=verdict)


def test_the_error_names_rule_tool_and_the_arguments_that_there_are() -> None:
    with pytest.raises(UsageError, match=r"'no gifts'.*'to_whom'.*'pay'.*amount, options, recipient"):
        harness(TYPED, arguments={"to_whom": "x"}, name="no gifts")


def test_a_pattern_for_several_tools_wants_one_that_has_the_argument() -> None:
    assert harness(TYPED, pay_later, tool="pay*", arguments={"recipient": "x"})
    with pytest.raises(UsageError, match="'iban'"):
        harness(TYPED, pay_later, tool="pay*", arguments={"iban": "x"})
    assert harness(TYPED, tool="*", arguments={"iban": "x"})
    assert harness(TYPED, tool="send", arguments={"iban": "x"}), "the tool is not known"
    assert harness(TYPED, tool="pay", effect="read", arguments={"iban": "x"}), "it is about another effect"


def test_the_tools_of_agents_below_are_known_too() -> None:
    inner = Harness(ScriptedModel(["Hi"]), tools=[TYPED], store="memory")
    middle = Harness(ScriptedModel(["Hi"]), agents=[Subagent(name="payer", harness=inner, description="pays")], store="memory")
    boss = Subagent(name="middle", harness=middle, description="hands on")
    with pytest.raises(UsageError, match="'to_whom'"):
        Harness(
            ScriptedModel(["Hi"]),
            agents=[boss],
            policy=Policy((Rule(tool="pay", verdict="deny", arguments={"to_whom": "x"}),)),
            store="memory",
        )
    also = Policy(also=(Policy((Rule(tool="pay", verdict="deny", arguments={"to_whom": "x"}),)),))
    with pytest.raises(UsageError, match="'to_whom'"):
        Harness(ScriptedModel(["Hi"]), tools=[TYPED], policy=also, store="memory")
