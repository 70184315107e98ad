"""What can go wrong with a turn on its way to the client: one value each, applied to an answer. Bounded, and never random.

`after` counts frames: the events of a stream, or the four slices in which a whole answer with faults is sent.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from evener.testing.servers.answer import MARKER, Action, Filler, Hang, HttpAnswer, Pause, Repeat, Sever, Voice

_MALFORMED: dict[str, bytes] = {
    "json": b'data: {"type": "oops", \n\n',
    "sse": b"this line has no colon and no sense\nid\n: \ndata\n\n",
    "utf8": b'data: {"type": "\xff\xfe\xc3("}\n\n',
    "nul": b"data: \x00\x00\n\n",
}
_SLICE = b'\x00{"oops": '


def _replace(answer: HttpAnswer, frames: Sequence[Action], *, ending: int | None = None) -> HttpAnswer:
    kept = answer.ending if ending is None else ending
    return msgspec.structs.replace(answer, frames=tuple(frames), ending=kept)


def _insert(answer: HttpAnswer, after: int, *actions: Action) -> HttpAnswer:
    return _replace(answer, (*answer.frames[:after], *actions, *answer.frames[after:]))


def _end(answer: HttpAnswer, after: int, *actions: Action) -> HttpAnswer:
    return _replace(answer, (*answer.frames[:after], *actions), ending=0)


class Cut(msgspec.Struct, frozen=True):
    """The body ends properly for HTTP in the middle of the answer; then the connection closes."""

    after: int = 2

    def spoil(self, answer: HttpAnswer, _voice: Voice) -> HttpAnswer:
        """Return the answer with the fault in it. All faults have this method."""
        return _end(answer, self.after, Sever("clean"))


class Torn(msgspec.Struct, frozen=True):
    """The connection closes in the middle of a chunk."""

    after: int = 2

    def spoil(self, answer: HttpAnswer, _voice: Voice) -> HttpAnswer:
        return _end(answer, self.after, Sever("chunk"))


class Reset(msgspec.Struct, frozen=True):
    """The connection is reset."""

    after: int = 2

    def spoil(self, answer: HttpAnswer, _voice: Voice) -> HttpAnswer:
        return _end(answer, self.after, Sever("reset"))


class Stall(msgspec.Struct, frozen=True):
    """Some frames, then silence on an open connection. After none: only the head comes."""

    after: int = 2

    def spoil(self, answer: HttpAnswer, _voice: Voice) -> HttpAnswer:
        return _end(answer, self.after, Hang())


class Silent(msgspec.Struct, frozen=True):
    """The request is read and never answered."""

    def spoil(self, answer: HttpAnswer, _voice: Voice) -> HttpAnswer:
        return msgspec.structs.replace(answer, before=(*answer.before, Hang()))


class Slow(msgspec.Struct, frozen=True):
    """Seconds to wait before the head, and before each frame."""

    head: float = 0.0
    between: float = 0.0

    def spoil(self, answer: HttpAnswer, _voice: Voice) -> HttpAnswer:
        if self.between:
            answer = _replace(
                answer,
                [action for frame in answer.frames for action in (Pause(self.between), frame)],
                ending=answer.ending * 2,
            )
        return msgspec.structs.replace(answer, before=(*answer.before, Pause(self.head))) if self.head else answer


class ErrorEvent(msgspec.Struct, frozen=True):
    """The provider reports an error after a 200 and some events. A whole answer becomes a 200 that holds an error."""

    after: int = 2
    status: int = 529
    message: str = "Overloaded"

    def spoil(self, answer: HttpAnswer, voice: Voice) -> HttpAnswer:
        kept = answer.frames[: self.after] if voice.streamed else ()
        return _replace(answer, (*kept, *voice.failure(self.status, self.message)), ending=0)


class Insert(msgspec.Struct, frozen=True):
    """These bytes between two frames."""

    data: bytes
    after: int = 2

    def spoil(self, answer: HttpAnswer, _voice: Voice) -> HttpAnswer:
        return _insert(answer, self.after, self.data)


class Malformed(msgspec.Struct, frozen=True):
    """An event that is broken as JSON, as a server-sent event, or as text. In a whole answer: bytes that break its JSON."""

    kind: Literal["json", "sse", "utf8", "nul"] = "json"
    after: int = 2

    def spoil(self, answer: HttpAnswer, voice: Voice) -> HttpAnswer:
        return _insert(answer, self.after, _MALFORMED[self.kind] if voice.streamed else _SLICE)


class UnknownEvent(msgspec.Struct, frozen=True):
    """An event of an unknown type: harmless, clients skip it."""

    after: int = 2

    def spoil(self, answer: HttpAnswer, voice: Voice) -> HttpAnswer:
        return _insert(answer, self.after, voice.unknown()) if voice.streamed else answer


class Huge(msgspec.Struct, frozen=True):
    """One frame of `size` bytes of filler: a well-formed event of an unknown type, or white space in a whole answer."""

    size: int
    after: int = 2

    def spoil(self, answer: HttpAnswer, voice: Voice) -> HttpAnswer:
        if not voice.streamed:
            return _insert(answer, 0, Filler(self.size, b" "))
        head, _, tail = voice.unknown(MARKER).partition(MARKER.encode())
        return _insert(answer, self.after, head, Filler(self.size), tail)


class Endless(msgspec.Struct, frozen=True):
    """Keep-alive events and nothing else, until the client disconnects; at most `times`. In a whole answer: white space."""

    after: int = 2
    every: float = 0.01
    kind: Literal["ping", "comment"] = "ping"
    times: int = 100_000

    def spoil(self, answer: HttpAnswer, voice: Voice) -> HttpAnswer:
        frame = b": keep-alive\n\n" if self.kind == "comment" and voice.streamed else voice.nothing()
        return _end(answer, self.after if voice.streamed else 0, Repeat(frame, self.every, self.times), Sever("clean"))


class Unfinished(msgspec.Struct, frozen=True):
    """The end marker is missing, though the body ends properly. `frames`: how many are missing (0: the whole marker)."""

    frames: int = 0

    def spoil(self, answer: HttpAnswer, _voice: Voice) -> HttpAnswer:
        return _replace(answer, answer.frames[: -(self.frames or answer.ending)], ending=0)


class Twice(msgspec.Struct, frozen=True):
    """The last frame, which ends the answer, is sent twice."""

    def spoil(self, answer: HttpAnswer, _voice: Voice) -> HttpAnswer:
        return _replace(answer, (*answer.frames, *answer.frames[-1:]))


class ExtraBytes(msgspec.Struct, frozen=True):
    """More bytes after the end marker; without `data`, an event of an unknown type."""

    data: bytes = b""

    def spoil(self, answer: HttpAnswer, voice: Voice) -> HttpAnswer:
        return _replace(answer, (*answer.frames, self.data or voice.unknown()))


class Gzip(msgspec.Struct, frozen=True):
    """The body is compressed, flushed at each frame; `lost` bytes are missing at its end."""

    lost: int = 0

    def spoil(self, answer: HttpAnswer, _voice: Voice) -> HttpAnswer:
        headers = (*answer.headers, ("content-encoding", "gzip"))
        return msgspec.structs.replace(answer, headers=headers, lost=self.lost, chunked=True)


class Bytewise(msgspec.Struct, frozen=True):
    """At most `size` bytes of the body in a write."""

    size: int = 1

    def spoil(self, answer: HttpAnswer, _voice: Voice) -> HttpAnswer:
        return msgspec.structs.replace(answer, write=self.size, chunked=True)


class Crlf(msgspec.Struct, frozen=True):
    """Lines end in CR LF where they end in LF, and the other way round."""

    def spoil(self, answer: HttpAnswer, _voice: Voice) -> HttpAnswer:
        return _replace(answer, [_other_lines(frame) if isinstance(frame, bytes) else frame for frame in answer.frames])


class Bom(msgspec.Struct, frozen=True):
    """A byte order mark before the first byte."""

    def spoil(self, answer: HttpAnswer, _voice: Voice) -> HttpAnswer:
        return _insert(answer, 0, b"\xef\xbb\xbf")


class WrongLength(msgspec.Struct, frozen=True):
    """The announced length is wrong `by` so many bytes; the connection closes after the body."""

    by: int = 64

    def spoil(self, answer: HttpAnswer, _voice: Voice) -> HttpAnswer:
        return msgspec.structs.replace(answer, length_off=self.by)


class HangUp(msgspec.Struct, frozen=True):
    """The connection closes after the answer, with a header that says so, or without one."""

    how: Literal["said", "silent"] = "silent"

    def spoil(self, answer: HttpAnswer, _voice: Voice) -> HttpAnswer:
        return msgspec.structs.replace(answer, hang_up=self.how)


def _other_lines(frame: bytes) -> bytes:
    return frame.replace(b"\r\n", b"\n") if b"\r\n" in frame else frame.replace(b"\n", b"\r\n")


Fault = (
    Bom
    | Bytewise
    | Crlf
    | Cut
    | Endless
    | ErrorEvent
    | ExtraBytes
    | Gzip
    | HangUp
    | Huge
    | Insert
    | Malformed
    | Reset
    | Silent
    | Slow
    | Stall
    | Torn
    | Twice
    | Unfinished
    | UnknownEvent
    | WrongLength
)
