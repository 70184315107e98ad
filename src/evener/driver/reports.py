"""What happened, as events: from notes, answers and failures. Reads the clock; decides nothing that the plan decides."""

from collections.abc import Collection
from time import time

import msgspec

from evener import events as ev
from evener.encodings.forms import FINAL_RESULT
from evener.errors import BadValue, EvenerError, ProviderError
from evener.loop.steps import RefuseCall, RunTool, SettleCall
from evener.model.chain import falls_back
from evener.model.seam import Answered
from evener.store.log import Note
from evener.tools.outputs import Correct, Final, OutputShape, Unexpected, judge
from evener.transcript.blocks import DocumentBlock, ImageBlock, TextBlock
from evener.transcript.calls import with_unique_ids
from evener.transcript.loss import Loss
from evener.transcript.message import Message

__all__ = ["CANCELLED", "cancelled", "events_of", "failed", "refused", "replied", "settled", "with_nested"]

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
    """What a note means; nothing for one that nobody understands: it would keep the log from ever going on."""
    try:
        return _understood(note.kind, msgspec.json.decode(note.body, type=dict[str, object]))
    except (msgspec.MsgspecError, BadValue):
        return ()


def _understood(kind: str, body: dict[str, object]) -> tuple[ev.Event, ...]:
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


def failed(error: EvenerError, *, shown: bool) -> ev.ModelFailed:
    wait = error.retry_after if isinstance(error, ProviderError) and error.retry_after else 0.0
    return ev.ModelFailed(
        at=time(), error=type(error).__name__, message=str(error), retryable=error.retryable,
        elsewhere=falls_back(error), retry_after=wait, shown=shown,
    )  # fmt: skip


def replied(
    answer: Answered, shape: OutputShape | None, tools: Collection[str]
) -> tuple[ev.Replied, *tuple[ev.CallFinished, ...]]:
    """The answer, and what is known of its calls of `final_result` at once: they never run."""
    cost = answer.cost
    reply = answer.reply
    renamed: list[Loss] = []
    message = with_unique_ids(answer.message, set(), [], renamed)  # a call is known by its id from here on
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
                problems, told = (found.message,), _corrected(found, message)
    replied = ev.Replied(
        at=time(), message=message, stop=reply.stop, cost=cost.amount, exact=cost.exact,
        losses=(*answer.losses, *renamed) if renamed else answer.losses, seconds=answer.seconds, first=answer.first,
        tries=answer.tries, reply=reply.id, problems=problems, output=output, ended=ended,
    )  # fmt: skip
    return (replied, *told)


def _corrected(found: Correct, message: Message) -> tuple[ev.CallFinished, ...]:
    return tuple(
        ev.CallFinished(at=time(), call=call.id, ok=False, content=(TextBlock(found.message),), outcome="failed")
        for call in message.calls
        if found.calls and call.name == FINAL_RESULT
    )


def cancelled(step: RunTool, why: str, *, acts: bool) -> ev.CallFinished:
    """The result of a call that a hook cancelled. `acts`: running it changes something.

    If an earlier start of it was interrupted, that one may have taken effect, whatever a hook says of the next.
    """
    done = refused(RefuseCall(step.call, f"{CANCELLED}{f': {why}' if why else '.'}"))
    done = msgspec.structs.replace(done, by_hook=True)
    if not (step.again and acts):
        return done
    return msgspec.structs.replace(done, content=(*done.content, TextBlock(UNKNOWN)), outcome="unknown")


def refused(step: RefuseCall) -> ev.CallFinished:
    return ev.CallFinished(
        at=time(), call=step.call.id, ok=False, content=(TextBlock(step.text),), outcome="failed", rule=step.rule
    )


def settled(step: SettleCall) -> ev.CallFinished:
    if step.result is not None:
        content = (TextBlock(HAPPENED), *((TextBlock(step.result),) if step.result else ()))
        return ev.CallFinished(at=time(), call=step.call.id, ok=True, content=content)
    text = f"{UNKNOWN} {step.why}".rstrip()
    return ev.CallFinished(at=time(), call=step.call.id, ok=False, content=(TextBlock(text),), outcome="unknown")


def with_nested(done: ev.CallFinished, nested: ev.Nested) -> ev.CallFinished:
    """With what runs inside the call used. If it failed after they had acted, nobody can say what has been done."""
    if nested.acted and done.outcome == "failed":
        done = msgspec.structs.replace(done, outcome="unknown", content=(*done.content, TextBlock(ACTED)))
    return msgspec.structs.replace(done, nested=nested)
