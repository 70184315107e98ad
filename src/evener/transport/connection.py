"""One connection to one server: HTTP/1.1 framing, deadlines and error messages. One exchange at a time, bounded read-ahead."""

import asyncio
import errno
import re
import select
import socket
import ssl
import sys
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import cast

import msgspec

from evener.errors import BadValue, ConnectFailed, EvenerError, TruncatedStream, UsageError, WireError
from evener.transport.exchange import Deadlines, timed_out

REASONS = {
    errno.ECONNREFUSED: "nothing listens there",
    errno.EHOSTUNREACH: "there is no route to it",
    errno.ENETUNREACH: "there is no route to it",
    errno.ECONNRESET: "it closed the connection at once",
    errno.ECONNABORTED: "it closed the connection at once",
    errno.EMFILE: "this process has too many files open",
    errno.EADDRNOTAVAIL: "the address cannot be used from here",
    errno.ETIMEDOUT: "the operating system gave up waiting",
}


def beside(place: str) -> str:
    """Return the name of the proxy before a host, for error messages."""
    return f"the proxy on the way to {place}"


def dial_failure(error: OSError, place: str, *, proxy: bool) -> EvenerError:
    """Return the error for a connection that could not be opened. `proxy`: it was the one to the proxy."""
    peer = beside(place) if proxy else place
    match error:
        case ssl.SSLCertVerificationError():
            return _refuse_untrusted(error, peer)
        case ssl.SSLError():
            return ConnectFailed(
                f"No secure connection to {peer} could be made: the TLS handshake failed. "
                "Check the address, and that the server expects https:// on this port."
            )
        case _ if proxy:
            return ConnectFailed(
                f"The proxy on the way to {place} could not be reached: {_reason(error)}. "
                "Check `proxy` or the variables HTTP_PROXY and HTTPS_PROXY, or name the host in NO_PROXY."
            )
        case socket.gaierror():
            return ConnectFailed(
                f"The name in {place} is not known: no address was found. Check its spelling, and the network's name servers."
            )
    return ConnectFailed(
        f"No connection to {place} could be made: {_reason(error)}. Check the address, and that the server runs."
    )


def not_http(place: str) -> WireError:
    """Return the error for bytes that are not HTTP."""
    return WireError(
        f"The answer of {place} is not HTTP. Check the address, its port, and whether the server expects https://."
    )


def closed_early(place: str) -> TruncatedStream:
    """Return the error for a connection that was closed before any byte of a response."""
    return TruncatedStream(f"{place} closed the connection before it answered. Send the request again.")


def cut_head(place: str) -> WireError:
    """Return the error for a head that ended too early. It is not a TransportError, because the request must not be retried."""
    return WireError(
        f"{place} closed the connection in the first lines of its answer, so there is no answer. The request may have been "
        "carried out: send it again only if a repetition does no harm."
    )


def proxy_refused(status: int, place: str) -> ConnectFailed:
    """Return the error for a proxy that opens no tunnel."""
    if status == 407:
        advice = "It requires credentials: write them into its address, as in http://user:password@host:port."
    else:
        advice = "Check that it may reach this host, or name the host in NO_PROXY."
    return ConnectFailed(f"The proxy on the way to {place} answered HTTP {status} instead of connecting. {advice}")


def broken_off(place: str) -> TruncatedStream:
    """Return the error for a body that ended too early."""
    return TruncatedStream(f"{place} broke off in the middle of its answer, which is discarded. Send the request again.")


def malformed(place: str) -> WireError:
    """Return the error for a response whose framing is wrong."""
    return WireError(f"The answer of {place} breaks the rules of HTTP and is discarded. Send the request again.")


def _refuse_untrusted(error: ssl.SSLCertVerificationError, place: str) -> ConnectFailed:
    return ConnectFailed(
        f"The certificate of {place} is not trusted: {error.verify_message or 'it could not be verified'}. If this server is "
        "yours, name its authority's certificate with `ca_file`; if not, the connection may be intercepted."
    )


def _reason(error: OSError) -> str:
    """Return the operating system's reason in words; an error of the event loop's own means a closed connection."""
    number = error.errno or (errno.ECONNRESET if isinstance(error, ConnectionError) else 0)
    return REASONS.get(number, f"the operating system said {type(error).__name__}")


HEAD, LINES = 64 * 1024, 128
"""Bytes and lines of a head."""
BETWEEN = 16 * 1024
"""Bytes that may come between two pieces of a body: sizes of chunks, their extensions, trailers."""
INTERIM = 64
"""Heads with a status of 1xx before the final one."""
SWITCHING = 101
BODYLESS = (SWITCHING, 204, 304)

