"""Folds events into State. Pure: no I/O, no clock. Each event costs the same, however long the log is.

awaiting_input --Prompted--> processing --Replied with calls--> executing_tools --all finished--> processing
     ^                        |    ^                                   |
     |                        |    +--ModelFailed: error_recovery      +--a decision is needed: waiting
     +--Finished-- respond <--+ Replied without calls
"""

from collections.abc import Callable, Container, Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, assert_never, final

import msgspec
from msgspec.structs import replace

from evener import events as ev
from evener.context.view import ContextView, edit_view
from evener.encodings.forms import FINAL_RESULT
from evener.events import LimitHit, Limits, Nested
from evener.transcript.ask import ModelSettings
from evener.transcript.blocks import DocumentBlock, ImageBlock, Remote, TextBlock, ToolCall, ToolResult
from evener.transcript.message import Message
from evener.transcript.reply import Usage
from evener.transcript.transcript import Transcript

__all__ = [
    "Limits",
    "NoRoom",
    "Pending",
    "Phase",
    "RunState",
    "Spent",
    "Standing",
    "Waiting",
    "apply",
    "exceeded",
    "fold",
    "hold_failure",
    "hold_fork",
    "hold_reply",
    "hold_request",
    "measure_limits",
    "near",
    "outcome_key",
    "standing_of",
]


class Spent(msgspec.Struct, frozen=True):
    """The usage of a run. `exact` is False if a price was unknown, so that the cost is a lower bound; and if a request was
    abandoned: if the cost is limited, its upper bound is charged.
    """

    requests: int = 0
    tool_calls: int = 0
    usage: Usage = Usage()
    cost: Decimal = Decimal(0)
    exact: bool = True
    seconds: float = 0.0

    def with_nested(self, nested: Nested, counted: Nested | None = None) -> "Spent":
        """Return the usage including that of the runs inside a call. `counted` is the part of it that was counted before."""
        before = counted or UNCOUNTED
        return Spent(
            self.requests + nested.requests - before.requests,
            self.tool_calls + nested.tool_calls - before.tool_calls,
            self.usage + (_less(nested.usage, before.usage) if counted else nested.usage),
            self.cost + nested.cost - before.cost,
            self.exact and nested.exact,
            self.seconds,
        )

    def since(self, earlier: "Spent") -> "Spent":
        """Return what was used after another point of the same run."""
        return Spent(
            self.requests - earlier.requests,
            self.tool_calls - earlier.tool_calls,
            _less(self.usage, earlier.usage),
            self.cost - earlier.cost,
            self.exact,
            self.seconds - earlier.seconds,
        )


UNCOUNTED = Nested()


def _less(ours: Usage, theirs: Usage) -> Usage:
    return Usage(
        ours.input_total - theirs.input_total,
        ours.uncached - theirs.uncached,
        ours.cache_read - theirs.cache_read,
        ours.cache_write - theirs.cache_write,
        ours.output_total - theirs.output_total,
        ours.reasoning - theirs.reasoning,
    )


@final
class NoRoom(msgspec.Struct, frozen=True):
    """A limit leaves no room for the next step: `why` is a sentence, `hit` the same in numbers.

    `final`: no decision can allow more here, because it is the limit of an outer run, or too small for any answer.
    """

    why: str
    hit: LimitHit
    final: bool = False

    @property
    def money(self) -> bool:
        """True if the limit is on the cost: there may be room when other calls settle what they hold."""
        return self.hit.which == "cost"


Measure = tuple[ev.LimitName, str, ev.Amount, ev.Amount]
"""Of a limit that there is: its key, its name for people, how much is allowed, and how much is used."""


def measure_limits(limits: Limits, spent: Spent) -> list[Measure]:
    """Return how much is used of each limit that there is."""
    found: list[Measure] = []
    if limits.requests is not None:
        found.append(("requests", "model requests", limits.requests, spent.requests))
    if limits.tool_calls is not None:
        found.append(("tool_calls", "tool calls", limits.tool_calls, spent.tool_calls))
    if limits.input_tokens is not None:
        found.append(("input_tokens", "input tokens", limits.input_tokens, spent.usage.input_total))
    if limits.output_tokens is not None:
        found.append(("output_tokens", "output tokens", limits.output_tokens, spent.usage.output_total))
    if limits.cost is not None:
        found.append(("cost", "US dollars", limits.cost, spent.cost))
    if limits.seconds is not None:
        found.append(("seconds", "seconds", limits.seconds, spent.seconds))
    return found


