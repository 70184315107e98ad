"""Opens connections: to a server, or through a proxy; TLS is always verified. Every failure is an error of ours."""

import asyncio
import re
import ssl
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec

from evener.errors import BadValue, EvenerError
from evener.transport.connection import Connection, Terms
from evener.transport.exchange import Reach
from evener.transport.failures import beside, dial_failure, place_of, proxy_refused, timed_out
from evener.transport.framing import head_bytes
from evener.transport.proxies import Proxy
from evener.transport.sockets import check_numeric, connected

__all__ = ["Route", "dial", "route_of"]

LABEL = r"[a-z0-9_-]{1,63}"
AUTHORITY = re.compile(
    rf"(?:(?P<name>(?:{LABEL}\.)*{LABEL}\.?)|\[(?P<address>[0-9a-f:.]+)\])(?::(?P<port>\d{{0,5}}))?", re.I | re.A
)
PORTS = {"http": 80, "https": 443}
PATIENCE = 1.0
"""Seconds after the deadline for connecting: that is ours to notice, before the event loop's own."""


class Route(msgspec.Struct, frozen=True):
    """Where requests of one address go. A connection serves all requests of the same route."""

    host: str
    port: int
    secure: bool
    proxy: Proxy | None = None
    reach: Reach = "anywhere"

    @property
    def tunnelled(self) -> bool:
        """Whether a proxy must connect us through; else it reads the requests itself."""
        return self.proxy is not None and self.secure


@lru_cache(64)
def route_of(base: str, proxy: Proxy | None, reach: Reach = "anywhere") -> Route:
    """The route to an address. Raises BadValue for one that leads nowhere."""
    place = place_of(base)
    scheme, _, authority = base.partition("://")
    if "@" in authority:
        raise BadValue(f"A request to {place!r} cannot be sent: its address has credentials. Put them into a header.")
    found = AUTHORITY.fullmatch(authority)
    port = int(found["port"] or PORTS[scheme]) if found is not None else 0
    if found is None or not 0 < port < 65536 or not _is_address(found["address"] or "::"):
        raise BadValue(f"A request to {place!r} cannot be sent: its address must have a host, and a port from 1 to 65535.")
    return Route((found["name"] or found["address"]).lower(), port, scheme == "https", proxy, reach)


def _is_address(host: str) -> bool:
    try:
        return ip_address(host).version == 6
    except ValueError:
        return False


async def dial(route: Route, terms: Terms, ca_file: str | None) -> Connection:
    """A connection that stands, TLS included, within the deadline for connecting."""
    loop = asyncio.get_running_loop()
    late = min(terms.end, loop.time() + terms.deadlines.connect)
    proxied = route.proxy is not None
    connection = Connection(loop)
    try:
        async with asyncio.timeout_at(late) as clock:
            try:
                await _reach(route, connection, terms, ca_file)
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


async def _reach(route: Route, connection: Connection, terms: Terms, ca_file: str | None) -> None:
    """The server, or the proxy before it."""
    loop = asyncio.get_running_loop()
    host, port, secure = route.host, route.port, route.secure
    if route.reach == "public":
        check_numeric(host)  # a proxy looks names up itself: what they stand for is not known here
    if route.proxy is not None:
        parts = urlsplit(route.proxy.url)
        host, port, secure = parts.hostname or "", parts.port or 80, parts.scheme == "https"
    context = _trust(ca_file) if secure else None
    found = await connected(host, port, reach="anywhere" if route.proxy is not None else route.reach)
    try:
        await loop.create_connection(
            lambda: connection,
            sock=found,
            ssl=context,
            server_hostname=host.rstrip(".") if secure else None,
            ssl_handshake_timeout=terms.deadlines.connect + PATIENCE if secure else None,
        )
    except BaseException:
        found.close()
        raise


async def _tunnel(route: Route, connection: Connection, terms: Terms, ca_file: str | None) -> None:
    """Have the proxy connect us through, and speak TLS with the server itself."""
    connection.begin(Terms(beside(terms.place), terms.deadlines, terms.end), "CONNECT")
    connection.write(_connect_head(route))
    answer = await connection.head()
    if not 200 <= answer.status < 300:
        raise proxy_refused(answer.status, terms.place)
    if connection.failure is not None:
        raise connection.failure
    await connection.secure(_trust(ca_file), route.host.rstrip("."), within=terms.deadlines.connect + PATIENCE)


def _connect_head(route: Route) -> bytes:
    host = f"[{route.host}]" if ":" in route.host else route.host
    target = f"{host}:{route.port}"
    headers = [("host", target)]
    if route.proxy is not None and route.proxy.authorization:
        headers.append(("proxy-authorization", route.proxy.authorization))
    return head_bytes("CONNECT", target, headers)


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
