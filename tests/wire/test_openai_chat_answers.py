"""Chat Completions answers, case by case: every spelling and surprise of the dialects, whole and streamed, cut anywhere."""

import json
from typing import Any

import pytest

from evener import errors as e
from evener.transcript import (
    Citation,
    HostedBlock,
    ImageBlock,
    Inline,
    Message,
    Origin,
    ReasoningBlock,
    Reply,
    TextBlock,
    ToolCall,
)
from evener.transcript import delta as d
from evener.transcript.repair import make_id
from evener.wire import CODECS, Quirks, assemble

WIRE = "openai_chat"
CODEC = CODECS[WIRE]
PLAIN = Quirks()
Json = dict[str, Any]
STOP: Json = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
DONE = "[DONE]"


def stream(*chunks: Json | str) -> bytes:
    """Chunks as a server sends them; a text is sent as it is."""
    return b"".join(
        f"data: {one if isinstance(one, str) else json.dumps({'id': 'c-1', 'model': 'm', **one})}\n\n".encode()
        for one in chunks
    )


def said(delta: Json, **more: Any) -> Json:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None, **more}]}


def deltas(data: bytes, quirks: Quirks = PLAIN) -> list[d.Delta]:
    """The deltas of a stream, which are the same however it is cut."""
    decoder = CODEC.decoder(quirks)
    whole = decoder.feed(data) + decoder.close()
    decoder = CODEC.decoder(quirks)
    pieces = [delta for place in range(len(data)) for delta in decoder.feed(data[place : place + 1])] + decoder.close()
    assert [str(one) for one in pieces] == [str(one) for one in whole]
    return whole


def replied(*chunks: Json | str, quirks: Quirks = PLAIN) -> Reply:
    return assemble(deltas(stream(*chunks, STOP, DONE), quirks))


def answered(message: Json, quirks: Quirks = PLAIN, **more: Any) -> Reply:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return CODEC.decode(json.dumps({"id": "c-1", "model": "m", "choices": [choice], **more}).encode(), quirks)


def failure(data: bytes, quirks: Quirks = PLAIN) -> e.EvenerError:
    last = deltas(data, quirks)[-1]
    assert isinstance(last, d.Failed)
    return last.error


# Text and reasoning.


def test_a_small_stream() -> None:
    found = deltas(
        stream(said({"role": "assistant", "content": ""}), said({"content": "Hel"}), said({"content": "lo"}), STOP, DONE)
    )
    assert found == [d.Started("c-1", "m"), d.TextDelta(2, "Hel"), d.TextDelta(2, "lo"), d.Stopped("done", "stop")]


THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
DETAIL = {"type": "reasoning.text", "text": "hm", "index": 0}


@pytest.mark.parametrize(
    ("message", "quirks"),
    [
        ({"content": "yes", "reasoning_content": "hm"}, PLAIN),
        ({"content": "yes", "reasoning": "hm"}, PLAIN),
        ({"content": "yes", "reasoning": "hm", "reasoning_content": "hm"}, PLAIN),
        ({"content": "yes", "reasoning": "hm", "reasoning_details": [DETAIL]}, PLAIN),
        ({"content": "yes", "reasoning": None, "reasoning_details": [DETAIL]}, PLAIN),
        ({"content": [THINKING, {"type": "text", "text": "yes"}]}, PLAIN),
        ({"content": "<think>hm</think>yes"}, Quirks(think_tags=True)),
        ({"content": "\n <think>hm</think>yes"}, Quirks(think_tags=True)),
    ],
)
def test_reasoning_is_read_in_every_spelling(message: Json, quirks: Quirks) -> None:
    for reply in (answered(message, quirks), replied(said(message), quirks=quirks)):
        assert (reply.text, reply.reasoning_text) == ("yes", "hm")
        assert [block.kind for block in reply.blocks] == ["reasoning", "text"]


def test_reasoning_stands_first_whenever_it_comes() -> None:
    """S0.38."""
    reply = replied(said({"content": "yes"}), said({"reasoning": "hm"}), said({"content": "!"}))
    assert [block.kind for block in reply.blocks] == ["reasoning", "text"]
    assert reply.text == "yes!"


