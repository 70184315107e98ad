"""Puts an answer on a connection: head, frames, pauses, breaks. Every wait ends when the client goes, or after `MOST_WAIT`."""

import asyncio
import socket
import struct
import zlib
from collections.abc import Iterator
from email.utils import formatdate
from http import HTTPStatus

from evener.testing.servers.answer import Action, Answer, Filler, Hang, Pause, Repeat, Sever

__all__ = ["perform"]

MOST_WAIT = 300.0
_BLOCK = 64 * 1024
_GZIP = 31


class _Over(Exception):
    """The connection has ended, or must."""


async def perform(answer: Answer, gone: asyncio.Event, writer: asyncio.StreamWriter) -> bool:
    """Send the answer. False when the connection is of no more use."""
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

    def __init__(self, answer: Answer, gone: asyncio.Event, writer: asyncio.StreamWriter) -> None:
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
                for block in _filling(action):
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
        """All but the bytes that are to be lost in the end."""
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


def _head(answer: Answer, chunked: bool) -> bytes:
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
        total = sum(len(frame) if isinstance(frame, bytes) else _size(frame) for frame in answer.frames)
        lines.append(f"content-length: {max(0, total + (answer.length_off or 0))}")
    if answer.hang_up == "said":
        lines.append("connection: close")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _size(action: Action) -> int:
    return action.size if isinstance(action, Filler) else 0


def _filling(filler: Filler) -> Iterator[bytes]:
    block = filler.letter * min(_BLOCK, filler.size)
    for start in range(0, filler.size, _BLOCK):
        yield block[: filler.size - start]
