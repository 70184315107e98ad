"""What to do next, as a function of the state. Pure: there is no other place that decides, at start, after a crash or later.

cancelled                              Finish
calls that were interrupted            RunTool again (read, idempotent), RunTool verifying, AskApproval or SettleCall (write);
                                       a write whose start may still be under way elsewhere is never run, whatever verify says
calls that were not started            RunTool: all at once, or the first if one of the batch is sequential
calls under way                        nothing: they report themselves
the last request failed                CallModel again, after a while or shortened; the next model of the chain; or Finish
an answer without calls                ContinueTurn if the provider paused, CallModel if its form was wrong, else Finish
anything the model has not seen yet    CallModel

Which model is asked: the one of the last request, until the chain or the user's router names another. The router is not asked
about a request that is in the log already.
"""

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import final

import msgspec

from evener import events as ev
from evener.events import ApprovalDecided, Interrupt, LimitHit, Limits, Question, StopCause, ToolFacts
from evener.loop.state import NoRoom, Pending, RunState, exceeded, measure_limits, near, outcome_key
from evener.transcript.ask import HostedTool, ToolSpec
from evener.transcript.blocks import Block, ReasoningBlock, TextBlock, ToolCall

__all__ = [
    "ApprovalGate",
    "AskApproval",
    "CallModel",
    "ContinueTurn",
    "Effect",
    "Extend",
    "FetchMedia",
    "Finish",
    "Judge",
    "Judgement",
    "RefuseCall",
    "RunTool",
    "SettleCall",
    "Setup",
    "Step",
    "ToolFacts",
    "ask_about",
    "ask_outcomes",
    "conclude_call",
    "gate_batch",
    "place_of",
    "plan",
    "release_call",
    "repeat_call",
]


@final
class CallModel(msgspec.Struct, frozen=True):
    """Call the model at this place of the chain. `wait`: seconds to wait first. `notices`: key and text."""

    model: int = 0
    wait: float = 0.0
    notices: tuple[tuple[str, str], ...] = ()


class ContinueTurn(msgspec.Struct, frozen=True):
    """The provider paused its turn: send the turn back unchanged, so that it continues."""

    model: int = 0


class FetchMedia(msgspec.Struct, frozen=True):
    """Fetch media behind a URL before the model is called."""

    url: str


@final
class RunTool(msgspec.Struct, frozen=True):
    """Start a call. `again`: an earlier start was interrupted, and the tool may be repeated with the same key.

    `verifying`: do not run it; ask its `verify` whether the interrupted start took effect. `final`: it is not run whatever
    `verify` returns, because the interrupted start may still take effect. `arguments`: the JSON text of the arguments with
    which a user replaced the model's. `rule`: the rule of the policy that allowed it, if any.
    """

    call: ToolCall
    again: bool = False
    verifying: bool = False
    arguments: str = ""
    rule: str = ""
    final: bool = False

    @property
    def runs(self) -> ToolCall:
        """The call as it runs: the model's own, or with the arguments by which a user replaced the model's."""
        return msgspec.structs.replace(self.call, raw=self.arguments) if self.arguments else self.call


class SettleCall(msgspec.Struct, frozen=True):
    """Give an interrupted call its true result: whether it took effect is unknown, and it is not run again.

    `result`: its result, if a user knows that it took effect. `why`: otherwise, what the user says about it.
    """

    call: ToolCall
    result: str | None = None
    why: str = ""


class AskApproval(msgspec.Struct, frozen=True):
    """Ask a user, who must decide before any of these steps continues."""

    interrupt: Interrupt
    questions: tuple[Question, ...]


class RefuseCall(msgspec.Struct, frozen=True):
    """Give a call its result without running it: a user rejected it, or the policy denies it (`denied`, for this `why`)."""

    call: ToolCall
    text: str
    rule: str = ""
    denied: bool = False
    why: str = ""


class Extend(msgspec.Struct, frozen=True):
    """Continue beyond a limit with fresh limits, as a user allowed."""


class Finish(msgspec.Struct, frozen=True):
    """The run is over. `limit` is the limit that it reached."""

    cause: StopCause
    detail: str = ""
    limit: LimitHit | None = None


Step = CallModel | ContinueTurn | FetchMedia | RunTool | SettleCall | RefuseCall | AskApproval | Extend | Finish