@pytest.mark.parametrize(
    ("text", "reasoning", "rest"),
    [
        ("<think>\nhm\n</think>\n\nyes", "\nhm\n", "\n\nyes"),
        ("yes <think>hm</think>", "", "yes <think>hm</think>"),
        ("<thin>k", "", "<thin>k"),
        ("<think>hm </thinking> hm</think>yes", "hm </thinking> hm", "yes"),
        ("<think>hm", "hm", ""),
        ("<th", "", "<th"),
        ("", "", ""),
    ],
)
def test_tags_are_split_wherever_the_text_is_cut(text: str, reasoning: str, rest: str) -> None:
    quirks = Quirks(think_tags=True)
    for size in (1, 3, 7, 100):
        pieces = [text[place : place + size] for place in range(0, len(text), size)]
        reply = replied(*(said({"content": piece}) for piece in pieces), quirks=quirks)
        assert ("".join(one.text for one in reply.blocks if isinstance(one, ReasoningBlock)), reply.text) == (reasoning, rest)
    assert answered({"content": text}).text == text


def test_details_are_put_together_and_sealed() -> None:
    cipher = {"type": "reasoning.encrypted", "data": "X", "index": 0}
    reply = replied(
        said({"reasoning_details": [{**DETAIL, "text": "h", "format": None}]}),
        said({"reasoning_details": [{**DETAIL, "text": "m", "format": "f"}]}),
        said({"reasoning_details": [{**DETAIL, "text": None, "signature": "S"}]}),
        said({"reasoning_details": [cipher]}),
        said({"reasoning_details": [{**cipher, "data": "Y"}], "content": "yes"}),
    )
    assert reply.reasoning_text == "hm"
    kept = [{**DETAIL, "format": "f", "signature": "S"}, cipher, {**cipher, "data": "Y"}]
    assert reply.reasoning_metadata == ({"reasoning_details": kept},)
    assert answered({"content": "yes", "reasoning_details": kept}).reasoning_metadata == ({"reasoning_details": kept},)


def test_thoughts_and_words_may_take_turns() -> None:
    text = {"type": "text", "text": "yes"}
    reply = answered({"content": [{**THINKING, "signature": "S", "closed": True}, text, THINKING, text, text]})
    assert [block.kind for block in reply.blocks] == ["reasoning", "text", "reasoning", "text"]
    assert reply.reasoning_metadata[0] == {"signature": "S", "closed": True}
    assert (
        replied(said({"content": [THINKING]}), said({"content": [THINKING]}), said({"content": "yes"})).reasoning_text == "hmhm"
    )


# Calls.


def call(index: int | None = 0, id: str | None = None, name: str | None = None, arguments: Any = None) -> Json:
    function = {"name": name, "arguments": arguments}
    own = {"index": index, "id": id, "function": {key: value for key, value in function.items() if value is not None}}
    return {key: value for key, value in own.items() if value is not None}


A, B = ToolCall("a", "look", '{"x":1}'), ToolCall("b", "walk", "{}")


@pytest.mark.parametrize(
    "pieces",
    [
        [call(0, "a", "look", ""), call(0, arguments='{"x"'), call(0, arguments=":1}"), call(1, "b", "walk")],
        [call(0, "a", "look", '{"x":1}'), call(1, "b", "walk", "{}")],
        [call(0, "a", "look", '{"x"'), call(0, "a", "look", ":1}"), call(1, "b", "walk", "{}")],
        [call(0, "a", "look", '{"x":1}'), call(0, "b", "walk", "{}")],
        [call(None, "a", "look", '{"x"'), call(None, arguments=":1}"), call(None, "b", "walk", "{}")],
        [call(None, "a", "look", '{"x"'), call(None, "a", arguments=":1}"), call(None, "b", "walk", "{}")],
        [call(1, "b", "walk", "{}"), call(0, "a", "look", '{"x":1}')][::-1],
        [call(0, "a", arguments=""), call(0, name="look", arguments='{"x":1}'), call(1, "b", "walk", "")],
        [call(0, "a", "look", {"x": 1}), call(1, "b", "walk", {})],
    ],
)
def test_calls_are_put_together_however_they_come(pieces: list[Json]) -> None:
    """S4.14."""
    for reply in (
        replied(*(said({"tool_calls": [piece]}) for piece in pieces)),
        replied(said({"tool_calls": pieces})),
    ):
        assert reply.calls == (A, B)
        assert reply.stop.reason == "tools"


