"""What is left of an erased event: nothing that anybody said, and all that the log needs to be folded."""

from typing import get_args

import pytest

from evener import events as ev
from evener.events import Event, decode_event, encode_event
from evener.loop.state import fold
from evener.store.tombstones import ERASED, blanked
from evener.transcript.ask import ToolSpec
from evener.transcript.blocks import (
    Citation,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    ReasoningBlock,
    Remote,
    Seal,
    TextBlock,
    ToolCall,
    ToolResult,
)
from evener.transcript.loss import Loss
from evener.transcript.message import Message
from evener.transcript.reply import Stop

SAID = "the moon is made of cheese"
TEXT = TextBlock(SAID, citations=(Citation(url=SAID, title=SAID, quote=SAID),), seal=Seal(f'{{"s":"{SAID}"}}'))
SOLID = (
    TEXT,
    ImageBlock(Remote(f"https://example.com/{SAID}")),
    DocumentBlock(Inline(SAID), name=SAID),
    HostedBlock(f'{{"x":"{SAID}"}}', "w", text=SAID),
)
CALL = ToolCall("call-1", "tool", f'{{"x":"{SAID}"}}')
USER = Message("user", SOLID, id="m1")
ASSISTANT = Message("assistant", (ReasoningBlock(SAID, Seal(f'{{"s":"{SAID}"}}')), TEXT, CALL), id="m2")
RESULT = Message("user", (ToolResult("call-1", SOLID),), id="m3")
QUESTION = ev.Question("call-1", "digest", why=SAID)
INNER = ev.InnerQuestion(thread="t", approval="a", interrupt="tool", question=QUESTION, arguments=f'{{"x":"{SAID}"}}')

EVENTS: list[Event] = [
    ev.Opened(at=1.0, thread="t", harness="h"),
    ev.Configured(at=1.0, model="m", system=(TEXT,), tools=(ToolSpec("tool", SAID, f'{{"description":"{SAID}"}}'),)),
    ev.Imported(at=1.0, messages=(USER, Message.assistant_text(SAID))),
    ev.Prompted(at=1.0, run="r", message=Message("user", (TEXT,), id="m0")),
    ev.ModelCalled(at=1.0, model="m", id="m9", notices=(("key", SAID),)),
    ev.Replied(
        at=1.0,
        message=ASSISTANT,
        stop=Stop("tools", detail=SAID),
        losses=(Loss("dropped", SAID, SAID),),
        problems=(SAID,),
    ),
    ev.ApprovalAsked(at=1.0, id="a", interrupt="tool", questions=(QUESTION,)),
    ev.ApprovalDecided(
        at=1.0, id="a", key="call-1", verdict="allow", why=SAID, arguments=f'{{"x":"{SAID}"}}', digest="d", by=SAID, result=SAID
    ),
    ev.CallStarted(at=1.0, call="call-1", tool="tool", key="k"),
    ev.CallPaused(at=1.0, call="call-1", thread="inner", inner=(INNER,)),
    ev.CallFinished(at=1.0, call="call-1", ok=True, content=SOLID, metadata=f'{{"x":"{SAID}"}}'),
    ev.Steered(at=1.0, message=RESULT),
    ev.MediaFetched(at=1.0, source=f"https://example.com/{SAID}", digest="d" * 64),
    ev.ModelFailed(at=1.0, error="ServerError", message=SAID),
    ev.Resumed(at=1.0, epoch=2),
    ev.Cancelled(at=1.0, why=SAID),
    ev.Finished(at=1.0, run="r", cause="cancelled", detail=SAID),
    ev.Continued(at=1.0, run="r"),
    ev.Evicted(at=1.0, id="e1", cuts=(ev.ContextCut("m0", 0, "result", 0, "d" * 64, 9),), cause="gate", head="m0"),
    ev.Compacted(at=1.0, id="e2", summary=Message("user", (TEXT,), id="m8"), until="m0", focus=SAID, head="m0"),
    ev.CompactionFailed(at=1.0, detail=SAID, head="m0"),
    ev.ContextRestored(at=1.0, id="e2"),
    ev.Pinned(at=1.0, message="m0"),
]


def test_every_kind_of_event_is_in_the_table() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(Event))


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_a_blank_says_nothing_and_is_its_own_blank(event: Event) -> None:
    blank = blanked(event)
    stored = encode_event(blank)
    assert SAID.encode() not in stored
    assert (type(blank), blank.at) == (type(event), event.at)
    assert blanked(blank) == blank
    assert decode_event(stored) == blank
    assert encode_event(blanked(decode_event(stored))) == stored


def test_what_was_empty_stays_empty() -> None:
    for event in (ev.Cancelled(at=1.0), ev.Finished(at=1.0, run="r", cause="done"), ev.CallFinished(at=1.0, call="c", ok=True)):
        assert blanked(event) == event


def test_an_accepted_answer_stays_an_end() -> None:
    blank = blanked(ev.Replied(at=1.0, message=ASSISTANT, stop=Stop("done"), output=f'{{"x":"{SAID}"}}'))
    assert isinstance(blank, ev.Replied)
    assert blank.output == f'"{ERASED}"'


def test_a_log_of_blanks_folds_to_the_same_shape() -> None:
    told, blank = fold(EVENTS), fold(list(map(blanked, EVENTS)))
    assert [(message.role, len(message.blocks)) for message in blank.transcript.messages] == [
        (message.role, len(message.blocks)) for message in told.transcript.messages
    ]
    assert (blank.run, blank.epoch, [call.status for call in blank.calls]) == (
        told.run,
        told.epoch,
        [call.status for call in told.calls],
    )
