"""The shell around every streamed answer: events in, deltas out, one way to end. Pure; it never raises on input."""

from collections.abc import Iterator
from operator import length_hint
from typing import Protocol

import msgspec

from evener.errors import EvenerError, TruncatedStream, WireError
from evener.transcript.delta import Delta, Failed
from evener.wire.eventstream import EventStreamReader
from evener.wire.sse import SseReader

__all__ = ["FRAMINGS", "NO_ANSWER", "Events", "StreamDecoder"]

END = b"[DONE]"
NO_ANSWER = "The stream ended before it said anything. The turn does not count; ask again."
MID_TURN = "The stream ended in mid-turn. The turn does not count; ask again."
BROKEN = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoders raise on bytes that are not what they should be."""
FRAMINGS: dict[str, type[SseReader] | type[EventStreamReader]] = {"sse": SseReader, "eventstream": EventStreamReader}
"""How a streamed answer is cut into events, by the quirk of that name."""


class Events(Protocol):
    """A wire's reading of its events, one after the other."""

    def read(self, frames: Iterator[bytes], found: list[Delta]) -> bool:
        """Add the deltas of these events; True, and no more are taken, at the last one. Decoding errors may pass."""
        ...

    def end(self) -> list[Delta] | None:
        """The bytes have ended without a last event: the closing deltas if the turn is complete all the same, else None."""
        ...


class StreamDecoder(msgspec.Struct, gc=False):
    """Feed bytes, cut anywhere; get deltas. An error is a `Failed` delta, the last one."""

    _events: Events
    _frames: SseReader | EventStreamReader
    _over: bool = False

    def feed(self, data: bytes) -> list[Delta]:
        """The deltas that these bytes complete."""
        if self._over:
            return []
        found: list[Delta] = []
        try:
            self._read(self._frames.feed(data), found)
        except WireError as error:
            self._fail(found, error)
        return found

    def close(self) -> list[Delta]:
        """The rest. A turn without its terminal mark is truncated, whatever half an event says."""
        if self._over:
            return []
        found: list[Delta] = []
        try:
            self._read(self._frames.close(), found)
        except WireError:  # half an event: more was to come, whatever was said before
            found.clear()
            self._fail(found, TruncatedStream(MID_TURN))
        if not self._over:
            self._over = True
            try:
                closing = self._events.end()
            except BROKEN as error:
                self._fail(found, _not_ours(error, b""))
                return found
            if closing is None:
                self._fail(found, TruncatedStream(MID_TURN))
            else:
                found += closing
        return found

    def _read(self, frames: list[bytes], found: list[Delta]) -> None:
        left = iter(frames)
        while not self._over:
            try:
                if self._events.read(left, found):
                    self._over = True
                return
            except BROKEN as error:
                frame = frames[-1 - length_hint(left)]
                if frame.strip() != END or isinstance(error, UnicodeDecodeError):
                    raise _not_ours(error, frame) from None

    def _fail(self, found: list[Delta], error: EvenerError) -> None:
        self._over = True
        found.append(Failed(error))


def _not_ours(error: Exception, frame: bytes) -> WireError:
    start = frame[:60].decode(errors="replace")
    return WireError(f"An event of the stream is not of this wire: {error}. It begins with {start!r}.")