NOT_KEPT = (
    "Not run: its arguments held a secret, or something else that is not stored, and without that it is another call. "
    "Call it again with that kept elsewhere, such as in a file or a variable that the tool reads by itself."
)
LOST = "it was started and then interrupted: whether it took effect is unknown"


class Judgement(msgspec.Struct, frozen=True):
    """The verdict of the policy on a call, and the digest of the call as it would run now."""

    verdict: str = "allow"  # allow, deny, ask
    rule: str = ""
    why: str = ""
    digest: str = ""


ALLOWED = Judgement()
Judge = Callable[[ToolCall], Judgement]


class ApprovalGate(msgspec.Struct, frozen=True):
    """`judge` decides about calls; `interrupts` are the further points that need a decision of a user."""

    judge: Judge | None = None
    interrupts: frozenset[Interrupt] = frozenset()


def gate_batch(state: RunState, gate: ApprovalGate, calls: Iterable[ToolCall], now: float) -> tuple[Step, ...] | None:
    """Return the steps that must come before these calls of the turn may run: questions, or none while a question waits.

    None if the calls may run.
    """
    judge = gate.judge
    if judge is None:
        return None
    judged = [(call, judge(call)) for call in calls if not call.redacted]  # else it will not run, whatever anybody says
    asking = [(call, found) for call, found in judged if found.verdict == "ask"]
    missing = [
        Question(call.id, found.digest, found.why, found.rule)
        for call, found in asking
        if _is_unsettled(state, call.id, found.digest, now)
    ]
    if missing:
        return (AskApproval("tool", tuple(missing)),)
    waits = any((waiting := state.waiting_for(call.id)) is not None and waiting.decision is None for call, _ in asking)
    return () if waits else None


def release_call(pending: Pending, state: RunState, gate: ApprovalGate) -> Step:
    """Return the step for a call that nothing holds back any more."""
    call = pending.call
    if call.redacted:
        return RefuseCall(call, NOT_KEPT)
    decision = _decision(state, call.id) if state.questions else None
    runs = msgspec.structs.replace(call, raw=decision.arguments) if decision and decision.arguments else call
    found = gate.judge(runs) if gate.judge else ALLOWED  # what would run: rules may have changed since it was decided
    if found.verdict == "deny":
        why = (found.why or "not allowed").rstrip(".")
        text = f"Denied{f' by the rule {found.rule!r}' if found.rule else ''}: {why}."
        return RefuseCall(call, text, found.rule, denied=True, why=why)
    if decision is not None and decision.arguments and decision.digest != found.digest and gate.judge:
        return RefuseCall(call, "ApprovalStale: what was decided is not what would run now. Ask for it again.", found.rule)
    if decision is not None and decision.verdict == "reject":
        why = f": {decision.why}" if decision.why else "."
        return RefuseCall(call, f"ApprovalRejected{why}", found.rule)
    return RunTool(call, bool(pending.key), False, decision.arguments if decision else "", found.rule)


def repeat_call(pending: Pending, state: RunState, gate: ApprovalGate, *, verifying: bool, final: bool = False) -> Step:
    """Return the step for an interrupted call that may be started again, or asked about: as it was decided, if it still may
    run.
    """
    step = release_call(pending, state, gate)
    if isinstance(step, RunTool):
        return msgspec.structs.replace(step, again=True, verifying=verifying, final=final)
    return SettleCall(pending.call)  # it must not run by now, and may have taken effect


def ask_outcomes(state: RunState, gate: ApprovalGate, calls: Iterable[ToolCall], now: float) -> tuple[Step, ...] | None:
    """Return what must happen before anything is made of these interrupted calls: ask what became of them, or wait. None:
    nothing.
    """
    if "outcome" not in gate.interrupts:
        return None
    lost = [(outcome_key(call.id), gate.judge(call).digest if gate.judge else "") for call in calls]
    missing = tuple(Question(key, digest, LOST) for key, digest in lost if _is_unsettled(state, key, digest, now))
    if missing:
        return (AskApproval("outcome", missing),)
    return () if any(_decision(state, key) is None for key, _ in lost) else None


def conclude_call(pending: Pending, state: RunState, gate: ApprovalGate) -> Step:
    """Return the step for an interrupted call that is not repeated by itself: what was decided, or an honest result."""
    decision = _decision(state, outcome_key(pending.call.id))
    if decision is None:
        return SettleCall(pending.call)
    if decision.verdict == "allow":
        return release_call(pending, state, gate)
    return SettleCall(pending.call, decision.result, decision.why)


