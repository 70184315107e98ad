"""Servers on loopback for the tests: raw bytes over asyncio, so that they can misbehave as no library would let them."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import msgspec

from evener.transport.exchange import Deadlines, Request

__all__ = ["Received", "Script", "Served", "Spoken", "chunk", "listening", "post", "raw", "serving", "whole"]

SECRET = "sk-very-secret-key-0123456789"


class Received(msgspec.Struct, frozen=True):
    """A request as a server saw it; names of headers in lower case."""

    line: str
    headers: dict[str, str]
    body: bytes


class Served(msgspec.Struct):
    """A running server, and what has happened to it."""

    url: str
    port: int
    connections: int = 0
    open: int = 0
    requests: list[Received] = []


Script = Callable[[Received, asyncio.StreamWriter], Awaitable[None]]
"""Answers one request. It closes the connection itself when it wants to."""


Spoken = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Speaks on one connection, from its first byte to its end."""


@asynccontextmanager
async def listening(speak: Spoken, *, secure: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> AsyncIterator[Served]:
    """A server that speaks as it likes, for as long as the block runs; nothing of it is left behind."""
    tasks: set[asyncio.Task[None]] = set()
    served = Served("", 0)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        served.connections += 1
        served.open += 1
        try:
            await speak(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            served.open -= 1
            tasks.discard(task)
            writer.close()
            with suppress(ConnectionError, ssl.SSLError, asyncio.CancelledError):
                await writer.wait_closed()

    server = await asyncio.start_server(connected, host, 0, ssl=secure, limit=1 << 16)
    served.port = server.sockets[0].getsockname()[1]
    served.url = f"{'https' if secure else 'http'}://{f'[{host}]' if ':' in host else host}:{served.port}"
    try:
        yield served
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


@asynccontextmanager
async def serving(script: Script, *, secure: ssl.SSLContext | None = None) -> AsyncIterator[Served]:
    """A server that answers each request so."""

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            received = await receive(reader)
            served.requests.append(received)
            await until_gone(script(received, writer), reader)
            await writer.drain()

    async with listening(speak, secure=secure) as served:
        yield served


async def until_gone(answering: Awaitable[None], reader: asyncio.StreamReader) -> None:
    """Answer, unless the client leaves first."""
    task = asyncio.ensure_future(answering)
    try:
        while not task.done() and not reader.at_eof() and reader.exception() is None:
            await asyncio.wait((task,), timeout=0.005)
        if not task.done():
            raise ConnectionResetError
        await task
    finally:
        task.cancel()


async def receive(reader: asyncio.StreamReader) -> Received:
    """The next request."""
    line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Received(line, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


def whole(body: bytes = b"{}", status: int = 200, *headers: str) -> bytes:
    """An answer with its length."""
    lines = "".join(f"{header}\r\n" for header in headers)
    return f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n{lines}\r\n".encode() + body


def chunk(content: bytes) -> bytes:
    """One piece of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(content), content)


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def raw(*pieces: bytes | float, end: str = "keep") -> Script:
    """Bytes to send and seconds to wait, in turn; then it is kept, closed (`close`), reset, or left (`hang`)."""

    async def script(_: Received, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            if isinstance(piece, bytes):
                writer.write(piece)
                await writer.drain()
            else:
                for __ in range(20):  # many turns of the loop, however late the machine makes each of them
                    await asyncio.sleep(piece / 20)
        await finish(writer, end)

    return script


async def finish(writer: asyncio.StreamWriter, end: str) -> None:
    if end == "hang":
        await asyncio.Event().wait()
    if end == "reset":
        linger: socket.socket = writer.get_extra_info("socket")
        linger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        raise ConnectionResetError
    if end == "close":
        writer.close()
        raise ConnectionResetError


def post(
    url: str, deadlines: Deadlines | None = None, *, body: bytes = b"{}", headers: Sequence[tuple[str, str]] = ()
) -> Request:
    """A request with a credential in a header and in the query."""
    sent = (("authorization", f"Bearer {SECRET}"), ("content-type", "application/json"), *headers)
    patient = Deadlines(connect=120, idle=120, total=120)
    return Request(f"{url}/v1/messages?key={SECRET}", sent, body, deadlines=deadlines or patient)
