"""Opens connections: to a server, or through a proxy; TLS is always verified. Every failure is an error of ours."""

import asyncio
import socket
import ssl
from collections import deque
from functools import lru_cache
from urllib.parse import urlsplit

import msgspec

from evener.errors import BadValue, EvenerError
from evener.transport.connection import Connection, Terms
from evener.transport.failures import dial_failure, place_of, proxy_refused, timed_out
from evener.transport.framing import head_bytes
from evener.transport.proxies import Proxy

__all__ = ["Route", "dial", "route_of"]

Place = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, Place]
PORTS = {"http": 80, "https": 443}
NEXT_ADDRESS = 0.25
"""Seconds after which the next address of a host is tried beside the first."""


class Route(msgspec.Struct, frozen=True):
    """Where requests of one address go. A connection serves all requests of the same route."""

    host: str
    port: int
    secure: bool
    proxy: Proxy | None = None

    @property
    def tunnelled(self) -> bool:
        """Whether a proxy must connect us through; else it reads the requests itself."""
        return self.proxy is not None and self.secure


@lru_cache(64)
def route_of(base: str, proxy: Proxy | None) -> Route:
    """The route to an address. Raises BadValue for one that leads nowhere."""
    parts = urlsplit(base)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host:
        raise BadValue(f"A request to {place_of(base)!r} cannot be sent: its address must have a host, and a port up to 65535.")
    if parts.username is not None or parts.password is not None:
        raise BadValue(f"A request to {place_of(base)!r} cannot be sent: its address has credentials. Put them into a header.")
    return Route(host, port or PORTS[parts.scheme], parts.scheme == "https", proxy)


async def dial(route: Route, terms: Terms, ca_file: str | None) -> Connection:
    """A connection that stands, TLS included, within the deadline for connecting."""
    loop = asyncio.get_running_loop()
    late = min(terms.end, loop.time() + terms.deadlines.connect)
    proxied = route.proxy is not None
    connection = Connection(loop)
    try:
        async with asyncio.timeout_at(late) as clock:
            try:
                await _reach(route, connection, ca_file)
                proxied = False
                if route.tunnelled:
                    await _tunnel(route, connection, terms, ca_file)
                return connection
            except BaseException:
                connection.abort()
                raise
    except TimeoutError as error:
        if not clock.expired():
            failure: EvenerError = dial_failure(error, terms.place, proxy=proxied)
        elif loop.time() >= terms.end:
            failure = timed_out("total", terms.deadlines.total, terms.place)
        else:
            failure = timed_out("connect", terms.deadlines.connect, terms.place)
    except OSError as error:
        failure = dial_failure(error, terms.place, proxy=proxied)
    raise failure  # outside the handler: what it was made from is of no use to anybody


async def _reach(route: Route, connection: Connection, ca_file: str | None) -> None:
    """The server, or the proxy before it."""
    loop = asyncio.get_running_loop()
    host, port, secure = route.host, route.port, route.secure
    if route.proxy is not None:
        parts = urlsplit(route.proxy.url)
        host, port, secure = parts.hostname or "", parts.port or 80, parts.scheme == "https"
    context = _trust(ca_file) if secure else None
    found = await _socket(host, port)
    try:
        await loop.create_connection(lambda: connection, sock=found, ssl=context, server_hostname=host if secure else None)
    except BaseException:
        found.close()
        raise


async def _socket(host: str, port: int) -> socket.socket:
    """A socket that is connected to one of the host's addresses: the first that answers, tried a moment apart."""
    loop = asyncio.get_running_loop()
    left = deque(await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    if len(left) == 1:
        return await _connected(left[0])
    tried: list[asyncio.Task[socket.socket]] = []
    failed: list[BaseException] = []
    try:
        while left or len(failed) < len(tried):
            if left:
                tried.append(loop.create_task(_connected(left.popleft())))
            running = [task for task in tried if not task.done()] or tried[-1:]
            await asyncio.wait(running, timeout=NEXT_ADDRESS if left else None, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in tried if task.done()]:
                error = task.exception()
                if error is None:
                    tried.remove(task)
                    return task.result()
                if error not in failed:
                    failed.append(error)
        raise failed[0]
    finally:
        for task in tried:
            task.cancel()
            task.add_done_callback(_unwanted)


async def _connected(address: Address) -> socket.socket:
    family, kind, protocol, _, place = address
    made = socket.socket(family, kind, protocol)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        await asyncio.get_running_loop().sock_connect(made, place)
    except BaseException:
        made.close()
        raise
    return made


def _unwanted(task: "asyncio.Task[socket.socket]") -> None:
    """Another address was quicker, or nobody waits any more."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()


async def _tunnel(route: Route, connection: Connection, terms: Terms, ca_file: str | None) -> None:
    """Have the proxy connect us through, and speak TLS with the server itself."""
    host = f"[{route.host}]" if ":" in route.host else route.host
    target = f"{host}:{route.port}"
    headers = [("host", target)]
    if route.proxy is not None and route.proxy.authorization:
        headers.append(("proxy-authorization", route.proxy.authorization))
    connection.begin(terms, tunnel=True)
    connection.write(head_bytes("CONNECT", target, headers))
    answer = await connection.head()
    if not 200 <= answer.status < 300:
        connection.end()
        raise proxy_refused(answer.status, terms.place)
    await connection.secure(_trust(ca_file), route.host)


@lru_cache(16)
def _trust(ca_file: str | None) -> ssl.SSLContext:
    """What is trusted: the system's authorities, and those in the file."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    if ca_file is None:
        return context
    try:
        context.load_verify_locations(cafile=ca_file)
    except (OSError, ssl.SSLError):
        raise BadValue(
            f"No certificate could be read from {ca_file!r}: `ca_file` must name a file of PEM certificates."
        ) from None
    return context
