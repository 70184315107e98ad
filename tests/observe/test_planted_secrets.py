"""No secret leaves with a span: one is planted into every text of every event, and looked for in the file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evener import events as ev
from evener.errors import EvenerError
from evener.observe.export import redact_spans, trace_funnel
from evener.observe.lines import SpanLine, TraceSpan, encode_spans
from evener.observe.recorder import EndedRun, TraceFolder, lines_of, spans_of
from evener.observe.spans import fold_spans
from evener.store.redaction import fixed_fields
from evener.transcript.ask import Extra, FreeText, ModelSettings, Namespace, ToolSpec
from evener.transcript.blocks import (
    Block,
    Citation,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    Origin,
    ReasoningBlock,
    Remote,
    Seal,
    TextBlock,
    ToolCall,
    ToolResult,
    Uploaded,
)
from evener.transcript.loss import Loss
from evener.transcript.message import Message
from evener.transcript.reply import Stop, Usage
from evener.transport.secrets import note_secret

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
USED = 'Wm1"Kp8\\Xs3Vb6/Hd9Rf2Lc5é'
"""A key that this process has used. No shape is known for it, and in JSON it is written with escapes."""
LOOKS = "sk-proj-Tn4Wm1Kp8Xs3Vb6Hd9Rf2Lc5Gj0Ya"
"""What only looks like a key."""
PIECES = ("Wm1", "Xs3Vb6", "Hd9Rf2Lc5", "Tn4Wm1Kp8")
BLOCKS: tuple[Block, ...] = (
    TextBlock("block text", (Citation("http://cited", "cited title", "cited quote"),)),
    ReasoningBlock(
        "block reasoning", Seal('{"a":"seal data"}', Origin("wire", "seller", "http://sealer", "sealer", "account"), id="sid")
    ),
    ImageBlock(Remote("http://image"), "image/png", "image detail"),
    DocumentBlock(Uploaded("file id", "file wire", "file seller"), "application/pdf", "file name"),
    DocumentBlock(Inline("AAAA"), "video/mp4"),
    HostedBlock('{"type":"hosted type"}', "hosted wire", "hosted text", opens="hosted opens", id="hosted id"),
    HostedBlock('{"type":"told type"}', "told wire", "told text", closes="hosted opens"),
    ToolCall("call 1", "look", '{"what":"call argument"}'),
    ToolCall("call 2", "look", "no json"),
    ToolResult("call 0", (TextBlock("result text"),)),
)
USE = ev.Nested(requests=1, usage=Usage(1, 1))


def said(text: str, *blocks: Block) -> Message:
    origin = Origin("wire", "seller", "http://host.example:8080/v1", "answering model", "account")
    return Message("assistant", (TextBlock(text), *blocks), id=f"id of {text}", origin=origin, usage=Usage(9, 5, 2, 2, 4, 1))


SETTINGS = ModelSettings(
    stop=("stop 1", "stop 2"), tool_choice="choice", service_tier="tier", cache_key="cache key",
    extra=(Extra("wire", '{"a":"extra body"}', (), "seller"),), temperature=0.5,
)  # fmt: skip
TOOLS = (
    ToolSpec(
        "look", "tool about", '{"type":"object","title":"schema title"}', extra='{"a":"extra"}', free=FreeText("lark", "x"),
    ),
    ToolSpec("pay", "pay about", namespace=Namespace("space", "space about")),
)  # fmt: skip
RUN: tuple[ev.Event, ...] = (
    ev.Opened(at=1.0, thread="thread", harness="a/harness", parent="parent", parent_hash="hash", label="label"),
    ev.Configured(at=1.0, model="openai:gpt-5", system=(TextBlock("system text"),), tools=TOOLS),
    ev.Imported(at=1.0, messages=(said("imported"),)),
    ev.Prompted(at=2.0, run="run", message=said("prompt", *BLOCKS), trace=CALLER, settings=SETTINGS, metadata='{"a":"of"}'),
    ev.ModelCalled(at=3.0, model="openai:gpt-5", id="request 1", notices=(("notice key", "notice text"),)),
    ev.ModelFailed(at=4.0, error="RateLimited", message="slow down", status=429, request="request digest", model="not asked"),
    ev.Evicted(at=4.1, id="cut", cuts=(ev.ContextCut("cut message", 0, "result", blob="cut blob"),), cause="gate", head="head"),
    ev.Compacted(at=4.2, id="sum", summary=said("summary"), until="until", kept=("kept",), model="openai:small", focus="focus"),
    ev.CompactionFailed(at=4.3, detail="no summary", model="openai:smaller"),
    ev.ContextRestored(at=4.4, id="restored"),
    ev.Pinned(at=4.5, message="pinned"),
    ev.ModelCalled(at=5.0, model="openai:gpt-5", rests=ev.Held(mode="chain", id="previous answer", trail="trail")),
    ev.Replied(
        at=6.0, message=said("answer", *BLOCKS), stop=Stop("tools", "raw stop", "stop detail"), tries=2, reply="reply id",
        losses=(Loss("dropped", "lost", "loss why", "loss message", "loss code", "loss path"),),
        problems=("problem",), output='{"a":"output"}', ended="ended",
        held=ev.Held(mode="conversation", id="held id"), request="answer digest", raw_blob="raw blob",
    ),
    ev.Steered(at=6.1, message=said("steering"), refused="steer refused"),
    ev.ApprovalAsked(at=6.2, id="asked", interrupt="tool", questions=(ev.Question("call 1", "digest", "why", "rule"),)),
    ev.ApprovalDecided(at=6.3, id="asked", key="call 1", verdict="allow", why="decision", digest="d", by="user", result="gave"),
    ev.CallStarted(at=7.0, call="call 1", tool="look", key="key 1", digest="call digest", rule="start rule"),
    ev.CallPaused(at=7.1, call="call 1", thread="inner thread", nested=USE),
    ev.CallFinished(
        at=8.0, call="call 1", ok=True, content=(TextBlock("found it"),), metadata='{"a":"tool metadata"}', nested=USE,
        rule="end rule", spilled=ev.Spilled("spilled", 9), why="end why", reveals=("pay",),
    ),
    ev.CallStarted(at=8.1, call="call 2", tool="pay", key="key 2"),
    ev.CallFinished(at=8.2, call="call 2", ok=False, content=(TextBlock("not paid"),), outcome="unknown"),
    ev.CallStarted(at=8.3, call="call 3", tool="no tool", key="key 3"),
    ev.MediaFetched(at=8.4, source="http://image", digest="image digest", media_type="image/png"),
    ev.ModelCalled(at=8.5, model="alone", id="request 3"),
    ev.Resumed(at=9.0, epoch=2, nested=(("call 3", USE),), results=(ev.CallFinished(at=9.0, call="call 3", ok=True),)),
    ev.CallStarted(at=9.1, call="call 4", tool="look", key="key 4"),
    ev.ApprovalAsked(at=9.2, id="open", interrupt="limit", questions=(ev.Question("limit", "digest"),)),
    ev.Continued(at=9.3, run="run"),
    ev.Cancelled(at=9.4, why="cancelled"),
    ev.Finished(at=9.5, run="run", cause="provider_error", detail="finish detail", limit=ev.LimitHit("requests", 1, 1)),
)  # fmt: skip


def texts_of(value: Any, field: str = "") -> Iterator[str]:
    """Yield all texts in a JSON value but those of fields that hold one of a few words."""
    match value:
        case str():
            if field not in fixed_fields():
                yield value
        case list():
            for item in value:
                yield from texts_of(item, field)
        case dict():
            for name, item in value.items():
                yield from texts_of(item, name)


def plant(value: Any, old: str, new: str) -> Any:
    """Return a JSON value with another text wherever it had this one."""
    match value:
        case str():
            return new if value == old else value
        case list():
            return [plant(item, old, new) for item in value]
        case dict():
            return {name: item if name in fixed_fields() else plant(item, old, new) for name, item in value.items()}
    return value


PLAIN = [msgspec.json.decode(ev.encode_event(event)) for event in RUN]
TEXTS = sorted({*texts_of(PLAIN), "log", "agent"})


def planted(old: str, new: str) -> EndedRun:
    """Return the run with another text in all places that have this one, so that what belongs together still does."""
    events = tuple(ev.decode_event(msgspec.json.encode(one)) for one in plant(PLAIN, old, new))
    return EndedRun(plant("log", old, new), plant("agent", old, new), events)


def test_the_run_has_every_kind_of_event() -> None:
    assert {type(event) for event in RUN} == set(ev.Event.__args__)
    assert len(spans_of([planted("", "")], content=False)) == 14
    assert len(TEXTS) > 100


def test_lines_are_written_as_their_spans_are() -> None:
    """Most spans are never made as such. With a text that may be secret, they are."""
    run, odd = planted("", ""), planted("reply id", f"reply {LOOKS}")
    assert {type(one) for one in lines_of([run])} == {SpanLine, TraceSpan}
    assert {type(one) for one in lines_of([run, odd])} == {TraceSpan}
    for runs in ([run], [odd], [run, odd, run]):
        assert encode_spans(lines_of(runs)) == encode_spans(spans_of(runs, content=False))


@pytest.mark.parametrize("content", [False, True], ids=["without content", "with content"])
@pytest.mark.parametrize("secret", [USED, LOOKS], ids=["used", "looks like a key"])
def test_a_secret_in_any_text_of_any_event_never_leaves(secret: str, content: bool, tmp_path: Path) -> None:
    note_secret(USED)
    for text in TEXTS:
        for new in (secret, f"{text} {secret}", f'{{"a":"{secret}"}}' if secret is LOOKS else secret):
            if not can_stand(text, new):
                continue
            run = planted(text, new)
            TraceFolder(tmp_path).send(spans_of([run], content=True) if content else lines_of([run]))
            later = fold_spans(run.events, log=run.log, agent=run.agent, content=content)
            left = encode_spans(redact_spans(later, trace_funnel(), content=content))
            (file,) = tmp_path.iterdir()
            for written in (file.read_text(), left.decode()):
                assert [piece for piece in PIECES if piece in written] == [], (text, new)
            file.unlink()


CALM = {1.0, 2.0, 5.0, 6.0, 7.0, 8.0, 8.1, 8.2, 9.5}
"""When there was an event that no other span tells of than a line, or the span of the run."""


@pytest.mark.parametrize("secret", [USED, LOOKS], ids=["used", "looks like a key"])
def test_a_secret_never_leaves_in_the_lines_of_a_run_without_incidents(secret: str) -> None:
    """There is no other span whose texts are searched."""
    note_secret(USED)
    calm = planted("", "")
    assert {type(one) for one in lines_of([without_incidents(calm)])} == {SpanLine, TraceSpan}
    for text in TEXTS:
        for new in (secret, f"{text} {secret}"):
            if can_stand(text, new):
                run = without_incidents(planted(text, new))
                written = encode_spans(lines_of([run]))
                assert written == encode_spans(spans_of([run], content=False)), (text, new)
                assert [piece for piece in PIECES if piece in written.decode()] == [], (text, new)


def without_incidents(run: EndedRun) -> EndedRun:
    return msgspec.structs.replace(run, events=tuple(event for event in run.events if event.at in CALM))


def can_stand(old: str, new: str) -> bool:
    """True if a log can have this text in the place of that one."""
    try:
        planted(old, new)
    except EvenerError:
        return False
    return True
