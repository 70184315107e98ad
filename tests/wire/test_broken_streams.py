"""Streams that are numbered, cut or ended in another way than they should be: each text and each call counts once, or none."""

import json
from typing import Any

import pytest

from evener import errors as e
from evener.transcript import delta as d
from evener.wire import CODECS, Quirks, assemble
from tests.model.half import STREAMS, data

Json = dict[str, Any]
WIRES = ("anthropic_messages", "openai_responses", "openai_chat", "gemini")
wires = pytest.mark.parametrize("wire", WIRES)


def deltas(wire: str, stream: bytes) -> list[d.Delta]:
    """The deltas of a stream, which are the same however it is cut."""
    decoder = CODECS[wire].decoder(Quirks())
    found = decoder.feed(stream) + decoder.close()
    decoder = CODECS[wire].decoder(Quirks())
    pieces = [delta for place in range(len(stream)) for delta in decoder.feed(stream[place : place + 1])] + decoder.close()
    assert [str(one) for one in pieces] == [str(one) for one in found]
    return found


def failure(wire: str, stream: bytes) -> e.EvenerError:
    last = deltas(wire, stream)[-1]
    assert isinstance(last, d.Failed), last
    return last.error


# Responses: how parts and items are numbered.

CREATED: Json = {"type": "response.created", "response": {"id": "r"}}


def done(*parts: str, number: int = 0, id: str = "t") -> Json:
    content = [{"type": "output_text", "text": part, "annotations": [], "logprobs": []} for part in parts]
    item = {"type": "message", "id": id, "status": "completed", "role": "assistant", "content": content}
    return {"type": "response.output_item.done", "output_index": number, "item": item}


def shown(place: int, text: str, number: int = 0) -> Json:
    return {"type": "response.output_text.delta", "output_index": number, "content_index": place, "delta": text}


def completed(*items: Json) -> Json:
    return {
        "type": "response.completed",
        "response": {"id": "r", "object": "response", "status": "completed", "output": list(items)},
    }


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([shown(1, "Hel"), shown(1, "lo"), done("Hello")], "Hello"),
        ([shown(3, "Hel"), done("Hello")], "Hello"),
        ([shown(0, "Hello"), shown(0, " you"), done("Hello", " you")], "Hello you"),
        ([shown(1, "Hello"), shown(2, " you"), done("Hello", " you")], "Hello you"),
        ([shown(1, "Hello"), done("Hello", " you")], "Hello you"),
        ([shown(0, "Hello"), done("Hello", " you")], "Hello you"),
        ([shown(0, "Hello"), shown(1, " you"), done("Hello", " you")], "Hello you"),
        ([shown(1, " you"), done("Hello", " you")], "Hello you"),
        ([done("Hello")], "Hello"),
        ([shown(0, "Hello")], "Hello"),
    ],
)
@pytest.mark.parametrize("plain", [True, False])
def test_a_text_is_said_once_however_its_parts_are_numbered(events: list[Json], text: str, plain: bool) -> None:
    for event in events if not plain else ():
        if "item" in event:
            event["item"]["phase"] = "final"  # another form of the same item
    reply = assemble(deltas("openai_responses", data((CREATED, *events, completed()))))
    assert (reply.text, reply.stop.reason) == (text, "done")


def test_an_item_that_is_numbered_otherwise_at_the_end_counts_once() -> None:
    call = {"type": "function_call", "id": "f", "status": "completed", "call_id": "c", "name": "pay", "arguments": "{}"}
    told = {"type": "response.output_item.done", "output_index": 2, "item": call}
    text = done("Hello", number=1)
    events = (CREATED, text, told, completed(text["item"], call))
    reply = assemble(deltas("openai_responses", data(events)))
    assert (reply.text, [one.id for one in reply.calls]) == ("Hello", ["c"])
    bare = {name: value for name, value in call.items() if name != "id"}
    again = assemble(deltas("openai_responses", data((CREATED, {**told, "item": bare}, completed(bare)))))
    assert [one.id for one in again.calls] == ["c"]


def test_items_that_share_an_id_and_come_only_at_the_end_are_all_there() -> None:
    items = [done(text)["item"] for text in ("Hello", " you")]
    assert assemble(deltas("openai_responses", data((CREATED, completed(*items))))).text == "Hello you"


# A second beginning.


def test_a_second_message_in_one_stream_is_an_error() -> None:
    stream = STREAMS["anthropic_messages"]("all")
    for cut in range(1, len(stream.said)):
        events = (*stream.said[:cut], stream.said[0], *stream.said[1:], *stream.stop, *stream.end)
        assert type(failure("anthropic_messages", data(events))) is e.WireError
    assert isinstance(deltas("anthropic_messages", data((*stream.whole, *stream.whole)))[-1], d.Stopped)  # after its end


