"""Recorded answers: each decodes to what it says, whole and streamed, however it is cut; each error has its type.
The expectation is read from the raw recording by `expect.py`, not by our decoder.
"""

import json
import random
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import pytest

from evener import errors as e
from evener.transcript import Reply
from evener.transcript.delta import Delta, Failed
from evener.wire import assemble
from tests.corpus import Exchange, needs_corpus, usual_recordings
from tests.each import each
from tests.wire.view import seen, shown
from tests.wire.wires import WIRES, Wire

pytestmark = needs_corpus

# What may be left over from an answer: there is no neutral place for it, and it is handed on as it came.
NOTICES = {"logprobs": "log probabilities of the text"}

# How each recorded refusal must come out: (wire, status, the provider's code) -> class.
REFUSALS: dict[tuple[str, int, str], type[e.ProviderError]] = {
    ("anthropic_messages", 400, "invalid_request_error"): e.InvalidRequest,
    ("anthropic_messages", 404, "not_found_error"): e.ModelNotFound,
    ("openai_responses", 400, "decimal_below_min_value"): e.InvalidRequest,
    ("openai_responses", 400, "invalid_request_error"): e.InvalidRequest,
    ("openai_responses", 400, "invalid_value"): e.InvalidRequest,
    ("openai_responses", 400, "model_not_found"): e.ModelNotFound,
    ("openai_responses", 400, "unsupported_file"): e.InvalidRequest,
}


def cases(kind: str) -> list[object]:
    return [pytest.param(wire, one, id=f"{wire.name}-{one.id}") for wire in WIRES.values() for one in getattr(wire, kind)()]


def deltas_of(wire: Wire, exchange: Exchange, pieces: Iterable[bytes]) -> list[Delta]:
    decoder = wire.codec.decoder(wire.quirks(exchange))
    found = [delta for piece in pieces for delta in decoder.feed(piece)]
    return found + decoder.close()


def decoded(wire: Wire, exchange: Exchange) -> Reply:
    return wire.codec.decode(json.dumps(exchange.response).encode(), wire.quirks(exchange))


@usual_recordings
@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_there_is_traffic_of_every_kind(wire: Wire) -> None:
    assert len(wire.answers()) > 200
    assert len(wire.streams()) > 10
    assert len(wire.errors()) > 3


@each(("wire", "exchange"), cases("answers"))
def test_an_answer_decodes_to_what_it_says(wire: Wire, exchange: Exchange) -> None:
    if exchange.sse is None:
        assert exchange.response is not None
        reply, expected = decoded(wire, exchange), wire.whole(exchange.response)
    else:
        deltas = deltas_of(wire, exchange, [exchange.sse])
        reply, expected = assemble(deltas), wire.streamed(exchange.sse)
        assert shown(deltas) == expected.shown
    assert seen(wire.name, reply) == replace(expected, shown=())
    assert {name for name, _ in reply.notices} <= NOTICES.keys()


@each(("wire", "exchange"), cases("errors"))
def test_a_refusal_has_its_type_and_the_providers_words(wire: Wire, exchange: Exchange) -> None:
    assert exchange.response is not None
    said = exchange.response["error"]
    code = said.get("code") or said["type"]
    fault = wire.codec.fault(exchange.status, exchange.headers, json.dumps(exchange.response).encode())
    assert type(fault) is REFUSALS[wire.name, exchange.status, code]
    assert (fault.status, fault.code, fault.message) == (exchange.status, code, said["message"])
    assert fault.request_id == exchange.response.get("request_id", "")
    assert fault.retry_after == (float(exchange.headers["retry-after"]) if "retry-after" in exchange.headers else None)
    assert not fault.retryable


# Any chunking.


def at(stream: bytes, places: Iterable[int]) -> list[bytes]:
    """The stream, cut at these places."""
    cuts = [0, *sorted(set(places)), len(stream)]
    return [stream[start:end] for start, end in pairwise(cuts)]


def inside_characters(stream: bytes) -> list[int]:
    """Every place in the middle of a character."""
    return [place for place, byte in enumerate(stream) if byte & 0xC0 == 0x80]


@each(("wire", "exchange"), cases("streams"))
def test_a_stream_cut_anywhere_gives_the_same_deltas(wire: Wire, exchange: Exchange) -> None:
    stream = exchange.sse or b""
    whole = deltas_of(wire, exchange, [stream])
    chance = random.Random(exchange.id)
    assert deltas_of(wire, exchange, at(stream, inside_characters(stream))) == whole
    for share in (2, 20, 500):
        places = chance.sample(range(1, len(stream)), len(stream) // share)
        assert deltas_of(wire, exchange, at(stream, places)) == whole


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
@each(("wire", "exchange"), cases("streams"))
def test_line_ends_of_any_kind_cut_at_every_byte_give_the_same_deltas(wire: Wire, exchange: Exchange, ending: bytes) -> None:
    recorded = exchange.sse or b""
    if len(recorded) > 20_000:  # a long one has nothing that a short one has not
        return
    assert b"\r" not in recorded
    stream = recorded.replace(b"\n", ending)
    whole = deltas_of(wire, exchange, [recorded])
    assert deltas_of(wire, exchange, [stream]) == whole
    assert deltas_of(wire, exchange, (bytes((byte,)) for byte in stream)) == whole


@each(("wire", "exchange"), cases("streams"))
def test_a_stream_that_ends_early_is_truncated_whatever_is_left(wire: Wire, exchange: Exchange) -> None:
    stream = exchange.sse or b""
    for share in (0.1, 0.5, 0.9):
        inside = int(len(stream) * share)
        between = stream.rfind(b"\n\n", 0, inside) + 2
        for end in (inside, between):
            last = deltas_of(wire, exchange, [stream[:end]])[-1]
            assert isinstance(last, Failed)
            assert type(last.error) is e.TruncatedStream