def exceeded(measures: Iterable[Measure]) -> NoRoom | None:
    """Return the first limit that leaves no room for another model request; None when there is room."""
    for key, name, limit, used in measures:
        if used >= limit and key != "tool_calls":
            return NoRoom(
                f"The run has used {_format_amount(used)} of {_format_amount(limit)} {name}.", LimitHit(key, limit, used)
            )
    return None


def near(measures: Iterable[Measure], warn_at: float) -> list[tuple[str, str]]:
    """Return key and sentence for each limit of which at least the share `warn_at` is used."""
    found = []
    for key, name, limit, used in measures:
        if float(used) >= warn_at * float(limit):
            left = limit - used if limit > used else 0  # type: ignore[operator] # both are of one kind
            found.append(
                (f"near:{key}", f"Only {_format_amount(left)} of {_format_amount(limit)} {name} are left. Come to an end soon.")
            )
    return found


def _format_amount(value: ev.Amount) -> str:
    match value:
        case int():
            return str(value)
        case Decimal():
            return f"{value:.4f}".rstrip("0").rstrip(".")
        case _:
            return f"{value:.1f}".removesuffix(".0")


Health = Literal["good", "unsure", "forked", "lost", "refused"]


class Standing(msgspec.Struct, frozen=True):
    """What the provider of one model stores. `message` is the last message in it; empty if none of ours is.

    `unsure`: a request to a conversation got no answer, so its content is unknown. `forked`: another branch uses it. `lost`:
    the provider says that it is gone; `why` has the provider's words. `refused`: the provider stores nothing for this
    account.
    """

    model: str
    held: ev.Held
    message: str = ""
    health: Health = "good"
    why: str = ""


Standings = tuple[Standing, ...]


def standing_of(standings: Standings, model: str) -> Standing | None:
    """Return the standing of this model, if there is one."""
    return next((one for one in standings if one.model == model), None)


def hold_request(standings: Standings, event: ev.ModelCalled, rests: ev.Held) -> Standings:
    """Return the standings after a request that uses provider-side state.

    What it adds to a conversation may be stored, even if no answer arrives.
    """
    known = standing_of(standings, event.model)
    if known is None or known.held.id != rests.id:
        known = Standing(event.model, rests)  # the user named it
    return _with(standings, replace(known, health="unsure") if rests.mode == "conversation" else known)


def hold_reply(standings: Standings, model: str, event: ev.Replied, held: ev.Held) -> Standings:
    """Return what the provider stores after an answer that it keeps."""
    return _with(standings, Standing(model, held, event.message.id))


def hold_failure(standings: Standings, model: str, event: ev.ModelFailed) -> Standings:
    """Return what the provider stores after a request that failed."""
    known = standing_of(standings, model)
    if event.stale:
        known = known or Standing(model, ev.Held("chain", ""))
        return _with(standings, replace(known, health=event.stale, why=event.message))
    if event.untaken and known is not None and known.health == "unsure":
        return _with(standings, replace(known, health="good"))
    return standings


def hold_fork(standings: Standings) -> Standings:
    """Return what the provider stores for a fork: chains continue from the fork; conversations belong to the parent branch."""
    left = tuple(replace(one, health="forked") if one.held.mode == "conversation" else one for one in standings)
    return _with(left, Standing("", ev.Held("conversation", ""), health="forked"))


def _with(standings: Standings, new: Standing) -> Standings:
    return (*(one for one in standings if one.model != new.model), new)


Phase = Literal["awaiting_input", "processing", "executing_tools", "waiting", "respond", "error_recovery"]
Status = Literal["asked", "started", "paused", "interrupted", "finished"]

NOTHING = Spent()
MOVED_ON = "Not run: the user went on before this call was started."
ACCEPTED = "Accepted."
RECEIVED = "Received."
LEFT_OPEN = "Interrupted: it is not known whether this call took effect, and the user went on."


