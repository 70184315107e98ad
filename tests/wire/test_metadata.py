"""A paid answer is never lost for what stands beside it: text, calls and stop survive, the odd field is a notice."""

import json
from contextlib import suppress
from importlib import import_module
from typing import Any

import pytest

from evener import errors as e
from evener.transcript import Citation, HostedBlock, Reply, TextBlock
from evener.transcript import delta as d
from evener.wire import CODECS, Quirks, assemble
from tests.model.half import CALL, STREAMS, body, data

Json = dict[str, Any]
WIRES = ("anthropic_messages", "openai_responses", "openai_chat", "gemini")
wires = pytest.mark.parametrize("wire", WIRES)
PLAIN = Quirks()


def whole(wire: str, document: Json | bytes) -> Reply:
    return CODECS[wire].decode(document if isinstance(document, bytes) else json.dumps(document).encode(), PLAIN)


def streamed(wire: str, events: bytes) -> Reply:
    """The reply, which is the same however the bytes are cut."""
    decoder = CODECS[wire].decoder(PLAIN)
    found = decoder.feed(events) + decoder.close()
    decoder = CODECS[wire].decoder(PLAIN)
    pieces = [delta for place in range(len(events)) for delta in decoder.feed(events[place : place + 1])] + decoder.close()
    assert pieces == found
    return assemble(found)


def survives(reply: Reply) -> None:
    assert reply.text == "Hello"
    assert [(one.id, one.name, json.loads(one.raw)) for one in reply.calls] == [(CALL[0], CALL[1], json.loads(CALL[2]))]
    assert reply.stop.reason in ("tools", "done")


def names(reply: Reply) -> list[str]:
    return [name for name, _ in reply.notices]


# Token counts.

COUNTS = {
    "anthropic_messages": ("usage", "input_tokens"),
    "openai_responses": ("usage", "input_tokens"),
    "openai_chat": ("usage", "prompt_tokens"),
    "gemini": ("usageMetadata", "promptTokenCount"),
}
ODD = ["many", None, True, -5, 12.5, 10**30, 1e300, [1], {"n": 1}]


@wires
@pytest.mark.parametrize("odd", ODD, ids=str)
def test_odd_token_counts_count_nothing_and_cost_nothing(wire: str, odd: object) -> None:
    usage, prompt = COUNTS[wire]
    for counts in (odd, {prompt: odd}, {prompt: 3, "output_tokens_details": odd, "completion_tokens_details": odd}):
        reply = whole(wire, {**body(wire, "all"), usage: counts})
        survives(reply)
        assert 0 <= reply.usage.input_total <= 12
    kept = whole(wire, {**body(wire, "all"), usage: {prompt: 3, "output_tokens": odd, "candidatesTokenCount": odd}})
    assert kept.usage.input_total == 3


@wires
def test_odd_token_counts_in_a_stream_are_a_notice(wire: str) -> None:
    usage, prompt = COUNTS[wire]
    stream = STREAMS[wire]("all")
    (stop,) = stream.stop
    place = stop["response"] if wire == "openai_responses" else stop
    place[usage] = {prompt: "many"}
    reply = streamed(wire, data(stream.whole))
    survives(reply)
    assert any(name.endswith(prompt) for name in names(reply))


# Names and dates of the answer itself.


@wires
@pytest.mark.parametrize("odd", [7, None, True, 1.5, [], {}, ["x"], {"x": 1}], ids=str)
def test_ids_models_and_dates_may_be_anything(wire: str, odd: object) -> None:
    facts = ("id", "model", "created", "created_at", "object", "role", "modelVersion", "responseId", "system_fingerprint")
    survives(whole(wire, {**body(wire, "all"), **dict.fromkeys(facts, odd)}))
    stream = STREAMS[wire]("all")
    for event in (*stream.said, *stream.stop):
        event.update(dict.fromkeys(("created", "created_at", "system_fingerprint", "sequence_number", "modelVersion"), odd))
        if wire != "openai_responses":
            event.update({"id": odd, "model": odd, "responseId": odd})
    survives(streamed(wire, data(stream.whole)))


# Surrogates, and numbers that JSON does not have.


