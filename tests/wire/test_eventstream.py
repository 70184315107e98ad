"""Amazon's framing: the same events as in server-sent events, cut anywhere; damage is noticed."""

import base64
import json
import struct
from zlib import crc32

import pytest

from evener.errors import Overloaded, TruncatedStream, WireError
from evener.transcript.delta import Delta, Failed
from evener.wire import CODECS, Quirks, assemble
from evener.wire.eventstream import EventStreamReader
from tests.corpus import CORPUS, needs_corpus

QUIRKS = Quirks(framing="eventstream")
EVENTS = (
    {"type": "message_start", "message": {"id": "m", "model": "x", "usage": {"input_tokens": 3, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "grün"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}},
    {"type": "message_stop"},
)


def frame(headers: dict[str, str], payload: bytes) -> bytes:
    """A frame as the service writes it, made independently of the reader."""
    packed = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack(">II", 16 + len(packed) + len(payload), len(packed))
    body = prelude + struct.pack(">I", crc32(prelude)) + packed + payload
    return body + struct.pack(">I", crc32(body))


def chunk(event: object) -> bytes:
    inner = base64.b64encode(json.dumps(event).encode()).decode()
    return frame({":event-type": "chunk", ":message-type": "event"}, json.dumps({"bytes": inner, "p": "abc"}).encode())


def decoded(data: bytes, size: int) -> list[Delta]:
    decoder = CODECS["anthropic_messages"].decoder(QUIRKS)
    found = [delta for start in range(0, len(data), size) for delta in decoder.feed(data[start : start + size])]
    return found + decoder.close()


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_the_events_are_those_of_any_stream(size: int) -> None:
    reply = assemble(decoded(b"".join(map(chunk, EVENTS)), size))
    assert (reply.text, reply.stop.reason, reply.output_tokens) == ("grün", "done", 4)


def test_an_exception_is_a_typed_error() -> None:
    headers = {":message-type": "exception", ":exception-type": "serviceUnavailableException"}
    last = decoded(chunk(EVENTS[0]) + frame(headers, b'{"message":"try later"}'), 50)[-1]
    assert isinstance(last, Failed)
    assert isinstance(last.error, Overloaded)
    assert last.error.message == "try later"


def test_a_stream_that_is_cut_is_truncated() -> None:
    last = decoded(b"".join(map(chunk, EVENTS[:-1])) + chunk(EVENTS[-1])[:-1], 64)[-1]
    assert isinstance(last, Failed)
    assert isinstance(last.error, TruncatedStream)


@pytest.mark.parametrize("place", [1, 9, 30, -1])
def test_a_damaged_frame_is_noticed(place: int) -> None:
    data = bytearray(chunk(EVENTS[0]))
    data[place] ^= 1
    last = decoded(bytes(data) + chunk(EVENTS[1]), 10_000)[-1]
    assert isinstance(last, Failed)
    assert isinstance(last.error, WireError)


def test_a_frame_beyond_the_cap_is_refused_before_it_is_read() -> None:
    with pytest.raises(WireError, match="larger than"):
        EventStreamReader(max_frame=100).feed(chunk(EVENTS[0])[:12])


@needs_corpus
def test_recorded_frames_of_the_same_framing_are_taken() -> None:
    assert CORPUS is not None
    count = 0
    for path in sorted((CORPUS / "bedrock_converse").glob("*.json")):
        for exchange in json.loads(path.read_text(encoding="utf-8"))["exchanges"]:
            data = base64.b64decode(exchange["response"].get("eventstream_b64", ""))
            if data:
                assert EventStreamReader().feed(data) == []  # well framed, but events of another API
                count += 1
    assert count
