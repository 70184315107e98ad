"""Recorded Gemini traffic: decoded to what it says, cut anywhere; errors typed; requests and tool loops there and back.

What an answer says is read from the raw recording by `tests/wire/gemini.py`, not by our decoder.
"""

import json
import unicodedata
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import groupby, pairwise
from typing import Any

from msgspec.structs import replace

from evener import errors as e
from evener.providers import load_rows
from evener.testing import check_request
from evener.transcript import Ask, Message, Origin, Reply, TextBlock, ToolResult
from evener.transcript.delta import Delta, Failed
from evener.wire import CODECS, Quirks, assemble
from tests.corpus import Exchange, Json, exchanges, needs_corpus, usual_recordings
from tests.each import each
from tests.oracle import oracle_errors
from tests.wire import gemini

pytestmark = needs_corpus

CODEC = CODECS["gemini"]
ALL = exchanges("gemini")
ANSWERED = [one for one in ALL if one.status == 200]
STREAMED = [one for one in ANSWERED if one.sse is not None]
SHARE = 0.99

# What stands beside an answer and has no neutral place: handed on as it came.
NOTICES = {"groundingMetadata", "urlContextMetadata", "logprobsResult", "safetyRatings"}


def name_of(exchange: Exchange) -> str:
    return exchange.id


def target(exchange: Exchange) -> Origin:
    return Origin("gemini", gemini.ROWS[exchange.provider], model=gemini.model_of(exchange))


@cache
def quirks(exchange: Exchange) -> Quirks:
    return load_rows().quirks(gemini.ROWS[exchange.provider], gemini.model_of(exchange))


def read(exchange: Exchange) -> Ask:
    return CODEC.read_request(json.dumps(exchange.request).encode(), quirks(exchange), target(exchange))


def deltas_of(exchange: Exchange, pieces: Iterable[bytes]) -> list[Delta]:
    decoder = CODEC.decoder(quirks(exchange))
    found = [delta for piece in pieces for delta in decoder.feed(piece)]
    return found + decoder.close()


def reply_to(exchange: Exchange) -> Reply:
    if exchange.sse is None:
        return CODEC.decode(json.dumps(exchange.response).encode(), quirks(exchange))
    return assemble(deltas_of(exchange, [exchange.sse]))


# Answers.


@usual_recordings
def test_there_is_traffic_of_every_kind() -> None:
    assert (len(ALL), len(ANSWERED), len(STREAMED)) >= (415, 412, 22)
    assert {one.provider for one in ALL} == gemini.ROWS.keys()


@each("exchange", ANSWERED, name_of)
def test_an_answer_decodes_to_what_it_says(exchange: Exchange) -> None:
    expected = gemini.streamed(exchange.sse) if exchange.sse else gemini.whole(exchange.response or {})
    reply = reply_to(exchange)
    assert gemini.view(reply) == expected
    assert {name for name, _ in reply.notices} <= NOTICES
    assert len({call.id for call in reply.calls}) == len(reply.calls)


@each("exchange", STREAMED, name_of)
def test_a_stream_cut_at_every_byte_gives_the_same_deltas(exchange: Exchange) -> None:
    stream = exchange.sse or b""
    whole = deltas_of(exchange, [stream])
    assert deltas_of(exchange, (bytes((byte,)) for byte in stream)) == whole
    for size in (7, 100, 4096):
        assert deltas_of(exchange, (stream[at : at + size] for at in range(0, len(stream), size))) == whole


@each("exchange", STREAMED, name_of)
def test_a_stream_without_a_finish_reason_is_truncated(exchange: Exchange) -> None:
    stream = (exchange.sse or b"").replace(b"\r\n", b"\n")
    for cut in (len(stream) // 10, stream.rindex(b"data:"), len(stream) - 9):
        last = deltas_of(exchange, [stream[:cut]])[-1]
        assert isinstance(last, Failed)
        assert type(last.error) is e.TruncatedStream


@each("exchange", [one for one in ALL if one.status != 200], name_of)
def test_a_refusal_has_its_type_and_the_providers_words(exchange: Exchange) -> None:
    said = (exchange.response or {})["error"]
    kind = {400: e.InvalidRequest, 404: e.ModelNotFound}[exchange.status]
    for body in (exchange.response, [exchange.response]):
        fault = CODEC.fault(exchange.status, exchange.headers, json.dumps(body).encode())
        assert type(fault) is kind
        assert (fault.message, fault.code, fault.status) == (said["message"], said["status"], exchange.status)
        assert not fault.retryable


# Requests.


def test_requests_come_back_the_same_or_a_loss_says_why_not() -> None:
    differ: dict[str, tuple[object, ...]] = {}
    for one in ALL:
        encoded = CODEC.encode(read(one), quirks(one), None)
        if gemini.normal(json.loads(encoded.body)) != gemini.normal(one.request or {}):
            differ[one.id] = encoded.losses
        else:
            assert encoded.losses == (), one.id
    print(f"\n{len(ALL) - len(differ)} of {len(ALL)} requests are the same")
    assert [name for name, losses in differ.items() if not losses] == []
    assert len(differ) <= len(ALL) * (1 - SHARE)


@each("exchange", ALL, name_of)
def test_a_request_written_again_is_legal_and_stays_as_it_is(exchange: Exchange) -> None:
    once = CODEC.encode(read(exchange), quirks(exchange), None)
    assert check_request("gemini", once.body, model=gemini.model_of(exchange)) == []
    assert oracle_errors("gemini", json.loads(once.body)) == []
    twice = CODEC.encode(CODEC.read_request(once.body, quirks(exchange), target(exchange)), quirks(exchange), None)
    assert (twice.body, twice.losses) == (once.body, ())


def test_one_message_at_a_time_gives_the_same_bytes() -> None:
    for one in ALL:
        ask, prior = read(one), None
        grown = ask.transcript.at(None)
        for message in ask.transcript:
            grown = grown.append(message)
            part = replace(ask, transcript=grown)
            prior = CODEC.encode(part, quirks(one), prior)
            assert prior.body == CODEC.encode(part, quirks(one), None).body


@each("exchange", ALL, name_of)
def test_the_path_is_the_recorded_one(exchange: Exchange) -> None:
    ask = replace(read(exchange), stream=exchange.sse is not None)
    path = CODEC.encode(ask, quirks(exchange), None).path
    assert exchange.path.endswith(path)
    assert path.endswith(":streamGenerateContent?alt=sse" if exchange.sse else ":generateContent")


# Tool loops.

QUOTES = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "--"})


