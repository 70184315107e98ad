"""An answer's body as it arrives: decompressed, in bounded pieces, under the deadlines of its exchange."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from evener.errors import EvenerError, UsageError
from evener.transport.exchange import Deadlines
from evener.transport.failures import body_failure, broken_off, malformed, timed_out
from evener.transport.inflate import Inflater
from evener.transport.pool import Pool

if TYPE_CHECKING:
    import aiohttp

__all__ = ["Exchange", "HttpResponse"]

PIECE = 64 * 1024
"""Bytes that one `read` gives at most."""


class Exchange(msgspec.Struct, frozen=True):
    """What an answer must know of its request: whom it came from, its deadlines, and by what time of the loop it ends."""

    place: str
    deadlines: Deadlines
    end: float


class HttpResponse:
    """A Response over the HTTP library's. Has a slot of the pool until it is over."""

    def __init__(self, response: "aiohttp.ClientResponse", pool: Pool, exchange: Exchange) -> None:
        self.status: int = response.status
        self.headers: Mapping[str, str] = _headers(response.raw_headers)
        self._inflater = _inflater(self.headers)
        self._response = response
        self._pool = pool
        self._exchange = exchange
        self._failure: EvenerError | None = None
        self._open = True
        self._ended = False
        self._timer = asyncio.get_running_loop().call_at(exchange.end, self._expire)
        self._framed = "content-length" in self.headers or "chunked" in self.headers.get("transfer-encoding", "").lower()
        pool.answers.add(self._let_go)
        self._connection = _connection(response)
        if self._connection is not None:
            self._connection.add_done_callback(self._lost)

    async def read(self) -> bytes:
        """The next bytes; see `Response`."""
        if self._inflater is None:
            return await self._piece()
        try:
            while not (piece := self._inflater.take()):
                fed = await self._piece()
                if not fed:
                    self._inflater.finish()
                    return b""
                self._inflater.feed(fed)
        except EvenerError as error:
            self._failure = error
            self._let_go()
            raise
        return piece

    @property
    def ended(self) -> bool:
        """Whether all has been read, as far as one can know without waiting: then nothing more comes."""
        return self._ended or (self._inflater is None and self._response.content.at_eof())

    async def aclose(self) -> None:
        """Let go of the connection; see `Response`. More than once does no harm."""
        self._let_go()

    def __repr__(self) -> str:
        return f"HttpResponse({self.status} from {self._exchange.place})"

    async def _piece(self) -> bytes:
        """The next bytes as they came."""
        if not self._open:
            return self._over()
        try:
            piece = await self._response.content.read(PIECE)
        except Exception as error:
            self._let_go()
            failure = self._failure = self._failure or self._failed(error)
            if failure is None:
                raise
        except BaseException:
            self._let_go()
            raise
        else:
            return piece or self._end()
        raise failure  # outside the handler: the library's error may tell of the request and must not be its context

    def _end(self) -> bytes:
        self._ended = self._failure is None
        self._let_go()
        return self._over()

    def _over(self) -> bytes:
        if self._failure is not None:
            raise self._failure
        if not self._ended:
            raise UsageError("This answer was closed before its end, so no more can be read from it. Read first, then close.")
        return b""

    def _failed(self, error: Exception) -> EvenerError | None:
        if isinstance(error, TimeoutError):
            return timed_out("idle", self._exchange.deadlines.idle, self._exchange.place)
        return body_failure(error, self._exchange.place)

    def _expire(self) -> None:
        """The end of the exchange: whoever waits for bytes is woken by the closing of the connection."""
        self._failure = timed_out("total", self._exchange.deadlines.total, self._exchange.place)
        self._let_go()

    def _lost(self, closed: "asyncio.Future[None]") -> None:
        """The connection is gone. The library tells nobody of broken framing, nor of a reset where nothing is framed."""
        content = self._response.content
        ignored = not content.is_eof() and content.exception() is None
        if self._open and (ignored or (_was_reset(closed) and not self._framed)):
            self._failure = malformed(self._exchange.place) if ignored else broken_off(self._exchange.place)
            self._let_go()

    def _let_go(self) -> None:
        if self._open:
            self._open = False
            self._timer.cancel()
            self._pool.answers.discard(self._let_go)
            if self._connection is not None:
                self._connection.remove_done_callback(self._lost)
            self._response.close()
            self._pool.slots.release()


def _connection(response: "aiohttp.ClientResponse") -> "asyncio.Future[None] | None":
    """Done when the connection is lost; None when that has happened, or when the whole answer came at once."""
    connection = response.connection
    closed = None if connection is None or connection.protocol is None else connection.protocol.closed
    if closed is not None:
        closed.remove_done_callback(_was_reset)
        closed.add_done_callback(_was_reset)  # an error that nobody looks at would be logged
    return closed


def _was_reset(closed: "asyncio.Future[None]") -> bool:
    return not closed.cancelled() and closed.exception() is not None


def _headers(raw: "aiohttp.typedefs.RawHeaders") -> Mapping[str, str]:
    """Names in lower case; the values of a name that stands twice are joined, as HTTP allows."""
    found: dict[str, str] = {}
    for name_bytes, value_bytes in raw:
        name, value = name_bytes.decode("latin-1").lower(), value_bytes.decode("latin-1")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _inflater(headers: Mapping[str, str]) -> Inflater | None:
    encoding = headers.get("content-encoding", "").strip().lower()
    return None if encoding in ("", "identity") else Inflater(encoding)
