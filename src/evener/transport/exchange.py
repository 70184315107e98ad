"""What crosses the seam to the network: one request, one response, one method. Values and protocols; no I/O."""

from collections.abc import Mapping
from math import isnan
from typing import Literal, Protocol

import msgspec

from evener.errors import BadValue

__all__ = ["Caps", "Deadlines", "Reach", "Request", "Response", "Transport"]


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
