"""What remains of an erased event: its kind, ids, times, counts and structure, without its content. Pure.

Blanking is idempotent. The state of a log with blanks can still be computed, and its run continued.
"""

from functools import cache
from typing import TypeVar, assert_never

import msgspec
from msgspec.structs import replace

from evener import events as ev
from evener.transcript.ask import ToolSpec
from evener.transcript.blocks import (
    Block,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    ReasoningBlock,
    ResultContent,
    TextBlock,
    ToolCall,
    ToolResult,
)
from evener.transcript.message import Message
from evener.transcript.reply import Stop

ERASED = "[erased]"
NO_ARGUMENTS = "{}"
BLANK = TextBlock(ERASED)

WORDS: dict[type[ev.Event], str] = {
    ev.MediaFetched: "source",
    ev.Cancelled: "why",
    ev.Finished: "detail",
    ev.CompactionFailed: "detail",
}

S = TypeVar("S", bound=msgspec.Struct)


def blanked(event: ev.Event) -> ev.Event:
    """Return the event without its content."""
    match event:
        case ev.Opened() | ev.Continued() | ev.CallStarted() | ev.Evicted() | ev.ContextRestored() | ev.Pinned():
            return event
        case ev.Resumed():
            return replace(event, results=tuple(map(_result, event.results)))
        case ev.Imported():
            return replace(event, messages=tuple(map(_message, event.messages)))
        case ev.Prompted() | ev.Steered():
            return _of_user(event)
        case ev.Configured() | ev.ModelCalled() | ev.Replied() | ev.ModelFailed() | ev.Compacted():
            return _of_model(event)
        case ev.ApprovalAsked() | ev.ApprovalDecided():
            return _of_approval(event)
        case ev.CallFinished():
            return _result(event)
        case ev.CallPaused():
            return replace(event, inner=tuple(map(_inner, event.inner)))
        case ev.MediaFetched() | ev.Cancelled() | ev.Finished() | ev.CompactionFailed():
            return _without(event, WORDS[type(event)])
    assert_never(event)


def least(kind: str, at: float) -> ev.Event:
    """Return what is left of an event that was erased unread, because it was damaged: its kind and its time."""
    known = _least_events()
    return replace(known.get(kind, known["cancelled"]), at=at)


@cache
def _least_events() -> dict[str, ev.Event]:
    """Return an event of each kind that says nothing, by its tag."""
    said, answered = Message("user", (BLANK,), created_at=None), Message("assistant", (BLANK,), created_at=None)
    events: tuple[ev.Event, ...] = (
        ev.Opened(at=0.0, thread=""),
        ev.Configured(at=0.0, model=""),
        ev.Imported(at=0.0, messages=()),
        ev.Prompted(at=0.0, run="", message=said),
        ev.Continued(at=0.0, run=""),
        ev.Resumed(at=0.0, epoch=0),
        ev.Steered(at=0.0, message=said),
        ev.ModelCalled(at=0.0, model=""),
        ev.Replied(at=0.0, message=answered, stop=Stop("done")),
        ev.ModelFailed(at=0.0, error="", message=""),
        ev.ApprovalAsked(at=0.0, id="", interrupt="tool", questions=()),
        ev.ApprovalDecided(at=0.0, id="", key="", verdict="reject"),
        ev.CallStarted(at=0.0, call="", tool="", key=""),
        ev.CallFinished(at=0.0, call="", ok=False),
        ev.CallPaused(at=0.0, call="", thread=""),
        ev.MediaFetched(at=0.0, source="", digest=""),
        ev.Cancelled(at=0.0),
        ev.Finished(at=0.0, run="", cause="done"),
        ev.Evicted(at=0.0, id="", cuts=(), cause="gate"),
        ev.Compacted(at=0.0, id="", summary=said, until=""),
        ev.CompactionFailed(at=0.0, detail=""),
        ev.ContextRestored(at=0.0, id=""),
        ev.Pinned(at=0.0, message=""),
    )
    return {str(type(event).__struct_config__.tag): event for event in events}


def _of_model(event: ev.Configured | ev.ModelCalled | ev.Replied | ev.ModelFailed | ev.Compacted) -> ev.Event:
    match event:
        case ev.Configured():
            return replace(event, system=tuple(BLANK for _ in event.system), tools=tuple(map(_tool, event.tools)), hosted=())
        case ev.ModelCalled():
            return replace(event, notices=tuple((key, ERASED) for key, _ in event.notices))
        case ev.Replied():
            return replace(
                event,
                message=_message(event.message),
                stop=_without(event.stop, "detail"),
                losses=tuple(replace(loss, what=ERASED, why=ERASED) for loss in event.losses),
                problems=tuple(ERASED for _ in event.problems),
                output=f'"{ERASED}"' if event.output else "",
                ended=ERASED if event.ended else "",
                held=None,  # what the provider holds is not what the log says any more
                raw_blob="",
            )
        case ev.ModelFailed():
            return _without(event, "message")
        case ev.Compacted():
            return _without(replace(event, summary=_message(event.summary)), "focus")
    assert_never(event)


def _of_user(event: ev.Prompted | ev.Steered) -> ev.Event:
    bare = _without(replace(event, message=_message(event.message)), "refused")
    return replace(bare, settings=None, metadata="") if isinstance(bare, ev.Prompted) else bare


def _of_approval(event: ev.ApprovalAsked | ev.ApprovalDecided) -> ev.Event:
    match event:
        case ev.ApprovalAsked():
            return replace(event, questions=tuple(_without(question, "why") for question in event.questions))
        case ev.ApprovalDecided():
            decided = _without(_without(event, "why"), "by")
            result = None if event.result is None else ERASED
            return replace(decided, arguments=NO_ARGUMENTS if event.arguments else "", result=result)
    assert_never(event)


def _result(event: ev.CallFinished) -> ev.CallFinished:
    return replace(_without(event, "why"), content=tuple(map(_content, event.content)), metadata="{}")


def _inner(question: ev.InnerQuestion) -> ev.InnerQuestion:
    arguments = NO_ARGUMENTS if question.arguments else ""
    return replace(question, question=_without(question.question, "why"), arguments=arguments)


def _tool(tool: ToolSpec) -> ToolSpec:
    return ToolSpec(tool.name, ERASED if tool.description else "")


def _message(message: Message) -> Message:
    return replace(message, blocks=tuple(map(_block, message.blocks)))


def _block(block: Block) -> Block:
    match block:
        case ReasoningBlock():
            return ReasoningBlock(ERASED if block.text else "")
        case ToolCall():
            return ToolCall(block.id, block.name)
        case ToolResult():
            return ToolResult(block.call_id, tuple(map(_content, block.content)), block.is_error)
        case _:
            return _content(block)


def _content(block: ResultContent) -> ResultContent:
    match block:
        case TextBlock():
            return BLANK if block.text else TextBlock("")
        case ImageBlock() | DocumentBlock() | HostedBlock():
            return BLANK
    assert_never(block)


def _without(value: S, field: str) -> S:
    """Return the value with this text replaced, if there was one."""
    return replace(value, **{field: ERASED}) if msgspec.structs.asdict(value)[field] else value