@wires
@pytest.mark.parametrize(
    ("spelled", "read"),
    [(r"\ud83d", "\ufffd"), (r"\ude00\ud83d", "\ufffd\ufffd"), (r"\ud83d\ude00", "\U0001f600"), (r"\\ud83d", r"\ud83d")],
)
def test_a_lone_half_of_a_surrogate_pair_is_replaced(wire: str, spelled: str, read: str) -> None:
    for reply in (
        whole(wire, json.dumps(body(wire, "all")).replace('"Hel', f'"{spelled}Hel').encode()),
        streamed(wire, data(STREAMS[wire]("all").whole).replace(b'"Hel', f'"{spelled}Hel'.encode())),
    ):
        assert reply.text == f"{read}Hello"
        assert reply.calls
        assert ("lone surrogate" in names(reply)) == ("\ufffd" in read)


@wires
def test_a_lone_half_beside_the_text_or_in_arguments_costs_nothing(wire: str) -> None:
    half = r'"\ud83d"'
    document = json.dumps({**body(wire, "all"), "service_tier": "HALF", "usage": {"x": "HALF"}}).replace('"HALF"', half)
    survives(whole(wire, document.encode()))
    odd = json.loads(CALL[2]) | {"note": "HALF"}
    for written, given in (
        (json.dumps(json.dumps(odd)), json.dumps(CALL[2])),
        (json.dumps(odd), json.dumps(json.loads(CALL[2]))),
    ):
        text = (
            json.dumps(body(wire, "call"))
            .replace(given, written)
            .replace("HALF", r"\ud83d" if written[0] == "{" else r"\\ud83d")
        )
        (call,) = whole(wire, text.encode()).calls
        assert json.loads(call.raw)["amount"] == 1
        assert "\\ud83d" not in call.raw


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_number_in_json_is_null(number: str) -> None:
    document = json.dumps(body("openai_chat", "all")).replace(
        '"index": 0, "message"', f'"logprobs": {{"x": {number}}}, "message"'
    )
    assert number in document
    reply = whole("openai_chat", document.encode())
    survives(reply)
    assert "not a number" in names(reply)


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" + "0" * 5000], ids=["large", "small", "long"])
@pytest.mark.parametrize("field", ["content", "title"])
def test_a_number_that_no_machine_holds_costs_nothing_in_what_the_provider_did_itself(field: str, number: str) -> None:
    hosted = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"url": "u", "title": "t"}]}
    hosted = hosted | {"content": "@"} if field == "content" else hosted | {"content": [{"url": "u", "title": "@"}]}
    said = {"type": "text", "text": "Hello"}
    call = {"type": "tool_use", "id": CALL[0], "name": CALL[1], "input": json.loads(CALL[2])}
    document = body("anthropic_messages", "text") | {"content": [hosted, said, call]}
    reply = whole("anthropic_messages", json.dumps(document).replace('"@"', number).encode())
    survives(reply)
    assert number in next(block.raw for block in reply.blocks if isinstance(block, HostedBlock))


@pytest.mark.parametrize("role", ["model", "Assistant", "NaN", "\u2028"])
def test_a_message_of_an_unknown_role_is_the_answer(role: str) -> None:
    """It was a block of the provider's own before: an answer without a text that was done."""
    wire = "openai_responses"
    document = body(wire, "all")
    for item in document["output"]:
        item |= {"role": role} if item["type"] == "message" else {}
    survives(whole(wire, document))
    events = STREAMS[wire]("all").whole
    swapped = json.loads(json.dumps(events).replace('"role": "assistant"', f'"role": {json.dumps(role)}'))
    assert swapped != list(events)
    survives(streamed(wire, data(tuple(swapped))))


# What a text rests on.

CITED = {"type": "url_citation", "url_citation": {"url": "u", "title": "t"}}
FILE = {"type": "file", "file": {"hash": "h", "name": "n", "content": [{"type": "text", "text": "x"}]}}


@pytest.mark.parametrize(
    "odd", [FILE, {"type": "file", "file": 7}, 7, "x", None, [], {"type": ["x"]}, {"url_citation": None}], ids=str
)
def test_annotations_of_another_shape_are_notices_beside_those_that_are_known(odd: object) -> None:
    document = body("openai_chat", "all")
    document["choices"][0]["message"]["annotations"] = [CITED, odd]
    stream = STREAMS["openai_chat"]("all")
    stream.said[3]["choices"][0]["delta"]["annotations"] = [CITED, odd]
    for reply in (whole("openai_chat", document), streamed("openai_chat", data(stream.whole))):
        survives(reply)
        cited = [one for block in reply.blocks if isinstance(block, TextBlock) for one in block.citations]
        assert cited[0] == Citation("u", "t")
    if odd is FILE:
        assert ("annotation", json.dumps(FILE)) in reply.notices