def test_whole_calls_keep_their_order_and_their_ids_and_those_without_get_one() -> None:
    calls = [{**call(None, id, "look", "{}"), "type": "function"} for id in ("", "", "x", "x")]
    reply = answered({"content": None, "tool_calls": calls})
    made = [make_id("c-1", 0), make_id("c-1", 1)]
    assert [one.id for one in reply.calls] == [*made, "x", "x"]
    streamed = replied(*(said({"tool_calls": [call(None, None, "look", "{}")]}) for _ in "ab"))
    assert streamed.calls == tuple(ToolCall(id, "look") for id in made)


def test_other_sorts_of_calls() -> None:
    custom = {"id": "a", "type": "custom", "custom": {"name": "write", "input": "words"}}
    reply = answered({"tool_calls": [custom]})
    assert (reply.calls[0].name, reply.calls[0].raw) == ("write", '{"input":"words"}')
    assert answered({"function_call": {"name": "old", "arguments": "{}"}}).calls == (ToolCall(make_id("c-1", 0), "old"),)
    nothing = {
        "audio": {"id": "", "data": ""},
        "function_call": {"name": "", "arguments": ""},
        "refusal": "",
        "tool_calls": None,
    }
    assert answered({"content": "yes", **nothing}).blocks == (TextBlock("yes"),)


def test_fields_that_must_go_back_are_sealed_and_go_back() -> None:
    quirks = Quirks(answer_fields=("extra",))
    message = {"extra": {"s": 1}, "other": 2, "tool_calls": [{**call(0, "a", "look", "{}"), "extra": {"s": 2}}]}
    target = Origin(WIRE, "us", model="m")
    for reply in (answered(message, quirks), replied(said(message), quirks=quirks)):
        turn = Message.from_assistant_response(reply, origin=target)
        sent = json.loads(_sent(turn, target, quirks))["messages"][1]
        assert (sent["extra"], sent["tool_calls"][0]["extra"]) == ({"s": 1}, {"s": 2})
        assert "other" not in sent
        elsewhere = _sent(turn, Origin(WIRE, "others", model="m"), quirks)
        assert b"extra" not in elsewhere


def _sent(turn: Message, target: Origin, quirks: Quirks) -> bytes:
    from evener.transcript import Ask, Transcript

    return CODEC.encode(Ask(Transcript((Message.user_text("hello"), turn)), target), quirks, None).body


# How an answer ends.


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("stop", "done"),
        ("tool_calls", "done"),
        ("length", "length"),
        ("model_length", "length"),
        ("content_filter", "refusal"),
        ("model_context_window_exceeded", "context_full"),
        ("never_heard", "other"),
    ],
)
def test_why_it_ended(word: str, reason: str) -> None:
    end = said({}, finish_reason=word, native_finish_reason="NATIVE")
    reply = assemble(deltas(stream(said({"content": "yes"}), end, DONE)))
    assert (reply.stop.reason, reply.stop.raw, reply.stop.detail) == (reason, word, "NATIVE")


def test_the_end_may_be_said_twice_but_not_without_a_reason() -> None:
    hello = said({"content": "yes"})
    for chunks in ((STOP, STOP, DONE), (STOP, said({"content": ""}), DONE), (STOP,), (STOP, said({"content": ""}))):
        assert assemble(deltas(stream(hello, *chunks))).stop.raw == "stop"
    counts = {"choices": [], "usage": {"prompt_tokens": 1}}
    for silent in ({}, {"finish_reason": ""}):
        assert type(failure(stream(hello, said({}, **silent), counts, DONE))) is e.TruncatedStream
        never = Quirks(stop_told=False)  # a row that gives no reasons: its counts come last
        assert assemble(deltas(stream(hello, said({}, **silent), counts, DONE), never)).stop.reason == "done"
        assert type(failure(stream(hello, said({}, **silent), DONE), never)) is e.TruncatedStream
    assert answered({"tool_calls": [call(0, "a", "look", "{}")]}).stop.reason == "tools"


