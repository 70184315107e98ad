"""What the policy says of a call, for the plan: one function per harness. A harness without rules or approvals has none.

A call is judged as it would run, with the defaults of what the model left out. Nobody is asked about one that cannot run.
"""

from msgspec.structs import replace

from evener.loop.gate import Judge, Judgement
from evener.policy.rules import Policy, decide
from evener.tools.calling import Caller
from evener.tools.defaults import with_defaults
from evener.tools.tool import Tool
from evener.tools.toolbox import Toolbox
from evener.transcript.blocks import ToolCall

__all__ = ["judge_by", "judge_of"]


def judge_of(toolbox: Toolbox, caller: Caller, policy: Policy | None) -> Judge | None:
    """The judge of these tools, or None when everything is allowed anyway."""
    if policy is None and not any(tool.approval for tool in toolbox.values()):
        return None
    return judge_by(toolbox, caller, policy)


def judge_by(toolbox: Toolbox, caller: Caller, policy: Policy | None) -> Judge:
    """The judge of these tools by a policy."""

    def judge(call: ToolCall) -> Judgement:
        tool = toolbox.get(call.name)
        if tool is None:
            return Judgement(digest=caller.digest(call))  # nobody is asked about what is not there; its result says so
        return replace(_judged(tool, call, policy), digest=caller.digest(call))

    return judge


def _judged(tool: Tool, call: ToolCall, policy: Policy | None) -> Judgement:
    if policy is None and not tool.approval:
        return Judgement()
    full = with_defaults(tool, call.raw)
    if policy is None:
        found = Judgement("ask", why=f"the tool {call.name!r} asks before each call")
    else:
        as_run = call if full is None else replace(call, raw=full)
        made = decide(as_run, effect=tool.effect, approval=tool.approval, policy=policy)
        found = Judgement(made.verdict, made.rule, made.reason)
    return Judgement() if full is None and found.verdict == "ask" else found
