"""Decisions about what waits for approval: each is made once, from any process, about exactly what was shown."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from time import time

import msgspec
from msgspec.structs import replace

from evener.errors import ApprovalStale, UsageError
from evener.events import Verdict
from evener.loop.plan import Judge, Judgement
from evener.policy.rules import Policy
from evener.policy.rules import decide as decide_by
from evener.result import Approval, approvals_of
from evener.store.protocol import Note, Store, state_of
from evener.tools.call import Caller, with_defaults
from evener.tools.tool import Tool, Toolbox
from evener.transcript.blocks import ToolCall, check_choice, check_text, json_text

__all__ = ["Bench", "Court", "Decision", "allow_all", "decide", "judge_by", "judge_of", "keyed"]

MOST = 5
"""How many problems with edited arguments are told at once."""


class Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A decision of a user. Edited `arguments` are validated and checked by the policy as if the model had written them.

    With `digest`, the decision counts only for the call that was shown with it. `by` records who decided. For an interrupted
    call: `allow` says that it did not take effect, and runs it; `reject` with a `result` says that it took effect and had this
    result; `reject` alone tells the model that the outcome is unknown.
    """

    verdict: Verdict
    why: str = ""
    arguments: Mapping[str, object] | None = None
    digest: str = ""
    by: str = ""
    result: str | None = None

    def __post_init__(self) -> None:
        check_choice(self.verdict, ("allow", "reject"), "Decision.verdict")
        if self.result is not None:
            check_text(self.result, "Decision.result")
        for name, text in (("why", self.why), ("digest", self.digest), ("by", self.by)):
            check_text(text, f"Decision.{name}")


class Bench(msgspec.Struct, frozen=True):
    """What a call is checked against before a decision about it counts: the current tools, and the policy."""

    toolbox: Toolbox
    judge: Callable[[ToolCall], Judgement]


def judge_of(toolbox: Toolbox, caller: Caller, policy: Policy | None) -> Judge | None:
    """Return the function that judges calls of these tools, or None if every call is allowed."""
    if policy is None and not any(tool.approval or tool.asks for tool in toolbox.values()):
        return None
    return judge_by(toolbox, caller, policy)


def judge_by(toolbox: Toolbox, caller: Caller, policy: Policy | None) -> Judge:
    """Return the function that judges calls of these tools by a policy."""

    def judge(call: ToolCall) -> Judgement:
        tool = toolbox.get(call.name)
        if tool is None:
            return Judgement(digest=caller.digest(call))  # not asked about: its result says that it is not there
        return replace(_judge(tool, call, policy), digest=caller.digest(call))

    return judge


def _judge(tool: Tool, call: ToolCall, policy: Policy | None) -> Judgement:
    asked = _why_asked(tool, call)
    if policy is None and not tool.approval and not asked:
        return Judgement()
    full = with_defaults(tool, call.raw)
    if policy is None:
        found = Judgement("ask", why=asked or f"the tool {call.name!r} asks before each call")
    else:
        as_run = call if full is None else replace(call, raw=full)
        made = decide_by(as_run, effect=tool.effect, approval=tool.approval, policy=policy)
        found = Judgement(made.verdict, made.rule, made.reason)
        if asked and found.verdict != "deny":
            found = Judgement("ask", found.rule, asked)
    return Judgement() if full is None and found.verdict == "ask" else found


def _why_asked(tool: Tool, call: ToolCall) -> str:
    """Return why a call needs approval even if a policy allows it; empty if it does not."""
    given = call.args.get(tool.asks) if tool.asks and call.parses else None
    if not given:
        return ""
    told = [one.get("message") or one.get("code") for one in given if isinstance(one, dict)] if isinstance(given, list) else []
    return f"the model's provider wants a user to confirm it: {'; '.join(str(one) for one in told if one) or given}"


def allow_all(_call: ToolCall) -> Judgement:
    """Allow any call. Used if there is neither a policy nor a tool that requires approval."""
    return Judgement()


Court = Callable[[str], Bench]
"""The bench for the harness of this name: a run inside a call may belong to another one."""


def keyed(approvals: Iterable[Approval]) -> dict[str, Approval]:
    """Return the approvals by key. If two keys are equal, each is prefixed with its thread."""
    found = tuple(approvals)
    often = Counter(one.key for one in found)
    return {one.key if often[one.key] == 1 else f"{one.thread}:{one.key}": one for one in found}


def _check_decisions(decisions: object) -> None:
    """Refuse `decisions` that are not a mapping from keys to decisions."""
    if not isinstance(decisions, Mapping):
        raise UsageError(
            f'`decisions` takes {{key: Decision("allow")}}, by the key of each approval; not {type(decisions).__name__}.'
        )
    for key, one in decisions.items():
        if not isinstance(one, Decision):
            raise UsageError(
                f'The decision about {key!r} is a {type(one).__name__} ({one!r:.40}). Write Decision("allow"), or '
                'Decision("reject", why="...").'
            )


