"""The state machine of a run, found by walking it: the plan's steps, and every way that each of them can end.

`transitions` gives what `loop.state` and `loop.plan` really do, for docs/protocol.md and docs/architecture.md. Talks to nobody.
"""

from collections.abc import Iterator
from functools import cache

from evener import events as ev
from evener.loop.plan import (
    ApprovalGate,
    AskApproval,
    CallModel,
    ContinueTurn,
    Extend,
    Finish,
    Judgement,
    RefuseCall,
    RunTool,
    SettleCall,
    Setup,
    Step,
    ToolFacts,
    plan,
)
from evener.loop.state import Limits, RunState, apply
from evener.transcript.blocks import TextBlock, ToolCall
from evener.transcript.message import Message
from evener.transcript.reply import Stop

MOST = 5_000
"""States to look at: far more than there are kinds of them."""
PHASES = ("awaiting_input", "processing", "executing_tools", "waiting", "respond", "error_recovery")
CALL = ToolCall.of("call", "pay", {})
FREE = Setup(models=("model",), tools={"pay": ToolFacts()}, limits=Limits(requests=2, retries=1, corrections=1))
ASKING = Setup(
    models=("model",),
    tools={"pay": ToolFacts()},
    limits=Limits(requests=2, retries=1, corrections=1),
    gate=ApprovalGate(lambda call: Judgement("ask", digest=call.id), frozenset({"output", "step", "limit"})),
)


@cache
def transitions() -> dict[tuple[str, str], list[str]]:
    """From one phase to another: the events that lead there, by name."""
    found: dict[tuple[str, str], set[str]] = {}
    for setup in (FREE, ASKING):
        for before, event, after in _walk(setup):
            if before.phase != after.phase:
                found.setdefault((before.phase, after.phase), set()).add(_name(event))
    order = sorted(found, key=lambda pair: tuple(PHASES.index(phase) for phase in pair))
    return {pair: sorted(found[pair]) for pair in order}


def _walk(setup: Setup) -> Iterator[tuple[RunState, ev.Event, RunState]]:
    first = apply(RunState(), ev.Opened(at=0.0, thread="thread"))
    waiting, seen = [first], {_kind(first)}
    for _ in range(MOST):
        if not waiting:
            return
        state = waiting.pop()
        for event in _events(state, setup):
            after = apply(state, event)
            yield state, event, after
            if _kind(after) not in seen:
                seen.add(_kind(after))
                waiting.append(after)
    raise SystemExit(f"The walk through the states of a run does not end after {MOST} of them.")


def _kind(state: RunState) -> object:
    """What tells two states apart as far as the next step goes."""
    questions = frozenset((one.interrupt, one.decision and one.decision.verdict) for one in state.questions)
    calls = tuple(pending.status for pending in state.calls)
    used = (min(state.used.requests, 2), min(state.failures, 2))
    flags = (state.cancelled is None, state.failure is None, bool(state.steering), state.finished and state.finished.cause)
    reply = state.reply and (state.reply.stop.reason, state.reply.problems)
    return (state.phase, state.asking, calls, questions, used, flags, reply, min(state.corrections, 1))


def _events(state: RunState, setup: Setup) -> Iterator[ev.Event]:
    """Everything that can happen next."""
    yield ev.Prompted(at=0.0, run="run", message=Message.user_text("hi"))
    if not state.run or state.finished is not None:
        if state.finished is not None and state.finished.cause in ("limit", "cancelled", "provider_error"):
            yield ev.Continued(at=0.0, run="run")
        return
    yield ev.Resumed(at=0.0, epoch=1)
    if state.cancelled is None:
        yield ev.Cancelled(at=0.0)
    if not state.steering:
        yield ev.Steered(at=0.0, message=Message.user_text("wait"))
    if state.asking:
        yield from _answers(state)
    for pending in state.calls:
        if pending.status == "started":
            yield from (_finished(), ev.CallPaused(at=0.0, call=CALL.id, thread="inner"))
    for one in state.open_questions:
        yield ev.ApprovalDecided(at=0.0, id=one.approval, key=one.question.key, verdict="allow")
        yield ev.ApprovalDecided(at=0.0, id=one.approval, key=one.question.key, verdict="reject")
    for step in plan(state, setup):
        yield _event_of(step)


def _answers(state: RunState) -> Iterator[ev.Event]:
    id = f"said-{state.used.requests}"
    said = Message("assistant", (TextBlock("yes"),), id=id)
    yield ev.Replied(at=0.0, message=said, stop=Stop("done"))
    yield ev.Replied(at=0.0, message=said, stop=Stop("done"), problems=("no JSON",))
    yield ev.Replied(at=0.0, message=said, stop=Stop("paused"))
    yield ev.Replied(at=0.0, message=Message("assistant", (CALL,), id=id), stop=Stop("tools"))
    yield ev.ModelFailed(at=0.0, error="TimedOut", message="too late", retryable=True)


def _finished() -> ev.CallFinished:
    return ev.CallFinished(at=0.0, call=CALL.id, ok=True)


def _event_of(step: Step) -> ev.Event:
    """How the driver reports a step that it performs."""
    match step:
        case CallModel() | ContinueTurn():
            return ev.ModelCalled(at=0.0, model="model", id="results")
        case RunTool(call):
            return ev.CallStarted(at=0.0, call=call.id, tool=call.name, key="key")
        case SettleCall() | RefuseCall():
            return _finished()
        case AskApproval(interrupt, questions):
            return ev.ApprovalAsked(at=0.0, id="asked", interrupt=interrupt, questions=questions)
        case Extend():
            return ev.Continued(at=0.0, run="run")
        case Finish(cause, detail):
            return ev.Finished(at=0.0, run="run", cause=cause, detail=detail)
        case _:
            raise SystemExit(f"The walk through the states of a run does not know the step {step}.")


def _name(event: ev.Event) -> str:
    match event:
        case ev.Replied():
            return "Replied with calls" if event.message.calls else "Replied"
        case _:
            return type(event).__name__