class Pending(msgspec.Struct, frozen=True):
    """One call of the last answer, and its progress.

    `here`: it was started on this branch. `source` is the branch that started it before this one was forked. `abroad`: that
    start may still be running out of sight of this branch: on the branch that started it, or with an earlier lease holder
    whose death was not seen. `nested` is the usage of the runs inside it, as far as it was counted.
    """

    call: ToolCall
    status: Status = "asked"
    result: ev.CallFinished | None = None
    key: str = ""
    inner: tuple[ev.InnerQuestion, ...] = ()
    here: bool = False
    source: str = ""
    abroad: bool = False
    nested: ev.Nested | None = None


class Waiting(msgspec.Struct, frozen=True):
    """A question of this turn, and its decision if there is one."""

    approval: str
    interrupt: ev.Interrupt
    question: ev.Question
    expires: float = 0.0
    decision: ev.ApprovalDecided | None = None


class RunState(msgspec.Struct, frozen=True):
    """Everything on which the next step depends. `calls` are those of the last answer, in the model's order."""

    thread: str = ""
    harness: str = ""
    config: ev.Configured | None = None
    transcript: Transcript = Transcript()
    run: str = ""
    calls: tuple[Pending, ...] = ()
    steering: tuple[Message, ...] = ()
    reply: ev.Replied | None = None
    asking: str = ""  # the model that was asked and has not answered
    most: Decimal = Decimal(0)  # what that may cost at most, where money is limited
    model: str = ""  # the model that was asked last
    failure: ev.ModelFailed | None = None
    failures: int = 0  # of the model asked last, in a row
    corrections: int = 0
    spent: Spent = NOTHING
    allowed_from: Spent = NOTHING  # the allowance counts from here
    granted_from: Spent | None = None  # where it counted from before a person allowed to go on beyond a limit
    told: frozenset[str] = frozenset()  # keys of notices
    retries: tuple[tuple[str, int], ...] = ()  # per tool, in this run
    repeat: tuple[str, int] = ("", 0)  # the last batch of calls as the model wrote them, how often it came in a row
    media: tuple[tuple[str, str], ...] = ()  # URL and digest
    wanted: tuple[str, ...] = ()  # URLs of media in what the user said
    questions: tuple[Waiting, ...] = ()
    cancelled: str | None = None
    refused: bool = False  # a hook did not let the prompt pass: the run has nothing to do
    finished: ev.Finished | None = None
    epoch: int = 0
    last: float = 0.0  # the time of the last event
    held: tuple[Standing, ...] = ()  # what providers hold of the conversation
    context: ContextView | None = None  # what requests hold of it, where that is not all
    settings: ModelSettings | None = None  # of this run alone
    metadata: str = ""  # the caller's own, of this run
    turns: int = 0  # answers in this run
    revealed: frozenset[str] = frozenset()  # hidden tools that requests declare

    @property
    def view(self) -> Transcript:
        """The conversation as requests contain it."""
        context = self.context
        return self.transcript if context is None or context.transcript is None else context.transcript

    @property
    def phase(self) -> Phase:
        """The status of the run, for display."""
        if not self.run or self.finished is not None:
            return "awaiting_input"
        if self.open_questions or any(pending.status == "paused" for pending in self.calls):
            return "waiting"
        if any(pending.status != "finished" for pending in self.calls):
            return "executing_tools"
        if self.failure is not None:
            return "error_recovery"
        if self.is_answered and not self.asking:
            return "respond"
        return "processing"

    @property
    def is_answered(self) -> bool:
        """True if the model's last answer leaves nothing to run."""
        reply = self.reply
        return reply is not None and (not self.calls or bool(reply.output or reply.ended))

    @property
    def open_questions(self) -> tuple[Waiting, ...]:
        """The questions to decide before the run can continue."""
        return tuple(one for one in self.questions if one.decision is None)

    def waiting_for(self, key: str) -> Waiting | None:
        """Return the question of this key, decided or not."""
        for one in self.questions:
            if one.question.key == key:
                return one
        return None

    @property
    def used(self) -> Spent:
        """The usage that counts toward the limits."""
        return self.spent if self.allowed_from is NOTHING else self.spent.since(self.allowed_from)

    @property
    def most_spent(self) -> Spent:
        """The usage if the present request were abandoned: its upper bound is charged, because its cost stays unknown."""
        return replace(self.spent, cost=self.spent.cost + self.most, exact=False) if self.asking else self.spent


def outcome_key(call: str) -> str:
    """Return the key of the question what became of this call. It is not the call's id: that one asks whether it may run at
    all.
    """
    return f"outcome:{call}"


