"""What the policy says of a call, for the plan: one function per harness. A harness without rules or approvals has none."""

from collections.abc import Callable

from evener.loop.gate import Judgement
from evener.policy.rules import Policy, decide
from evener.tools.calling import Caller
from evener.tools.toolbox import Toolbox
from evener.transcript.blocks import ToolCall

__all__ = ["judge_of"]


def judge_of(toolbox: Toolbox, caller: Caller, policy: Policy | None) -> Callable[[ToolCall], Judgement] | None:
    """The judge of these tools, or None when everything is allowed anyway."""
    if policy is None and not any(tool.approval for tool in toolbox.values()):
        return None

    def judge(call: ToolCall) -> Judgement:
        tool = toolbox.get(call.name)
        if tool is None:
            return Judgement(digest=caller.digest(call))  # nobody is asked about what is not there; its result says so
        if policy is None:
            why = f"the tool {call.name!r} asks before each call" if tool.approval else ""
            return Judgement("ask" if tool.approval else "allow", why=why, digest=caller.digest(call))
        found = decide(call, effect=tool.effect, approval=tool.approval, policy=policy)
        return Judgement(found.verdict, found.rule, found.reason, caller.digest(call))

    return judge
