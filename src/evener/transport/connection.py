"""One connection to one server: an exchange at a time, each under its deadlines. Reads no further ahead than a bound."""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from evener.errors import EvenerError, UsageError
from evener.transport.exchange import Deadlines
from evener.transport.failures import broken_off, closed_early, cut_head, malformed, not_http, timed_out
from evener.transport.framing import Framing, NotHttp
from evener.transport.sockets import has_news

__all__ = ["PIECE", "Connection", "Terms"]

PIECE = 64 * 1024
"""Bytes that one `read` gives at most."""
AHEAD = 64 * 1024
"""Bytes that are read ahead of whoever reads; a little more may come."""
ROOM = 64 * 1024
"""Bytes that one look at the socket takes."""
RECORD = 32 * 1024
"""Bytes, more than TLS may hold beside what it says it holds."""


class Terms:
    """What an exchange must keep to: whom it is with, its deadlines, and by what time of the loop it ends."""

    __slots__ = ("deadlines", "end", "place")

    def __init__(self, place: str, deadlines: Deadlines, end: float) -> None:
        self.place = place
        self.deadlines = deadlines
        self.end = end


class Connection(asyncio.BufferedProtocol):
    """Begin an exchange, await its head, take its pieces until there are none. `failure` is why there will be no more.

    Waiting for bytes has a deadline, and so has the whole; one timer looks after both, and what arrives only notes the time.
    The timer outlives an exchange: if it comes too early for the next, it looks and is set again.
    `release` gives back what an exchange holds beside the connection; it is called when the exchange fails.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._terms: Terms | None = None
        self._room = memoryview(bytearray(ROOM))
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # when the timer looks
        self._since = 0.0  # when bytes last came, or when somebody began to wait for them
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
        self.release: Callable[[], None] | None = None
        self.idle_since = 0.0

    # One exchange.

    def begin(self, terms: Terms, method: str) -> None:
        """A new exchange."""
        self._terms = terms
        self.answer = Framing(method)
        self.failure = None
        self._since = now = self._loop.time()
        due = min(terms.end, now + terms.deadlines.idle)
        if self._timer is None or due < self._due:
            self._look_at(due)
        if self._lost:
            self.fail(closed_early(terms.place))

    def write(self, data: bytes) -> None:
        """Send; nothing is sent on a connection that is gone."""
        if self._transport is not None and not self._lost:
            self._transport.write(data)

    async def written(self) -> None:
        """Until the system takes more; an answer that comes meanwhile, or a failure, ends the wait, too."""
        while self._full and not self.answer.status and self.failure is None:
            await self._wait()
        for _ in range(2):  # what has come is seen before more is sent: the loop looks for it behind those who are ready
            await asyncio.sleep(0)

    async def head(self) -> Framing:
        """The answer, when its head is whole."""
        while not self.answer.status:
            if self.failure is not None:
                raise self.failure
            await self._wait()
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
        """Whether all has been read."""
        return self.answer.ended and not self._pieces and self.failure is None

    @property
    def lost(self) -> bool:
        """Whether it is gone."""
        return self._lost

    @property
    def fit(self) -> bool:
        """Whether an exchange may begin. What came while the loop was busy was not told yet: it would be read as an answer."""
        return not self._lost and self._transport is not None and not has_news(self._transport.get_extra_info("socket"))

    def abort(self) -> None:
        """Cut it."""
        self._still()
        self._lost = True
        if self._transport is not None:
            self._transport.abort()

    def fail(self, failure: EvenerError) -> None:
        """Cut it, and have whoever reads know why; what came before can still be read."""
        if self.failure is None:
            self.failure = failure
        self.abort()
        self._wake()
        self.let_go()

    def let_go(self) -> None:
        """Release what the exchange holds, unless that has been done."""
        if self.release is not None:
            self.release()

    def forget(self) -> None:
        """Nobody will read the answer. From any thread."""
        with suppress(RuntimeError):  # its loop has ended, and so has all that was in it
            self._loop.call_soon_threadsafe(self.let_go)

    async def secure(self, context: ssl.SSLContext, host: str, *, within: float) -> None:
        """Speak TLS from here on, through a tunnel that has been opened."""
        self._still()
        self._terms = None
        made = None if self._transport is None or self._lost else await self._loop.start_tls(
            self._transport, self, context, server_hostname=host, ssl_handshake_timeout=within
        )  # fmt: skip
        if made is None:
            raise ConnectionResetError
        self._transport = made

    # What the loop tells us.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not of this class

    def get_buffer(self, sizehint: int) -> memoryview:
        """Room for what comes. TLS hints at what it holds: all of that must fit, as an end behind it leaves no second look."""
        if sizehint + RECORD > len(self._room):
            self._room = memoryview(bytearray(sizehint + RECORD))
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        if self._lost:
            return
        if self._terms is None:
            self.abort()  # nobody asked: what comes now would be taken for an answer to what is asked next
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
            self._still()
        self._wake()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._wake()

    # In between.

    def _finish(self, *, farewell: bool) -> None:
        """Nothing more comes. Where only the end of the connection ends the answer, the other side must have said so."""
        terms, answer = self._terms, self.answer
        if terms is None or answer.ended or self.failure is not None:
            return
        if not answer.status:
            self.fail(cut_head(terms.place) if answer.begun else closed_early(terms.place))
        elif not (answer.framed or (farewell and self._said_goodbye())) or not answer.finish():
            self.fail(broken_off(terms.place))
        self._wake()

    def _said_goodbye(self) -> bool:
        """Whether an end is the server's: where TLS is spoken, anybody on the way can end a connection, but not say so."""
        secured = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        try:
            return secured is None or not secured.read(1)
        except ssl.SSLError:
            return False

    def _still(self) -> None:
        """No timer any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_at(self, due: float) -> None:
        """Have the timer look at this time."""
        self._still()
        self._due = due
        self._timer = self._loop.call_at(due, self._look)

    def _look(self) -> None:
        """The time of the timer has come: is there a deadline that has passed?"""
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
            self._look_at(min(terms.end, since + idle))

    async def _wait(self) -> None:
        if self._waiter is not None:
            raise UsageError("Two read the same answer at once. Read it in one place, and hand on what came.")
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