START, HEAD_END = b"HTTP/1.", b"\r\n\r\n"
STATUS = re.compile(r"HTTP/1\.([01]) ([1-9]\d\d)(?: [^\r\n\0]*)?", re.ASCII)
TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
FIELD = re.compile(rf"^({TOKEN}):([^\r\n\0]*)\r\n", re.MULTILINE)
SENT = re.compile(rf"{TOKEN} [!-~]+ HTTP/1\.1\n(?:{TOKEN}\r[\t -~\x80-\xff]*\n)*\n")
"""A head for checking. Its separators are `\\r` after a name and `\\n` after a line, which no part of a head may contain."""
MOST_DIGITS = 15
ENDING = b"\r\n\r\n"
"""The end of a chunked body: the line breaks of its last line and of an empty one."""
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
"""The head that llhttp gets in place of the one that was checked here."""


class NotHttp(Exception):
    """The bytes break the rules of HTTP."""


def head_bytes(method: str, target: str, headers: Iterable[tuple[str, str]]) -> bytes:
    """Return the head of a request. Raises BadValue for a forbidden character, without the values, which may be secrets."""
    lines = [f"{name}\r{value}\n" for name, value in headers]
    text = f"{method} {target} HTTP/1.1\n{''.join(lines)}\n"
    if not SENT.fullmatch(text) or text.count("\n") != len(lines) + 2:
        raise BadValue(
            "The request cannot be sent: its method or one of its headers has a character that HTTP forbids, a line break "
            "for example. Look for one at the end of a key or of an extra header."
        )
    return text.replace("\r", ": ").replace("\n", "\r\n").encode("latin-1")


class Framing:
    """The parser of one response. `reusable`: after its end the connection may carry another exchange."""

    __slots__ = (
        "_between",
        "_chunks",
        "_held",
        "_interim",
        "_left",
        "_method",
        "_part",
        "ended",
        "framed",
        "headers",
        "reusable",
        "status",
    )

    def __init__(self, method: str = "POST") -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.ended = False
        self.reusable = False
        self.framed = True
        self._method = method
        self._held = b""
        self._left = 0  # bytes of the body that are still to come
        self._between = 0  # bytes since the last piece of a chunk
        self._chunks: _Chunks | None = None
        self._part = "head"
        self._interim = 0

    @property
    def begun(self) -> bool:
        """True if any byte has come."""
        return bool(self.status or self._held or self._interim)

    def feed(self, data: bytes) -> list[bytes]:
        """Parse the next bytes and return the pieces of the body among them. Raises NotHttp."""
        if self._part == "head":
            data = self._head(data)
        if not data:
            return []
        if self.ended:
            self.reusable = False  # bytes arrived after the response
            if self._method == "CONNECT":
                raise NotHttp  # in a tunnel, the server sends nothing before our TLS handshake
            return []
        if self._part == "length":
            return self._count_body(data)
        return [data] if self._part == "close" else self._read_chunks(data)

    def finish(self) -> bool:
        """Note that the connection has ended. True if the response is whole."""
        self.reusable = False
        if self._part == "close":
            self.ended = True
        return self.ended

    # The head.

    def _head(self, data: bytes) -> bytes:
        """Parse the head and return the bytes after it."""
        held = self._held + data if self._held else data
        while True:
            head, ended, rest = held.partition(HEAD_END)
            if not ended:
                lines, started = held.count(b"\n"), held[: len(START)] == START[: len(held)]
                if not started or len(held) > HEAD + 1 or lines > LINES or lines != held.count(b"\r\n"):
                    raise NotHttp
                self._held = held
                return b""
            self._held = b""
            if self._is_final(head.decode("latin-1") + "\r\n") or not rest:
                return rest
            held = rest

    def _is_final(self, text: str) -> bool:
        first, _, lines = text.partition("\r\n")
        found, fields = STATUS.fullmatch(first), FIELD.findall(lines)
        if found is None or len(text) > HEAD or len(fields) >= LINES or len(fields) != lines.count("\n"):
            raise NotHttp  # a line that FIELD did not match is malformed
        status = int(found[2])
        if status < 200 and status != SWITCHING:
            self._interim += 1
            if self._interim > INTERIM:
                raise NotHttp
            return False
        headers = self.headers
        for name, value in fields:
            name, value = name.lower(), value.strip(" \t")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        self.status = status
        self._frame(first_version=found[1])
        return True

    def _frame(self, *, first_version: str) -> None:
        """Decide how the body ends."""
        headers = self.headers
        wishes = headers.get("connection", "").lower()
        self.reusable = "close" not in wishes and (first_version == "1" or "keep-alive" in wishes)
        coding, length = headers.get("transfer-encoding"), headers.get("content-length")
        if self.status in BODYLESS or self._method == "HEAD" or (self._method == "CONNECT" and self.status < 300):
            self.ended, self._part = True, "length"
            self.reusable = self.reusable and self.status != SWITCHING
        elif coding is not None:
            if coding.lower() != "chunked":
                raise NotHttp
            self._part, self._chunks = "chunks", _Chunks()
            self.reusable = self.reusable and length is None and first_version == "1"  # HTTP/1.0 has no chunks: RFC 9112, 6.1
        elif length is not None:
            self._left = _length(length)
            self._part, self.ended = "length", not self._left
        else:
            self._part, self.framed, self.reusable = "close", False, False

    # The body.

    def _count_body(self, data: bytes) -> list[bytes]:
        if len(data) > self._left:
            data = data[: self._left]
            self.reusable = False
        self._left -= len(data)
        self.ended = not self._left
        return [data]

    def _read_chunks(self, data: bytes) -> list[bytes]:
        chunks = self._chunks
        assert chunks is not None
        pieces = chunks.feed(data)
        if chunks.ended:
            self.ended, self._chunks = True, None
            self.reusable = self.reusable and not chunks.followed
            return pieces
        self._between = self._between + len(data) if not pieces else 0
        if self._between > BETWEEN:
            raise NotHttp
        return pieces