def _decision(state: RunState, key: str) -> ApprovalDecided | None:
    waiting = state.waiting_for(key)
    return waiting.decision if waiting else None


def ask_about(
    state: RunState,
    gate: ApprovalGate,
    interrupt: Interrupt,
    key: str,
    *,
    why: str,
    now: float,
    limit: LimitHit | None = None,
) -> tuple[Step, ...] | ApprovalDecided | None:
    """Return a question that is not about a call: the step that asks it, no step while it waits, or the decision.

    None: no user is asked.
    """
    if interrupt not in gate.interrupts:
        return None
    if _is_unsettled(state, key, key, now):
        return (AskApproval(interrupt, (Question(key, key, why, limit=limit),)),)
    waiting = state.waiting_for(key)
    return waiting.decision if waiting is not None and waiting.decision is not None else ()


def _is_unsettled(state: RunState, key: str, digest: str, now: float) -> bool:
    """True if it must be asked (again)."""
    waiting = state.waiting_for(key)
    if waiting is None or waiting.question.digest != digest:
        return True
    return waiting.decision is None and 0.0 < waiting.expires < now


Effect = ev.Effect

WAITS = (0.5, 2.0, 8.0, 30.0)
"""Seconds before the first, second, ... further try of one model, unless the provider says how long."""
LONGEST_WAIT = 120.0
OVERFLOWS = 3
"""How often in a row a conversation that is too long is shortened and sent again."""

ENDS: dict[str, ev.StopCause] = {"refusal": "refusal", "length": "length", "context_full": "length", "cancelled": "unexpected"}


UNKNOWN = ToolFacts()
"""A tool that is not there any more cannot be repeated: its facts are the careful ones."""


class Setup(msgspec.Struct, frozen=True):
    """The values that do not change during a run. `models` is the chain, the preferred one first.

    `fetches`: for each model, whether it needs media behind a URL as bytes. `shortens`: a conversation that a provider
    refuses as too long is shortened before the next request. `choose` calls the user's router for the model of a new
    request, with the model that would be called otherwise.
    """

    models: tuple[str, ...]
    tools: Mapping[str, ToolFacts] = {}
    limits: Limits = Limits()
    fetches: tuple[bool, ...] = ()
    gate: ApprovalGate = ApprovalGate()
    shortens: bool = False
    choose: Callable[[RunState, str], str] | None = None

    def is_write(self, tool: str) -> bool:
        """True if there is such a tool, and running it changes something."""
        facts = self.tools.get(tool)
        return facts is not None and facts.effect == "write"

    def may_write(self, tool: str) -> bool:
        """True if running it changes something, or there is no such tool any more."""
        return self.tools.get(tool, UNKNOWN).effect == "write"


Declared = ToolSpec | HostedTool


class ToolOffer:
    """The tools that requests declare if some are hidden: all others, and those that were revealed, in the usual order."""

    def __init__(self, specs: tuple[Declared, ...], hidden: frozenset[str]) -> None:
        self._specs = specs
        self._hidden = hidden
        self._last: tuple[frozenset[str], tuple[Declared, ...]] | None = None

    @classmethod
    def of(cls, specs: tuple[Declared, ...], facts: Mapping[str, ToolFacts]) -> "ToolOffer | None":
        """Return the offer; None if no tool is hidden."""
        hidden = frozenset(name for name, one in facts.items() if one.hidden)
        return cls(specs, hidden) if hidden else None

    def at(self, revealed: frozenset[str]) -> tuple[Declared, ...]:
        """Return the tools; the same tuple as long as no more are revealed."""
        if self._last is None or self._last[0] != revealed:
            still = self._hidden - revealed
            self._last = (revealed, tuple(spec for spec in self._specs if spec.name not in still))
        return self._last[1]


