"""An HTTP answer as a value, and how it is sent: head, frames, pauses, breaks. Every wait ends when the client disconnects,
or after `MOST_WAIT`.
"""

import asyncio
import json
import socket
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import Literal, Protocol

import msgspec

Header = tuple[str, str]
MARKER = "@filler@"
_SLICES = 4


class Pause(msgspec.Struct, frozen=True):
    """Wait for so many seconds."""

    seconds: float


class Hang(msgspec.Struct, frozen=True):
    """Send nothing more until the client disconnects or the server closes."""


class Filler(msgspec.Struct, frozen=True):
    """`size` times the byte `letter`, generated while it is written and never in memory as a whole."""

    size: int
    letter: bytes = b"a"


class Repeat(msgspec.Struct, frozen=True):
    """The same bytes repeatedly, `every` so many seconds, at most `times`."""

    frame: bytes
    every: float
    times: int


class Sever(msgspec.Struct, frozen=True):
    """End the connection here: after a proper end of the body, in the middle of a chunk, or by a reset."""

    how: Literal["clean", "chunk", "reset"]


Action = bytes | Pause | Hang | Filler | Repeat | Sever


class Voice(Protocol):
    """How one wire expresses, in one mode, what a fault needs: each is a frame of the body."""

    @property
    def streamed(self) -> bool:
        """True if frames are events; false if they are slices of one JSON body."""
        ...

    def failure(self, status: int, message: str) -> Sequence[bytes]:
        """Return an error that is sent after the head: what the provider would write in the rest of its stream."""
        ...

    def unknown(self, filler: str = "") -> bytes:
        """Return a well-formed event of an unknown kind."""
        ...

    def nothing(self) -> bytes:
        """Return a keep-alive event without content."""
        ...

    def error(self, status: int, message: str, *, wait: float | None = None) -> Mapping[str, object]:
        """Return the body of an HTTP error. `wait`: how long the client should stay away, where the body says so."""
        ...


class HttpAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP answer.

    The last `ending` frames are the wire's end marker, or the tail of a whole body. `before` happens before the head.
    `length_off` adds so much to the announced length. `write` is the most bytes to write at once (0: any), `lost` the bytes
    missing at the end of a compressed body (None: not compressed). `hang_up` closes the connection afterwards, with or
    without a header that says so.
    """

    status: int
    headers: tuple[Header, ...]
    frames: tuple[Action, ...]
    ending: int = 1
    before: tuple[Action, ...] = ()
    length_off: int | None = None
    write: int = 0
    lost: int | None = None
    hang_up: Literal["", "said", "silent"] = ""
    chunked: bool = False


def json_bytes(value: object) -> bytes:
    """Return compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def whole(status: int, value: object, headers: Sequence[Header] = ()) -> HttpAnswer:
    """Return a JSON answer with its length."""
    return HttpAnswer(status=status, headers=(("content-type", "application/json"), *headers), frames=(json_bytes(value),))


def streamed(events: Sequence[bytes], *, ending: int, kind: str = "text/event-stream; charset=utf-8") -> HttpAnswer:
    """Return a chunked answer of events."""
    return HttpAnswer(status=200, headers=(("content-type", kind),), frames=tuple(events), ending=ending, chunked=True)


def event(payload: Mapping[str, object] | str, *, name: str = "", line: str = "\n") -> bytes:
    """Return one server-sent event."""
    text = payload if isinstance(payload, str) else json_bytes(payload).decode()
    head = f"event: {name}{line}" if name else ""
    return f"{head}data: {text}{line}{line}".encode()


