"""Opens connections: to a server, or through a proxy; TLS is always verified. Every failure is an EvenerError."""

import asyncio
import re
import socket
import ssl
from base64 import b64encode
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from errno import EADDRNOTAVAIL, EAFNOSUPPORT, EHOSTUNREACH, ENETUNREACH
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from threading import Thread
from urllib.parse import unquote, urlsplit

import msgspec

from evener.errors import BadValue, EvenerError, UsageError
from evener.transport.connection import Connection, Terms, beside, dial_failure, head_bytes, proxy_refused
from evener.transport.exchange import Reach, place_of, timed_out

PRIVATE_4 = (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
    "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
    "224.0.0.0/4", "240.0.0.0/4",
)  # fmt: skip
PUBLIC_6 = ("2000::/3",)
PRIVATE_6 = ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
"""Exceptions within PUBLIC_6: protocol assignments with Teredo, documentation, and 6to4, which reaches any address of IPv4."""
AS_IPV4 = ("::ffff:0:0/96", "64:ff9b::/96")
"""IPv4 written as IPv6: mapped, and by the well-known prefix of NAT64, which networks without IPv4 use for public hosts."""


class PrivateAddress(UsageError):
    """A request that may only go to the public internet leads elsewhere."""


def is_public(address: str) -> bool:
    """True if a numeric address belongs to the public internet."""
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address):
        if not _is_within(found, AS_IPV4):
            return _is_within(found, PUBLIC_6) and not _is_within(found, PRIVATE_6)
        found = IPv4Address(int(found) & 0xFFFF_FFFF)
    return not _is_within(found, PRIVATE_4)


def _is_within(address: IPv4Address | IPv6Address, networks: tuple[str, ...]) -> bool:
    return any(address in ip_network(network) for network in networks)


class Proxy(msgspec.Struct, frozen=True):
    """Its address, without credentials, and the header that carries them; that header is empty when there are none."""

    url: str
    authorization: str = ""

    def __repr__(self) -> str:
        """Leave out the header, because it contains credentials."""
        return f"Proxy({self.url})"


def proxy_from(text: str) -> Proxy:
    """Parse a proxy's address, as in `http://user:password@proxy.example:3128`. Raises BadValue."""
    if "://" not in text:
        text = f"http://{text}"
    scheme = text.partition("://")[0].lower()
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if scheme not in ("http", "https") or not host:
        text, parts = "", urlsplit("")  # a traceback may be printed with its locals, and the address may hold a password
        raise BadValue(
            f"A proxy's address must be http://host:port or https://host:port, and this one, a {scheme}:// address, is not. "
            "Correct `proxy` or the variables HTTP_PROXY, HTTPS_PROXY and ALL_PROXY."
        )
    place = f"[{host}]" if ":" in host else host
    url = f"{scheme}://{place}:{port or (443 if scheme == 'https' else 80)}"
    if parts.username is None:
        return Proxy(url)
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Proxy(url, "Basic " + b64encode(pair.encode()).decode())


def proxy_for(url: str, environment: Mapping[str, str]) -> Proxy | None:
    """Return the proxy of a URL from HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, in either case. Raises BadValue."""
    parts = urlsplit(url)
    found = _variable(f"{parts.scheme}_proxy", environment) or _variable("all_proxy", environment)
    if not found or _is_excepted(parts.hostname or "", parts.port, _variable("no_proxy", environment)):
        return None
    return proxy_from(found)


def _variable(name: str, environment: Mapping[str, str]) -> str:
    """Return a variable; the lower-case name takes precedence.

    In a web server, HTTP_PROXY may be set from a request's `Proxy` header, so it is not trusted there.
    """
    if name == "http_proxy" and "REQUEST_METHOD" in environment:
        return environment.get(name, "").strip()
    return (environment.get(name) or environment.get(name.upper(), "")).strip()


def _is_excepted(host: str, port: int | None, exceptions: str) -> bool:
    for written in exceptions.split(","):
        entry = written.strip().lower().removeprefix("*").removeprefix(".")
        if written.strip() == "*":
            return True
        if entry and (_covers(entry, host) or (port is not None and _covers(entry.removesuffix(f":{port}"), host))):
            return True
    return False


def _covers(entry: str, host: str) -> bool:
    """True if an entry of NO_PROXY names the host, its domain, or its network."""
    if host == entry or host.endswith(f".{entry}"):
        return True
    try:
        return "/" in entry and ip_address(host) in ip_network(entry, strict=False)
    except ValueError:
        return False


Place = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, Place]
NEXT_ADDRESS = 0.25
"""Seconds after which the next address of a host is tried beside the first."""
UNREACHABLE = {EADDRNOTAVAIL, EAFNOSUPPORT, EHOSTUNREACH, ENETUNREACH}
"""Errors of an IPv6 address on a machine without IPv6. The error of another address is reported instead, if there is one."""
UNSENT = 128 * 1024
"""Bytes that the kernel may buffer unsent. Beyond them, an accepted write means that the server has read something."""


async def connect(host: str, port: int, *, reach: Reach = "anywhere") -> socket.socket:
    """Return a socket connected to one of the host's addresses, the first that answers. Raises OSError.

    With the reach "public", other addresses are left out, and PrivateAddress is raised if none is left. The connection is made
    to a checked address; the name is not resolved again.
    """
    loop = asyncio.get_running_loop()
    found = await _addresses(host, port)
    left = deque(found if reach == "anywhere" else _public(host, found))
    if len(left) == 1:
        return await _connect(left[0])
    tried: list[asyncio.Task[socket.socket]] = []
    failed: list[BaseException] = []
    try:
        while left or len(failed) < len(tried):
            if left:
                tried.append(loop.create_task(_connect(left.popleft())))
            running = [task for task in tried if not task.done()] or tried[-1:]
            await asyncio.wait(running, timeout=NEXT_ADDRESS if left else None, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in tried if task.done()]:
                error = task.exception()
                if error is None:
                    tried.remove(task)
                    return task.result()
                if error not in failed:
                    failed.append(error)
        raise min(failed, key=_says_little, default=socket.gaierror(socket.EAI_NONAME, "no address"))
    finally:
        for task in tried:
            task.cancel()
            task.add_done_callback(_close_unwanted)


