"""Who must be asked before what. Pure: verdicts come from a function of the call, decisions from the state.

The whole batch of calls waits for its decisions. A question is bound to a digest of exactly what is asked: when the tool or
its schema has changed since, or the time to decide is over, it is asked again.
"""

from collections.abc import Callable, Iterable

import msgspec

from evener.events import ApprovalDecided, Interrupt, Question
from evener.loop.state import Pending, State, outcome_key
from evener.loop.steps import AskApproval, RefuseCall, RunTool, SettleCall, Step
from evener.transcript.blocks import ToolCall

__all__ = ["Gate", "Judge", "Judgement", "asked_about", "batch", "concluded", "outcomes", "released", "repeated"]

NOT_KEPT = (
    "Not run: its arguments held a secret, or something else that is not stored, and without that it is another call. "
    "Call it again with that kept elsewhere, such as in a file or a variable that the tool reads by itself."
)
LOST = "it was started and then interrupted: nobody knows whether it took effect"


class Judgement(msgspec.Struct, frozen=True):
    """What the policy says of a call, and the digest of the call as it would run now."""

    verdict: str = "allow"  # allow, deny, ask
    rule: str = ""
    why: str = ""
    digest: str = ""


ALLOWED = Judgement()
Judge = Callable[[ToolCall], Judgement]


class Gate(msgspec.Struct, frozen=True):
    """`judge` decides about calls; `interrupts` are the further points at which somebody is asked."""

    judge: Judge | None = None
    interrupts: frozenset[Interrupt] = frozenset()


def batch(state: State, gate: Gate, calls: Iterable[ToolCall], now: float) -> tuple[Step, ...] | None:
    """What must happen before these calls of the turn may run: ask, or wait (no step). None: they may."""
    judge = gate.judge
    if judge is None:
        return None
    judged = [(call, judge(call)) for call in calls if not call.redacted]  # else it will not run, whatever anybody says
    asking = [(call, found) for call, found in judged if found.verdict == "ask"]
    missing = [
        Question(call.id, found.digest, found.why, found.rule)
        for call, found in asking
        if _unsettled(state, call.id, found.digest, now)
    ]
    if missing:
        return (AskApproval("tool", tuple(missing)),)
    waits = any((waiting := state.waiting_for(call.id)) is not None and waiting.decision is None for call, _ in asking)
    return () if waits else None


def released(pending: Pending, state: State, gate: Gate) -> Step:
    """The step for a call that nothing holds back any more."""
    call = pending.call
    if call.redacted:
        return RefuseCall(call, NOT_KEPT)
    decision = _decision(state, call.id) if state.questions else None
    runs = msgspec.structs.replace(call, raw=decision.arguments) if decision and decision.arguments else call
    found = gate.judge(runs) if gate.judge else ALLOWED  # what would run: rules may have changed since it was decided
    if found.verdict == "deny":
        return RefuseCall(
            call,
            f"Denied{f' by the rule {found.rule!r}' if found.rule else ''}: {(found.why or 'not allowed').rstrip('.')}.",
            found.rule,
        )
    if decision is not None and decision.arguments and decision.digest != found.digest and gate.judge:
        return RefuseCall(call, "ApprovalStale: what was decided is not what would run now. Ask for it again.", found.rule)
    if decision is not None and decision.verdict == "reject":
        why = f": {decision.why}" if decision.why else "."
        return RefuseCall(call, f"ApprovalRejected{why}", found.rule)
    return RunTool(call, bool(pending.key), False, decision.arguments if decision else "", found.rule)


def repeated(pending: Pending, state: State, gate: Gate, *, verifying: bool, final: bool = False) -> Step:
    """The step for an interrupted call that may be started again, or asked about: as it was decided, if it still may run."""
    step = released(pending, state, gate)
    if isinstance(step, RunTool):
        return msgspec.structs.replace(step, again=True, verifying=verifying, final=final)
    return SettleCall(pending.call)  # it must not run by now, and may have taken effect


def outcomes(state: State, gate: Gate, calls: Iterable[ToolCall], now: float) -> tuple[Step, ...] | None:
    """What must happen before anything is made of these interrupted calls: ask what became of them, or wait. None: nothing."""
    if "outcome" not in gate.interrupts:
        return None
    lost = [(outcome_key(call.id), gate.judge(call).digest if gate.judge else "") for call in calls]
    missing = tuple(Question(key, digest, LOST) for key, digest in lost if _unsettled(state, key, digest, now))
    if missing:
        return (AskApproval("outcome", missing),)
    return () if any(_decision(state, key) is None for key, _ in lost) else None


def concluded(pending: Pending, state: State, gate: Gate) -> Step:
    """The step for an interrupted call that is not repeated by itself: what was decided, or an honest result."""
    decision = _decision(state, outcome_key(pending.call.id))
    if decision is None:
        return SettleCall(pending.call)
    if decision.verdict == "allow":
        return released(pending, state, gate)
    return SettleCall(pending.call, decision.result, decision.why)


def _decision(state: State, key: str) -> ApprovalDecided | None:
    waiting = state.waiting_for(key)
    return waiting.decision if waiting else None


def asked_about(
    state: State, gate: Gate, interrupt: Interrupt, key: str, *, why: str, now: float
) -> tuple[Step, ...] | ApprovalDecided | None:
    """A question that is not about a call: the step that asks it, no step while it waits, or the decision.

    None: nobody is asked.
    """
    if interrupt not in gate.interrupts:
        return None
    if _unsettled(state, key, key, now):
        return (AskApproval(interrupt, (Question(key, key, why),)),)
    waiting = state.waiting_for(key)
    return waiting.decision if waiting is not None and waiting.decision is not None else ()


def _unsettled(state: State, key: str, digest: str, now: float) -> bool:
    """Whether it must be asked (again)."""
    waiting = state.waiting_for(key)
    if waiting is None or waiting.question.digest != digest:
        return True
    return waiting.decision is None and 0.0 < waiting.expires < now
