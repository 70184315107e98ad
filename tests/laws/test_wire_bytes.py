"""Laws of reading: any chunking gives the same, and whatever the bytes are, only our errors come out, soon."""

import json
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evener.errors import EvenerError, ProviderError, WireError
from evener.transcript import Origin, ReasoningBlock, Reply, TextBlock, ToolCall
from evener.transcript.delta import Delta, Failed, Stopped
from evener.wire import CODECS, Quirks, assemble
from evener.wire.sse import MAX_FRAME, SseReader
from tests.laws.hostile import BYTES, VALUES, documents, events, spoilt
from tests.laws.streams import WRITERS, Stream, cut, streams

T = TypeVar("T")
QUIRKS = Quirks()
law = settings(max_examples=50, deadline=None)
wires = pytest.mark.parametrize("wire", [wire for wire in CODECS if documents(wire, "response.json")])
HEADERS = {"retry-after": "nan", "retry-after-ms": "1e999", "x-should-retry": "perhaps"}


def deltas_of(wire: str, pieces: Iterable[bytes]) -> list[Delta]:
    decoder = CODECS[wire].decoder(QUIRKS)
    return [delta for piece in pieces for delta in decoder.feed(piece)] + decoder.close()


def unless_refused(read: Callable[[], T]) -> T | None:
    """What is read; None when an error of ours refuses it, and does so in a few words."""
    try:
        return read()
    except EvenerError as error:
        words = str(error)
    assert len(words) < 2000
    return None


def plain(deltas: Iterable[Delta]) -> list[object]:
    return [(type(delta.error), str(delta.error)) if isinstance(delta, Failed) else delta for delta in deltas]


def said(reply: Reply) -> list[tuple[str, str]]:
    found = []
    for block in reply.blocks:
        match block:
            case TextBlock(text):
                found.append(("text", text))
            case ReasoningBlock(text):
                found.append(("reasoning", text))
            case ToolCall(raw=raw):
                found.append(("call", raw))
            case _:
                raise AssertionError(block.kind)
    return found


@pytest.mark.parametrize("wire", WRITERS)
@law
@given(data=st.data())
def test_a_stream_in_any_framing_cut_anywhere_says_the_same(wire: str, data: st.DataObject) -> None:
    stream: Stream = data.draw(streams(wire))
    whole = deltas_of(wire, [stream.data])
    assert plain(deltas_of(wire, data.draw(cut(stream.data)))) == plain(whole)
    assert plain(deltas_of(wire, (bytes((byte,)) for byte in stream.data))) == plain(whole)
    spoken = [(kind, text) for kind, text in stream.said if text or kind != "text"]
    assert [(kind, text) for kind, text in said(assemble(whole)) if text or kind != "text"] == spoken


@pytest.mark.parametrize("wire", CODECS)
@law
@given(st.binary(max_size=60) | st.sampled_from(BYTES) | st.sampled_from(VALUES).map(str.encode), st.data())
def test_any_bytes_cut_anywhere_give_the_same_deltas_and_one_end(wire: str, noise: bytes, data: st.DataObject) -> None:
    stream = b"data: " + noise + data.draw(st.sampled_from([b"", b"\n\n", b"\r\r", b"\n\ndata: [DONE]\n\n"]))
    whole = deltas_of(wire, [stream])
    assert plain(deltas_of(wire, data.draw(cut(stream)))) == plain(whole)
    assert sum(isinstance(delta, Failed | Stopped) for delta in whole) == 1
    assert isinstance(whole[-1], Failed | Stopped)


@law
@given(st.lists(st.sampled_from([b"data", b":", b" ", b"\r", b"\n", b"\r\n", b"x", b"event: y", b"\xef\xbb\xbf"])), st.data())
def test_events_are_split_the_same_wherever_the_bytes_are_cut(parts: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(parts)

    def split(pieces: Iterable[bytes]) -> list[bytes]:
        reader = SseReader()
        return [event for piece in pieces for event in reader.feed(piece)] + reader.close()

    assert split(data.draw(cut(stream))) == split([stream])


@wires
@law
@given(data=st.data())
def test_a_spoilt_answer_is_a_reply_or_our_error(wire: str, data: st.DataObject) -> None:
    body = data.draw(st.sampled_from(documents(wire, "response.json")).flatmap(spoilt) | st.binary(max_size=60))
    reply = unless_refused(lambda: CODECS[wire].decode(body, QUIRKS))
    assert reply is None or isinstance(reply, Reply)


@wires
@law
@given(data=st.data())
def test_a_spoilt_event_never_makes_a_decoder_raise(wire: str, data: st.DataObject) -> None:
    seen = data.draw(st.sampled_from(events(wire)))
    bad = data.draw(st.integers(0, len(seen) - 1))
    frames = [data.draw(spoilt(event)) if place == bad else json.dumps(event).encode() for place, event in enumerate(seen)]
    deltas = deltas_of(wire, (b"data: " + frame + b"\n\n" for frame in frames))
    assert sum(isinstance(delta, Failed | Stopped) for delta in deltas) == 1
    reply = unless_refused(lambda: assemble(deltas))
    assert (reply is None) == isinstance(deltas[-1], Failed)


@wires
@law
@given(data=st.data())
def test_a_spoilt_request_is_an_ask_that_can_be_sent_or_our_error(wire: str, data: st.DataObject) -> None:
    codec = CODECS[wire]
    body = data.draw(st.sampled_from(documents(wire, "request.json")).flatmap(spoilt) | st.binary(max_size=60))
    sent = unless_refused(lambda: codec.encode(codec.read_request(body, QUIRKS, Origin(wire, "p")), QUIRKS, None).body)
    assert sent is None or msgspec.json.decode(sent, type=dict[str, msgspec.Raw])


@pytest.mark.parametrize("wire", CODECS)
@law
@given(data=st.data(), status=st.integers(100, 999))
def test_any_refusal_is_a_provider_error(wire: str, data: st.DataObject, status: int) -> None:
    said = {
        "error": {"message": "m", "type": "t", "code": "c", "details": {"error_code": "x"}},
        "message": "n",
        "request_id": "r",
    }
    body = data.draw(spoilt(said) | st.binary(max_size=60))
    error = CODECS[wire].fault(status, HEADERS, body)
    assert isinstance(error, ProviderError)
    assert error.status == status
    assert len(str(error)) < 2000


@wires
@pytest.mark.parametrize("depth", [100_000, 1_000_000])
def test_a_large_or_deep_document_is_refused(wire: str, depth: int) -> None:
    codec = CODECS[wire]
    for body in (b"[" * depth, b'{"a":' * depth, b'{"content":' + b"[" * depth, b'"' + b"\\ud800" * depth, b"9" * depth):
        with pytest.raises(EvenerError):
            codec.decode(body, QUIRKS)
        with pytest.raises(EvenerError):
            codec.read_request(body, QUIRKS, Origin(wire))
        assert isinstance(codec.fault(400, {}, body), ProviderError)
        (failed,) = deltas_of(wire, [b"data: ", body, b"\n\n"])
        assert isinstance(failed, Failed)


@pytest.mark.parametrize("wire", CODECS)
def test_an_event_without_end_is_given_up_before_it_fills_the_memory(wire: str) -> None:
    decoder = CODECS[wire].decoder(QUIRKS)
    piece = b"data: " + b"x" * (1 << 20)
    fed = 0
    while not (deltas := decoder.feed(piece)):
        fed += len(piece)
        assert fed <= 2 * MAX_FRAME
    (failed,) = deltas
    assert isinstance(failed, Failed)
    assert type(failed.error) is WireError
    assert decoder.feed(piece) == decoder.close() == []
