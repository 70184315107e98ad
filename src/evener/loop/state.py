"""Folds events into State. Pure: no I/O, no clock. Each event costs the same, however long the log is.

awaiting_input --Prompted--> processing --Replied with calls--> executing_tools --all finished--> processing
     ^                        |    ^                                   |
     |                        |    +--ModelFailed: error_recovery      +--a decision is needed: waiting
     +--Finished-- respond <--+ Replied without calls
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from hashlib import sha256
from typing import Literal, assert_never

import msgspec
from msgspec.structs import replace

from evener import events as ev
from evener.encodings.forms import FINAL_RESULT
from evener.loop.limits import Spent
from evener.transcript.blocks import DocumentBlock, ImageBlock, Remote, TextBlock, ToolCall, ToolResult
from evener.transcript.message import Message
from evener.transcript.transcript import Transcript
from evener.transcript.usage import Usage

__all__ = ["Pending", "Phase", "State", "Waiting", "apply", "fold"]

Phase = Literal["awaiting_input", "processing", "executing_tools", "waiting", "respond", "error_recovery"]
Status = Literal["asked", "started", "paused", "interrupted", "finished"]

NOTHING = Spent()
MOVED_ON = "Not run: the user went on before this call was started."
LEFT_OPEN = "Interrupted: it is not known whether this call took effect, and the user went on."


class Pending(msgspec.Struct, frozen=True):
    """One call of the last answer, and how far it has come."""

    call: ToolCall
    status: Status = "asked"
    result: ev.CallFinished | None = None
    key: str = ""
    inner: tuple[ev.InnerQuestion, ...] = ()


class Waiting(msgspec.Struct, frozen=True):
    """A question of this turn, and its decision when there is one."""

    approval: str
    interrupt: ev.Interrupt
    question: ev.Question
    expires: float = 0.0
    decision: ev.ApprovalDecided | None = None


class State(msgspec.Struct, frozen=True):
    """Everything that the next step depends on. `calls` are those of the last answer, in the model's order."""

    thread: str = ""
    harness: str = ""
    config: ev.Configured | None = None
    transcript: Transcript = Transcript()
    run: str = ""
    calls: tuple[Pending, ...] = ()
    steering: tuple[Message, ...] = ()
    reply: ev.Replied | None = None
    asking: str = ""  # the model that was asked and has not answered
    model: str = ""  # the model that was asked last
    failure: ev.ModelFailed | None = None
    failures: int = 0  # of the model asked last, in a row
    corrections: int = 0
    spent: Spent = Spent()
    allowed_from: Spent = Spent()  # the allowance counts from here
    told: frozenset[str] = frozenset()  # keys of notices
    retries: tuple[tuple[str, int], ...] = ()  # per tool, in this run
    repeat: tuple[str, int] = ("", 0)  # the digest of the last batch of calls, how often it came in a row
    media: tuple[tuple[str, str], ...] = ()  # URL and digest
    wanted: tuple[str, ...] = ()  # URLs of media in what the user said
    questions: tuple[Waiting, ...] = ()
    cancelled: str | None = None
    finished: ev.Finished | None = None
    epoch: int = 0
    last: float = 0.0  # the time of the last event

    @property
    def phase(self) -> Phase:
        """Where the run stands, for people."""
        if not self.run or self.finished is not None:
            return "awaiting_input"
        if self.open_questions or any(pending.status == "paused" for pending in self.calls):
            return "waiting"
        if any(pending.status != "finished" for pending in self.calls):
            return "executing_tools"
        if self.failure is not None:
            return "error_recovery"
        if self.reply is not None and not self.calls and not self.asking:
            return "respond"
        return "processing"

    @property
    def open_questions(self) -> tuple[Waiting, ...]:
        """What must be decided before the run goes on."""
        return tuple(one for one in self.questions if one.decision is None)

    def waiting_for(self, key: str) -> Waiting | None:
        """The question of this key, decided or not."""
        return next((one for one in self.questions if one.question.key == key), None)

    @property
    def used(self) -> Spent:
        """What counts toward the limits."""
        return self.spent if self.allowed_from == NOTHING else self.spent.since(self.allowed_from)


