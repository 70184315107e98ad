"""Answers whose carrying fields are of the wrong type: each ends in a typed error, and nothing of them passes unseen."""

import json

import pytest

from evener import errors as e
from evener.transcript import delta as d
from evener.wire import CODECS, Quirks

Json = dict[str, object]

TEXT: Json = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant"}
PART: Json = {"type": "output_text", "text": "yes", "annotations": [], "logprobs": []}
CALL: Json = {"type": "function_call", "id": "fc_1", "status": "completed", "call_id": "c", "name": "look", "arguments": "{}"}
CREATED: Json = {"type": "response.created", "response": {"id": "r", "model": "m"}}
COMPLETED: Json = {"type": "response.completed", "response": {"object": "response", "status": "completed", "output": []}}


def deltas(wire: str, *events: Json) -> list[d.Delta]:
    decoder = CODECS[wire].decoder(Quirks())
    data = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    return decoder.feed(data) + decoder.close()


def failure(found: list[d.Delta]) -> e.EvenerError:
    last = found[-1]
    assert isinstance(last, d.Failed), last
    return last.error


def begun(**block: object) -> Json:
    return {"type": "content_block_start", "index": 0, "content_block": block}


ANTHROPIC = {
    "the id of a call": begun(type="tool_use", id=7, name="look", input={}),
    "no id of a call": begun(type="tool_use", id=None, name="look", input={}),
    "the text": begun(type="text", text=7),
    "the type of a block": begun(type=7),
    "no block": {"type": "content_block_start", "index": 0},
    "the index of a block": {"type": "content_block_start", "index": "x", "content_block": {"type": "novel"}},
    "the content of the message": {"type": "message_start", "message": {"id": "m", "content": 7}},
    "the type of the message": {"type": "message_start", "message": {"id": "m", "type": None}},
    "the reason of the message": {"type": "message_start", "message": {"id": "m", "stop_reason": 7}},
}


@pytest.mark.parametrize("event", ANTHROPIC.values(), ids=ANTHROPIC)
def test_a_wrong_field_of_an_anthropic_event_is_an_error(event: Json) -> None:
    found = deltas("anthropic_messages", event, {"type": "message_stop"})

    assert type(failure(found)) is e.WireError
    assert not any(isinstance(delta, d.Notice) for delta in found)


def test_an_error_in_place_of_a_piece_is_an_error() -> None:
    found = deltas(
        "anthropic_messages", {"type": "content_block_delta", "error": {"type": "overloaded_error", "message": "Full."}}
    )

    assert type(failure(found)) is e.Overloaded


@pytest.mark.parametrize("block", [{"type": "tool_use", "id": 7, "name": "look"}, {"type": "text", "text": 7}, {"type": 7}])
def test_a_wrong_field_of_a_whole_anthropic_answer_is_an_error(block: Json) -> None:
    body = json.dumps({"type": "message", "id": "m", "model": "m", "content": [block], "stop_reason": "end_turn"})

    with pytest.raises(e.WireError):
        CODECS["anthropic_messages"].decode(body.encode(), Quirks())


def test_more_fields_of_a_block_are_kept_as_they_came() -> None:
    plain = begun(type="tool_use", id="t", name="look", input={})
    more = begun(type="tool_use", id="t", name="look", input={}, caller={"type": "direct"}, nothing=None)
    stop: list[Json] = [{"type": "content_block_stop", "index": 0}, {"type": "message_stop"}]
    seal = d.SealAdded(0, "call", '{"caller":{"type": "direct"}}')

    assert deltas("anthropic_messages", plain, *stop)[:-1] == [d.CallBegun(0, "t", "look"), d.CallEnded(0, "{}")]
    assert deltas("anthropic_messages", more, *stop)[:-1] == [d.CallBegun(0, "t", "look"), seal, d.CallEnded(0, "{}")]


ITEMS = {
    "no call id": {**CALL, "call_id": None},
    "a call id": {**CALL, "call_id": 7},
    "no name": {**CALL, "name": None},
    "arguments": {**CALL, "arguments": 7},
    "no type": {**CALL, "type": None},
    "a message's content": {**TEXT, "content": None},
    "a message's text": {**TEXT, "content": [{**PART, "text": 7}]},
    "a message's part": {**TEXT, "content": [7]},
}


@pytest.mark.parametrize("item", ITEMS.values(), ids=ITEMS)
def test_a_wrong_field_of_an_item_is_an_error(item: Json) -> None:
    done: Json = {"type": "response.output_item.done", "output_index": 0, "item": item}
    last: Json = {"type": "response.completed", "response": {"object": "response", "output": [item]}}

    for events in ([CREATED, done, COMPLETED], [CREATED, last]):
        found = deltas("openai_responses", *events)
        assert type(failure(found)) is e.WireError
        assert not any(isinstance(delta, d.Notice) for delta in found)
    with pytest.raises(e.WireError):
        CODECS["openai_responses"].decode(json.dumps(last["response"]).encode(), Quirks())