def check_numeric(host: str) -> None:
    """Refuse a numeric address, in any spelling, that is not public, and the names of this machine. Resolves nothing."""
    bare = host.rstrip(".")  # a name may end with a dot, and a proxy may read 127.0.0.1. as an address
    if bare == "localhost" or bare.endswith(".localhost"):
        raise _private(host, "127.0.0.1")
    with suppress(socket.gaierror):
        _public(host, socket.getaddrinfo(bare, 80, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))


def _public(host: str, addresses: Sequence[Address]) -> Sequence[Address]:
    public = [address for address in addresses if is_public(str(address[4][0]))]
    if addresses and not public:
        raise _private(host, str(addresses[0][4][0]))
    return public


def _private(host: str, address: str) -> PrivateAddress:
    return PrivateAddress(
        f"{host} resolves to {address}, which is not in the public internet: it belongs to this machine, a private network, or "
        "nothing. Nothing was sent. If you mean to fetch media from there, say Harness(..., media_from='anywhere')."
    )


def _says_little(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in UNREACHABLE


async def _addresses(host: str, port: int) -> Sequence[Address]:
    """Return the addresses of a host's name. A numeric address is its own."""
    with suppress(socket.gaierror):
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Sequence[Address]] = loop.create_future()

    def look() -> None:
        try:
            answer: Sequence[Address] | OSError = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            answer = error
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(_tell, found, answer)

    Thread(target=look, name="evener-name", daemon=True).start()
    return await found


def _tell(found: asyncio.Future[Sequence[Address]], answer: Sequence[Address] | OSError) -> None:
    if found.done():
        return
    if isinstance(answer, OSError):
        found.set_exception(answer)
    else:
        found.set_result(answer)


async def _connect(address: Address) -> socket.socket:
    family, kind, protocol, _, place = address
    made = socket.socket(family, kind, protocol)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        with suppress(AttributeError, OSError):  # not every system has it
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)
        await asyncio.get_running_loop().sock_connect(made, place)
    except BaseException:
        made.close()
        raise
    return made


def _close_unwanted(task: "asyncio.Task[socket.socket]") -> None:
    """Close a socket that is not needed, because another address was quicker or the caller was cancelled."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()


LABEL = r"[a-z0-9_-]{1,63}"
AUTHORITY = re.compile(
    rf"(?:(?P<name>(?:{LABEL}\.)*{LABEL}\.?)|\[(?P<address>[0-9a-f:.]+)\])(?::(?P<port>\d{{0,5}}))?", re.I | re.A
)
PORTS = {"http": 80, "https": 443}
PATIENCE = 1.0
"""Seconds that the event loop's own deadline for TLS is longer than ours, which must pass first."""


class Route(msgspec.Struct, frozen=True):
    """Where requests of one address go. A connection serves all requests of the same route."""

    host: str
    port: int
    secure: bool
    proxy: Proxy | None = None
    reach: Reach = "anywhere"

    @property
    def tunnelled(self) -> bool:
        """True if the proxy opens a tunnel; false if it reads the requests itself."""
        return self.proxy is not None and self.secure


@lru_cache(64)
def route_of(base: str, proxy: Proxy | None, reach: Reach = "anywhere") -> Route:
    """Return the route to an address. Raises BadValue for an invalid address."""
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
    """Return an open connection, TLS included, within the deadline for connecting."""
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
    raise failure  # outside the handler: its cause would add nothing


async def _reach(route: Route, connection: Connection, terms: Terms, ca_file: str | None) -> None:
    """Connect to the server, or to the proxy before it."""
    loop = asyncio.get_running_loop()
    host, port, secure = route.host, route.port, route.secure
    if route.reach == "public":
        check_numeric(host)  # a proxy resolves names itself: their addresses are not known here
    if route.proxy is not None:
        parts = urlsplit(route.proxy.url)
        host, port, secure = parts.hostname or "", parts.port or 80, parts.scheme == "https"
    context = _tls_context(ca_file) if secure else None
    found = await connect(host, port, reach="anywhere" if route.proxy is not None else route.reach)
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
    """Have the proxy open a tunnel, and start TLS with the server itself."""
    connection.begin(Terms(beside(terms.place), terms.deadlines, terms.end), "CONNECT")
    connection.write(_connect_head(route))
    answer = await connection.head()
    if not 200 <= answer.status < 300:
        raise proxy_refused(answer.status, terms.place)
    if connection.failure is not None:
        raise connection.failure
    await connection.secure(_tls_context(ca_file), route.host.rstrip("."), within=terms.deadlines.connect + PATIENCE)


def _connect_head(route: Route) -> bytes:
    host = f"[{route.host}]" if ":" in route.host else route.host
    target = f"{host}:{route.port}"
    headers = [("host", target)]
    if route.proxy is not None and route.proxy.authorization:
        headers.append(("proxy-authorization", route.proxy.authorization))
    return head_bytes("CONNECT", target, headers)


@lru_cache(16)
def _tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Return the TLS context that trusts the system's authorities, and those in the file."""
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
