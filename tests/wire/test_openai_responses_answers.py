"""Responses answers, case by case: what imitators of the wire get wrong without doing harm."""

import json
from typing import Any

import pytest

from evener.errors import Overloaded, TruncatedStream, WireError
from evener.transcript import delta as d
from evener.wire import CODECS, Quirks, assemble

Json = dict[str, Any]
CREATED: Json = {"type": "response.created", "response": {"id": "r", "model": "m"}}
SAID: Json = {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "x"}
COMPLETED: Json = {"type": "response.completed", "response": {"id": "r", "model": "m", "status": "completed"}}


def deltas(*events: Json) -> list[d.Delta]:
    decoder = CODECS["openai_responses"].decoder(Quirks())
    return decoder.feed(b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events)) + decoder.close()


@pytest.mark.parametrize("response", ["r", 2, {"output": "none yet"}, {"usage": "?"}], ids=str)
def test_a_response_that_nobody_looks_at_may_have_any_form(response: object) -> None:
    beside = {"type": "response.in_progress", "response": response}
    told = deltas(CREATED, beside, {**SAID, "response": response}, COMPLETED)
    assert [type(delta) for delta in told] == [d.Started, d.TextDelta, d.Stopped]


def test_an_unknown_event_with_a_response_of_any_form_is_a_notice() -> None:
    assert [type(delta) for delta in deltas(CREATED, {"type": "response.odd", "response": 2}, COMPLETED)] == [
        *(d.Started, d.Notice, d.Stopped),
    ]


@pytest.mark.parametrize("kind", ["response.completed", "response.incomplete", "response.failed"])
def test_a_response_that_is_needed_must_be_one(kind: str) -> None:
    (failed,) = deltas({"type": kind, "response": 2})
    assert isinstance(failed, d.Failed)
    assert isinstance(failed.error, WireError)


REPEATED = ["response.in_progress", "response.content_part.done", "response.output_text.done", "response.content_part.novel"]


@pytest.mark.parametrize("kind", REPEATED)
def test_an_event_that_is_repeated_elsewhere_says_nothing_unless_it_is_an_error(kind: str) -> None:
    beside = {"type": kind, "output_index": 0, "item": 7, "text": "x"}
    full = {"message": "Full.", "type": "overloaded_error"}

    told = deltas(CREATED, {**beside, "error": None}, SAID, COMPLETED)
    assert [type(delta) for delta in told] == [d.Started, d.TextDelta, d.Stopped]
    (_, failed) = deltas(CREATED, {**beside, "error": full}, COMPLETED)
    assert isinstance(failed, d.Failed)
    assert isinstance(failed.error, Overloaded)


@pytest.mark.parametrize("field", ["output_index", "content_index", "summary_index", "delta"])
def test_a_known_name_with_a_field_of_another_form_is_not_the_event_we_know(field: str) -> None:
    (_, told, _) = deltas(CREATED, {"type": "response.content_part.added", field: {}}, COMPLETED)
    assert isinstance(told, d.Notice)

    last = deltas(CREATED, {**SAID, field: {}}, COMPLETED)[-1]
    assert isinstance(last, d.Stopped if field == "summary_index" else d.Failed)  # a text has no summary


def test_a_message_that_begins_may_have_any_form() -> None:
    begun = {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": 7, "novel": True}}
    assert [type(delta) for delta in deltas(CREATED, begun, COMPLETED)] == [d.Started, d.Stopped]


def event(kind: str, item: Json | None = None, **more: object) -> Json:
    return {"type": f"response.{kind}", "output_index": 0, **({"item": item} if item else {}), **more}


def message(text: str, **own: str) -> Json:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}], **own}


def call(number: int, **own: str) -> Json:
    return {"type": "function_call", "call_id": f"c{number}", "name": "f", "arguments": f'{{"x":{number}}}', **own}


@pytest.mark.parametrize("own", [True, False], ids=["with ids", "without"])
@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize("closed", [True, False])
def test_items_that_share_one_number_are_kept_apart(own: bool, announced: bool, closed: bool) -> None:
    """A clone that always says 0, or nothing: without this the text of one item was replaced by the arguments of the next."""
    items = [message("x"), call(1), call(2)]
    for number, item in enumerate(items):
        item |= {"id": f"i{number}", "status": "completed"} if own else {}
    told: list[Json] = [CREATED]
    for item in items:
        told += [event("output_item.added", {**item, "content": [], "arguments": ""})] if announced else []
        told += [SAID if item["type"] == "message" else event("function_call_arguments.delta", delta="{")] if announced else []
        told += [event("output_item.done", item)] if closed or not announced or item["type"] != "message" else []
    reply = assemble(deltas(*told, COMPLETED))
    assert (reply.text, [(one.id, one.args) for one in reply.calls]) == ("x", [("c1", {"x": 1}), ("c2", {"x": 2})])


def test_an_item_that_ends_twice_counts_once() -> None:
    done = event("output_item.done", call(1, id="i1", status="completed"))
    assert len(assemble(deltas(CREATED, done, done, COMPLETED)).calls) == 1


@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_calls_of_an_answer_that_is_still_being_written_do_not_count(status: str) -> None:
    half = {"id": "r", "object": "response", "status": status, "output": [call(1, status="in_progress")]}
    with pytest.raises(TruncatedStream):
        CODECS["openai_responses"].decode(json.dumps(half).encode(), Quirks())
    none_yet = CODECS["openai_responses"].decode(json.dumps({**half, "output": []}).encode(), Quirks())
    assert none_yet.stop.reason == "pending"


def test_a_part_of_unknown_kind_without_text_is_a_notice() -> None:
    part = {"type": "output_audio", "transcript": "Hello."}
    said = {**message(""), "content": [part]}
    reply = assemble(deltas(CREATED, event("output_item.done", said), COMPLETED))
    assert [(name, json.loads(raw)) for name, raw in reply.notices] == [("output_audio", part)]