def test_a_second_response_in_one_stream_is_an_error() -> None:
    stream = STREAMS["openai_responses"]("text")
    other = {"type": "response.created", "response": {"id": "other"}}
    assert type(failure("openai_responses", data((*stream.said, other, *stream.whole)))) is e.WireError
    assert (
        assemble(deltas("openai_responses", data((stream.said[0], *stream.whole)))).text == "Hello"
    )  # the same one, told twice


def test_two_blocks_of_one_number_are_an_error() -> None:
    stream = STREAMS["anthropic_messages"]("all")
    for event in stream.said:
        if "index" in event:
            event["index"] = 0
    assert type(failure("anthropic_messages", data(stream.whole))) is e.WireError


# Calls that come in pieces (sheet 8).


def part(*parts: Json, **more: object) -> Json:
    return {"responseId": "r", "candidates": [{"content": {"parts": list(parts)}, **more}]}


def piece(path: str, value: Json, *, more: bool = True, last: bool = False) -> Json:
    call: Json = {"partialArgs": [{"jsonPath": path, **value, **({"willContinue": True} if more else {})}]}
    return {"functionCall": call if last else {**call, "willContinue": True}}


STOP = part(finishReason="STOP")
BEGIN: Json = {"functionCall": {"id": "c", "name": "pay", "willContinue": True}}
PIECES: list[Json] = [
    piece("$.to", {"stringValue": "New "}),
    piece("$.to", {"stringValue": "Delhi"}),
    piece("$.to", {"stringValue": ""}, more=False),
    piece("$.sum", {"numberValue": 12.5}, more=False),
    piece("$.days[0].name", {"stringValue": "Mon"}, more=False),
    piece("$.days[1]['a b']", {"boolValue": True}, more=False),
    piece("$.none", {"nullValue": None}, more=False),
]
ARGUMENTS = {"to": "New Delhi", "sum": 12.5, "days": [{"name": "Mon"}, {"a b": True}], "none": None}


def test_arguments_that_come_in_pieces_are_one_call() -> None:
    chunks = [part({**BEGIN, "thoughtSignature": "c2ln"}), *(part(one) for one in PIECES), part({"functionCall": {}})]
    reply = assemble(deltas("gemini", data((*chunks, STOP))))
    (call,) = reply.calls
    assert (call.id, call.name, json.loads(call.raw), reply.stop.reason) == ("c", "pay", ARGUMENTS, "tools")
    assert call.seal
    assert json.loads(call.seal.data) == {"thoughtSignature": "c2ln"}
    together = assemble(deltas("gemini", data((part(BEGIN, *PIECES, {"functionCall": {}}, finishReason="STOP"),))))
    assert json.loads(together.calls[0].raw) == ARGUMENTS


def test_pieces_end_with_the_part_that_does_not_go_on_and_the_next_call_begins() -> None:
    first = {"functionCall": {"name": "pay", "partialArgs": [{"jsonPath": "$.sum", "numberValue": 1}]}}
    second = {"functionCall": {"id": "d", "name": "look", "args": {"at": 2}}}
    ended = piece("$.sum", {"numberValue": 3}, more=False, last=True)
    reply = assemble(deltas("gemini", data((part(first), part(second), part(BEGIN), part(ended), STOP))))
    assert [(one.name, json.loads(one.raw)) for one in reply.calls] == [
        ("pay", {"sum": 1}),
        ("look", {"at": 2}),
        ("pay", {"sum": 3}),
    ]


@pytest.mark.parametrize("count", range(len(PIECES) + 1))
def test_half_of_a_call_in_pieces_is_none(count: int) -> None:
    chunks = [part(BEGIN), *(part(one) for one in PIECES[:count])]
    assert type(failure("gemini", data((*chunks, STOP)))) is e.TruncatedStream
    assert type(failure("gemini", data(tuple(chunks)))) is e.TruncatedStream


@pytest.mark.parametrize("path", ["to", "$", "$.", "$[0]", "$.a[99999999999]", "$.a..b", "$.a[x]", "$.to.x"])
def test_a_piece_for_a_place_that_cannot_be_read_makes_no_call(path: str) -> None:
    chunks = [part(BEGIN), part(PIECES[0]), part(piece(path, {"stringValue": "x"})), part({"functionCall": {}}), STOP]
    assert isinstance(failure("gemini", data(tuple(chunks))), e.EvenerError)


