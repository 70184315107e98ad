"""HTTP: the transport that talks to the network. TLS is always verified, no redirect is followed, no cookie is kept.

Every wait has a deadline and every buffer a bound. It never looks into what it carries, and retries nothing.
"""

import asyncio
import re
from functools import cache, lru_cache
from io import BytesIO
from os import environ
from os.path import isfile
from threading import Lock
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from evener import __version__
from evener.errors import BadValue, EvenerError, WireError
from evener.transport.exchange import Request, Response
from evener.transport.failures import head_failure, place_of, timed_out
from evener.transport.inflate import OFFERED
from evener.transport.pool import Pool, address, open_pool, timeout
from evener.transport.proxies import Proxy, proxy_for, proxy_from
from evener.transport.response import Exchange, HttpResponse

if TYPE_CHECKING:
    import aiohttp

__all__ = ["HttpTransport", "read_all", "shared_transport"]

USUAL_HEADERS = (("user-agent", f"evener/{__version__}"), ("accept-encoding", OFFERED))
URL = re.compile(r"https?://[!-~]+", re.IGNORECASE)
LARGE = 256 * 1024
SLOWEST = 16 * 1024
"""Bytes a second: a request that goes out slower than this counts as idle."""


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
        self._lock = Lock()

    async def send(self, request: Request) -> Response:
        """The answer's head. Raises TransportError when none came, WireError when it is not HTTP, BadValue for a bad one."""
        place = _place(request.url)
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop) or await self._open(loop)
        exchange = Exchange(place, request.deadlines, loop.time() + request.deadlines.total)
        return await _Sending(request, self._proxy_of(request.url), exchange).run(pool)

    async def aclose(self) -> None:
        """Close this loop's connections. Those of other loops close with their loops; sending again opens new ones."""
        with self._lock:
            pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _open(self, loop: asyncio.AbstractEventLoop) -> Pool:
        pool = await open_pool(self._connections, self._ca_file)
        with self._lock:
            for old in [old for old in self._pools if old.is_closed()]:
                del self._pools[old]
            kept = self._pools.setdefault(loop, pool)
        if kept is not pool:
            await pool.aclose()
        return kept

    def _proxy_of(self, url: str) -> Proxy | None:
        if self._proxy is not None or not self._trust_env:
            return self._proxy
        base = _base(url)
        if base not in self._proxies:
            self._proxies[base] = proxy_for(base, environ)
        return self._proxies[base]


class _Sending:
    """One request on its way to an answer's head."""

    def __init__(self, request: Request, proxy: Proxy | None, exchange: Exchange) -> None:
        self._request = request
        self._proxy = proxy
        self._exchange = exchange

    async def run(self, pool: Pool) -> Response:
        try:
            await self._turn(pool)
            try:
                return await self._answered(pool)
            except BaseException:
                pool.slots.release()
                raise
        except TimeoutError as error:
            failure = self._late(error)
        except EvenerError:
            raise
        except Exception as error:
            found = head_failure(error, self._exchange.place)
            if found is None:
                raise
            failure = found
        raise failure  # outside the handler: the library's error has the request's headers and must not be its context

    async def _turn(self, pool: Pool) -> None:
        """Wait for a free connection, which may take until the end."""
        if pool.slots.locked():
            async with asyncio.timeout_at(self._exchange.end):
                await pool.slots.acquire()
        else:
            await pool.slots.acquire()

    async def _answered(self, pool: Pool) -> Response:
        deadlines = self._exchange.deadlines
        patience = deadlines.connect + deadlines.idle + len(self._request.body) / SLOWEST
        now = asyncio.get_running_loop().time()
        async with asyncio.timeout_at(min(self._exchange.end, now + patience)):
            response = await self._head(pool)
        if response.status == 101:
            response.close()
            raise WireError(f"{self._exchange.place} wants to speak another protocol than HTTP. Check the address.")
        try:
            return HttpResponse(response, pool, self._exchange)
        except EvenerError:
            response.close()
            raise

    async def _head(self, pool: Pool) -> "aiohttp.ClientResponse":
        request, proxy, deadlines = self._request, self._proxy, self._exchange.deadlines
        headers = [*_usual(request), *request.headers]
        credentials = {"proxy-authorization": proxy.authorization} if proxy is not None and proxy.authorization else None
        if credentials and request.url[:5].lower() == "http:":
            headers += credentials.items()  # no tunnel: the proxy reads the request itself
        return await pool.session.request(
            request.method,
            address(request.url),
            data=_payload(request.body),
            headers=headers,
            allow_redirects=False,
            timeout=timeout(deadlines.connect, deadlines.idle),
            proxy=None if proxy is None else proxy.url,
            proxy_headers=credentials,
        )

    def _late(self, error: TimeoutError) -> EvenerError:
        """Which deadline it was: only that of connecting has a type of its own."""
        import aiohttp

        place, deadlines = self._exchange.place, self._exchange.deadlines
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return timed_out("connect", deadlines.connect, place)
        if asyncio.get_running_loop().time() >= self._exchange.end:
            return timed_out("total", deadlines.total, place)
        return timed_out("idle", deadlines.idle, place)


@lru_cache(64)
def _place(url: str) -> str:
    """Whom a request goes to. Raises BadValue for an address that no request can have."""
    if not URL.fullmatch(url):
        raise BadValue(
            f"A request to {place_of(url)!r} cannot be sent: its address must begin with http:// or https:// and have "
            "only printable ASCII characters. Encode the others, as in %20 for a space."
        )
    return place_of(url)


@lru_cache(64)
def _base(url: str) -> str:
    """The address without its path: what a proxy is chosen by."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _usual(request: Request) -> list[tuple[str, str]]:
    """The headers that a request has unless it brings its own."""
    given = {name.lower() for name, _ in request.headers}
    return [(name, value) for name, value in USUAL_HEADERS if name not in given]


def _payload(body: bytes) -> bytes | BytesIO | None:
    """A large body goes out in pieces, so that the loop can do other things meanwhile."""
    return BytesIO(body) if len(body) > LARGE else body or None


async def read_all(response: Response, cap: int) -> bytes:
    """The whole body. The response is closed when this fails. Raises WireError for more than `cap` bytes."""
    pieces, size = [], 0
    try:
        while piece := await response.read():
            size += len(piece)
            if size > cap:
                raise WireError(
                    f"The answer is larger than {cap} bytes: {size} had come when it was given up. "
                    "If it may be that large, raise the cap with Caps(body=...)."
                )
            pieces.append(piece)
    except BaseException:
        await response.aclose()
        raise
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


@cache
def shared_transport() -> HttpTransport:
    """The transport that all of this process shares unless told otherwise: proxies and trust as the environment says."""
    return HttpTransport()