BESIDE: dict[str, list[Json]] = {
    "openai_chat": [
        {"annotations": "x"}, {"refusal": {"why": "x"}}, {"refusal": "No."}, {"refusal": 7}, {"audio": 7},
        {"audio": {"id": 7, "transcript": [], "expires_at": "x"}}, {"reasoning_details": [7, {"type": 7, "text": 7}]},
        {"reasoning_content": 7}, {"reasoning": ["x"]}, {"executed_tools": [7]}, {"executed_tools": "x"},
    ],
    "anthropic_messages": [
        {"citations": 7}, {"citations": [7, None, {"url": 7, "start_char_index": "x"}, {"type": []}]}, {"citations": {"x": 1}},
        {"id": 7}, {"name": None}, {"thinking": 7},
    ],
    "openai_responses": [
        {"annotations": 7}, {"annotations": [7, None, {"url": 7, "start_index": 1.5}]}, {"refusal": 7},
        {"logprobs": 7}, {"logprobs": {"x": []}},
    ],
    "gemini": [{"thoughtSignature": 7}, {"partMetadata": 7}, {"videoMetadata": "x"}],
}  # fmt: skip


@pytest.mark.parametrize(("wire", "odd"), [(wire, odd) for wire, several in BESIDE.items() for odd in several], ids=str)
def test_what_stands_beside_a_text_may_have_any_form(wire: str, odd: Json) -> None:
    document = body(wire, "all")
    stream = STREAMS[wire]("all")
    match wire:
        case "openai_chat":
            document["choices"][0]["message"] |= odd
            stream.said[2]["choices"][0]["delta"] |= odd
        case "anthropic_messages":
            document["content"][1] |= odd
            next(one for one in stream.said if one.get("index") == 1)["content_block"] |= odd
        case "openai_responses":
            document["output"][1]["content"][0] |= odd
            next(one for one in stream.said if one["type"].endswith("done") and one["output_index"] == 1)["item"]["content"][
                0
            ] |= odd
        case _:
            document["candidates"][0]["content"]["parts"][1] |= odd
            stream.said[1]["candidates"][0]["content"]["parts"][0] |= odd
    survives(whole(wire, document))
    survives(streamed(wire, data(stream.whole)))


@pytest.mark.parametrize(
    "name",
    [
        "safetyRatings",
        "groundingMetadata",
        "citationMetadata",
        "urlContextMetadata",
        "logprobsResult",
        "avgLogprobs",
        "finishMessage",
        "tokenCount",
    ],
)
@pytest.mark.parametrize("odd", [7, "x", [7], {"groundingChunks": 7, "citations": [7]}, True], ids=str)
def test_what_stands_beside_a_candidate_may_have_any_form(name: str, odd: object) -> None:
    document = body("gemini", "all")
    document["candidates"][0][name] = odd
    survives(whole("gemini", document))
    stream = STREAMS["gemini"]("all")
    stream.stop[0]["candidates"][0][name] = odd
    survives(streamed("gemini", data(stream.whole)))


@pytest.mark.parametrize("name", ["logprobs", "native_finish_reason", "content_filter_results", "usage", "stop_reason"])
@pytest.mark.parametrize("odd", [7, "x", [7], {"x": 7}, True, 1.5], ids=str)
def test_what_stands_beside_a_choice_may_have_any_form(name: str, odd: object) -> None:
    document = body("openai_chat", "all")
    document["choices"][0][name] = odd
    survives(whole("openai_chat", {**document, "moderation": odd, "prompt_filter_results": odd}))


@pytest.mark.parametrize("odd", [7, "x", [], {}, {"x": 1}, True], ids=str)
def test_what_is_no_error_of_an_answer_that_was_completed_is_a_notice(odd: object) -> None:
    kind = "response" if isinstance(odd, str) else odd
    reply = whole(
        "openai_responses", {**body("openai_responses", "all"), "error": odd, "incomplete_details": odd, "object": kind}
    )
    survives(reply)
    assert "error" in names(reply)
    real = {"code": "rate_limit_exceeded", "message": "Slow."}
    with pytest.raises(e.RateLimited):
        whole("openai_responses", {**body("openai_responses", "all"), "error": real})