@pytest.mark.parametrize("parts", [[PIECES[0]], [BEGIN, BEGIN, {"functionCall": {}}], [PIECES[3], BEGIN, {"functionCall": {}}]])
def test_pieces_that_do_not_make_one_call_make_none(parts: list[Json]) -> None:
    assert isinstance(failure("gemini", data((part(*parts), STOP))), e.EvenerError)


# Errors.


@wires
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('error: {"code":500,"message":"out of memory","type":"server_error"}', "out of memory"),
        ('error:{"error":{"message":"out of memory","type":"server_error"}}', "out of memory"),
        ("error: out of memory", "out of memory"),
        ('error: "out of memory"', "out of memory"),
        ('event: error\nerror: {"message":"no data: here"}', "no data: here"),
    ],
)
def test_a_field_named_error_is_an_error(wire: str, line: str, message: str) -> None:
    stream = STREAMS[wire]("text")
    for before in ((), stream.said[:1], stream.said):
        error = failure(wire, data(tuple(before)) + f"{line}\n\n".encode() + data((*stream.stop, *stream.end)))
        assert isinstance(error, e.ServerError)
        assert error.message == message


STATUSES: dict[int, tuple[type[e.ProviderError], bool]] = {
    400: (e.InvalidRequest, False),
    401: (e.AuthFailed, False),
    402: (e.QuotaExceeded, False),
    403: (e.PermissionDenied, False),
    404: (e.InvalidRequest, False),
    413: (e.InvalidRequest, False),
    418: (e.InvalidRequest, False),
    422: (e.InvalidRequest, False),
    429: (e.RateLimited, True),
    500: (e.ServerError, True),
    502: (e.ServerError, True),
    503: (e.Overloaded, True),
    529: (e.Overloaded, True),
}
SERVERS = ("api_error", "server_error", "timeout_error", "INTERNAL", "internal_server_error", "error", "novel_error")
OTHERS = ("authentication_error", "invalid_request_error", "INVALID_ARGUMENT", "permission_error", "not_found_error")


@wires
@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("kind", SERVERS)
def test_the_status_decides_what_an_error_is_whatever_it_calls_itself(wire: str, status: int, kind: str) -> None:
    for said in ({"type": kind, "message": "No."}, {"code": kind, "message": "No."}, {"status": kind, "message": "No."}):
        error = CODECS[wire].fault(status, {}, json.dumps({"type": "error", "error": said}).encode())
        expected, again = STATUSES[status]
        assert error.retryable == again
        assert type(error) is expected or (type(error) is e.ServerError and status in (503, 529))


@pytest.mark.parametrize("status", [429, 500, 502, 503, 529])
@pytest.mark.parametrize("kind", OTHERS)
def test_a_server_that_failed_is_asked_again_whatever_it_calls_itself(status: int, kind: str) -> None:
    error = CODECS["openai_chat"].fault(status, {}, json.dumps({"error": {"type": kind, "message": "No."}}).encode())
    assert error.retryable


@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        (400, {"status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}, e.AuthFailed),
        (400, {"code": "context_length_exceeded"}, e.ContextTooLong),
        (400, {"code": "model_not_found"}, e.ModelNotFound),
        (403, {"code": "insufficient_quota"}, e.QuotaExceeded),
        (404, {"code": "previous_response_not_found"}, e.StateExpired),
        (429, {"code": "insufficient_quota"}, e.QuotaExceeded),
        (429, {"type": "overloaded_error"}, e.Overloaded),
        (503, {"type": "rate_limit_error"}, e.RateLimited),
        (401, {"type": "rate_limit_error"}, e.AuthFailed),
        (403, {"type": "overloaded_error"}, e.PermissionDenied),
        (500, {"code": "context_length_exceeded"}, e.ContextTooLong),
    ],
)
def test_what_the_body_says_makes_it_narrower(status: int, said: Json, kind: type[e.ProviderError]) -> None:
    body = json.dumps({"error": {"message": "No.", **said}}).encode()
    assert type(CODECS["gemini"].fault(status, {}, body)) is kind


@wires
def test_an_error_with_a_200_is_judged_by_the_status_it_names(wire: str) -> None:
    said = {"error": {"type": "api_error", "message": "Who are you?", "code": 401}}
    with pytest.raises(e.AuthFailed):
        CODECS[wire].decode(json.dumps({"type": "error", **said}).encode(), Quirks())
    assert type(failure(wire, data(({"type": "error", **said},)))) is e.AuthFailed
