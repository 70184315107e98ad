"""Whom a model call goes to, and how: row, codec, address, credentials, transport, deadlines. Shared by all calls."""

from collections.abc import Awaitable, Coroutine
from functools import lru_cache

import msgspec

from evener.encodings import EncodingName
from evener.providers.rows import Facts
from evener.transport.auth import Auth
from evener.transport.exchange import Caps, Deadlines, Request, Response, Transport
from evener.transport.limiter import Limiter
from evener.transport.retry import Retries
from evener.transport.secrets import credential, is_secret, known_secrets, note_secret
from evener.wire import Codec

__all__ = ["Endpoint", "Signed"]


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


class Signed(msgspec.Struct, eq=False, gc=False):
    """A transport that puts the credentials on each try, and remembers which values they were: to keep them out of errors."""

    _transport: Transport
    _auth: Auth
    _tries: list[tuple[Request, Request]] = []

    def send(self, request: Request) -> Coroutine[object, None, Response]:
        signed = self._auth(request)
        return self._sent(request, signed) if isinstance(signed, Request) else self._signed(request, signed)

    async def _signed(self, request: Request, coming: Awaitable[Request]) -> Response:
        return await self._sent(request, await coming)

    def _sent(self, request: Request, signed: Request) -> Coroutine[object, None, Response]:
        for secret in _put_on(request.headers, tuple(signed.headers)):  # somebody's own `auth` may have made a list of them
            if secret not in known_secrets():
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


@lru_cache(16)
def _put_on(before: tuple[tuple[str, str], ...], after: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """The lasting secrets among the headers that were put on a request."""
    return tuple(found for found in (credential(*pair) for pair in after if pair not in before) if is_secret(found))