# An answer that says nothing.


def both(delta: object, message: object) -> Json:
    return {"id": "m", "choices": [{"index": 0, "delta": delta, "message": message, "finish_reason": "stop"}]}


@pytest.mark.parametrize("empty", [{}, {"role": "assistant", "content": ""}, {"content": None}, None], ids=str)
def test_a_choice_with_a_message_and_a_delta_is_read_from_the_one_that_speaks(empty: object) -> None:
    full = {"role": "assistant", "content": "Hello"}
    for document in (both(empty, full), both(full, empty)):
        assert whole("openai_chat", document).text == "Hello"
        assert streamed("openai_chat", data((document, "[DONE]"))).text == "Hello"
    called = {"tool_calls": [{"id": "c", "function": {"name": "pay", "arguments": "{}"}}]}
    for document in (both(empty, called), both(called, empty)):
        assert [call.id for call in whole("openai_chat", document).calls] == ["c"]
        assert [call.id for call in streamed("openai_chat", data((document, "[DONE]"))).calls] == ["c"]


def test_messages_that_repeat_what_was_said_beside_each_delta_are_said_once() -> None:
    chunks = [both({"content": new}, {"content": told}) for new, told in (("Hel", "Hel"), ("lo", "Hello"), ("", "Hello"))]
    grows = [both({}, {"content": told}) for told in ("Hel", "Hello", "Hello")]
    for events in (chunks, grows):
        for event in events[:-1]:
            event["choices"][0]["finish_reason"] = None
        assert streamed("openai_chat", data((*events, "[DONE]"))).text == "Hello"


@pytest.mark.parametrize(
    ("wire", "document"),
    [
        ("openai_chat", {"id": "m", "choices": [{"index": 0, "text": "Hello", "finish_reason": "stop"}]}),
        ("openai_chat", {"id": "m", "choices": [{"message": {"output": "Hello"}, "finish_reason": "stop"}]}),
        ("anthropic_messages", {"type": "message", "content": [], "completion": "Hello", "stop_reason": "end_turn"}),
        ("openai_responses", {"object": "response", "status": "completed", "output": [], "output_text": "Hello"}),
        ("gemini", {"candidates": [{"output": "Hello", "finishReason": "STOP"}]}),
    ],
    ids=str,
)
def test_an_answer_that_says_nothing_while_a_text_is_there_is_not_done_in_silence(wire: str, document: Json) -> None:
    reply = whole(wire, document)
    assert any("Hello" in raw for _, raw in reply.notices)
    if wire in ("openai_chat", "gemini"):
        assert any("Hello" in raw for _, raw in streamed(wire, data((document,))).notices)


def test_fields_that_carry_the_answer_must_be_what_they_are() -> None:
    for wire, change in (
        ("openai_chat", {"choices": [{"message": {"content": 7}, "finish_reason": "stop"}]}),
        ("anthropic_messages", {"content": [{"type": "text", "text": 7}]}),
        ("openai_responses", {"output": [{"type": "message", "content": [{"type": "output_text", "text": 7}]}]}),
        ("gemini", {"candidates": 7}),
    ):
        with pytest.raises(e.WireError):
            whole(wire, {**body(wire, "text"), **change})


@wires
def test_bytes_that_are_no_text_are_our_error_wherever_they_stand(wire: str) -> None:
    document = json.dumps({**body(wire, "all"), "error": {"x": "HERE"}, "usage": {"x": "HERE"}}).encode()
    for place in (b"Hm.", b"HERE", b"Hel", b"completed", CALL[1].encode()):
        with suppress(e.EvenerError):
            whole(wire, document.replace(place, b"\xff"))
    details = body("openai_chat", "text")
    details["choices"][0]["message"]["reasoning_details"] = [{"type": "x", "data": "HERE"}]
    with pytest.raises(e.WireError):
        whole("openai_chat", json.dumps(details).encode().replace(b"HERE", b"\xff"))


def test_the_usual_answer_needs_no_second_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    def mend(*_: object) -> None:
        raise AssertionError("a usual answer was mended")

    for wire in WIRES:
        monkeypatch.setattr(import_module(f"evener.wire.{wire}.decode"), "mend", mend)
        found = CODECS[wire].decoder(PLAIN).feed(data(STREAMS[wire]("all").whole))
        assert not any(isinstance(delta, d.Failed | d.Notice) for delta in found)
