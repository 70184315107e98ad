"""The HTTP transport and its pool of connections. TLS is always verified, no redirect is followed, no cookie is kept.

Every wait has a deadline and every buffer a bound. It never parses bodies, and retries nothing.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Coroutine, Mapping
from functools import cache, lru_cache, partial
from os import environ
from os.path import isfile
from typing import TYPE_CHECKING, Self

import msgspec

from evener import __version__
from evener.errors import BadValue, EvenerError, TimedOut, UsageError, WireError
from evener.transport.connection import Connection, Terms, head_bytes
from evener.transport.dial import Proxy, Route, dial, proxy_for, proxy_from, route_of
from evener.transport.exchange import OFFERED, Request, Response, place_of, timed_out
from evener.transport.secrets import Secret

if TYPE_CHECKING:
    from evener.transport.inflate import Inflater

BURST = 256 * 1024
"""Bytes that are decompressed without yielding to other tasks: a few compressed bytes can become very many."""


class HttpResponse:
    """A Response over a connection on which the head has arrived."""

    _held = False

    def __init__(self, connection: Connection, place: str) -> None:
        answer = connection.answer
        self.status: int = answer.status
        self.headers: Mapping[str, str] = answer.headers
        encoding = answer.headers.get("content-encoding", "")
        if encoding:
            encoding = encoding.strip().lower()
        self._encoding = "" if encoding == "identity" else encoding
        self._inflater: Inflater | None = None
        self._burst = 0
        self._connection = connection
        self._place = place
        self._failure: EvenerError | None = None
        self._closed = False
        self._ended = False
        self._held = True

    def __del__(self) -> None:
        """Release the slot of a response that was never closed, before the deadline expires."""
        if self._held:
            self._connection.forget()

    def read(self) -> Coroutine[object, None, bytes]:
        """Return the next bytes; see `Response`."""
        return self._inflate() if self._encoding else self._piece()

    @property
    def ended(self) -> bool:
        """True if the whole body is known to be read, without waiting."""
        return self._ended or (self._held and not self._encoding and self._connection.ended)

    async def aclose(self) -> None:
        """Release the connection; see `Response`. Idempotent."""
        self.close()

    def __repr__(self) -> str:
        return f"HttpResponse({self.status} from {self._place})"

    async def _inflate(self) -> bytes:
        if self._failure is not None:
            raise self._failure
        try:
            if self._burst > BURST:
                await self._give_way()
            inflater = self._inflater
            if inflater is None:
                from evener.transport.inflate import Inflater

                inflater = self._inflater = Inflater(self._encoding)
            while not (piece := inflater.take()):
                fed = await self._piece()
                if not fed:
                    inflater.finish()
                    return b""
                inflater.feed(fed)
        except UsageError:
            raise
        except EvenerError as error:
            self._failure = error
            self.close()
            raise
        except BaseException:
            self.close()
            raise
        self._burst += len(piece)
        return piece

    async def _give_way(self) -> None:
        """Let other tasks run, among them the timer of the deadlines."""
        self._burst = 0
        await asyncio.sleep(0)
        if isinstance(self._connection.failure, TimedOut):
            raise self._connection.failure

    async def _piece(self) -> bytes:
        """Return the next bytes as they arrived, not decompressed."""
        if self._closed:
            return self._over()
        connection = self._connection
        try:
            piece = connection.take()
            if piece is None:
                piece = await connection.read()
        except UsageError:
            raise
        except EvenerError as error:
            self._failure = error
            self.close()
            raise
        except BaseException:
            self.close()
            raise
        if not piece:
            self.close()
        return piece

    def _over(self) -> bytes:
        failure = self._failure
        if failure is not None:
            raise failure
        if not self._ended:
            raise UsageError("This answer was closed before its end, so no more can be read from it. Read first, then close.")
        return b""

    def close(self) -> None:
        """Close without waiting; see `aclose`."""
        if not self._closed:
            self._closed = True
            self._ended = self._connection.ended
            self._held = False
            self._connection.let_go()


KEPT_SECONDS = 30.0
"""How long an unused connection is kept; servers commonly close theirs after a minute or more."""
TURNS = 16
"""Iterations of the event loop in which closed connections can report that they are closed."""


class Pool:
    """The connections of one event loop, closed with it. Opens none itself.

    `slots` bounds the open exchanges, each of which holds a slot until its end, and the connections that are kept.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int) -> None:
        self.slots = asyncio.Semaphore(most)
        self._most = most
        self._loop = loop
        self._idle: dict[object, list[Connection]] = {}
        self._open: set[Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False
        self._keeper = self._keep()

    async def watch(self) -> None:
        """Close the connections when the loop shuts down: it finishes every generator that was started in it."""
        await anext(self._keeper)

    async def aclose(self) -> None:
        await self._keeper.aclose()

    def take(self, route: object) -> Connection | None:
        """Return the idle connection of this route that was used last; None if there is none."""
        idle = self._idle.get(route)
        oldest = self._loop.time() - KEPT_SECONDS
        while idle:
            found = idle.pop()
            if found.idle_since > oldest and found.fit:
                return found
            self.drop(found)
        return None

    def give(self, route: object, connection: Connection) -> None:
        """Take back a connection and its slot after its exchange. Keep it if it can be reused."""
        self.slots.release()
        if not connection.end() or self._closed:
            self.drop(connection)
            return
        self._idle.setdefault(route, []).append(connection)
        if self._sweep is None:
            self._sweep = self._loop.call_later(KEPT_SECONDS, self._sweep_idle)

    def add(self, connection: Connection) -> None:
        """Add a new connection, to be closed with the others."""
        if self._closed:
            connection.abort()
            return
        self._open.add(connection)
        if len(self._open) > self._most:
            self._drop_oldest()

    def drop(self, connection: Connection) -> None:
        """Close and remove a connection."""
        connection.abort()
        self._open.discard(connection)

    def _drop_oldest(self) -> None:
        """Close the connection that has been idle for the longest time, if one is idle."""
        routes = [route for route, idle in self._idle.items() if idle]
        if routes:
            self.drop(self._idle[min(routes, key=lambda route: self._idle[route][0].idle_since)].pop(0))

    def _sweep_idle(self) -> None:
        self._sweep = None
        now = self._loop.time()
        for route in tuple(self._idle):
            kept = []
            for connection in self._idle.pop(route):
                if connection.lost or connection.idle_since <= now - KEPT_SECONDS:
                    self.drop(connection)
                else:
                    kept.append(connection)
            if kept:
                self._idle[route] = kept
        if self._idle:
            self._sweep = self._loop.call_later(KEPT_SECONDS, self._sweep_idle)

    async def _keep(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self._closed = True
            if self._sweep is not None:
                self._sweep.cancel()
            self._idle.clear()
            closing = tuple(self._open)
            for connection in closing:
                if connection.release is not None:  # a caller still has its response
                    connection.fail(
                        UsageError("The transport was closed before the end of this answer. Read first, then close.")
                    )
                self.drop(connection)
            for _ in range(TURNS):
                if all(connection.gone for connection in closing):
                    break
                await asyncio.sleep(0)


USUAL_HEADERS = (("user-agent", f"evener/{__version__}"), ("accept-encoding", OFFERED))
URL = re.compile(r"(?P<scheme>https?)://(?P<host>[!\"$-.0->@-~]+)(?P<target>[/?#][!-~]*)?", re.IGNORECASE)
LARGE = 256 * 1024
"""Bytes of a body that are sent at once. If the system does not accept them before the idle deadline, the request fails."""
REFUSED = 300
FRAMING = frozenset({"content-length", "transfer-encoding"})
SWITCHING = 101


class HttpTransport:
    """Sends over pooled connections. One object may serve several event loops and threads; each loop has its own connections.

    `proxy` is `http://[user:password@]host:port`; without it the environment's HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY
    are read once for each host, unless `trust_env` is False. `ca_file` names certificates to trust beside the system's.
    `connections` bounds the exchanges that one loop has open at once: more wait their turn.
    """

    def __init__(
        self, *, proxy: str | None = None, ca_file: str | None = None, trust_env: bool = True, connections: int = 100
    ) -> None:
        if ca_file is not None and not isfile(ca_file):
            raise BadValue(f"There is no file {ca_file!r}: `ca_file` must name a file of PEM certificates.")
        if connections < 1:
            raise BadValue(f"`connections` is {connections}: at least one is needed to send anything.")
        self._proxy = None if proxy is None else proxy_from(proxy)
        self._ca_file = ca_file
        self._trust_env = trust_env
        self._connections = connections
        self._pools: dict[asyncio.AbstractEventLoop, Pool] = {}
        self._proxies: dict[str, Proxy | None] = {}

    async def send(self, request: Request) -> Response:
        """Send a request, return the response's head. Raises TransportError, BadValue, or WireError if it is not HTTP."""
        target = _split_url(request.url)
        place = target.place
        route = route_of(target.base, self._proxy_of(target.base), request.reach)
        head = Secret(_head(request, route, target))  # wrapped: a traceback may be printed with its locals
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop) or await self._open(loop)
        terms = Terms(place, request.deadlines, loop.time() + request.deadlines.total)
        if request.deadlines.total <= 0:
            raise timed_out("total", request.deadlines.total, place)
        if pool.slots.locked():
            await _wait_for_slot(pool, terms)
        else:
            await pool.slots.acquire()
        try:
            connection = pool.take(route)
            if connection is None:
                connection = await dial(route, terms, self._ca_file)
                pool.add(connection)
        except BaseException:
            pool.slots.release()
            raise
        try:
            connection.begin(terms, request.method)
            if len(request.body) <= LARGE:
                connection.write(head.reveal() + request.body)
            else:
                await _send_in_parts(connection, head, request.body)
            answer = await connection.head()
            if answer.status == SWITCHING:
                raise WireError(f"{place} answered with a switch to a protocol other than HTTP. Check the address.")
            response = HttpResponse(connection, place)
        except BaseException:
            pool.give(route, connection)
            raise
        connection.release = partial(pool.give, route, connection)
        if connection.failure is not None:  # the connection broke right after the head
            connection.let_go()
        return response

    async def aclose(self) -> None:
        """Close this loop's connections. Those of other loops close with their loops; sending again opens new ones."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _open(self, loop: asyncio.AbstractEventLoop) -> Pool:
        for old in tuple(self._pools):  # no lock, which a fork could leave locked: each step here is atomic
            if old.is_closed():
                self._pools.pop(old, None)
        pool = self._pools[loop] = Pool(loop, self._connections)
        await pool.watch()
        return pool

    def _proxy_of(self, base: str) -> Proxy | None:
        if self._proxy is not None or not self._trust_env:
            return self._proxy
        if base not in self._proxies:
            route_of(base, None)  # raises for a malformed address before the environment is read
            self._proxies[base] = proxy_for(base, environ)
        return self._proxies[base]


async def _wait_for_slot(pool: Pool, terms: Terms) -> None:
    """Wait for a free slot, at most until the total deadline."""
    try:
        async with asyncio.timeout_at(terms.end):
            await pool.slots.acquire()
            return
    except TimeoutError:
        failure = timed_out("total", terms.deadlines.total, terms.place)
    raise failure  # outside the handler: its cause would add nothing


async def _send_in_parts(connection: Connection, head: Secret[bytes], body: bytes) -> None:
    """Send a large body part by part. Stop if the server refuses the request meanwhile."""
    connection.write(head.reveal())
    for start in range(0, len(body), LARGE):
        if connection.answer.status >= REFUSED:
            connection.answer.reusable = False
            break
        connection.write(body[start : start + LARGE])
        await connection.drain()


class HttpTarget(msgspec.Struct, frozen=True):
    """A URL in parts. `base` chooses route and proxy, `path` is the request's target, `place` may be shown."""

    base: str
    path: str
    place: str

    def __repr__(self) -> str:
        """Leave out the query, because it may contain a key."""
        return f"Target({self.place})"


def _head(request: Request, route: Route, target: HttpTarget) -> bytes:
    try:
        start, is_framed = _open_head(request.method, target, tuple(request.headers), route)
    except BadValue as error:
        failure = error
    else:
        return _close_head(request, start, is_framed)
    raise failure.with_traceback(None) from None  # without the frames that have the headers among their locals


def _close_head(request: Request, start: bytes, is_framed: bool) -> bytes:
    if is_framed:
        _check_framing(request)
    elif request.body or request.method not in ("GET", "HEAD"):
        return b"%bcontent-length: %d\r\n\r\n" % (start, len(request.body))
    return start + b"\r\n"


@lru_cache(16)
def _open_head(method: str, target: HttpTarget, given: tuple[tuple[str, str], ...], route: Route) -> tuple[bytes, bool]:
    """Return the part of a head that requests share, and whether it states the body's length. It is made once."""
    names = {name.lower() for name, _ in given}
    headers = [("host", target.base.partition("://")[2])] if "host" not in names else []
    headers += [(name, value) for name, value in USUAL_HEADERS if name not in names]
    headers += given
    path = target.path
    if route.proxy is not None and not route.tunnelled:  # no tunnel: the proxy reads the request itself
        path = target.base + path
        if route.proxy.authorization:
            headers.append(("proxy-authorization", route.proxy.authorization))
    return head_bytes(method, path, headers)[:-2], not names.isdisjoint(FRAMING)


def _check_framing(request: Request) -> None:
    """Refuse a stated length that differs from the body's: the rest would be read as another request."""
    length = str(len(request.body))
    for name, value in request.headers:
        if name.lower() in FRAMING and (name.lower(), value.strip()) != ("content-length", length):
            raise BadValue(f"The request cannot be sent: its header {name!r} contradicts its body. Leave the header out.")


@lru_cache(64)
def _split_url(url: str) -> HttpTarget:
    """Return the parts of a URL. Raises BadValue."""
    found = URL.fullmatch(url)
    if found is None:
        raise BadValue(
            f"A request to {place_of(url)!r} cannot be sent: its address must begin with http:// or https:// and have "
            "only printable ASCII characters. Encode the others, as in %20 for a space and in xn--bcher-kva.example for a host."
        )
    target = (found["target"] or "").partition("#")[0]
    base = f"{found['scheme'].lower()}://{found['host']}"
    return HttpTarget(base, target if target[:1] == "/" else f"/{target}", place_of(url))


async def read_all(response: Response, cap: int) -> bytes:
    """Return the whole body. Closes the response when this fails. Raises WireError for more than `cap` bytes."""
    pieces, size = [], 0
    try:
        while piece := await response.read():
            size += len(piece)
            if size > cap:
                raise WireError(
                    f"The answer is larger than {cap} bytes: reading stopped after {size} bytes. "
                    "If it may be that large, raise the cap with Caps(body=...)."
                )
            pieces.append(piece)
    except BaseException:
        await response.aclose()
        raise
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


@cache
def shared_transport() -> HttpTransport:
    """Return the transport that models share by default; proxies and trust come from the environment."""
    return HttpTransport()