@pytest.mark.parametrize(
    "data", [b"", b"data: {", stream(said({"content": "yes"})), stream(said({}, finish_reason="")), b": hi\n\n"]
)
def test_a_stream_that_never_says_that_it_ends_is_truncated(data: bytes) -> None:
    assert type(failure(data)) is e.TruncatedStream


def test_comments_signs_of_life_and_unknown_chunks_do_no_harm() -> None:
    data = b": BUSY\n\n" + stream(
        {"choices": []}, {"choices": None}, said({"content": "yes"}), {"object": "ping", "x": 1}, STOP, DONE
    )
    reply = assemble(deltas(data))
    assert (reply.text, [name for name, _ in reply.notices]) == ("yes", ["ping"])


USAGE = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}


@pytest.mark.parametrize(
    "chunks",
    [
        [STOP, {"choices": [], "usage": USAGE}],
        [{**STOP, "usage": USAGE}],
        [STOP, {**said({"content": ""}), "usage": USAGE}],
        [{"choices": [{"delta": {}, "finish_reason": "stop", "usage": USAGE}]}],
        [{**STOP, "x": {"usage": USAGE}}],
        [{**said({}), "usage": {"prompt_tokens": 1}}, STOP, {"choices": [], "usage": USAGE}],
    ],
)
def test_token_counts_are_found_wherever_they_stand(chunks: list[Json]) -> None:
    reply = assemble(deltas(stream(said({"content": "yes"}), *chunks, DONE), Quirks(usage_path=("x", "usage"))))
    assert (reply.input_tokens, reply.output_tokens) == (10, 4)


@pytest.mark.parametrize(
    ("usage", "apart", "counts"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 2}}, False, (10, 5, 3, 2, 4, 0)),
        ({"prompt_cache_hit_tokens": 3}, False, (10, 7, 3, 0, 4, 0)),
        ({"cached_tokens": 3}, False, (10, 7, 3, 0, 4, 0)),
        ({"num_cached_tokens": 3, "prompt_tokens_details": None}, False, (10, 7, 3, 0, 4, 0)),
        ({"completion_tokens_details": {"reasoning_tokens": 2}}, False, (10, 10, 0, 0, 4, 2)),
        ({"completion_tokens_details": {"reasoning_tokens": 6}, "total_tokens": 20}, True, (10, 10, 0, 0, 10, 6)),
        ({"total_tokens": 20}, True, (10, 10, 0, 0, 10, 6)),
        ({}, True, (10, 10, 0, 0, 4, 0)),
    ],
)
def test_token_counts_of_every_dialect(usage: Json, apart: bool, counts: tuple[int, ...]) -> None:
    found = answered({"content": "yes"}, Quirks(reasoning_apart=apart), usage={**USAGE, **usage}).usage
    assert (
        found.input_total,
        found.uncached,
        found.cache_read,
        found.cache_write,
        found.output_total,
        found.reasoning,
    ) == counts


# What else an answer may hold.


def test_refusals_are_text_and_a_reason() -> None:
    for reply in (answered({"content": None, "refusal": "No."}), replied(said({"refusal": "N"}), said({"refusal": "o."}))):
        assert (reply.text, reply.stop.reason) == ("No.", "refusal")


def test_citations_ride_on_the_text() -> None:
    cited = {
        "type": "url_citation",
        "url_citation": {"url": "u", "title": "t", "content": "q", "start_index": 1, "end_index": 2},
    }
    for reply in (
        answered({"content": "yes", "annotations": [cited]}),
        replied(said({"annotations": [cited]}), said({"content": "yes"})),
    ):
        assert reply.blocks == (TextBlock("yes", (Citation("u", "t", "q", 1, 2),)),)