def sliced(answer: HttpAnswer) -> HttpAnswer:
    """Return a whole answer whose body lies in a few frames, so that faults can strike between them."""
    body = b"".join(frame for frame in answer.frames if isinstance(frame, bytes))
    size = max(1, -(-len(body) // _SLICES))
    frames = tuple(body[start : start + size] for start in range(0, len(body), size))
    return msgspec.structs.replace(answer, frames=frames, ending=1)


MOST_WAIT = 300.0
_BLOCK = 64 * 1024
_GZIP = 31


class _Over(Exception):
    """The connection has ended, or must."""


async def perform(answer: HttpAnswer, gone: asyncio.Event, writer: asyncio.StreamWriter) -> bool:
    """Send the answer. Return False if the connection cannot be used again."""
    body = _Body(answer, gone, writer)
    try:
        for action in answer.before:
            await body.act(action)
        writer.write(_head(answer, body.chunked))
        for frame in answer.frames:
            await body.act(frame)
        await body.finish()
    except _Over:
        return False
    return answer.length_off is None and not answer.hang_up


class _Body:
    """A body on its way: compressed and cut as the answer says."""

    def __init__(self, answer: HttpAnswer, gone: asyncio.Event, writer: asyncio.StreamWriter) -> None:
        plain = all(isinstance(frame, bytes | Filler) for frame in answer.frames)
        self.chunked = answer.length_off is None and (answer.chunked or not plain)
        self._gone, self._writer, self._write, self._lost = gone, writer, answer.write, answer.lost or 0
        self._press = None if answer.lost is None else zlib.compressobj(wbits=_GZIP)
        self._held = b""

    async def act(self, action: Action) -> None:
        match action:
            case bytes():
                await self._put(action)
            case Pause(seconds=seconds):
                await self._wait(seconds)
            case Hang():
                await self._wait(MOST_WAIT)
                raise _Over
            case Filler():
                for block in _fill(action):
                    await self._put(block)
            case Repeat(frame=frame, every=every, times=times):
                for _ in range(times):
                    await self._put(frame)
                    await self._wait(every)
            case Sever():
                await self._sever(action)

    async def finish(self) -> None:
        if self._press is not None:
            await self._send(self._press.flush())
        if self.chunked:
            self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    async def _put(self, data: bytes) -> None:
        if self._press is not None:
            data = self._press.compress(data) + self._press.flush(zlib.Z_SYNC_FLUSH)
        await self._send(data)

    async def _send(self, data: bytes) -> None:
        """Send all but the bytes that are to be lost at the end."""
        data = self._held + data
        cut = max(0, len(data) - self._lost)
        data, self._held = data[:cut], data[cut:]
        size = self._write or len(data)
        for start in range(0, len(data), size or 1):
            piece = data[start : start + size]
            self._writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if self.chunked else piece)
            await self._writer.drain()
            if self._write:
                await asyncio.sleep(0)

    async def _wait(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._gone.wait(), min(seconds, MOST_WAIT))
        except TimeoutError:
            return
        raise _Over

    async def _sever(self, sever: Sever) -> None:
        match sever.how:
            case "clean":
                await self.finish()
            case "chunk":
                self._writer.write(b"40\r\nthis chunk is")
                await self._writer.drain()
            case "reset":
                await self._writer.drain()
                link: socket.socket = self._writer.get_extra_info("socket")
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self._writer.transport.abort()
        raise _Over


def _head(answer: HttpAnswer, chunked: bool) -> bytes:
    try:
        reason = HTTPStatus(answer.status).phrase
    except ValueError:
        reason = "Overloaded" if answer.status == 529 else "Unknown"
    lines = [f"HTTP/1.1 {answer.status} {reason}", *(f"{name}: {value}" for name, value in answer.headers)]
    if not any(name.lower() == "date" for name, _ in answer.headers):
        lines.append(f"date: {formatdate(usegmt=True)}")  # a moment to wait for is read against it
    if chunked:
        lines.append("transfer-encoding: chunked")
    else:
        sized = [frame for frame in answer.frames if isinstance(frame, bytes | Filler)]
        total = sum(len(frame) if isinstance(frame, bytes) else frame.size for frame in sized)
        lines.append(f"content-length: {max(0, total + (answer.length_off or 0))}")
    if answer.hang_up == "said":
        lines.append("connection: close")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _fill(filler: Filler) -> Iterator[bytes]:
    block = filler.letter * min(_BLOCK, filler.size)
    for start in range(0, filler.size, _BLOCK):
        yield block[: filler.size - start]
