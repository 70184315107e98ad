"""One connection to one server: an exchange at a time, each under its deadlines. Reads no further ahead than a bound."""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable

from evener.errors import EvenerError
from evener.transport.exchange import Deadlines
from evener.transport.failures import broken_off, closed_early, malformed, not_http, timed_out
from evener.transport.framing import Framing, NotHttp

__all__ = ["PIECE", "Connection", "Terms"]

PIECE = 64 * 1024
"""Bytes that one `read` gives at most."""
AHEAD = 64 * 1024
"""Bytes that are read ahead of whoever reads; a little more may come."""


class Terms:
    """What an exchange must keep to: whom it is with, its deadlines, and by what time of the loop it ends."""

    __slots__ = ("deadlines", "end", "place")

    def __init__(self, place: str, deadlines: Deadlines, end: float) -> None:
        self.place = place
        self.deadlines = deadlines
        self.end = end


class Connection(asyncio.Protocol):
    """Begin an exchange, await its head, take its pieces until there are none. `failure` is why there will be no more.

    Waiting for bytes has a deadline, and so has the whole; one timer looks after both, and what arrives only notes the time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._terms: Terms | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0  # when bytes last came, or when somebody began to wait for them
        self._patience = 0.0
        self._waiter: asyncio.Future[None] | None = None
        self._full = False  # the system takes no more at the moment
        self._paused = False
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._lost = False
        self.gone = False
        """Whether its socket is closed, too."""
        self.answer = Framing()
        self.failure: EvenerError | None = None
        self.on_failure: Callable[[], None] | None = None
        self.idle_since = 0.0

    # One exchange.

    def begin(self, terms: Terms, *, sending: float = 0.0, tunnel: bool = False) -> None:
        """A new exchange. The first bytes may take `sending` seconds longer than others."""
        self._terms = terms
        self.answer = Framing(tunnel=tunnel)
        self.failure = None
        self._since = now = self._loop.time()
        self._patience = terms.deadlines.idle + sending
        self._timer = self._loop.call_at(min(terms.end, now + self._patience), self._look)
        if self._lost:
            self._fail(closed_early(terms.place))

    def write(self, data: bytes) -> None:
        """Send; nothing is sent on a connection that is gone."""
        if self._transport is not None and not self._lost:
            self._transport.write(data)

    async def written(self) -> None:
        """Until the system takes more; an answer that comes meanwhile, or a failure, ends the wait, too."""
        while self._full and not self.answer.status and self.failure is None:
            await self._wait()

    async def head(self) -> Framing:
        """The answer, when its head is whole."""
        while not self.answer.status:
            if self.failure is not None:
                raise self.failure
            await self._wait()
        if self._terms is not None:
            self._patience = self._terms.deadlines.idle
        return self.answer

    async def read(self) -> bytes:
        """The next bytes; empty at the end. What came before a failure is given first."""
        while not self._pieces:
            if self.failure is not None:
                raise self.failure
            if self.answer.ended:
                return b""
            await self._wait()
        return self._taken()

    def end(self) -> bool:
        """The exchange is over, whether it came to its end or not. True: the connection may carry another one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.on_failure = None
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
        """Whether all has been read."""
        return self.answer.ended and not self._pieces

    @property
    def lost(self) -> bool:
        """Whether it is gone."""
        return self._lost

    def abort(self) -> None:
        """Cut it."""
        if self._transport is not None:
            self._transport.abort()
        self._lost = True

    async def secure(self, context: ssl.SSLContext, host: str) -> None:
        """Speak TLS from here on, through a tunnel that has been opened."""
        if self._timer is not None:
            self._timer.cancel()
        self._terms = self._timer = None
        made = None if self._transport is None else await self._loop.start_tls(
            self._transport, self, context, server_hostname=host
        )  # fmt: skip
        if made is None:
            raise ConnectionResetError
        self._transport = made

    # What the loop tells us.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._terms is None:
            self.abort()  # nobody asked: what comes now would be taken for an answer to what is asked next
            return
        self._since = self._loop.time()
        headless = not self.answer.status
        try:
            pieces = self.answer.feed(data)
        except NotHttp:
            self._fail(not_http(self._terms.place) if headless else malformed(self._terms.place))
            return
        if pieces:
            self._pieces += pieces
            self._size += sum(map(len, pieces))
            if self._size > AHEAD and not self._paused and self._transport is not None:
                self._paused = True
                self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self._finish(reset=False)
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._finish(reset=error is not None)
        self._lost = self.gone = True
        self._full = False
        self._wake()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._wake()

    # In between.

    def _finish(self, *, reset: bool) -> None:
        """Nothing more comes. Where only the end of the connection ends the answer, a reset is no end."""
        terms, answer = self._terms, self.answer
        if terms is None or answer.ended or self.failure is not None:
            return
        if not answer.status:
            self._fail(closed_early(terms.place))
        elif (reset and not answer.framed) or not answer.finish():
            self._fail(broken_off(terms.place))
        self._wake()

    def _fail(self, failure: EvenerError) -> None:
        if self.failure is None:
            self.failure = failure
        self.abort()
        self._wake()
        if self.on_failure is not None:
            self.on_failure()

    def _look(self) -> None:
        """The time of the timer has come: is there a deadline that has passed?"""
        terms = self._terms
        if terms is None:
            return
        now = self._loop.time()
        since = now if self._waiter is None else self._since
        if now >= terms.end:
            self._pieces.clear()
            self._fail(timed_out("total", terms.deadlines.total, terms.place))
        elif now >= since + self._patience:
            self._fail(timed_out("idle", terms.deadlines.idle, terms.place))
        else:
            self._timer = self._loop.call_at(min(terms.end, since + self._patience), self._look)

    async def _wait(self) -> None:
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

    def _taken(self) -> bytes:
        """What lies here, up to a bound."""
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
        """The first bytes of what lies here, as many as may be given at once."""
        pieces, taken, room = self._pieces, [], PIECE
        while room and pieces:
            piece = pieces.popleft()
            if len(piece) > room:
                pieces.appendleft(piece[room:])
                piece = piece[:room]
            taken.append(piece)
            room -= len(piece)
        return b"".join(taken)