def test_speech_is_a_transcript_and_its_sound() -> None:
    parts = [{"id": "au-1", "transcript": "Hel"}, {"transcript": "lo", "data": "UklG"}, {"data": "Rg==", "expires_at": 9}]
    reply = replied(*(said({"audio": part}) for part in parts))
    assert (reply.text, [block.kind for block in reply.blocks]) == ("Hello", ["text", "document"])
    target = Origin(WIRE, "us", model="m")
    sent = json.loads(_sent(Message.from_assistant_response(reply, origin=target), target, PLAIN))["messages"][1]
    assert sent == {"role": "assistant", "content": None, "audio": {"id": "au-1"}}


def test_what_hosted_tools_did_and_unknown_parts_are_kept() -> None:
    reply = answered(
        {"content": [{"type": "reference", "ids": [1]}, {"type": "text", "text": "yes"}], "executed_tools": [{"index": 0}]}
    )
    hosted = [json.loads(block.raw) for block in reply.blocks if isinstance(block, HostedBlock)]
    assert hosted == [{"executed_tools": [{"index": 0}]}, {"type": "reference", "ids": [1]}]
    assert reply.text == "yes"


def test_what_has_no_place_is_a_notice() -> None:
    logprobs = {"content": [{"token": "y", "logprob": -1}]}
    reply = replied(said({"content": "yes"}, logprobs=logprobs), {"choices": [], "moderation": {"flagged": True}})
    assert [name for name, _ in reply.notices] == ["logprobs", "moderation"]
    other = replied(
        {"choices": [{"index": 1, "delta": {"content": "no"}}]}, said({"content": "yes"}, logprobs={"content": None})
    )
    assert (other.text, [name for name, _ in other.notices]) == ("yes", ["another choice"])


# Errors.


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        (stream(said({"content": "y"}), {"error": {"code": 429, "message": "slow down"}}), e.RateLimited, "slow down"),
        (stream(STOP, {**said({}), "error": {"code": 400, "message": "limit"}}, DONE), e.InvalidRequest, "limit"),
        (b"event: error\n" + stream({"error": {"message": "bad", "type": "invalid_request_error"}}), e.InvalidRequest, "bad"),
        (stream({"object": "error", "message": "broken"}), e.ServerError, "broken"),
        (stream({"choices": [{"error": {"code": 502, "message": "upstream"}}]}), e.ServerError, "upstream"),
        (stream({"error": "plain words"}), e.ServerError, "plain words"),
    ],
)
def test_an_error_in_a_stream_ends_it(data: bytes, kind: type[e.ProviderError], message: str) -> None:
    error = failure(data)
    assert type(error) is kind
    assert (error.message, error.status) == (message, 0)


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b"<html>", b"{}", b'{"choices":[]}', b'{"choices":null,"id":"x"}', b'{"choices":[{"message":3}]}'],
)
def test_what_is_no_completion_says_so(body: bytes) -> None:
    with pytest.raises(e.WireError, match="chat completion"):
        CODEC.decode(body, PLAIN)


def test_an_error_with_a_200_is_that_error() -> None:
    with pytest.raises(e.AuthFailed, match="who are you"):
        CODEC.decode(b'{"error":{"message":"who are you","code":401},"choices":null}', PLAIN)


def test_garbage_in_a_stream_is_not_of_this_wire() -> None:
    assert type(failure(b"data: <html>\n\n")) is e.WireError
    assert type(failure(stream({"choices": [{"delta": {"content": 3}}]}))) is e.WireError


