"""The events that a driver writes, and what its caller sees of a run meanwhile. Without a watcher, showing costs nothing."""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from time import monotonic, time
from typing import Protocol, TypeVar

import msgspec

from evener import events as ev
from evener import streaming as st
from evener.driver.inbox import pause
from evener.encodings.forms import FINAL_RESULT
from evener.errors import BadValue, EvenerError, ProviderError
from evener.events import Event
from evener.loop.plan import RefuseCall, RunTool, SettleCall
from evener.model.chain import falls_back
from evener.model.seam import Answered
from evener.store.protocol import Note
from evener.tools.outputs import Correct, Final, OutputShape, PartialReader, Unexpected, judge
from evener.transcript.ask import OutputForm
from evener.transcript.blocks import DocumentBlock, ImageBlock, TextBlock
from evener.transcript.delta import ArgumentsDelta, CallBegun, Delta, ReasoningDelta, Stopped, TextDelta
from evener.transcript.loss import Loss
from evener.transcript.message import Message
from evener.transcript.repair import rename_used_ids

T = TypeVar("T")


class OutOfTime(Exception):
    """A step took too long and was abandoned."""


class Clock(Protocol):
    """Time, for one driver."""

    def now(self) -> float:
        """Return the time in seconds since 1970, for the plan."""
        ...

    def dated(self, events: tuple[Event, ...]) -> tuple[Event, ...]:
        """Return the events as they are written."""
        ...

    def pause(self, seconds: float) -> Coroutine[object, object, bool]:
        """Let time pass."""
        ...

    def timeout(self, seconds: float) -> asyncio.Timeout:
        """Return how long something may take."""
        ...


class _Present:
    """The time that it is. Events were given theirs when they were made."""

    def now(self) -> float:
        return time()

    def dated(self, events: tuple[Event, ...]) -> tuple[Event, ...]:
        return events

    def pause(self, seconds: float) -> Coroutine[object, object, bool]:
        return pause(seconds)

    def timeout(self, seconds: float) -> asyncio.Timeout:
        return asyncio.timeout(seconds)


PRESENT: Clock = _Present()


async def run_within(work: Coroutine[object, object, T], timeout: asyncio.Timeout) -> T:
    """Return what it gives. Raises OutOfTime; a TimeoutError of its own passes as it is."""
    try:
        async with timeout:
            return await work
    except TimeoutError:
        if not timeout.expired():
            raise
    raise OutOfTime


UNKNOWN = (
    "Interrupted: this call was started, and it is not known whether it took effect. It was not run again. "
    "Find out before you repeat it."
)

CANCELLED = "Cancelled by a hook"

HAPPENED = "[Interrupted, and the user found out that this call took effect. What it gave, as the user says:]"

ACTED = "[But runs inside this call had begun to change things, and that stays. Find out what was done before you repeat it.]"


Said = TextBlock | ImageBlock | DocumentBlock
"""What a user says to a run under way."""


def events_of(note: Note) -> tuple[ev.Event, ...]:
    """Return the events of a note; none for a note that cannot be read, as it would keep the log from ever going on."""
    try:
        return _understand(note.kind, msgspec.json.decode(note.body, type=dict[str, object]))
    except (msgspec.MsgspecError, BadValue):
        return ()


def _understand(kind: str, body: dict[str, object]) -> tuple[ev.Event, ...]:
    match kind, body:
        case "steer", {"text": str(text)}:
            return (ev.Steered(at=time(), message=Message.user_text(text), at_once=body.get("now") is True),)
        case "steer", {"blocks": list(blocks)}:
            said = Message("user", msgspec.convert(blocks, tuple[Said, ...]))
            return (ev.Steered(at=time(), message=said, at_once=body.get("now") is True),)
        case "cancel", _:
            return (ev.Cancelled(at=time(), why=str(body.get("why", ""))),)
        case "decide", {"decisions": decisions}:
            made = msgspec.convert(decisions, list[dict[str, object]])
            return tuple(msgspec.convert({**one, "at": time()}, ev.ApprovalDecided) for one in made)
        case _:
            return ()


def failure_event(error: EvenerError, *, shown: bool, request: str = "") -> ev.ModelFailed:
    """Return the event of a request that came to no answer. `request` is the digest of what was sent."""
    wait = error.retry_after if isinstance(error, ProviderError) and error.retry_after else 0.0
    return ev.ModelFailed(
        at=time(), error=type(error).__name__, message=str(error), retryable=error.retryable,
        elsewhere=falls_back(error), retry_after=wait, shown=shown,
        status=error.status if isinstance(error, ProviderError) else 0, request=request,
    )  # fmt: skip


def reply_events(
    answer: Answered, shape: OutputShape | None, tools: Collection[str], *, request: str = ""
) -> tuple[ev.Replied, *tuple[ev.CallFinished, ...]]:
    """Return the event of an answer, and the results of its calls of `final_result`: these never run.

    `request` is the digest of what was sent.
    """
    cost = answer.cost
    reply = answer.reply
    renamed: list[Loss] = []
    message = rename_used_ids(answer.message, set(), [], renamed)  # a call is known by its id from here on
    problems: tuple[str, ...] = ()
    if reply.notices:
        problems = tuple(raw for name, raw in reply.notices if name in ("malformed_call", "choice_violated"))
    told: tuple[ev.CallFinished, ...] = ()
    output = ended = ""
    if shape is not None:
        match judge(reply, answer.output, shape=shape, form=answer.form, tool_names=tools):
            case Final(text=text):
                output = text
            case Unexpected(why=why):
                ended, problems = why, ()  # nothing that a correction would mend
            case Correct() as found:
                problems, told = (found.message,), _correct(found, message)
    replied = ev.Replied(
        at=time(), message=message, stop=reply.stop, cost=cost.amount, exact=cost.exact,
        losses=(*answer.losses, *renamed) if renamed else answer.losses, seconds=answer.seconds, first=answer.first,
        tries=answer.tries, reply=reply.id, problems=problems, output=output, ended=ended,
        request=request,
    )  # fmt: skip
    return (replied, *told)


