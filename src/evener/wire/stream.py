"""The shell around every answer: events in, deltas out, one way to end. Pure; it never raises on input.

An answer counts only when it is complete: its wire's end mark has arrived, it says why it stopped, and each call in it was
closed. Each wire says what of this is missing; what follows from it is decided here, for all wires, streamed and whole.
"""

from collections.abc import Iterator
from operator import length_hint
from typing import Protocol

import msgspec

from evener.errors import EvenerError, TruncatedStream, WireError
from evener.transcript.delta import (
    ArgumentsDelta,
    CallStarted,
    Delta,
    Failed,
    HostedAdded,
    MediaAdded,
    Notice,
    ReasoningDelta,
    Stopped,
    TextDelta,
)
from evener.wire.eventstream import EventStreamReader
from evener.wire.lenient import BROKEN, has_text
from evener.wire.sse import SseReader

__all__ = ["FRAMINGS", "NO_ANSWER", "NO_REASON", "OPEN_CALL", "Events", "StreamDecoder", "not_ours", "read_frames", "settle"]

END = b"[DONE]"
EVENT = "an event of this wire"
NO_ANSWER = "The stream ended before it said anything. The turn does not count; ask again."
MID_TURN = "The stream ended in mid-turn. The turn does not count; ask again."
NO_REASON = "a reason why it stopped"
OPEN_CALL = "the end of a call that had begun"
FRAMINGS: dict[str, type[SseReader] | type[EventStreamReader]] = {"sse": SseReader, "eventstream": EventStreamReader}
"""How a streamed answer is cut into events, by the quirk of that name."""
SAYING = frozenset({TextDelta, ReasoningDelta, ArgumentsDelta, CallStarted, HostedAdded, MediaAdded})
"""What an answer says something with."""
UNREAD = 16
"""Events that are kept of an answer as long as nothing could be read in it."""


class Events(Protocol):
    """A wire's reading of its events, one after the other."""

    def read(self, frames: Iterator[bytes], found: list[Delta]) -> bool:
        """Add the deltas of these events; True, and no more are taken, at the last one. Decoding errors may pass."""
        ...

    def mend(self, frame: bytes) -> tuple[bytes, list[Notice]]:
        """An event that could not be decoded, without the fields that need not be understood, and these as notices."""
        ...

    def missing(self) -> str:
        """What the answer lacks to be complete, now that it has ended; empty when it is complete."""
        ...

    def end(self) -> list[Delta] | None:
        """The bytes have ended without a last event: the closing deltas if the turn is complete all the same, else None."""
        ...


class StreamDecoder(msgspec.Struct, gc=False):
    """Feed bytes, cut anywhere; get deltas. An error is a `Failed` delta, the last one."""

    _events: Events
    _frames: SseReader | EventStreamReader
    _over: bool = False
    _said: bool = False
    _unread: list[bytes] = []

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
                self._fail(found, not_ours(error, b"", EVENT))
                return found
            if closing is None:
                self._fail(found, TruncatedStream(MID_TURN))
            else:
                found += closing
                self._settle(found)
        return found

    def _read(self, frames: list[bytes], found: list[Delta]) -> None:
        left = iter(frames)
        try:
            over = self._events.read(left, found)
        except BROKEN as error:
            over = _read_on(self._events, frames, left, found, error, EVENT)
        if over or not self._said:
            self._listen(frames[: len(frames) - length_hint(left)], found)
            self._over = over
            if over:
                self._settle(found)

    def _listen(self, frames: list[bytes], found: list[Delta]) -> None:
        """Keep what has come as long as nothing was read in it."""
        self._said = self._said or not SAYING.isdisjoint(map(type, found))
        if not self._said:
            self._unread += frames[: UNREAD - len(self._unread)]

    def _settle(self, found: list[Delta]) -> None:
        settle(self._events, found, [] if self._said else self._unread)

    def _fail(self, found: list[Delta], error: EvenerError) -> None:
        self._over = True
        found.append(Failed(error))


def read_frames(events: Events, frames: list[bytes], found: list[Delta], what: str) -> bool:
    """Read the events of an answer that is here as a whole; True at the last one."""
    left = iter(frames)
    try:
        return events.read(left, found)
    except BROKEN as error:
        return _read_on(events, frames, left, found, error, what)


def _read_on(
    events: Events, frames: list[bytes], left: Iterator[bytes], found: list[Delta], error: Exception, what: str
) -> bool:
    """Read an event again that could not be decoded, without its lesser fields, and then those that are left."""
    while True:
        frame = frames[-1 - length_hint(left)]
        if frame.strip() != END or isinstance(error, UnicodeDecodeError):
            try:
                mended, notices = events.mend(frame)
                over = events.read(iter((mended,)), found)
            except BROKEN:
                raise not_ours(error, frame, what) from None
            place = len(found) - over  # before the last one, after all others of the event
            found[place:place] = notices
            if over:
                return True
        try:
            return events.read(left, found)
        except BROKEN as another:
            error = another


def settle(events: Events, found: list[Delta], unread: list[bytes]) -> None:
    """Decide whether an answer that has stopped counts. One that says nothing hands on the events that hold text."""
    last = found[-1]
    if type(last) is not Stopped:
        return
    missing = events.missing()
    if missing:
        found[-1] = Failed(TruncatedStream(f"The answer ended without {missing}. The turn does not count; ask again."))
    elif last.reason == "done":
        found[-1:] = [*(Notice("text elsewhere", frame.decode()) for frame in unread if has_text(frame)), last]


def not_ours(error: Exception, frame: bytes, what: str) -> WireError:
    """The error for bytes that are not what they should be."""
    start = frame[:60].decode(errors="replace")
    return WireError(f"Expected {what}, but the bytes are not: {error}. They begin with {start!r}.")