class _Chunks:
    """A chunked body, parsed by llhttp. `followed`: bytes came after the body."""

    __slots__ = ("_parser", "_refusals", "_sink")

    def __init__(self) -> None:
        import httptools

        self._refusals = (httptools.HttpParserError, httptools.HttpParserUpgrade)
        self._sink = _Sink()
        self._parser = httptools.HttpResponseParser(self._sink)
        self._parser.set_dangerous_leniencies(lenient_spaces_after_chunk_size=True)  # some servers pad chunk sizes
        self._parser.feed_data(CHUNKED)

    @property
    def ended(self) -> bool:
        return self._sink.ended

    @property
    def followed(self) -> bool:
        return self._sink.followed

    def feed(self, data: bytes) -> list[bytes]:
        """Return the pieces of the body among these bytes. Raises NotHttp."""
        if 1 < len(data) <= len(ENDING):  # byte by byte: all of them may be line breaks, of the body and after it
            return [piece for at in range(len(data)) for piece in self._parse(data[at : at + 1])]
        return self._parse(data)

    def _parse(self, data: bytes) -> list[bytes]:
        sink = self._sink
        if sink.ended:
            sink.followed = True
            return []
        try:
            self._parser.feed_data(data)
        except self._refusals:
            if not sink.ended:
                raise NotHttp from None
            sink.followed = True
        if sink.ended and len(data) > 1:  # llhttp skips line breaks after the end and does not report them
            before, ending = data[: -len(ENDING)], data[-len(ENDING) :]
            sink.followed = sink.followed or ending != ENDING or before.endswith((b"\r", b"\n"))
        pieces = sink.pieces[: sink.end] if sink.ended else sink.pieces.copy()
        sink.pieces.clear()
        return pieces


class _Sink:
    """Receives the callbacks of llhttp. It has no reference to the parser: a cycle would outlive the response."""

    __slots__ = ("end", "ended", "followed", "on_body", "pieces")

    def __init__(self) -> None:
        self.ended = self.followed = False
        self.end = 0  # pieces up to the end of the body: a second response after it adds none
        self.pieces: list[bytes] = []
        self.on_body = self.pieces.append  # the parser looks it up once

    def on_message_complete(self) -> None:
        if not self.ended:
            self.ended, self.end = True, len(self.pieces)

    def on_message_begin(self) -> None:
        self.followed = self.ended


def _length(text: str) -> int:
    """Return a stated length; equal repetitions count as one. Raises NotHttp."""
    found, *others = {part.strip(" \t") for part in text.split(",")} if "," in text else (text,)
    if others or not found.isascii() or not found.isdecimal() or len(found) > MOST_DIGITS:
        raise NotHttp
    return int(found)


PIECE = 64 * 1024
"""The most bytes that one `read` returns."""
AHEAD = 64 * 1024
"""Bytes that are read ahead of the caller; a little more may come."""
ROOM = 64 * 1024
"""Bytes that one read of the socket takes."""
RECORD = 32 * 1024
"""Bytes: an upper bound of what TLS may deliver beyond its size hint."""