def fold(events: Iterable[ev.Event], state: State | None = None) -> State:
    """The state after these events, from the beginning or from an earlier state on."""
    state = state or State()
    for event in events:
        state = apply(state, event)
    return state


def apply(state: State, event: ev.Event) -> State:
    """The state after one more event."""
    match event:
        case ev.ModelCalled():
            return _called(state, event)
        case ev.Replied():
            return _replied(state, event)
        case ev.CallStarted():
            return _marked(state, event, "started", key=event.key, inner=())
        case ev.CallPaused():
            return _marked(state, event, "paused", inner=event.inner)
        case ev.CallFinished():
            return _call_finished(state, event)
        case ev.ApprovalAsked() | ev.ApprovalDecided():
            return _questioned(state, event)
        case ev.ModelFailed():
            return _timed(state, event.at, asking="", failure=event, failures=state.failures + 1)
        case ev.Prompted() | ev.Continued() | ev.Steered() | ev.Finished() | ev.Cancelled() | ev.Resumed():
            return _by_people(state, event)
        case ev.Opened() | ev.Configured() | ev.Imported() | ev.MediaFetched():
            return _equipped(state, event)
        case _:
            assert_never(event)


def _equipped(state: State, event: ev.Opened | ev.Configured | ev.Imported | ev.MediaFetched) -> State:
    """What a run finds when it begins, or is given."""
    match event:
        case ev.Opened():
            return State(thread=event.thread, harness=event.harness, last=event.at)
        case ev.Configured():
            return replace(state, config=event, transcript=state.transcript.with_system(event.system), last=event.at)
        case ev.Imported():
            return replace(state, transcript=state.transcript.extend(event.messages), last=event.at)
        case ev.MediaFetched():
            return _timed(state, event.at, media=(*state.media, (event.source, event.digest)))


def _by_people(state: State, event: ev.Prompted | ev.Continued | ev.Steered | ev.Finished | ev.Cancelled | ev.Resumed) -> State:
    """What users and holders of the log do to a run."""
    match event:
        case ev.Prompted():
            return _prompted(state, event)
        case ev.Continued():
            return replace(
                state, allowed_from=state.spent, failure=None, failures=0, corrections=0, repeat=("", 0), told=frozenset(),
                retries=(), cancelled=None, finished=None, last=event.at,
                questions=tuple(one for one in state.questions if one.decision is not None),
            )  # fmt: skip
        case ev.Steered():
            steering = (*state.steering, event.message)
            asking = "" if event.at_once else state.asking
            return replace(state, steering=steering, asking=asking, wanted=_wanted(state, event.message))
        case ev.Cancelled():
            return _timed(state, event.at, cancelled=event.why, asking="")
        case ev.Resumed():
            halted = ("started", "paused")
            calls = tuple(replace(one, status="interrupted") if one.status in halted else one for one in state.calls)
            return replace(state, epoch=event.epoch, calls=calls, asking="", last=event.at)
        case ev.Finished():
            return _timed(state, event.at, finished=event, asking="")


def _questioned(state: State, event: ev.ApprovalAsked | ev.ApprovalDecided) -> State:
    """Questions of an earlier asking are replaced; a decision counts for the asking it names, and once."""
    match event:
        case ev.ApprovalAsked():
            asked = {question.key for question in event.questions}
            kept = tuple(one for one in state.questions if one.question.key not in asked)
            new = (Waiting(event.id, event.interrupt, question, event.expires) for question in event.questions)
            return _timed(state, event.at, questions=(*kept, *new))
        case ev.ApprovalDecided():
            questions = tuple(
                replace(one, decision=event)
                if (one.approval, one.question.key, one.decision) == (event.id, event.key, None)
                else one
                for one in state.questions
            )
            return replace(state, questions=questions, last=event.at)


def _timed(state: State, at: float, **changes: object) -> State:
    """Changes after work that took until `at`."""
    spent = replace(state.spent, seconds=state.spent.seconds + max(at - state.last, 0.0))
    return replace(state, spent=spent, last=at, **changes)


