"""A transport to a model on this machine. It changes only the address and the key of a request, never the body."""

import time
from typing import Self
from urllib.parse import urlsplit, urlunsplit

from msgspec.structs import replace

from evener.errors import ConnectFailed, TransportError
from evener.local.keeper import ChildAddress, LocalSettings
from evener.local.server import LocalServer, borrow_server, return_server
from evener.local.weights import locate_weights
from evener.transport.exchange import Request, Response, Transport
from evener.transport.http import HttpTransport

KEYS = frozenset({"authorization", "x-api-key", "api-key"})
CLOSE = ("connection", "close")
"""The server offers to keep a connection and then drops it after a streamed answer: the next request would be lost."""
LEAST = 0.001
"""Seconds: a deadline that has passed while the model started still is one."""


class LocalTransport:
    """Sends requests to `model`: a name such as `smollm2`, or the path of a GGUF file.

    The model starts with the first request (its weights are fetched then, if need be) and runs until `aclose`, or as long
    as another transport uses it. `inner` carries the bytes; it is closed here only if it was made here. Besides
    TransportError, `send` raises UsageError when there is nothing that could be started.
    """

    def __init__(self, model: str, *, inner: Transport | None = None, settings: LocalSettings | None = None) -> None:
        self._weights = locate_weights(model)
        self._settings = settings or LocalSettings()
        self._inner = inner
        self._own: HttpTransport | None = None
        self._server: LocalServer | None = None

    @property
    def pid(self) -> int | None:
        """Return the id of the model's process, if one runs."""
        return self._server.pid if self._server else None

    async def send(self, request: Request) -> Response:
        """Send to the model's own server. The server is started if it does not run."""
        server = self._borrow()
        begun = time.monotonic()
        address = await server.address(seconds=request.deadlines.total)
        left = max(request.deadlines.total - (time.monotonic() - begun), LEAST)
        try:
            return await self._carrier().send(_redirect(request, address, left))
        except TransportError as error:
            if why := server.why_ended():
                raise ConnectFailed(f"The process of local model {self._weights.name!r} has ended.{why}") from error
            raise

    async def aclose(self) -> None:
        """Return the server, and close the connections to it. The transport may be used again."""
        server, self._server = self._server, None
        own, self._own = self._own, None
        if server is not None:
            return_server(server)
        if own is not None:
            await own.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _borrow(self) -> LocalServer:
        if self._server is None:
            self._server = borrow_server(self._weights, self._settings)
        return self._server

    def _carrier(self) -> Transport:
        if self._inner is not None:
            return self._inner
        if self._own is None:
            self._own = HttpTransport(trust_env=False)  # no proxy stands between two processes of one machine
        return self._own


def _redirect(request: Request, address: ChildAddress, total: float) -> Request:
    """Return the same request for the address, with its key in place of any other."""
    there, asked = urlsplit(address.base), urlsplit(request.url)
    headers = [(name, value) for name, value in request.headers if name.lower() not in KEYS]
    return replace(
        request,
        url=urlunsplit((there.scheme, there.netloc, asked.path, asked.query, "")),
        headers=(*headers, ("authorization", f"Bearer {address.key}"), CLOSE),
        deadlines=replace(request.deadlines, total=total),
    )