def fold(events: Iterable[ev.Event], state: RunState | None = None) -> RunState:
    """Return the state after these events, from the beginning or from an earlier state on."""
    state = state or RunState()
    for event in events:
        state = apply(state, event)
    return state


def apply(state: RunState, event: ev.Event) -> RunState:
    """Return the state after one more event. The four of every turn are found by their class: a pattern looks further."""
    made = _OF_EVERY_TURN.get(type(event), _apply_rare)(state, event)
    context = state.context
    if context is not None and made.context is not None and made.transcript is not state.transcript:
        return replace(made, context=made.context.grow(state.transcript, made.transcript))
    return made


Shortening = ev.Evicted | ev.Compacted | ev.CompactionFailed | ev.ContextRestored | ev.Pinned
Preparing = ev.Opened | ev.Configured | ev.Imported | ev.MediaFetched
Words = ev.Prompted | ev.Continued | ev.Steered | ev.Finished | ev.Cancelled | ev.Resumed
RareEvent = ev.CallPaused | ev.ApprovalAsked | ev.ApprovalDecided | ev.ModelFailed | Words | Shortening | Preparing
OfEveryTurn = ev.ModelCalled | ev.Replied | ev.CallStarted | ev.CallFinished

if TYPE_CHECKING:

    def _classify(event: ev.Event) -> OfEveryTurn | RareEvent:
        """Let mypy report an event that `apply` does not know: a table of functions, as it uses, is not checked."""
        return event


def _apply_rare(state: RunState, event: RareEvent) -> RunState:
    """Return the state after an event that not every turn has."""
    match event:
        case ev.CallPaused():
            marked = _mark(state, event, lambda one: replace(one, status="paused", inner=event.inner))
            return _count(marked, event.call, event.nested)
        case ev.ApprovalAsked() | ev.ApprovalDecided():
            return _apply_question(state, event)
        case ev.ModelFailed():
            return _apply_failure(state, event)
        case ev.Prompted() | ev.Continued() | ev.Steered() | ev.Finished() | ev.Cancelled() | ev.Resumed():
            return _apply_words(state, event)
        case ev.Evicted() | ev.Compacted() | ev.CompactionFailed() | ev.ContextRestored() | ev.Pinned():
            return _shortened(state, event)
        case _:
            return _apply_setup(state, event)


def _shortened(state: RunState, event: Shortening) -> RunState:
    """Return the state after an edit of the view. The transcript does not change; a summary is charged like its request."""
    context = state.context or ContextView()
    match event:
        case ev.Pinned():
            pinned = context.pinned - {event.message} if event.off else context.pinned | {event.message}
            return replace(state, context=replace(context, pinned=pinned))
        case ev.CompactionFailed():
            context = replace(context, failed=context.failed + 1)
        case _:
            context = edit_view(context, state.transcript, event)
    if isinstance(event, ev.Compacted | ev.CompactionFailed):
        spent = _add_work(state, event.at) if state.finished is None else state.spent
        spent = replace(
            spent, requests=spent.requests + 1, usage=spent.usage + event.usage, cost=spent.cost + event.cost,
            exact=spent.exact and event.exact,
        )  # fmt: skip
        return replace(state, context=context, spent=spent, last=event.at)
    return replace(state, context=context)


def _apply_setup(state: RunState, event: Preparing) -> RunState:
    """Return the state with what a run finds when it begins, or is given."""
    match event:
        case ev.Opened() if event.parent and state.thread:
            return _fork(state, event)
        case ev.Opened():
            return RunState(thread=event.thread, harness=event.harness, last=event.at)
        case ev.Configured():
            return replace(state, config=event, transcript=state.transcript.with_system(event.system), last=event.at)
        case ev.Imported():
            return replace(state, transcript=state.transcript.extend(event.messages), last=event.at)
        case ev.MediaFetched():
            return _at_time(state, event.at, media=(*state.media, (event.source, event.digest)))
        case _:
            assert_never(event)


