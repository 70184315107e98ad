"""How credentials get onto a request. Applied to each try, so that a fresh token or signature is made for a retry."""

from collections.abc import Awaitable, Callable, Mapping
from math import isnan
from typing import Literal, Protocol
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from evener.errors import BadValue
from evener.transport.secrets import note_secret

__all__ = [
    "Auth",
    "Caps",
    "Deadlines",
    "Reach",
    "Request",
    "Response",
    "Transport",
    "bearer",
    "header",
    "query",
]


class Deadlines(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Seconds. `connect`: until a connection stands, TLS included. `idle`: between two arrivals, the first one included.

    `total`: for the whole exchange, from the first try to the last byte. Nothing waits longer than that.
    """

    connect: float = 10.0
    idle: float = 120.0
    total: float = 900.0

    def __post_init__(self) -> None:
        if isnan(self.connect) or isnan(self.idle) or isnan(self.total):
            raise BadValue("A deadline that is not a number never passes. Give seconds; `inf` means that there is none.")


class Caps(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bytes, after decompression. `body`: of a whole answer that is not streamed. `stream`: of one that is, all its events
    together. `error`: of an error's body.
    """

    body: int = 32 * 1024 * 1024
    stream: int = 128 * 1024 * 1024
    error: int = 256 * 1024


Reach = Literal["anywhere", "public"]


class Request(msgspec.Struct, frozen=True, gc=False):
    """One HTTP request, credentials included: never shown, logged or stored as it is.

    With the reach "public" a transport sends it only to an address of the public internet, as the name stands for it then.
    """

    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    method: str = "POST"
    deadlines: Deadlines = Deadlines()
    reach: Reach = "anywhere"

    def __repr__(self) -> str:
        """Without header values and body: either may hold a secret."""
        return f"Request({self.method} {self.url.partition('?')[0]}, {len(self.body)} bytes)"


class Response(Protocol):
    """An answer whose head has arrived. Whoever got it closes it."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case."""
        ...

    async def read(self) -> bytes:
        """The next bytes, decompressed, as they arrive; empty at the end. Raises TransportError when they do not come."""
        ...

    async def aclose(self) -> None:
        """Let go of the connection. An answer that was read to its end leaves it usable; else it is cut."""
        ...


class Transport(Protocol):
    """The seam: sends bytes, never looks into them. Raises TransportError when it cannot.

    WireError is for what comes back and is no HTTP, BadValue for a request that nobody could send.
    """

    async def send(self, request: Request) -> Response:
        """The answer's head. Follows no redirect, retries nothing."""
        ...


Headers = tuple[tuple[str, str], ...]
Auth = Callable[[Request], Request | Awaitable[Request]]
"""Gives the request with credentials. May look at all of it: a signature covers method, address, headers and body."""


def bearer(key: str) -> Auth:
    """`Authorization: Bearer <key>`."""
    return header("authorization", f"Bearer {key}")


def header(name: str, value: str) -> Auth:
    """A header with this value, in place of any that has its name."""
    lower = name.lower()
    note_secret(value.rpartition(" ")[2])

    last: tuple[Headers, Headers] = ((), ((name, value),))

    def sign(request: Request) -> Request:
        nonlocal last
        before, after = last
        if request.headers != before:  # one endpoint's requests have the same ones
            after = (*(pair for pair in request.headers if pair[0].lower() != lower), (name, value))
            last = (tuple(request.headers), after)  # they may come as a list
        return Request(request.url, after, request.body, request.method, request.deadlines, request.reach)

    return sign


def query(name: str, value: str) -> Auth:
    """A parameter of the address."""
    note_secret(value)

    def sign(request: Request) -> Request:
        mark = "&" if "?" in request.url else "?"
        return replace(request, url=f"{request.url}{mark}{quote(name, safe='')}={quote(value, safe='')}")

    return sign
