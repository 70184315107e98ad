"""Where a model call goes, and how: row, codec, address, credentials, transport, deadlines; and the request made for it."""

import asyncio
from collections.abc import Awaitable, Coroutine
from functools import lru_cache
from inspect import isawaitable
from time import monotonic

import msgspec
from msgspec.structs import replace

from evener.encodings import EncodingName, Prepared, prepare
from evener.errors import TimedOut, UsageError
from evener.providers.rows import Facts
from evener.transcript.ask import Ask
from evener.transcript.loss import Loss
from evener.transport.connection import place_of
from evener.transport.exchange import Auth, Caps, Deadlines, Request, Response, Transport
from evener.transport.limiter import Limiter
from evener.transport.retry import Retries
from evener.transport.secrets import credential, is_secret, note_secret
from evener.wire import Codec, Encoded

__all__ = ["Endpoint", "Sent", "Signed", "prepare_request"]


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One model at one provider. Holds no credential itself: `auth` puts it on each request."""

    facts: Facts
    codec: Codec
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    auth: Auth
    transport: Transport
    limiter: Limiter
    encoding: EncodingName | None = None
    deadlines: Deadlines = Deadlines()
    caps: Caps = Caps()
    retries: Retries = Retries()

    def __repr__(self) -> str:
        return f"<Endpoint {self.facts.provider.name}:{self.facts.model} at {self.url}>"


class Sent(msgspec.Struct, frozen=True, gc=False):
    """The request as it goes out. Given back with the next ask of the same conversation, it makes that one cheap."""

    prepared: Prepared
    encoded: Encoded

    @property
    def losses(self) -> tuple[Loss, ...]:
        """Everything that the request could not say as it was asked."""
        return self.prepared.losses + self.encoded.losses


def prepare_request(ask: Ask, endpoint: Endpoint, prior: Sent | None = None) -> Sent:
    """Return the request for this ask: the one that is sent, previewed and asked for its losses. Sends nothing.

    `prior` is the request before it in the same conversation. It changes no byte; it only saves work.
    """
    quirks = endpoint.facts.quirks
    if prior is None:
        prepared = prepare(ask, quirks, encoding=endpoint.encoding)
        return Sent(prepared, endpoint.codec.encode(prepared.ask, quirks, None))
    prepared = prepare(ask, quirks, encoding=endpoint.encoding, prior=prior.prepared)
    return Sent(prepared, endpoint.codec.encode(prepared.ask, quirks, prior.encoded))


class Signed(msgspec.Struct, eq=False):
    """A transport that puts the credentials on each try, and remembers which values they were: to keep them out of errors."""

    _transport: Transport
    _auth: Auth
    _tries: list[tuple[Request, Request]] = []

    def send(self, request: Request) -> Coroutine[object, None, Response]:
        signed = self._auth(request)
        return self._sent(request, signed) if isinstance(signed, Request) else self._signed(request, signed)

    async def _signed(self, request: Request, coming: Awaitable[Request]) -> Response:
        return await self._sent(request, await _fetched(coming, request))

    def _sent(self, request: Request, signed: Request) -> Coroutine[object, None, Response]:
        for secret in _put_on(request.headers, tuple(signed.headers)):  # somebody's own `auth` may have made a list of them
            note_secret(secret)  # to be kept out of the store
        self._tries.append((request, signed))
        return self._transport.send(signed)

    @property
    def secrets(self) -> set[str]:
        """What was put on requests."""
        found: set[str] = set()
        for request, signed in self._tries:
            for _, value in [pair for pair in signed.headers if pair not in request.headers]:
                found |= {value, value.rpartition(" ")[2]}
            if signed.url != request.url:
                found |= {part.partition("=")[2] for part in signed.url.partition("?")[2].split("&")} - {""}
        return found


async def _fetched(signing: Awaitable[Request], request: Request) -> Request:
    """The request with credentials that are not at hand: what it takes to get them is part of the exchange's time."""
    began, total = monotonic(), request.deadlines.total
    try:
        async with asyncio.timeout(total) as clock:
            signed = await signing if isawaitable(signing) else signing
    except TimeoutError:
        if not clock.expired():
            raise
        failure = TimedOut(
            f"The total deadline passed: no credentials for {place_of(request.url)} came after {total:g} seconds. "
            "Look at what `auth` waits for, or raise it with Deadlines(total=...)."
        )
    else:
        if not isinstance(signed, Request):
            raise UsageError(f"`auth` gave {type(signed).__name__}, not the request with credentials. Return it.")
        left = max(0.0, total - (monotonic() - began))
        return replace(signed, deadlines=replace(signed.deadlines, total=min(left, signed.deadlines.total)))
    raise failure


@lru_cache(16)
def _put_on(before: tuple[tuple[str, str], ...], after: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """The lasting secrets among the headers that were put on a request."""
    return tuple(found for found in (credential(*pair) for pair in after if pair not in before) if is_secret(found))