def plan(state: RunState, setup: Setup, now: float = 0.0, *, full: NoRoom | None = None) -> tuple[Step, ...]:
    """Return the steps to perform now; several only where they may run at the same time.

    Empty: wait for what is under way, or for a decision. `now` tells whether the time to decide is over. `full` is the limit
    that left no room for what was planned, if the driver found one.
    """
    if not state.run or state.finished is not None or state.asking:
        return ()
    if state.cancelled is not None:
        under_way = any(pending.status == "started" for pending in state.calls)
        return () if under_way else (Finish("cancelled", state.cancelled),)
    if full:
        return _at_limit(state, setup, full, now)
    for pending in state.calls:
        if pending.status != "finished":
            return _tools(state, setup, now)
    if state.retries and (spent_tool := _spent_tool(state, setup)):
        return (Finish("tool_retries", f"The model did not get a call to {spent_tool!r} right within its retries."),)
    if state.failure is not None:
        return _after_failure(state, setup, now)
    if state.reply is not None and state.reply.problems and state.corrections >= setup.limits.corrections:
        return (Finish("output_retries", f"The form of the answer stayed wrong. {state.reply.problems[0]}"),)
    if state.reply is not None and state.is_answered and not state.steering:
        return _after_answer(state, setup, state.reply, now)
    return _ask(state, setup, now=now)


def _tools(state: RunState, setup: Setup, now: float) -> tuple[Step, ...]:
    fresh, sequential = True, False
    wanted: list[ToolCall] = []
    lost: list[ToolCall] = []
    for pending in state.calls:
        facts = setup.tools.get(pending.call.name, UNKNOWN)
        fresh = fresh and pending.status == "asked"
        sequential = sequential or facts.sequential
        if pending.status == "interrupted" and _is_unclear(facts):
            lost.append(pending.call)
        elif pending.status in ("asked", "interrupted") and not _is_foreign(pending, facts):
            wanted.append(pending.call)
    over = _over_the_top(state, setup, now) if fresh else None
    if over is not None:
        return over
    held = ask_outcomes(state, setup.gate, lost, now) if lost else None
    if held is None:
        held = gate_batch(state, setup.gate, wanted, now)
    if held is not None:
        return held
    steps: list[Step] = []
    for pending in state.calls:
        steps += _start(pending, state, setup)
        if sequential and pending.status != "finished":
            break
    return tuple(steps)


def _over_the_top(state: RunState, setup: Setup, now: float) -> tuple[Step, ...] | None:
    """Return the steps to take instead of these calls, if they exceed the limit or repeat one call too often; else None."""
    limit = setup.limits.tool_calls
    if limit is not None and state.used.tool_calls > limit:
        asked = f"{len(state.calls)} more tool call{'s' if len(state.calls) > 1 else ''}"
        why = f"The model asked for {asked}, and only {limit} are allowed; none of these was run."
        return _at_limit(state, setup, NoRoom(why, LimitHit("tool_calls", limit, state.used.tool_calls)), now)
    if state.repeat[1] >= setup.limits.repeats_stop:
        names = ", ".join(pending.call.name for pending in state.calls)
        return (Finish("repeated", f"The model made the same call {state.repeat[1]} times in a row: {names}."),)
    return None


def _start(pending: Pending, state: RunState, setup: Setup) -> tuple[Step, ...]:
    if pending.status == "asked":
        return (release_call(pending, state, setup.gate),)
    if pending.status != "interrupted":
        return ()
    facts = setup.tools.get(pending.call.name, UNKNOWN)
    if _is_unclear(facts):
        return (conclude_call(pending, state, setup.gate),)
    return (repeat_call(pending, state, setup.gate, verifying=facts.verifies, final=_is_foreign(pending, facts)),)


def _is_unclear(facts: ToolFacts) -> bool:
    """True if it is unknown what became of an interrupted call, and it must not simply be run again."""
    return facts.effect == "write" and not facts.verifies


def _is_foreign(pending: Pending, facts: ToolFacts) -> bool:
    """True if the call belongs to another branch or holder: it can be found out about here, and not be run."""
    return pending.abroad and facts.effect == "write"


def _spent_tool(state: RunState, setup: Setup) -> str:
    """Return the tool whose retry budget is used up; empty when there is none."""
    return next((name for name, used in state.retries if used > setup.tools.get(name, UNKNOWN).retries), "")


def _after_failure(state: RunState, setup: Setup, now: float) -> tuple[Step, ...]:
    place, failure = place_of(state, setup), state.failure
    if failure is None:
        return ()
    if failure.stale:  # with the next request the provider gets everything: it cannot fail like this again
        return _ask(state, setup, place=place, now=now)
    if _may_shorten(failure, setup) and state.failures <= OVERFLOWS:
        return _ask(state, setup, place=place, now=now)
    if failure.retryable and state.failures <= setup.limits.retries and failure.retry_after <= LONGEST_WAIT:
        wait = failure.retry_after or WAITS[min(state.failures, len(WAITS)) - 1]
        return _ask(state, setup, place=place, wait=wait, now=now)
    if failure.elsewhere and place + 1 < len(setup.models):
        return _ask(state, setup, place=place + 1, now=now)
    return (Finish("provider_error", f"{failure.error}: {failure.message}"),)


