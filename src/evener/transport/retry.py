"""Tries a request again while nothing of an answer has come. Never retries after a 2xx head: that is the loop's decision."""

import asyncio
import random as randomness
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from time import monotonic

import msgspec
from msgspec.structs import replace

from evener.errors import BadValue, EvenerError, ProviderError, TimedOut, TransportError, TruncatedStream
from evener.transport.connection import place_of, timed_out
from evener.transport.exchange import Caps, Request, Response, Transport

__all__ = ["Fault", "Retried", "Retries", "send_retrying"]

Fault = Callable[[int, Mapping[str, str], bytes], ProviderError]
"""A codec's reading of an HTTP error."""

CAPS = Caps()
GRACE = 0.05
"""Seconds: a total deadline may be noticed this much early."""


class Retries(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often and how long. `attempts`: tries in all. `base`: seconds, doubled by each. `most`: seconds of one wait."""

    attempts: int = 3
    base: float = 0.5
    most: float = 30.0

    def __post_init__(self) -> None:
        for name, value in (("base", self.base), ("most", self.most)):
            if not 0 <= value < inf:
                raise BadValue(f"Retries({name}={value}) must be seconds: a finite number, not below zero.")

    def delay(self, attempt: int, retry_after: float | None, jitter: float) -> float | None:
        """Seconds to wait after the attempt of this number, from 1; None to give up.

        `jitter` from 0 to 1 is the part of the backoff that is waited. What the provider asks for is waited in full, with up to
        as much of the backoff on top, so that many callers do not come back at once; more than `most` is not waited for at all.
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
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    random: Callable[[], float] = randomness.random,
    clock: Callable[[], float] = monotonic,
) -> Response:
    """A response with a status of 2xx, or the last error: the ProviderError that `fault` makes, or the TransportError.

    Everything, waits included, happens within the total deadline. A connection that is closed before it answers was most often
    an old one that the server had given up: the first such try is repeated at once and does not count.
    """
    end = clock() + request.deadlines.total
    attempt, forgiven = 1, False
    trying = request
    while True:
        try:
            response = await transport.send(trying)
            if 200 <= response.status < 300:
                return response
            raise await _refusal(response, fault=fault, cap=caps.error)
        except (ProviderError, TransportError) as error:
            failure = error
        stale = isinstance(failure, TruncatedStream) and not forgiven
        begun = isinstance(failure, TransportError) and failure.begun
        again = failure.retryable and not begun
        delay = 0.0 if stale else retries.delay(attempt, _asked(failure), random()) if again else None
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
            await sleep(delay)
        trying = _within(request, end - clock())


async def _refusal(response: Response, *, fault: Fault, cap: int) -> ProviderError:
    try:
        body = await _error_body(response, cap)
    finally:
        await response.aclose()
    return fault(response.status, response.headers, body)


async def _error_body(response: Response, cap: int) -> bytes:
    """The beginning of an error's body. The status says enough when the rest does not come."""
    pieces, size = [], 0
    try:
        while size < cap and (piece := await response.read()):
            pieces.append(piece)
            size += len(piece)
    except EvenerError:
        pass
    return b"".join(pieces)[:cap]


def _within(request: Request, left: float) -> Request:
    return replace(request, deadlines=replace(request.deadlines, total=max(left, 0.0)))


def _asked(error: EvenerError) -> float | None:
    return error.retry_after if isinstance(error, ProviderError) else None
