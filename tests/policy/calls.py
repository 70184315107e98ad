"""Calls and decisions, for the tests."""

from collections.abc import Mapping

from evener.events import Effect
from evener.policy import Policy, Rule, Ruling, decide
from evener.transcript import ToolCall

__all__ = ["called", "decided", "verdicts"]


def called(name: str, arguments: Mapping[str, object] | None = None) -> ToolCall:
    return ToolCall.of("call-1", name, arguments or {})


def decided(
    policy: Policy,
    name: str,
    arguments: Mapping[str, object] | None = None,
    *,
    effect: Effect = "write",
    approval: bool = False,
) -> Ruling:
    return decide(called(name, arguments), effect=effect, approval=approval, policy=policy)


def verdicts(conditions: Mapping[str, object], arguments: Mapping[str, object]) -> tuple[bool, bool]:
    """Whether a rule that allows, and one that denies, would be about a call with these arguments."""
    allow = Rule(tool="*", verdict="allow", arguments=conditions)  # type: ignore[arg-type]  # any condition, for tables of cases
    deny = Rule(tool="*", verdict="deny", arguments=conditions)  # type: ignore[arg-type]
    return (
        decided(Policy((allow,)), "t", arguments).rule == "rule 1",
        decided(Policy((deny,)), "t", arguments).rule == "rule 1",
    )