def _may_shorten(failure: ev.ModelFailed, setup: Setup) -> bool:
    """True if the conversation was too long, and something may still be taken out of it."""
    return setup.shortens and failure.error == "ContextTooLong" and not failure.crowded


def _after_answer(state: RunState, setup: Setup, reply: ev.Replied, now: float) -> tuple[Step, ...]:
    if reply.stop.reason in ("paused", "pending"):
        over = exceeded(measure_limits(setup.limits, state.used))
        return _at_limit(state, setup, over, now) if over else (ContinueTurn(place_of(state, setup)),)
    if reply.problems:
        more = tuple(("", problem) for problem in reply.problems)
        return _ask(state, setup, more=more, now=now)
    found = ask_about(state, setup.gate, "output", f"output:{reply.message.id}", why="the final answer", now=now)
    if isinstance(found, tuple):
        return found
    if found is not None and found.verdict == "reject":
        more = (("", f"The answer was not accepted. {found.why}"),)
        return _ask(state, setup, more=more, now=now)
    if reply.stop.reason == "other" and _is_silent(reply.message.blocks):
        return (Finish("unexpected", f"The model gave no answer ({reply.stop.detail or reply.stop.raw})."),)
    return (Finish(ENDS.get(reply.stop.reason, "done"), reply.ended or reply.stop.detail),)


def _is_silent(blocks: Iterable[Block]) -> bool:
    """True if an answer holds neither text nor anything else that is meant for the user."""
    return all(type(block) is ReasoningBlock or (type(block) is TextBlock and not block.text.strip()) for block in blocks)


def _at_limit(state: RunState, setup: Setup, full: NoRoom, now: float) -> tuple[Step, ...]:
    """Stop, or ask whether to go on."""
    key = f"limit:{state.spent.requests}:{state.spent.tool_calls}"
    found = ask_about(state, setup.gate, "limit", key, why=full.why, now=now, limit=full.hit)
    if isinstance(found, tuple):
        return found
    if found is not None and found.verdict == "allow":
        return (Extend(),)
    return (Finish("limit", full.why, full.hit),)


def _ask(
    state: RunState,
    setup: Setup,
    *,
    place: int | None = None,
    wait: float = 0.0,
    more: tuple[tuple[str, str], ...] = (),
    now: float,
) -> tuple[Step, ...]:
    """Ask the model at this place of the chain; None: the one whose turn it is."""
    measures = measure_limits(setup.limits, state.used)
    over = exceeded(measures)
    if over:
        return _at_limit(state, setup, over, now)
    found = ask_about(state, setup.gate, "step", f"step:{state.spent.requests}", why="another request", now=now)
    if isinstance(found, tuple):
        return found
    if found is not None and found.verdict == "reject":
        return (Finish("cancelled", found.why or "The step was rejected."),)
    place = _choose(state, setup) if place is None else place
    if state.wanted and place < len(setup.fetches) and setup.fetches[place]:
        have = dict(state.media)
        missing = tuple(FetchMedia(url) for url in state.wanted if url not in have)
        if missing:
            return missing
    notices = near(measures, setup.limits.warn_at)
    calls, times = state.repeat
    if times >= setup.limits.repeats:
        text = f"You have made the same call {times} times in a row with the same result. Do something else, or answer."
        notices.append((f"repeat:{sha256(calls.encode()).hexdigest()[:16]}", text))
    if notices:
        more += tuple(notice for notice in notices if notice[0] not in state.told)
    return (CallModel(place, wait, more),)


def _choose(state: RunState, setup: Setup) -> int:
    """Return the place of the model for the next request. One that was announced and has no answer keeps its model."""
    place = place_of(state, setup)
    announced = state.model in setup.models and state.reply is None and not state.steering
    if setup.choose is None or announced:
        return place
    return setup.models.index(setup.choose(state, setup.models[place]))


def place_of(state: RunState, setup: Setup) -> int:
    """Return where in the chain the model stands that was asked last. A run begins with the preferred one."""
    return setup.models.index(state.model) if state.model in setup.models else 0