class Terms(msgspec.Struct, frozen=True):
    """The terms of an exchange: the server's name for errors, its deadlines, and the loop's time at which it must end."""

    place: str
    deadlines: Deadlines
    end: float


class Connection(asyncio.BufferedProtocol):
    """Begin an exchange, await its head, read its pieces until there are none. `failure` is the error that ended the exchange.

    Waiting for bytes has a deadline, and so has the whole exchange; one timer checks both, and arriving bytes only note the
    time. The timer outlives an exchange: if it fires too early for the next one, it is set again.
    `release` returns what an exchange holds apart from the connection, such as its slot. It is called when the exchange fails.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._look: Callable[[], object] | None = None
        self._terms: Terms | None = None
        self._room = memoryview(bytearray(ROOM))
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # when the timer fires
        self._since = 0.0  # when bytes last came, or when a caller began to wait for them
        self._waiter: asyncio.Future[None] | None = None
        self._full = False  # the kernel's send buffer is full
        self._paused = False
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._lost = False
        self.gone = False
        """True if its socket is closed, too."""
        self.answer = Framing()
        self.failure: EvenerError | None = None
        self.release: Callable[[], None] | None = None
        self.idle_since = 0.0

    # One exchange.

    def begin(self, terms: Terms, method: str) -> None:
        """Begin a new exchange."""
        self._terms = terms
        self.answer = Framing(method)
        self.failure = None
        self._since = now = self._loop.time()
        due = min(terms.end, now + terms.deadlines.idle)
        if self._timer is None or due < self._due:
            self._set_timer(due)
        if self._lost:
            self.fail(closed_early(terms.place))

    def write(self, data: bytes) -> None:
        """Send bytes; a no-op on a lost connection."""
        if self._transport is not None and not self._lost:
            self._transport.write(data)

    async def drain(self) -> None:
        """Wait until the kernel accepts more bytes, the head of a response has arrived, or the connection has failed."""
        while self._full and not self.answer.status and self.failure is None:
            await self._wait()
        for _ in range(2):  # read what has arrived before more is sent: the event loop polls after it has run ready tasks
            await asyncio.sleep(0)

    async def head(self) -> Framing:
        """Wait for the head and return the response's parser."""
        while not self.answer.status:
            if self.failure is not None:
                raise self.failure
            await self._wait()
        return self.answer

    async def read(self) -> bytes:
        """Return the next bytes; empty at the end. Bytes that came before a failure are returned first."""
        while (data := self.take()) is None:
            await self._wait()
        return data

    def take(self) -> bytes | None:
        """Return the result of `read` if that needs no wait, else None."""
        if self._pieces:
            return self._take()
        if self.failure is not None:
            raise self.failure
        return b"" if self.answer.ended else None

    def end(self) -> bool:
        """End the exchange, complete or not. True if the connection may carry another one."""
        self.release = None
        fit = self.answer.ended and self.answer.reusable and not (self._lost or self._full or self._paused)
        if not fit or self.failure is not None:
            self.abort()
            return False
        self._terms = None
        self._pieces.clear()
        self._size = 0
        self.idle_since = self._loop.time()
        return True

    @property
    def ended(self) -> bool:
        """True if the whole response has been read."""
        return self.answer.ended and not self._pieces and self.failure is None

    @property
    def lost(self) -> bool:
        """True if the connection is closed."""
        return self._lost

    @property
    def fit(self) -> bool:
        """True if an exchange may begin: the socket has no unread bytes, which would be read as its response."""
        return not self._lost and self._look is not None and not self._look()

    def abort(self) -> None:
        """Close the connection at once."""
        self._cancel_timer()
        self._lost = True
        if self._transport is not None:
            self._transport.abort()

    def fail(self, failure: EvenerError) -> None:
        """Close the connection, and raise this error in the reader after it has read the bytes before."""
        if self.failure is None:
            self.failure = failure
        self.abort()
        self._wake()
        self.let_go()

    def let_go(self) -> None:
        """Release what the exchange holds. Idempotent."""
        if self.release is not None:
            self.release()

    def forget(self) -> None:
        """Release the exchange of a response that was garbage-collected unread. From any thread."""
        with suppress(RuntimeError):  # its event loop has ended, and its connections with it
            self._loop.call_soon_threadsafe(self.let_go)

    async def secure(self, context: ssl.SSLContext, host: str, *, within: float) -> None:
        """Start TLS, through a tunnel that has been opened."""
        self._cancel_timer()
        self._terms = None
        made = None if self._transport is None or self._lost else await self._loop.start_tls(
            self._transport, self, context, server_hostname=host, ssl_handshake_timeout=within
        )  # fmt: skip
        if made is None:
            raise ConnectionResetError
        self._transport = made

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not of this class
        self._look = make_poll(transport.get_extra_info("socket"))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer.

        It must have the size that TLS asks for: when the stream has ended, asyncio does not read a second time.
        """
        if sizehint + RECORD > len(self._room):
            self._room = memoryview(bytearray(sizehint + RECORD))
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        if self._lost:
            return
        if self._terms is None:
            self.abort()  # no exchange is open: these bytes would be read as the next one's response
            return
        self._since = self._loop.time()
        try:
            pieces = self.answer.feed(bytes(self._room[:nbytes]))
        except NotHttp:
            begun = self.answer.status and not self.answer.ended
            self.fail(malformed(self._terms.place) if begun else not_http(self._terms.place))
            return
        if pieces:
            self._pieces += pieces
            self._size += sum(map(len, pieces))
            if self._size > AHEAD and not self._paused and self._transport is not None:
                self._paused = True
                self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self._finish(farewell=True)
        self._lost = True
        return False

    def connection_lost(self, _: Exception | None) -> None:
        self._finish(farewell=False)
        self._lost = self.gone = True
        self._full = False
        if self._terms is None:
            self._cancel_timer()
        self._wake()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._wake()

    # Internals.

    def _finish(self, *, farewell: bool) -> None:
        """Handle the end of the stream. A response without a length is complete only if the server closed it (`farewell`)."""
        terms, answer = self._terms, self.answer
        if terms is None or answer.ended or self.failure is not None:
            return
        if not answer.status:
            self.fail(cut_head(terms.place) if answer.begun else closed_early(terms.place))
        elif not (answer.framed or (farewell and self._is_closed_by_server())) or not answer.finish():
            self.fail(broken_off(terms.place))
        self._wake()

    def _is_closed_by_server(self) -> bool:
        """True if the server closed the stream.

        With TLS, an attacker can end the connection, but cannot send the close alert.
        """
        secured = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        try:
            return secured is None or not secured.read(1)
        except ssl.SSLError:
            return False

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, due: float) -> None:
        self._cancel_timer()
        self._due = due
        self._timer = self._loop.call_at(due, self._check_deadlines)

    def _check_deadlines(self) -> None:
        """Fail the exchange if one of its deadlines has passed, else set the timer again."""
        self._timer = None
        terms = self._terms
        if terms is None:
            return
        now, idle = self._loop.time(), terms.deadlines.idle
        since = now if self._waiter is None else self._since
        if now >= terms.end:
            self._pieces.clear()
            self.fail(timed_out("total", terms.deadlines.total, terms.place))
        elif now >= since + idle:
            failure = timed_out("idle", idle, terms.place)
            failure.begun = self.answer.begun
            self.fail(failure)
        else:
            self._set_timer(min(terms.end, since + idle))

    async def _wait(self) -> None:
        if self._waiter is not None:
            raise UsageError("Two tasks read the same answer at once. Read it in one task, and pass the bytes on.")
        waiter = self._waiter = self._loop.create_future()
        self._since = self._loop.time()
        try:
            await waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _take(self) -> bytes:
        """Return the bytes that have come, up to a bound."""
        pieces = self._pieces
        if self._size <= PIECE:
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.clear()
        else:
            data = self._part()
        self._size -= len(data)
        if self._paused and self._size <= AHEAD // 2 and self._transport is not None and not self._lost:
            self._paused = False
            self._transport.resume_reading()
        return data

    def _part(self) -> bytes:
        """Return the first bytes that have come, as many as one `read` may return."""
        pieces, taken, room = self._pieces, [], PIECE
        while room and pieces:
            piece = pieces.popleft()
            if len(piece) > room:
                pieces.appendleft(piece[room:])
                piece = piece[:room]
            taken.append(piece)
            room -= len(piece)
        return b"".join(taken)


def make_poll(found: socket.socket) -> Callable[[], object]:
    """Return a function that is truthy if the socket has bytes, or an end, that the event loop may not have reported yet."""
    if sys.platform == "win32":
        return lambda: select.select((found,), (), (), 0)[0]
    looking = select.poll()
    looking.register(found, select.POLLIN)
    return partial(looking.poll, 0)
