"""The gemini codec on small answers of our own: whole and streamed, right and wrong. No recordings needed."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evener import errors as e
from evener.transcript import (
    Ask,
    Citation,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    Message,
    Origin,
    ReasoningBlock,
    Reply,
    Seal,
    TextBlock,
    ToolCall,
    Transcript,
    Usage,
)
from evener.transcript import delta as d
from evener.wire import CODECS, Quirks, assemble

CODEC = CODECS["gemini"]
HERE = Origin("gemini", "here", "", "m")
Json = dict[str, Any]


# Answers.


def chunk(*parts: Json, finish: str = "", usage: Json | None = None, **beside: object) -> Json:
    candidate: Json = {"content": {"parts": list(parts), "role": "model"}, "index": 0, **beside}
    if finish:
        candidate["finishReason"] = finish
    counts = {"promptTokenCount": 5, "totalTokenCount": 5} if usage is None else usage
    return {"candidates": [candidate], "usageMetadata": counts, "modelVersion": "m-1", "responseId": "r1"}


def stream(*chunks: Json) -> bytes:
    return b"".join(b"data: " + json.dumps(one).encode() + b"\r\n\r\n" for one in chunks)


def deltas(data: bytes, size: int = 0) -> list[d.Delta]:
    decoder = CODEC.decoder(Quirks())
    found = [
        one for at in range(0, len(data), size or len(data) or 1) for one in decoder.feed(data[at : at + (size or len(data))])
    ]
    return found + decoder.close()


def replies(*chunks: Json) -> Reply:
    """The reply of a stream, which is the same cut at every byte and, of one chunk, the same whole."""
    found = deltas(stream(*chunks))
    assert deltas(stream(*chunks), 1) == found
    reply = assemble(found)
    if len(chunks) == 1:
        assert CODEC.decode(json.dumps(chunks[0]).encode(), Quirks()).blocks == reply.blocks
    assert CODEC.decode(json.dumps(chunks).encode(), Quirks()) == reply
    return reply


def test_texts_that_follow_one_another_are_one_and_a_signed_one_is_its_own() -> None:
    reply = replies(
        chunk({"text": "Hm", "thought": True}),
        chunk({"text": "m.", "thought": True}),
        chunk({"text": "Al"}, {"text": "pha"}),
        chunk({"text": ""}),
        chunk({"text": " beta", "thoughtSignature": "U0lHMQ=="}),
        chunk({"text": " gamma"}),
        chunk({"text": "", "thoughtSignature": "U0lHMg=="}, finish="STOP"),
    )
    assert reply.blocks == (
        ReasoningBlock("Hmm.", Seal('{"thought":true}')),
        TextBlock("Alpha"),
        TextBlock(" beta", seal=Seal('{"thoughtSignature":"U0lHMQ=="}')),
        TextBlock(" gamma"),
        TextBlock("", seal=Seal('{"thoughtSignature":"U0lHMg=="}')),
    )
    assert (reply.text, reply.id, reply.model, reply.stop.reason) == ("Alpha beta gamma", "r1", "m-1", "done")


def test_calls_come_whole_with_stop_and_ids_are_made_up_where_there_are_none() -> None:
    reply = replies(
        chunk({"functionCall": {"name": "look", "args": {"at": "a"}}, "thoughtSignature": "U0lH"}),
        chunk({"functionCall": {"name": "look"}}, {"functionCall": {"id": "k", "name": "look", "args": {}}}),
        chunk({"text": ""}, finish="STOP"),
    )
    first, second, third = reply.calls
    assert (reply.stop.reason, reply.stop.raw) == ("tools", "STOP")
    assert first.args == {"at": "a"}
    assert second.raw == "{}"
    assert (third.id, third.seal) == ("k", None)
    assert first.seal == Seal('{"functionCall":{"id":null},"thoughtSignature":"U0lH"}')
    assert len({call.id for call in reply.calls}) == 3
    assert first.id.startswith("call_")


@pytest.mark.parametrize(
    ("finish", "parts", "reason"),
    [
        ("STOP", [{"text": "x"}], "done"),
        ("MAX_TOKENS", [], "length"),
        ("MAX_TOKENS", [{"functionCall": {"name": "look"}}], "length"),
        ("CONTINUATION", [{"text": "x"}], "length"),
        ("SAFETY", [], "refusal"),
        ("RECITATION", [], "refusal"),
        ("PROHIBITED_CONTENT", [], "refusal"),
        ("IMAGE_SAFETY", [], "refusal"),
        ("MALFORMED_FUNCTION_CALL", [], "other"),
        ("UNEXPECTED_TOOL_CALL", [], "other"),
        ("UNEXPECTED_TOOL_CALL", [{"functionCall": {"name": "look"}}], "tools"),
        ("SOMETHING_NEW", [{"text": "x"}], "other"),
    ],
)
def test_why_it_stopped(finish: str, parts: list[Json], reason: str) -> None:
    reply = replies(chunk(*parts, finish=finish, finishMessage="because"))
    assert (reply.stop.reason, reply.stop.raw, reply.stop.detail) == (reason, finish, "because")


def test_a_blocked_prompt_is_a_refusal() -> None:
    blocked = {
        "promptFeedback": {"blockReason": "JAILBREAK", "blockReasonMessage": "no"},
        "usageMetadata": {"promptTokenCount": 5},
    }
    reply = replies(blocked)
    assert (reply.stop.reason, reply.stop.raw, reply.stop.detail) == ("refusal", "JAILBREAK", "no")
    assert reply.usage == Usage(5, 5)


def test_the_last_counts_count_and_thoughts_and_tools_are_added() -> None:
    counts = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 40,
        "toolUsePromptTokenCount": 7,
        "candidatesTokenCount": 10,
        "thoughtsTokenCount": 3,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 100}],
    }
    reply = replies(chunk({"text": "a"}, usage={"promptTokenCount": 999}), chunk({"text": "b"}, finish="STOP", usage=counts))
    assert reply.usage == Usage(107, 67, 40, 0, 13, 3)


def test_media_and_hosted_parts_are_kept() -> None:
    code = {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "U0lH"}
    parts: list[Json] = [
        code,
        {"toolCall": {"id": "t", "toolType": "SEARCH", "args": {}}},
        {"toolResponse": {"id": "t", "toolType": "SEARCH"}},
        {"inlineData": {"mimeType": "image/png", "data": "QUJD"}, "thoughtSignature": "U0lH"},
        {"inlineData": {"mimeType": "audio/wav", "data": "QUJD"}},
        {"text": "x", "partMetadata": {"a": 1}},
        {"functionCall": {"id": "k", "name": "look", "args": {}, "more": 1}, "partMetadata": {"a": 1}},
        {"somethingNew": {"a": 1}},
    ]
    reply = replies(chunk(*parts, finish="STOP"))
    ran, asked, gave, picture, sound, noted, call, new = reply.blocks
    assert isinstance(ran, HostedBlock)
    assert json.loads(ran.raw) == code
    assert isinstance(asked, HostedBlock)
    assert isinstance(gave, HostedBlock)
    assert (asked.opens, gave.closes, asked.role) == ("t", "t", "assistant")
    assert picture == ImageBlock(Inline("QUJD"), "image/png", seal=Seal('{"thoughtSignature":"U0lH"}'))
    assert sound == DocumentBlock(Inline("QUJD"), "audio/wav")
    assert isinstance(noted, TextBlock)
    assert call == ToolCall("k", "look", "{}", Seal('{"partMetadata":{"a": 1},"functionCall":{"more":1}}'))
    assert isinstance(new, HostedBlock)
    assert reply.stop.reason == "tools"
    message = Message.from_assistant_response(reply, origin=HERE)
    talk = Transcript([Message.user_text("Hi."), message, Message.user_text("Go.")])
    again = json.loads(CODEC.encode(Ask(talk, HERE), Quirks(), None).body)["contents"][1]["parts"]
    parts[6]["thoughtSignature"] = again[6]["thoughtSignature"]
    assert again == parts


def test_citations_are_counted_in_characters_and_the_metadata_is_handed_on() -> None:
    grounding = {
        "groundingChunks": [
            {"web": {"uri": "https://x.example", "title": "X"}},
            {"retrievedContext": {"fileSearchStore": "s"}},
        ],
        "groundingSupports": [
            {"segment": {"startIndex": 6, "endIndex": 9, "text": "two"}, "groundingChunkIndices": [0, 1]},
            {"segment": {"startIndex": 1, "endIndex": 3, "text": "wrong"}, "groundingChunkIndices": [0]},
        ],
    }
    cited = {"citations": [{"startIndex": 10, "endIndex": 15, "uri": "https://y.example"}]}
    reply = replies(
        chunk({"text": "\u00e9\u00e9n "}),
        chunk({"text": "two"}, {"executableCode": {}}, {"text": " three"}),
        chunk({"text": ""}, finish="STOP", groundingMetadata=grounding, citationMetadata=cited, logprobsResult={"a": 1}),
    )
    first, _, second = reply.blocks
    assert isinstance(first, TextBlock)
    assert isinstance(second, TextBlock)
    assert first.citations == (
        Citation("https://x.example", "X", "two", 4, 7),
        Citation("", "s", "two", 4, 7),
    )
    assert first.text[4:7] == "two"
    assert second.citations == (
        Citation("https://x.example", "X", "wrong", -1, -1),
        Citation("https://y.example", "", "", 1, 6),
    )
    assert second.text[1:6] == "three"
    assert [name for name, _ in reply.notices] == ["groundingMetadata", "citationMetadata", "logprobsResult"]


def test_other_candidates_and_unknown_chunks_are_notices() -> None:
    two = chunk({"text": "a"}, finish="STOP")
    two["candidates"].append({"content": {"parts": [{"text": "b"}]}, "index": 1, "finishReason": "STOP"})
    reply = replies(two, {"keepAlive": True})
    assert reply.text == "a"
    assert [name for name, _ in reply.notices] == ["candidate", "chunk"]


def test_an_answer_without_content_has_no_blocks() -> None:
    empty = {"candidates": [{"finishReason": "STOP", "index": 0}], "usageMetadata": {"promptTokenCount": 5}}
    assert replies(empty).blocks == ()
    assert replies(chunk(finish="MAX_TOKENS")).blocks == ()


# What goes wrong.

TOO_MUCH = "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)."


def complaint(code: int, status: str, message: str = "no", *details: Json) -> Json:
    return {"error": {"code": code, "message": message, "status": status, "details": list(details)}}


FAULTS: list[tuple[Json, type[e.ProviderError], str]] = [
    (complaint(400, "INVALID_ARGUMENT"), e.InvalidRequest, "INVALID_ARGUMENT"),
    (complaint(400, "INVALID_ARGUMENT", "bad key", {"reason": "API_KEY_INVALID"}), e.AuthFailed, "API_KEY_INVALID"),
    (complaint(400, "INVALID_ARGUMENT", TOO_MUCH), e.ContextTooLong, "INVALID_ARGUMENT"),
    (complaint(401, "UNAUTHENTICATED"), e.AuthFailed, "UNAUTHENTICATED"),
    (complaint(403, "PERMISSION_DENIED"), e.PermissionDenied, "PERMISSION_DENIED"),
    (complaint(404, "NOT_FOUND", "models/x is not found"), e.ModelNotFound, "NOT_FOUND"),
    (complaint(429, "RESOURCE_EXHAUSTED"), e.RateLimited, "RESOURCE_EXHAUSTED"),
    (complaint(500, "INTERNAL"), e.ServerError, "INTERNAL"),
    (complaint(503, "UNAVAILABLE"), e.Overloaded, "UNAVAILABLE"),
    (complaint(504, "DEADLINE_EXCEEDED"), e.ServerError, "DEADLINE_EXCEEDED"),
]


@pytest.mark.parametrize(("body", "kind", "code"), FAULTS, ids=[f"{kind.__name__}-{code}" for _, kind, code in FAULTS])
def test_an_error_has_its_type_over_http_in_a_list_in_a_stream_and_in_a_whole_answer(
    body: Json, kind: type[e.ProviderError], code: str
) -> None:
    status, message = body["error"]["code"], body["error"]["message"]
    for shape in (body, [body]):
        fault = CODEC.fault(status, {}, json.dumps(shape).encode())
        assert (type(fault), fault.code, fault.message, fault.status) == (kind, code, message, status)
        with pytest.raises(kind):
            CODEC.decode(json.dumps(shape).encode(), Quirks())
    *before, last = deltas(stream(chunk({"text": "a"}), body, chunk({"text": "b"}, finish="STOP")))
    assert isinstance(last, d.Failed)
    assert type(last.error) is kind
    assert d.TextDelta(0, "a") in before
    assert d.TextDelta(0, "b") not in before


def test_how_long_to_wait_and_when_waiting_will_not_help() -> None:
    soon = complaint(429, "RESOURCE_EXHAUSTED", "slow down", {"@type": "RetryInfo", "retryDelay": "17.5s"}, {"odd": 1})
    assert CODEC.fault(429, {}, json.dumps(soon).encode()).retry_after == 17.5
    quota = {"violations": [{"quotaId": "RequestsPerDayPerProject"}]}
    spent = CODEC.fault(429, {}, json.dumps(complaint(429, "RESOURCE_EXHAUSTED", "enough", quota)).encode())
    assert type(spent) is e.QuotaExceeded
    assert not spent.retryable
    long = CODEC.fault(400, {}, json.dumps(complaint(400, "INVALID_ARGUMENT", TOO_MUCH)).encode())
    assert isinstance(long, e.ContextTooLong)
    assert (long.used, long.limit) == (1196265, 1048575)
    assert type(CODEC.fault(502, {}, b"<html>bad gateway</html>")) is e.ServerError


def test_bytes_that_end_without_a_finish_reason_are_truncated() -> None:
    whole = stream(chunk({"text": "a"}), chunk({"text": "b"}, finish="STOP"))
    for cut in (0, 10, len(whole) // 2, len(whole) - 8):
        last = deltas(whole[:cut])[-1]
        assert isinstance(last, d.Failed)
        assert type(last.error) is e.TruncatedStream
    assert isinstance(deltas(whole.rstrip())[-1], d.Stopped)


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"{}", b'{"foo":1}', b"<html>", b"[1]", b'{"candidates":1}', b'{"candidates":[{"content":{"parts":[1]}}]}'],
)
def test_what_is_no_answer_is_our_error(body: bytes) -> None:
    with pytest.raises(e.WireError):
        CODEC.decode(body, Quirks())


SCRAPS = st.sampled_from(
    [
        stream(chunk({"text": "a"}, {"functionCall": {"name": "f", "args": {"a": [1]}}}, finish="STOP")),
        json.dumps(chunk()).encode(),
        b"data: ",
    ]
)


@given(st.lists(st.binary(max_size=40) | SCRAPS, max_size=5), st.integers(1, 50))
def test_arbitrary_bytes_give_only_our_errors(pieces: list[bytes], size: int) -> None:
    data = b"".join(pieces)
    assert sum(isinstance(delta, d.Failed | d.Stopped) for delta in deltas(data, size)) == 1
    assert isinstance(CODEC.fault(500, {}, data), e.ProviderError)
    for read in (lambda: CODEC.decode(data, Quirks()), lambda: CODEC.read_request(data, Quirks(), HERE)):
        with suppress(e.EvenerError):
            read()


WORDS = st.sampled_from(
    "contents parts role text thought thoughtSignature functionCall functionResponse name id args response inlineData data "
    "mimeType fileData fileUri tools functionDeclarations parametersJsonSchema parameters toolConfig functionCallingConfig "
    "mode allowedFunctionNames generationConfig thinkingConfig thinkingBudget responseMimeType responseSchema "
    "systemInstruction candidates content finishReason index usageMetadata promptTokenCount groundingMetadata "
    "error message model user".split()
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(WORDS, JSON, max_size=5))
def test_arbitrary_json_gives_only_our_errors_and_what_is_read_can_be_written(value: Json) -> None:
    data = json.dumps(value).encode()
    with suppress(e.EvenerError):
        CODEC.decode(data, Quirks())
    try:
        ask = CODEC.read_request(data, Quirks(), HERE)
    except e.EvenerError:
        return
    json.loads(CODEC.encode(ask, Quirks(), None).body)