def _apply_words(state: RunState, event: Words) -> RunState:
    """Return the state after what users and holders of the log did to a run."""
    match event:
        case ev.Prompted():
            return _apply_prompt(state, event)
        case ev.Continued():
            return replace(
                state, allowed_from=state.spent, granted_from=_find_granted(state), failure=None, failures=0, corrections=0,
                repeat=("", 0), told=frozenset(), retries=(), cancelled=None, finished=None, last=event.at,
                questions=tuple(one for one in state.questions if _still_counts(one)),
            )  # fmt: skip
        case ev.Steered() if event.refused:
            return state
        case ev.Steered():
            steering = (*state.steering, event.message)
            state = _give_up_request(state) if event.at_once else state
            return replace(state, steering=steering, wanted=_list_wanted(state, event.message))
        case ev.Cancelled():
            return _at_time(_give_up_request(state), event.at, cancelled=event.why)
        case ev.Resumed():
            return _apply_takeover(state, event)
        case ev.Finished():
            return _at_time(_give_up_request(state), event.at, finished=event)


def _fork(state: RunState, event: ev.Opened) -> RunState:
    """Return the state on another branch: what was under way is under way elsewhere, and for us it is interrupted."""
    state = _leave_branch(state)
    calls = tuple(replace(one, here=False, source=event.parent) if one.here else one for one in state.calls)
    return replace(
        state, calls=calls, harness=event.harness or state.harness, last=event.at, held=hold_fork(state.held)
    )  # fmt: skip


def _apply_takeover(state: RunState, event: ev.Resumed) -> RunState:
    """Return the state under another holder."""
    state = _leave_branch(state) if event.rival == "copy" else _interrupt(state, abroad=bool(event.rival))
    for call, nested in event.nested:
        state = _count(state, call, nested)
    if event.results:
        known = {result.call: result for result in event.results}
        calls = tuple(
            replace(one, status="finished", result=known[one.call.id]) if one.call.id in known else one for one in state.calls
        )
        state = replace(state, calls=calls)
    return replace(state, epoch=event.epoch, last=event.at)


def _leave_branch(state: RunState) -> RunState:
    """Return the state where the other branch goes on by itself: every call that was started is its own, and so is what was
    allowed.

    A decision stays that allows nothing, and one about a call that was started: it is the same call when it is repeated.
    """
    state = _interrupt(state)
    calls = tuple(replace(one, abroad=True) if one.status == "interrupted" else one for one in state.calls)
    started = {one.call.id for one in calls if one.status != "asked"}
    questions = tuple(one for one in state.questions if not _is_spent(one, started))
    allowed_from = state.allowed_from if state.granted_from is None else state.granted_from
    return replace(state, calls=calls, questions=questions, allowed_from=allowed_from, granted_from=None)


def _is_spent(waiting: Waiting, started: Container[str]) -> bool:
    """True if the decision allows something that the branch it was given to will do."""
    if waiting.decision is None or waiting.decision.verdict != "allow":
        return False
    return waiting.interrupt != "tool" or waiting.question.key not in started


def _find_granted(state: RunState) -> Spent | None:
    """Return where the allowance counts from without what a person allowed beyond a limit. Resuming a run grants it."""
    if state.finished is not None or state.cancelled is not None:
        return None
    return state.allowed_from if state.granted_from is None else state.granted_from


def _interrupt(state: RunState, *, abroad: bool = False) -> RunState:
    """Mark the calls under way as interrupted. `abroad`: the holder that started them may still run them."""
    calls: list[Pending] = []
    for one in state.calls:
        if one.status in ("started", "paused"):
            one = replace(one, status="interrupted", inner=(), abroad=one.abroad or abroad)
        calls.append(one)
    return replace(_give_up_request(state), calls=tuple(calls))


def _give_up_request(state: RunState) -> RunState:
    """Give up the request under way, if there is one."""
    return replace(state, asking="", spent=state.most_spent) if state.asking else state


def _still_counts(waiting: Waiting) -> bool:
    """True if a decision holds for a run that goes on: resuming a run overrules that it shall not go on."""
    if waiting.decision is None:
        return False
    return waiting.interrupt in ("tool", "outcome") or waiting.decision.verdict == "allow"


def _apply_question(state: RunState, event: ev.ApprovalAsked | ev.ApprovalDecided) -> RunState:
    """Return the state after a question or a decision. New questions replace earlier ones; a decision counts once, for its
    question.
    """
    match event:
        case ev.ApprovalAsked():
            asked = {question.key for question in event.questions}
            kept = tuple(one for one in state.questions if one.question.key not in asked)
            new = (Waiting(event.id, event.interrupt, question, event.expires) for question in event.questions)
            return _at_time(state, event.at, questions=(*kept, *new))
        case ev.ApprovalDecided():
            questions = tuple(
                replace(one, decision=event)
                if (one.approval, one.question.key, one.decision) == (event.id, event.key, None)
                else one
                for one in state.questions
            )
            return replace(state, questions=questions, last=event.at)


