"""HTTP/1.1 on one connection, server side: reads requests, passes each to a function, sends its answer. Independent of
wires.

Bodies have a length and at most 64 MB. Connections are kept alive until the client disconnects, an answer ends them, or the
server closes.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

from evener.testing.servers.answer import HttpAnswer, perform, whole
from evener.testing.servers.wire import Received

MOST_HEAD = 64 * 1024
MOST_BODY = 64 * 1024 * 1024
MOST_DIGITS = 15


class Ear(asyncio.StreamReader):
    """A reader that reports, without being read, when the client has disconnected."""

    def __init__(self) -> None:
        super().__init__(limit=MOST_HEAD)
        self.gone = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.gone.set()

    def set_exception(self, exc: BaseException) -> None:
        super().set_exception(exc)  # type: ignore[arg-type]
        self.gone.set()


class _Unreadable(Exception):
    """A request that is not HTTP, or is too large."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.answer = whole(status, {"error": {"message": said}}, (("connection", "close"),))


async def converse(link: socket.socket, respond: Callable[[Received], HttpAnswer]) -> None:
    """Answer requests on an accepted connection until it ends. Whatever happens, it is closed afterwards."""
    loop, ear = asyncio.get_running_loop(), Ear()
    protocol = asyncio.StreamReaderProtocol(ear)
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, link)
    writer = asyncio.StreamWriter(transport, protocol, ear, loop)
    try:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            try:
                while await _exchange(ear, writer, respond):
                    pass
            except _Unreadable as error:
                await perform(error.answer, ear.gone, writer)
            writer.close()
            await writer.wait_closed()
    finally:
        transport.abort()


async def _exchange(ear: Ear, writer: asyncio.StreamWriter, respond: Callable[[Received], HttpAnswer]) -> bool:
    received = await _receive(ear, writer)
    if received is None:
        return False
    kept = await perform(respond(received), ear.gone, writer)
    return kept and received.headers.get("connection", "").lower() != "close"


async def _receive(ear: Ear, writer: asyncio.StreamWriter) -> Received | None:
    try:
        head = await ear.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError:
        raise _Unreadable(431, f"The head of the request is longer than {MOST_HEAD} bytes.") from None
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    pieces = first.split(" ")
    if len(pieces) != 3 or not pieces[2].startswith("HTTP/1.") or not _is_target(pieces[1]):
        raise _Unreadable(400, "This is no HTTP/1.1 request.")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = await ear.readexactly(_length(headers))
    return Received(pieces[0], pieces[1], headers, body)


def _is_target(text: str) -> bool:
    try:
        urlsplit(text)
    except ValueError:
        return False
    return True


def _length(headers: dict[str, str]) -> int:
    if "transfer-encoding" in headers:
        raise _Unreadable(411, "The fake server takes bodies with a content-length only.")
    given = headers.get("content-length", "0")
    if not given.isdecimal() or len(given) > MOST_DIGITS:
        raise _Unreadable(400, "The content-length is no number.")
    if int(given) > MOST_BODY:
        raise _Unreadable(413, f"The body is longer than {MOST_BODY} bytes.")
    return int(given)