def plain(text: str) -> str:
    """A text as the recorder writes it into a request."""
    return unicodedata.normalize("NFKC", text.translate(QUOTES))


def loops() -> Iterator[tuple[Exchange, Exchange]]:
    """Each answer with the next request of its file, where that sends the answer's turn back."""
    for _, group in groupby(ALL, key=lambda one: one.file):
        members = list(group)
        for one, later in pairwise(members):
            past, now = gemini.turns(one.request or {}), gemini.turns(later.request or {})
            if one.status == 200 and now[: len(past)] == past and len(now) == len(past) + 1:
                yield one, later


def both(one: Exchange, later: Exchange) -> tuple[list[Json], list[Json]]:
    """The parts of the turn as the recorded client sent it back, and ours."""
    theirs = gemini.turns(later.request or {})[-1]
    ask = read(one)
    reply = reply_to(one)
    asked = CODEC.encode(ask, quirks(one), None)
    said = Message.from_assistant_response(reply, origin=ask.target, binding=asked.binding)
    results = tuple(ToolResult(call.id, (TextBlock("done"),)) for call in reply.calls)
    added = [said, Message("user", results)] if results else [said, Message.user_text("go on")]
    encoded = CODEC.encode(replace(ask, transcript=ask.transcript.extend(added)), quirks(one), asked)
    assert encoded.losses == asked.losses
    return theirs, gemini.turns(json.loads(encoded.body))[-1]


def given(parts: Iterable[Json], name: str) -> list[Any]:
    return [part[name] for part in parts if name in part]


def b64(sign: str | None) -> bytes:
    """The bytes of a signature: the recorded client writes them in another alphabet, or a stand-in where it has none."""
    return b"" if sign in (None, *gemini.STAND_INS) else urlsafe_b64decode(str(sign).replace("+", "-").replace("/", "_"))


LOOPS = list(loops())


@usual_recordings
def test_there_are_tool_loops_of_every_kind() -> None:
    assert len(LOOPS) >= 150
    assert sum(one.sse is not None for one, _ in LOOPS) >= 5


@each(("one", "later"), LOOPS)
def test_a_turn_goes_back_as_the_recorded_client_sent_it(one: Exchange, later: Exchange) -> None:
    theirs, ours = both(one, later)
    said = gemini.streamed(one.sse) if one.sse else gemini.whole(one.response or {})
    ids = [piece.id for piece in said.pieces if piece.kind == "call"]
    sent, written = given(theirs, "functionCall"), given(ours, "functionCall")
    assert [(call["name"], call["args"]) for call in sent] == [(call["name"], call["args"]) for call in written]
    assert [call.get("id", "") for call in written] == ids  # none that the provider did not give
    assert [call["id"] for call, id in zip(sent, ids, strict=True) if id] == [id for id in ids if id]
    signs = [piece.sealed["thoughtSignature"] for piece in said.pieces if "thoughtSignature" in piece.sealed]
    assert given(ours, "thoughtSignature") == signs  # to the letter, as it came
    for sent_part, part in zip(*([one for one in parts if "functionCall" in one] for parts in (theirs, ours)), strict=True):
        assert b64(sent_part.get("thoughtSignature")) in (b64(part.get("thoughtSignature")), b"")
    assert plain("".join(part["text"] for part in ours if "text" in part)) == plain(
        "".join(part["text"] for part in theirs if "text" in part)
    )
    seals = [b64(sign) for sign in given(theirs, "thoughtSignature") if b64(sign)]
    assert seals == [sign for sign in map(b64, signs) if sign in seals]
