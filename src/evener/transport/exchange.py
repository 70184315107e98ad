"""One exchange with a provider: request, response, deadlines, credentials on each try, and retries. Opens no connection.

A request is retried only while nothing of a response has come. After a 2xx head, retrying is the loop's decision.
"""

import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import lru_cache
from inspect import isawaitable
from math import inf, isnan
from time import monotonic
from typing import Literal, Protocol
from urllib.parse import quote, urlsplit

import msgspec
from msgspec.structs import replace

from evener.errors import BadValue, EvenerError, ProviderError, TimedOut, TransportError, TruncatedStream, UsageError
from evener.transport.secrets import credential, is_secret, note_secret

Deadline = Literal["connect", "idle", "total"]

MEANT: dict[Deadline, str] = {
    "connect": "no connection to {place} was open after {seconds} seconds",
    "idle": "nothing came from {place} for {seconds} seconds",
    "total": "the exchange with {place} was not over after {seconds} seconds",
}
SHOWN_AUTHORITY = re.compile(r"(?:[\w.~%-]+|\[[\w.:%]+\])(?::\d{0,5})?")


def place_of(url: str) -> str:
    """Return host and port of a URL. No other part may be shown in messages."""
    try:
        authority = urlsplit(url).netloc.rpartition("@")[2]
    except ValueError:
        authority = ""
    if not authority:
        return "an address without a host"
    return authority if SHOWN_AUTHORITY.fullmatch(authority) else "an address with an odd host"  # it may be half of a password


def timed_out(deadline: Deadline, seconds: float, place: str) -> TimedOut:
    """Return the error for a deadline that has passed."""
    what = MEANT[deadline].format(place=place, seconds=f"{seconds:g}")
    return TimedOut(f"The {deadline} deadline passed: {what}. Raise it with Deadlines({deadline}=...), or try again later.")