WITHOUT = {
    "no item that begins": {"type": "response.output_item.added", "output_index": 0},
    "no item that ends": {"type": "response.output_item.done", "output_index": 0, "item": None},
    "no response that ends": {"type": "response.completed"},
    "a response that failed": {"type": "response.failed", "response": 7},
    "a response that failed without a word": {"type": "response.failed", "response": {"error": 7}},
    "a response that failed beside a number": {"type": "response.failed", "response": {}, "output_index": "x"},
}


@pytest.mark.parametrize("event", WITHOUT.values(), ids=WITHOUT)
def test_an_event_that_must_be_understood_is_an_error_when_it_is_not(event: Json) -> None:
    found = deltas("openai_responses", event, COMPLETED)

    assert type(failure(found)) is e.WireError
    assert not any(isinstance(delta, d.Notice) for delta in found)


@pytest.mark.parametrize(
    "beside", [{}, {"response": 7}, {"response": {"id": 7}}, {"delta": 7}, {"output_index": "x"}, {"item": []}]
)
@pytest.mark.parametrize("event", [{"type": "error"}, {"type": "response.novel"}])
def test_an_error_stays_an_error_whatever_stands_beside_it(event: Json, beside: Json) -> None:
    complaint: Json = {"error": {"type": "rate_limit_error", "code": "rate_limit_exceeded", "message": "Slow down."}}

    assert type(failure(deltas("openai_responses", CREATED, {**event, **complaint, **beside}))) is e.RateLimited


@pytest.mark.parametrize("error", [None, 7, "Slow down.", []])
def test_an_error_event_is_an_error_whatever_it_holds(error: object) -> None:
    assert isinstance(failure(deltas("openai_responses", CREATED, {"type": "error", "error": error})), e.EvenerError)


def test_a_response_that_nobody_looks_at_may_hold_anything() -> None:
    told: Json = {"type": "response.output_text.delta", "output_index": 0, "delta": "yes", "response": 7}

    found = deltas("openai_responses", CREATED, {"type": "response.in_progress", "response": {"id": 7}}, told, COMPLETED)

    assert found[1] == d.TextDelta(0, "yes")
    assert not any(isinstance(delta, d.Notice | d.Failed) for delta in found)


def test_items_say_the_same_in_a_plain_form_and_in_any_other() -> None:
    for item, more in (({**TEXT, "content": [PART]}, {"phase": None}), (CALL, {"namespace": None})):
        one, other = (
            deltas(
                "openai_responses", CREATED, {"type": "response.output_item.done", "output_index": 0, "item": form}, COMPLETED
            )
            for form in (item, {**item, **more})
        )
        assert [type(delta) for delta in one] == [type(delta) for delta in other]
        assert one == other


def test_counts_of_a_strange_form_are_a_notice_and_the_chunk_counts() -> None:
    choice: Json = {"index": 0, "delta": {"content": "yes"}, "finish_reason": "stop"}
    odd: Json = {"id": "i", "model": "m", "choices": [choice], "usage": {"prompt_tokens": "many"}}

    found = deltas("openai_chat", odd)

    notice = d.Notice("usage.prompt_tokens", '"many"')
    assert found == [d.Started("i", "m"), d.TextDelta(2, "yes"), notice, d.Stopped("done", "stop")]
    assert notice in deltas("openai_chat", {"usage": {"prompt_tokens": "many"}}, odd)
    assert d.Notice("usage", "7") in deltas("openai_chat", {**odd, "usage": 7})
    assert type(failure(deltas("openai_chat", {**odd, "choices": 7}))) is e.WireError


def test_empty_counts_say_nothing() -> None:
    choice: Json = {"index": 0, "delta": {"content": "yes"}, "finish_reason": "stop"}

    found = deltas("openai_chat", {"id": "i", "choices": [choice], "usage": {"prompt_tokens": 5}}, {"choices": [], "usage": {}})

    assert [delta.usage.input_total for delta in found if isinstance(delta, d.UsageReported)] == [5]


def test_the_end_mark_may_have_spaces_around_it() -> None:
    decoder = CODECS["openai_chat"].decoder(Quirks())
    chunk = b'{"id":"i","choices":[{"delta":{"content":"yes"},"finish_reason":"stop"}]}'
    found = decoder.feed(b"data: " + chunk + b"\n\ndata:  [DONE]  \n\n")

    assert found[-1] == d.Stopped("done", "stop")
    assert decoder.close() == []