@pytest.mark.parametrize(
    ("status", "body", "kind", "message"),
    [
        (400, {"error": {"message": "bad", "code": None, "type": "invalid_request_error"}}, e.InvalidRequest, "bad"),
        (401, {"error": {"message": "no key", "type": "invalid_request_error"}}, e.AuthFailed, "no key"),
        (402, {"error": {"message": "pay"}}, e.QuotaExceeded, "pay"),
        (404, {"error": {"message": "The model `x` does not exist", "code": "model_not_found"}}, e.ModelNotFound, "The model"),
        (422, {"detail": [{"loc": ["body", "stop"], "msg": "too many"}]}, e.InvalidRequest, "body.stop: too many"),
        (422, {"object": "error", "message": "odd", "code": 422}, e.InvalidRequest, "odd"),
        (429, {"error": {"message": "spent", "code": "insufficient_quota"}}, e.QuotaExceeded, "spent"),
        (498, {"error": {"message": "busy"}}, e.Overloaded, "busy"),
        (
            429,
            {"error": {"message": "upstream", "code": 429, "metadata": {"raw": '{"error":{"message":"slow"}}'}}},
            e.RateLimited,
            "upstream: slow",
        ),
        (500, {"error": {"message": "odd", "metadata": [1]}}, e.ServerError, "odd"),
    ],
)
def test_refusals_of_every_shape(status: int, body: Json, kind: type[e.ProviderError], message: str) -> None:
    fault = CODEC.fault(status, {}, json.dumps(body).encode())
    assert type(fault) is kind
    assert fault.message.startswith(message)


@pytest.mark.parametrize(
    ("message", "used", "limit"),
    [
        ("This model's maximum context length is 100 tokens. However, you requested 120", 0, 100),
        ("Prompt contains 120 tokens and 0 draft tokens, too large for model with 100 maximum context length", 120, 100),
        ("This model's maximum prompt length is 100 but the request contains 120 tokens.", 120, 100),
        ("Your request exceeded model token limit: 100 (requested: 120)", 120, 100),
        ("prompt token count of 120 exceeds the limit of 100", 120, 100),
        ("Please reduce the length of the messages or completion.", 0, 0),
        ("invalid params, context window exceeds limit", 0, 0),
        ("the request exceeds the available context size, try increasing it", 0, 0),
        ("The prompt is greater than the context length of 100", 0, 0),
    ],
)
def test_a_full_window_is_known_by_its_words(message: str, used: int, limit: int) -> None:
    fault = CODEC.fault(400, {}, json.dumps({"error": {"message": message}}).encode())
    assert isinstance(fault, e.ContextTooLong)
    assert (fault.used, fault.limit) == (used, limit)


def test_images_that_the_model_made_are_part_of_the_answer() -> None:
    """OpenRouter: in `images` of the message or the delta, as data URLs."""
    made = [{"type": "image_url", "image_url": {"url": f"data:image/{sort};base64,aGVsbG8="}} for sort in ("png", "webp")]
    odd = [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}, {"image_url": 7}, 7]
    whole = {"id": "c1", "choices": [{"message": {"content": "", "images": made + odd}, "finish_reason": "stop"}]}
    streamed = stream(said({"images": made[:1]}), said({"images": [*made[1:], *odd]}), STOP, DONE)
    for reply in (assemble(deltas(streamed)), CODEC.decode(json.dumps(whole).encode(), Quirks())):
        assert [(type(one), one.media_type, one.source) for one in reply.blocks if isinstance(one, ImageBlock)] == [
            (ImageBlock, f"image/{sort}", Inline("aGVsbG8=")) for sort in ("png", "webp")
        ]
        assert [json.loads(raw) for name, raw in reply.notices if name == "images"] == odd


def test_calls_without_ids_under_one_number_are_told_apart_by_their_names_and_whole_arguments() -> None:
    def piece(**function: str) -> Json:
        return said({"tool_calls": [{"index": 0, "id": "", "function": function}]})

    two = assemble(deltas(stream(piece(name="f", arguments='{"x":1}'), piece(name="f", arguments='{"x":2}'), STOP, DONE)))
    assert [one.raw for one in two.calls] == ['{"x":1}', '{"x":2}']
    assert len({one.id for one in two.calls}) == 2
    one = assemble(
        deltas(stream(piece(name="f", arguments='{"x":'), piece(name="f", arguments="1}"), piece(name="f"), STOP, DONE))
    )
    assert [call.raw for call in one.calls] == ['{"x":1}']