def _at_time(state: RunState, at: float, **changes: object) -> RunState:
    """Return the state with these changes, after work that lasted until `at`."""
    return replace(state, spent=_add_work(state, at), last=at, **changes)


def _add_work(state: RunState, at: float) -> Spent:
    """Return what was spent, with the time that the work took until `at`."""
    spent = state.spent
    return replace(spent, seconds=spent.seconds + (at - state.last)) if at > state.last else spent


def _apply_prompt(state: RunState, event: ev.Prompted) -> RunState:
    transcript = _settle(state, f"{event.message.id}-before", event.at, (), final=ACCEPTED).extend(state.steering)
    refused = bool(event.refused)
    return RunState(
        thread=state.thread, harness=state.harness, config=state.config, run=event.run, media=state.media, epoch=state.epoch,
        transcript=transcript if refused else transcript.append(event.message), last=event.at, held=state.held,
        wanted=state.wanted if refused else _list_wanted(state, event.message), refused=refused,
        cancelled=event.refused if refused else None, revealed=state.revealed,
        context=_tried_anew(_pin_kept(state, f"{event.message.id}-before")), settings=event.settings,
        metadata=event.metadata,
    )  # fmt: skip


def _tried_anew(context: ContextView | None) -> ContextView | None:
    """Return the context of a new run: it may try to compact again, whatever failed before it."""
    return context if context is None or not context.failed else replace(context, failed=0)


def _apply_request(state: RunState, event: ev.ModelCalled) -> RunState:
    """Return the state after a request.

    It adds all waiting messages: results and notices as one message, then messages of the user.
    """
    transcript = _settle(state, event.id, event.at, event.notices)
    if state.steering:
        transcript = transcript.extend(state.steering)
    spent = replace(state.spent, requests=state.spent.requests + 1)
    return replace(
        state, transcript=transcript, calls=(), steering=(), asking=event.model, model=event.model, spent=spent,
        most=event.most, failure=None, failures=state.failures if event.model == state.model else 0,
        told=state.told | {key for key, _ in event.notices} if event.notices else state.told, last=event.at,
        reply=None, corrections=state.corrections + bool(state.reply and state.reply.problems),
        held=state.held if event.rests is None else hold_request(state.held, event, event.rests),
        context=_pin_kept(state, event.id),
    )  # fmt: skip


def _apply_reply(state: RunState, event: ev.Replied) -> RunState:
    over = bool(event.output or event.ended)  # what was called is the answer itself, or there will be none: nothing is run
    calls = event.message.calls
    pending: list[Pending] = []
    batch: list[str] = []
    run = 0
    for call in calls:
        pending.append(Pending(call, "finished" if over else "asked"))
        batch.append(f"{call.name}\0{call.raw}")
        run += call.name != FINAL_RESULT
    spent, used = state.spent, event.message.usage
    spent = Spent(
        spent.requests,
        spent.tool_calls + run,
        spent.usage if used is None else spent.usage + used,
        spent.cost + event.cost,
        spent.exact and event.exact,
        spent.seconds + max(event.at - state.last, 0.0),
    )
    repeat = ("", 0)
    if calls and not over:
        same = "\0".join(batch)
        repeat = (same, state.repeat[1] + 1 if same == state.repeat[0] else 1)
    return replace(
        state, transcript=state.transcript.append(event.message), calls=tuple(pending),
        reply=event, asking="", failure=None, failures=0, spent=spent, repeat=repeat, last=event.at, questions=(),
        held=state.held if event.held is None else hold_reply(state.held, state.model, event, event.held),
        context=None if state.context is None else state.context.answered(),
        turns=state.turns + 1,
    )  # fmt: skip


def _apply_start(state: RunState, event: ev.CallStarted) -> RunState:
    """Note a new start. What was decided about an earlier one does not count for it. To ask `verify` starts nothing."""
    new = not event.verifying
    state = _mark(
        state, event,
        lambda one: replace(
            one, status="started", key=event.key, inner=(), here=one.here or new, abroad=one.abroad and not new
        ),
    )  # fmt: skip
    if not state.questions:
        return state
    past = outcome_key(event.call)
    return replace(state, questions=tuple(one for one in state.questions if one.question.key != past))


