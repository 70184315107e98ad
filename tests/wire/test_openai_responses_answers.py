"""Responses answers, case by case: what imitators of the wire get wrong without doing harm."""

import json
from typing import Any

import pytest

from evener.errors import Overloaded, WireError
from evener.transcript import delta as d
from evener.wire import CODECS, Quirks

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