def _prompted(state: State, event: ev.Prompted) -> State:
    transcript = _settled(state, f"{event.message.id}-before", event.at, ()).extend(state.steering).append(event.message)
    return State(
        thread=state.thread, harness=state.harness, config=state.config, transcript=transcript, run=event.run,
        media=state.media, wanted=_wanted(state, event.message), epoch=state.epoch, last=event.at,
    )  # fmt: skip


def _called(state: State, event: ev.ModelCalled) -> State:
    """The request holds everything that waited to be told: results and notices in one message, then what the user said."""
    transcript = _settled(state, event.id, event.at, tuple(text for _, text in event.notices)).extend(state.steering)
    spent = replace(state.spent, requests=state.spent.requests + 1)
    return replace(
        state, transcript=transcript, calls=(), steering=(), asking=event.model, model=event.model, spent=spent,
        failure=None, failures=state.failures if event.model == state.model else 0,
        told=state.told | {key for key, _ in event.notices} if event.notices else state.told, last=event.at,
        reply=None, corrections=state.corrections + bool(state.reply and state.reply.problems),
    )  # fmt: skip


def _replied(state: State, event: ev.Replied) -> State:
    calls = event.message.calls
    used = event.message.usage or Usage()
    spent = state.spent
    spent = Spent(
        spent.requests,
        spent.tool_calls + sum(call.name != FINAL_RESULT for call in calls),
        spent.usage + used,
        spent.cost + event.cost,
        spent.exact and event.exact,
        spent.seconds + max(event.at - state.last, 0.0),
    )
    if event.output:
        calls = ()  # what was called is the answer itself
    digest = _digest(calls)
    repeat = (digest, state.repeat[1] + 1 if digest == state.repeat[0] else 1) if calls else ("", 0)
    return replace(
        state, transcript=state.transcript.append(event.message), calls=tuple(Pending(call) for call in calls),
        reply=event, asking="", failure=None, failures=0, spent=spent, repeat=repeat, last=event.at, questions=(),
    )  # fmt: skip


def _call_finished(state: State, event: ev.CallFinished) -> State:
    state = _marked(state, event, "finished", result=event)
    if event.nested is not None:
        state = replace(state, spent=state.spent.with_nested(event.nested))
    if not event.retry:
        return state
    name = next((one.call.name for one in state.calls if one.call.id == event.call), "")
    counted = dict(state.retries)
    counted[name] = counted.get(name, 0) + 1
    return replace(state, retries=tuple(counted.items()))


def _marked(state: State, event: ev.CallStarted | ev.CallFinished | ev.CallPaused, status: Status, **changes: object) -> State:
    calls = tuple(replace(one, status=status, **changes) if one.call.id == event.call else one for one in state.calls)
    return _timed(state, event.at, calls=calls)


def _settled(state: State, id: str, at: float, notices: tuple[str, ...]) -> Transcript:
    """The transcript with the results of the last answer's calls, one for each and in their order, and with notices."""
    blocks = [_result(pending) for pending in state.calls]
    texts = [TextBlock(text) for text in notices]
    if not blocks and not texts:
        return state.transcript
    message = Message("user", (*blocks, *texts), id=id, created_at=_moment(at))
    return state.transcript.append(message)


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _result(pending: Pending) -> ToolResult:
    if pending.result is not None:
        return ToolResult(pending.call.id, pending.result.content, not pending.result.ok)
    return ToolResult(pending.call.id, (TextBlock(MOVED_ON if pending.status == "asked" else LEFT_OPEN),), is_error=True)


def _digest(calls: tuple[ToolCall, ...]) -> str:
    """The same for the same calls with the same arguments, as the model wrote them."""
    return sha256("\0".join(f"{call.name}\0{call.raw}" for call in calls).encode()).hexdigest()[:16]


def _wanted(state: State, message: Message) -> tuple[str, ...]:
    found = (
        block.source.url
        for block in message.blocks
        if isinstance(block, ImageBlock | DocumentBlock) and isinstance(block.source, Remote)
    )
    return (*state.wanted, *(url for url in found if url not in state.wanted))