async def decide(store: Store, log: str, decisions: Mapping[str, Decision], *, court: Court) -> None:
    """Decide all approvals that wait in this log and in runs inside its calls, by the key of each (for a call, its id).

    Raises ApprovalStale if one was decided before, has expired, or is about a tool or call that has changed. Runs nothing.
    """
    _check_decisions(decisions)
    waiting = keyed(approvals_of(await state_of(store, log), log))
    _cover(log, waiting, decisions)
    notes: dict[tuple[str, str], list[dict[str, object]]] = {}
    for key, one in waiting.items():  # in the order of the questions: of two who decide, the first to post is the only one
        bench = court((await state_of(store, one.thread)).harness)
        notes.setdefault((one.thread, one.id), []).append(_check(one, decisions[key], bench))
    for (thread, approval), made in notes.items():
        body = msgspec.json.encode({"decisions": made}).decode()
        if not await store.post(thread, Note(f"decide:{approval}", "decide", body)):
            raise ApprovalStale(f"Thread {thread} is already decided. Resume it: the first decision counts.")


def _cover(log: str, waiting: Mapping[str, Approval], decisions: Mapping[str, Decision]) -> None:
    if not waiting:
        raise ApprovalStale(
            f"Nothing waits for a decision in thread {log}: it is already decided, or the run continued or ended."
        )
    gone = sorted(key for key, one in decisions.items() if one.digest and key not in waiting)
    if gone:
        raise ApprovalStale(
            f"{', '.join(gone)} no longer waits in thread {log}: it is already decided. Still waiting: {', '.join(waiting)}."
        )
    if waiting.keys() != decisions.keys():
        missing, unknown = sorted(waiting.keys() - decisions.keys()), sorted(decisions.keys() - waiting.keys())
        parts = [f"missing: {', '.join(missing)}"] * bool(missing) + [f"not asked for: {', '.join(unknown)}"] * bool(unknown)
        raise UsageError(
            f"Give one decision for each approval that waits in thread {log} ({'; '.join(parts)}). Nothing was decided."
        )


def _check(waiting: Approval, decision: Decision, bench: Bench) -> dict[str, object]:
    """Return the decision as it is stored. Raises an error if it is late, has another digest, or does not fit the call."""
    if waiting.expires and waiting.expires < time():
        raise ApprovalStale(f"The deadline for {waiting.key!r} has passed. Resume the thread: Evener asks again.")
    if decision.digest and decision.digest != waiting.digest:
        raise ApprovalStale(f"The decision about {waiting.key!r} has another digest than the call that waits. Check the call.")
    made: dict[str, object] = {
        "id": waiting.id, "key": waiting.key, "verdict": decision.verdict, "why": decision.why, "by": decision.by,
        "kind": "approval_decided",
    }  # fmt: skip
    if waiting.interrupt == "outcome":
        made |= _about_outcome(waiting, decision)
    elif decision.result is not None:
        raise UsageError(f"{waiting.key!r} has not run, so it has no result. Only an interrupted call can be given one.")
    if waiting.call is not None:
        made |= _about_call(waiting, waiting.call, decision, bench)
    elif decision.arguments is not None:
        raise UsageError(f"{waiting.key!r} is not a call, so it has no arguments. Decide without `arguments`.")
    return made


def _about_outcome(waiting: Approval, decision: Decision) -> dict[str, object]:
    if decision.arguments is not None:
        raise UsageError(f"{waiting.key!r} was started already: allow it with the same arguments, or reject it.")
    if decision.result is not None and decision.verdict == "allow":
        raise UsageError(
            f"{waiting.key!r} is allowed, so it runs again and takes no result. Allow it without one, or reject it."
        )
    return {} if decision.result is None else {"result": decision.result}


def _about_call(waiting: Approval, call: ToolCall, decision: Decision, bench: Bench) -> dict[str, object]:
    tool = bench.toolbox.get(call.name)
    if bench.judge(call).digest != waiting.digest:
        if tool is None:
            raise ApprovalStale(f"There is no tool {call.name!r} here. Decide about it with the tools that the run has.")
        raise ApprovalStale(f"The tool {call.name!r} has changed. Resume the thread: Evener asks again.")
    if decision.arguments is None or decision.verdict == "reject":
        return {}
    edited = replace(call, raw=json_text(decision.arguments, "The edited arguments"))
    problems = tool.read(edited.raw) if tool else ()
    if isinstance(problems, tuple) and problems:
        raise UsageError(f"The edited arguments do not fit {call.name!r}: {'; '.join(map(str, problems[:MOST]))}.")
    found = bench.judge(edited)
    if found.verdict == "deny":
        raise UsageError(f"The edited call is denied by the rule {found.rule!r}: {found.why}")
    return {"arguments": edited.raw, "digest": found.digest}