def _correct(found: Correct, message: Message) -> tuple[ev.CallFinished, ...]:
    return tuple(
        ev.CallFinished(at=time(), call=call.id, ok=False, content=(TextBlock(found.message),), outcome="failed")
        for call in message.calls
        if found.calls and call.name == FINAL_RESULT
    )


def cancelled_result(step: RunTool, why: str, *, acts: bool) -> ev.CallFinished:
    """Return the result of a call that a hook cancelled. `acts`: running it changes something.

    If an earlier start of it was interrupted, that one may have taken effect, whatever a hook says of the next.
    """
    done = refused_result(RefuseCall(step.call, f"{CANCELLED}{f': {why}' if why else '.'}"))
    done = msgspec.structs.replace(done, by_hook=True, why=why)
    if not (step.again and acts):
        return done
    return msgspec.structs.replace(done, content=(*done.content, TextBlock(UNKNOWN)), outcome="unknown")


def refused_result(step: RefuseCall) -> ev.CallFinished:
    return ev.CallFinished(
        at=time(), call=step.call.id, ok=False, content=(TextBlock(step.text),), outcome="failed", rule=step.rule,
        denied=step.denied, why=step.why,
    )  # fmt: skip


def settled_result(step: SettleCall) -> ev.CallFinished:
    if step.result is not None:
        content = (TextBlock(HAPPENED), *((TextBlock(step.result),) if step.result else ()))
        return ev.CallFinished(at=time(), call=step.call.id, ok=True, content=content)
    text = f"{UNKNOWN} {step.why}".rstrip()
    return ev.CallFinished(at=time(), call=step.call.id, ok=False, content=(TextBlock(text),), outcome="unknown")


def add_nested(done: ev.CallFinished, nested: ev.Nested) -> ev.CallFinished:
    """Add what runs inside the call used. If it failed after they had acted, its outcome is unknown."""
    if nested.acted and done.outcome == "failed":
        done = msgspec.structs.replace(done, outcome="unknown", content=(*done.content, TextBlock(ACTED)))
    return msgspec.structs.replace(done, nested=nested)


PERIOD = 0.05
"""Seconds between two looks at a structured answer while it comes: each copies what is there."""

Show = Callable[[st.StreamEvent], None]


class Teller:
    """Numbers events and passes them on. `show` is None if no caller watches."""

    def __init__(self, place: st.Place, show: Show | None) -> None:
        self.place = place
        self.show = show
        self.told = 0
        """How many there were."""
        self._held: list[st.StreamEvent] | None = None

    def tell(self, kind: Callable[..., st.StreamEvent], **fields: object) -> None:
        """Show something, if a caller watches: at once, or when what is held is released."""
        if self.show is not None:
            self.told += 1
            show = self.show if self._held is None else self._held.append
            show(kind(place=self.place, sequence=self.told, **fields))

    def hold(self) -> None:
        """Collect stream events from now on, because they are about events that are not on disk yet."""
        if self.show is not None and self._held is None:
            self._held = []

    def release(self) -> None:
        """Show what is held."""
        held, self._held = self._held, None
        if held and self.show is not None:
            for event in held:
                self.show(event)

    def drop(self) -> None:
        """Forget what is held: the events were not written."""
        self.told -= len(self._held or ())
        self._held = None


class AnswerProgress:
    """One answer during streaming. Give it the deltas."""

    def __init__(self, teller: Teller, shape: OutputShape | None) -> None:
        self._tell = teller.tell
        self._shape = shape
        self._names: dict[int, tuple[str, str]] = {}
        self._reader: PartialReader | None = None
        self._last = 0.0
        self._changed = False

    def show(self, deltas: list[Delta], form: OutputForm) -> None:
        """Emit the stream events for these deltas. `form` is the form of a structured answer."""
        for delta in deltas:
            match delta:
                case TextDelta(_, text):
                    self._tell(st.TextStreamed, text=text)
                case ReasoningDelta(_, text):
                    self._tell(st.ReasoningStreamed, text=text)
                case ArgumentsDelta(index, text):
                    call, tool = self._names.get(index, ("", ""))
                    self._tell(st.ArgumentsStreamed, call=call, tool=tool, text=text)
                case CallBegun(index, call, tool):
                    self._names[index] = (call, tool)
                    self._tell(st.ArgumentsStreamed, call=call, tool=tool, text="")
                case _:
                    pass
        if self._shape is not None:
            self._show_output(self._shape, deltas, form)

    def _show_output(self, shape: OutputShape, deltas: list[Delta], form: OutputForm) -> None:
        """Show the answer so far, if it has changed and it is time; at the end of the turn in any case."""
        reader = self._reader = self._reader or PartialReader(shape, form=form)
        self._changed = reader.add(deltas) or self._changed
        over = bool(deltas) and isinstance(deltas[-1], Stopped)
        now = monotonic()
        if self._changed and reader.begun and (over or now - self._last > PERIOD):
            self._last, self._changed = now, False
            self._tell(st.OutputStreamed, value=reader.snapshot())