def _apply_result(state: RunState, event: ev.CallFinished) -> RunState:
    state = _mark(state, event, lambda one: replace(one, status="finished", result=event))
    if event.nested is not None:
        state = _count(state, event.call, event.nested)
    if event.reveals:
        state = replace(state, revealed=state.revealed.union(event.reveals))
    if not event.retry:
        return state
    name = next((one.call.name for one in state.calls if one.call.id == event.call), "")
    counted = dict(state.retries)
    counted[name] = counted.get(name, 0) + 1
    return replace(state, retries=tuple(counted.items()))


_OF_EVERY_TURN: dict[type, Callable[[RunState, Any], RunState]] = {
    ev.ModelCalled: _apply_request,
    ev.Replied: _apply_reply,
    ev.CallStarted: _apply_start,
    ev.CallFinished: _apply_result,
}


def _count(state: RunState, call: str, nested: ev.Nested | None) -> RunState:
    """Return what the runs inside a call used in all. What was counted of it before is not counted again."""
    if nested is None:
        return state
    pending = next((one for one in state.calls if one.call.id == call), None)
    if pending is None:
        return state
    calls = tuple(replace(one, nested=nested) if one is pending else one for one in state.calls)
    return replace(state, calls=calls, spent=state.spent.with_nested(nested, pending.nested))


def _apply_failure(state: RunState, event: ev.ModelFailed) -> RunState:
    spent, held = state.spent, hold_failure(state.held, state.model, event)
    if not event.exact:
        spent = replace(spent, cost=spent.cost + event.cost, exact=False)
    state = replace(
        state, asking="", spent=spent, failure=event, failures=state.failures + (not event.stale), held=held,
        model=event.model or state.model,
    )  # fmt: skip
    return _at_time(state, event.at)


def _mark(
    state: RunState, event: ev.CallStarted | ev.CallFinished | ev.CallPaused, change: Callable[[Pending], Pending]
) -> RunState:
    """Return the state with that call changed, after the work until then."""
    calls: list[Pending] = []
    for one in state.calls:
        calls.append(change(one) if one.call.id == event.call else one)
    return replace(state, calls=tuple(calls), spent=_add_work(state, event.at), last=event.at)


def _settle(state: RunState, id: str, at: float, notices: tuple[tuple[str, str], ...], *, final: str = RECEIVED) -> Transcript:
    """Return the transcript with the results of the last answer's calls, one for each and in their order, and with notices.

    `final` is what a call that was the answer itself is told.
    """
    blocks: list[ToolResult | TextBlock] = []
    for pending in state.calls:
        blocks.append(_result(pending, state.reply, final))
    for _, text in notices:
        blocks.append(TextBlock(text))
    if not blocks:
        return state.transcript
    return state.transcript.append(Message("user", tuple(blocks), id=id, created_at=datetime.fromtimestamp(at, UTC)))


def _pin_kept(state: RunState, id: str) -> ContextView | None:
    """Return the view with the message of results pinned, if one of the results must stay."""
    context = state.context
    for one in state.calls:
        if one.result is not None and one.result.keep:
            context = context or ContextView()
            return replace(context, pinned=context.pinned | {id})
    return context


def _result(pending: Pending, reply: ev.Replied | None, final: str) -> ToolResult:
    if pending.result is not None:
        return ToolResult(pending.call.id, pending.result.content, not pending.result.ok)
    if reply is not None and reply.output:
        return ToolResult(pending.call.id, (TextBlock(final),))
    if reply is not None and reply.ended:
        return ToolResult(pending.call.id, (TextBlock(f"Not run. {reply.ended}"),), is_error=True)
    return ToolResult(pending.call.id, (TextBlock(MOVED_ON if pending.status == "asked" else LEFT_OPEN),), is_error=True)


def _list_wanted(state: RunState, message: Message) -> tuple[str, ...]:
    media = (block.source for block in message.blocks if type(block) is ImageBlock or type(block) is DocumentBlock)
    found = [source.url for source in media if isinstance(source, Remote) and source.url not in state.wanted]
    return (*state.wanted, *found)
