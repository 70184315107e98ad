"""Splits Amazon's binary event stream into events, wherever the bytes are cut. Pure; checks lengths and checksums.

A frame is: total length, headers length (4 bytes each, big-endian), a checksum of these eight bytes, headers, payload, and a
checksum of all before it. The payload of a `chunk` is JSON that holds the real event in base64 under `bytes`; an exception
becomes the error event that a stream of server-sent events would hold.
"""

from zlib import crc32

import msgspec

from evener.errors import WireError
from evener.wire.prefix import dumps
from evener.wire.sse import MAX_FRAME, too_large

PRELUDE = 12
LEAST = 16
FIXED = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Bytes of a header's value, by its type; values of types 6 and 7 begin with their length."""


class _Chunk(msgspec.Struct):
    event: bytes = msgspec.field(default=b"", name="bytes")  # in base64


class _Complaint(msgspec.Struct):
    message: str = ""


_chunks = msgspec.json.Decoder(_Chunk)
_complaints = msgspec.json.Decoder(_Complaint)


class EventStreamReader:
    """Feed bytes, get the JSON of each complete event, as the reader of server-sent events gives it."""

    __slots__ = ("_buffer", "_max")

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._buffer = bytearray()
        self._max = max_frame

    def feed(self, data: bytes) -> list[bytes]:
        """Return the events that these bytes complete."""
        self._buffer += data
        found: list[bytes] = []
        start = 0
        with memoryview(self._buffer) as buffer:
            while len(buffer) - start >= PRELUDE:
                total = int.from_bytes(buffer[start : start + 4], "big")
                self._check_prelude(start, total)
                if len(buffer) - start < total:
                    break
                with buffer[start : start + total] as frame:
                    found.append(_event(frame))
                start += total
        del self._buffer[:start]
        return [event for event in found if event]

    def close(self) -> list[bytes]:
        """Return nothing: half a frame is no event."""
        self._buffer.clear()
        return []

    def _check_prelude(self, start: int, total: int) -> None:
        prelude = bytes(self._buffer[start : start + PRELUDE])
        if crc32(prelude[:8]) != int.from_bytes(prelude[8:], "big") or total < LEAST:
            raise WireError("The stream is not framed as an event stream: a checksum does not match. Check the endpoint's row.")
        if total > self._max:
            raise too_large(self._max)


def _event(frame: memoryview) -> bytes:
    """Return the event in a frame; empty for a frame that holds none."""
    if crc32(frame[:-4]) != int.from_bytes(frame[-4:], "big"):
        raise WireError("A frame of the event stream was damaged on its way: its checksum does not match. Ask again.")
    length = int.from_bytes(frame[4:8], "big")
    if length > len(frame) - LEAST:
        raise WireError("A frame of the event stream has headers longer than itself. Ask again.")
    headers = _headers(bytes(frame[PRELUDE : PRELUDE + length]))
    payload = frame[PRELUDE + length : -4]
    if headers.get(":message-type", "event") != "event":
        return _error(headers, bytes(payload))
    try:
        return _chunks.decode(payload).event if headers.get(":event-type") == "chunk" else b""
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WireError(f"A chunk of the event stream holds no event: {error}. Check the endpoint's row.") from None


def _error(headers: dict[str, str], payload: bytes) -> bytes:
    kind = headers.get(":exception-type") or headers.get(":error-code") or "error"
    try:
        message = _complaints.decode(payload).message
    except (msgspec.MsgspecError, UnicodeDecodeError):
        message = payload[:300].decode(errors="replace")
    said = message or headers.get(":error-message", "") or kind
    return dumps({"type": "error", "error": {"type": KINDS.get(kind, kind), "message": said}})


KINDS = {
    "throttlingException": "rate_limit_error",
    "serviceUnavailableException": "overloaded_error",
    "modelTimeoutException": "timeout_error",
    "internalServerException": "api_error",
    "modelStreamErrorException": "api_error",
    "validationException": "invalid_request_error",
}
"""The error types of Anthropic events, by the exceptions of the framing."""


def _headers(data: bytes) -> dict[str, str]:
    """Return the headers that are text, and skip the others."""
    found: dict[str, str] = {}
    place = 0
    while place < len(data):
        name = data[place + 1 : place + 1 + data[place]]
        place += 1 + len(name)
        kind = data[place] if place < len(data) else -1
        place += 1
        if kind in (6, 7):
            size = int.from_bytes(data[place : place + 2], "big")
            place += 2
            if kind == 7:
                found[name.decode(errors="replace")] = data[place : place + size].decode(errors="replace")
        elif kind in FIXED:
            size = FIXED[kind]
        else:
            raise WireError("A frame of the event stream has a header of unknown type. Ask again.")
        place += size
    return found