class Deadlines(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Seconds. `connect`: until a connection is open, TLS included. `idle`: between two arrivals, the first one included.

    `total`: for the whole exchange, from the first try to the last byte. Nothing waits longer than that.
    """

    connect: float = 10.0
    idle: float = 120.0
    total: float = 900.0

    def __post_init__(self) -> None:
        if isnan(self.connect) or isnan(self.idle) or isnan(self.total):
            raise BadValue("A deadline must be a number of seconds, not NaN. `inf` means that there is no deadline.")


class Caps(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bytes, after decompression. `body`: of an answer that is not streamed. `stream`: of all events of a streamed answer
    together. `error`: of an error's body.
    """

    body: int = 32 * 1024 * 1024
    stream: int = 128 * 1024 * 1024
    error: int = 256 * 1024


Reach = Literal["anywhere", "public"]
OFFERED = "gzip, deflate"
"""The encodings of a body that a request accepts."""


class Request(msgspec.Struct, frozen=True, gc=False):
    """One HTTP request, credentials included: never shown, logged or stored as it is.

    With the reach "public" a transport sends it only to an address of the public internet, as the name resolves at that time.
    """

    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    method: str = "POST"
    deadlines: Deadlines = Deadlines()
    reach: Reach = "anywhere"

    def __repr__(self) -> str:
        """Leave out header values and body, because they may contain a secret."""
        return f"Request({self.method} {self.url.partition('?')[0]}, {len(self.body)} bytes)"


class Response(Protocol):
    """A response whose head has arrived. The caller of `send` closes it."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the headers, their names in lower case."""
        ...

    async def read(self) -> bytes:
        """Return the next bytes, decompressed, as they arrive; empty at the end. Raises TransportError if they do not come."""
        ...

    async def aclose(self) -> None:
        """Release the connection. It is reused if the response was read to its end, else closed."""
        ...


class Transport(Protocol):
    """The interface to the network: sends bytes and never parses bodies. Raises TransportError if it cannot.

    WireError is for a response that is not HTTP, BadValue for a request that no transport could send.
    """

    async def send(self, request: Request) -> Response:
        """Send the request and return the response's head. Follows no redirect, retries nothing."""
        ...


Headers = tuple[tuple[str, str], ...]
Auth = Callable[[Request], Request | Awaitable[Request]]
"""Returns the request with credentials. It gets the whole request: a signature covers method, URL, headers and body."""


def bearer(key: str) -> Auth:
    """Return an Auth that sets `Authorization: Bearer <key>`."""
    return header("authorization", f"Bearer {key}")


def header(name: str, value: str) -> Auth:
    """Return an Auth that sets this header, in place of any that has its name."""
    lower = name.lower()
    note_secret(value.rpartition(" ")[2])

    last: tuple[Headers, Headers] = ((), ((name, value),))

    def sign(request: Request) -> Request:
        nonlocal last
        before, after = last
        if request.headers != before:  # requests of one endpoint have equal headers
            after = (*(pair for pair in request.headers if pair[0].lower() != lower), (name, value))
            last = (tuple(request.headers), after)  # they may come as a list
        return Request(request.url, after, request.body, request.method, request.deadlines, request.reach)

    return sign


def query(name: str, value: str) -> Auth:
    """Return an Auth that adds a parameter to the URL."""
    note_secret(value)

    def sign(request: Request) -> Request:
        mark = "&" if "?" in request.url else "?"
        return replace(request, url=f"{request.url}{mark}{quote(name, safe='')}={quote(value, safe='')}")

    return sign


class Signed(msgspec.Struct, eq=False):
    """A transport that adds credentials to each try, and remembers them to keep them out of errors."""

    _transport: Transport
    _auth: Auth
    _tries: list[tuple[Request, Request]] = []

    def send(self, request: Request) -> Coroutine[object, None, Response]:
        signed = self._auth(request)
        return self._send(request, signed) if isinstance(signed, Request) else self._send_when_signed(request, signed)

    async def _send_when_signed(self, request: Request, coming: Awaitable[Request]) -> Response:
        return await self._send(request, await _await_credentials(coming, request))

    def _send(self, request: Request, signed: Request) -> Coroutine[object, None, Response]:
        for secret in _list_added_secrets(
            request.headers, tuple(signed.headers)
        ):  # a caller's `auth` may have made a list of them
            note_secret(secret)  # to be kept out of the store
        self._tries.append((request, signed))
        return self._transport.send(signed)

    @property
    def secrets(self) -> set[str]:
        """Return the credentials that `auth` has added to requests."""
        found: set[str] = set()
        for request, signed in self._tries:
            for _, value in [pair for pair in signed.headers if pair not in request.headers]:
                found |= {value, value.rpartition(" ")[2]}
            if signed.url != request.url:
                found |= {part.partition("=")[2] for part in signed.url.partition("?")[2].split("&")} - {""}
        return found


async def _await_credentials(signing: Awaitable[Request], request: Request) -> Request:
    """Return the request with credentials that are fetched asynchronously. The wait counts toward the total deadline."""
    import asyncio

    began, total = monotonic(), request.deadlines.total
    try:
        async with asyncio.timeout(total) as clock:
            signed = await signing if isawaitable(signing) else signing
    except TimeoutError:
        if not clock.expired():
            raise
        failure = TimedOut(
            f"The total deadline passed: no credentials for {place_of(request.url)} came after {total:g} seconds. "
            "Check what `auth` waits for, or raise it with Deadlines(total=...)."
        )
    else:
        if not isinstance(signed, Request):
            raise UsageError(f"`auth` returned {type(signed).__name__}; it must return the request, with credentials.")
        left = max(0.0, total - (monotonic() - began))
        return replace(signed, deadlines=replace(signed.deadlines, total=min(left, signed.deadlines.total)))
    raise failure


@lru_cache(16)
def _list_added_secrets(before: tuple[tuple[str, str], ...], after: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Return the lasting secrets among the headers that `auth` has added."""
    return tuple(found for found in (credential(*pair) for pair in after if pair not in before) if is_secret(found))


Fault = Callable[[int, Mapping[str, str], bytes], ProviderError]
"""Turns an HTTP error into a typed one. Each codec has such a function."""

CAPS = Caps()
GRACE = 0.05
"""Seconds: a total deadline may be noticed this much early."""


class Retries(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often to try, and how long to wait between. `attempts`: tries in all. `base`: seconds, doubled by each try.

    `most`: seconds of one wait.
    """

    attempts: int = 3
    base: float = 0.5
    most: float = 30.0

    def __post_init__(self) -> None:
        for name, value in (("base", self.base), ("most", self.most)):
            if not 0 <= value < inf:
                raise BadValue(f"Retries({name}={value}) must be seconds: a finite number, not below zero.")

    def delay(self, attempt: int, retry_after: float | None, jitter: float) -> float | None:
        """Return the seconds to wait after attempt number `attempt`, from 1; None to give up.

        `jitter` from 0 to 1 is the part of the backoff to wait. If the provider asks for a wait, the same part of the backoff
        is added to it, so that many callers do not retry at once. If it asks for more than `most`, the result is None.
        """
        if attempt >= self.attempts:
            return None
        backoff = min(self.most, self.base * 2.0 ** min(attempt - 1, 60)) * jitter
        if retry_after is None:
            return backoff
        if retry_after > self.most:
            return None
        return min(self.most, max(0.0, retry_after) + backoff)


class Retried(msgspec.Struct, frozen=True):
    """A try that failed and is followed by another. `attempt` is its number, from 1; `delay` is waited before the next."""

    attempt: int
    delay: float
    error: EvenerError


async def send_retrying(
    transport: Transport,
    request: Request,
    retries: Retries,
    fault: Fault,
    caps: Caps = CAPS,
    on_retry: Callable[[Retried], None] | None = None,
    sleep: Callable[[float], Awaitable[None]] | None = None,
    random: Callable[[], float] | None = None,
    clock: Callable[[], float] = monotonic,
) -> Response:
    """Return a response with a status of 2xx. Raises the last error: the ProviderError of `fault`, or the TransportError.

    Tries and waits together stay within the total deadline. If a connection is closed before a response, the server
    had most often dropped it while it was idle: the first such try is repeated at once and does not count.
    """
    end = clock() + request.deadlines.total
    attempt, forgiven = 1, False
    trying = request
    while True:
        try:
            response = await transport.send(trying)
            if 200 <= response.status < 300:
                return response
            raise await _read_fault(response, fault=fault, cap=caps.error)
        except (ProviderError, TransportError) as error:
            failure = error
        stale = isinstance(failure, TruncatedStream) and not forgiven
        begun = isinstance(failure, TransportError) and failure.begun
        again = failure.retryable and not begun
        asked = failure.retry_after if isinstance(failure, ProviderError) else None
        delay = 0.0 if stale else retries.delay(attempt, asked, (random or _random)()) if again else None
        if isinstance(failure, TimedOut) and end - clock() <= max(GRACE, delay or 0.0):
            raise timed_out("total", request.deadlines.total, place_of(request.url))
        if delay is None or clock() + delay >= end:
            raise failure
        if on_retry is not None:
            on_retry(Retried(attempt, delay, failure))
        if stale:
            forgiven = True
        else:
            attempt += 1
            await (sleep or _sleep)(delay)
        trying = replace(request, deadlines=replace(request.deadlines, total=max(end - clock(), 0.0)))


def _random() -> float:
    import random

    return random.random()


async def _sleep(seconds: float) -> None:
    import asyncio

    await asyncio.sleep(seconds)


async def _read_fault(response: Response, *, fault: Fault, cap: int) -> ProviderError:
    try:
        body = await _error_body(response, cap)
    finally:
        await response.aclose()
    return fault(response.status, response.headers, body)


async def _error_body(response: Response, cap: int) -> bytes:
    """Return the beginning of an error's body. If the rest does not arrive, the status is enough."""
    pieces, size = [], 0
    try:
        while size < cap and (piece := await response.read()):
            pieces.append(piece)
            size += len(piece)
    except EvenerError:
        pass
    return b"".join(pieces)[:cap]
