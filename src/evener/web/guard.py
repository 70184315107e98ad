"""Who may ask the app: requests for this host, from a page that the user allowed, with the token if there is one.

A page of another site can send requests to this machine. It cannot hide its Origin, and by DNS rebinding it has another Host.
"""

import hmac
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class WebGuard:
    """Stands in front of an app. `hosts` are names without a port; `origins` are those of pages elsewhere, as browsers say."""

    def __init__(self, app: App, *, hosts: Iterable[str] = LOOPBACK, origins: Iterable[str] = (), token: str = "") -> None:
        self._app = app
        self._hosts = frozenset(hosts)
        self._origins = frozenset(origins)
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, why = (200, "") if scope["type"] == "lifespan" else self._judge(scope)
        if status == 200:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await _refuse(send, status, why)

    def _judge(self, scope: Scope) -> tuple[int, str]:
        if scope["type"] != "http":
            return 403, ""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        host, origin = headers.get(b"host", b"").decode("latin-1"), headers.get(b"origin", b"").decode("latin-1")
        if _place_of(f"http://{host}")[0] not in self._hosts:
            return 403, "This host is not served here."
        if origin and origin not in self._origins and _place_of(origin)[1] != host:
            return 403, "Pages of this origin are not allowed. Name it when the app is made."
        if self._token and scope["method"] != "OPTIONS" and not self._knows(headers.get(b"authorization", b"")):
            return 401, "The bearer token is missing or wrong."
        return 200, ""

    def _knows(self, given: bytes) -> bool:
        scheme, _, token = given.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)


def _place_of(url: str) -> tuple[str, str]:
    """Return the name of a URL's host, and the same with its port; empty if it is no URL."""
    try:
        found = urlsplit(url)
        return found.hostname or "", found.netloc
    except ValueError:
        return "", ""


async def _refuse(send: Send, status: int, why: str) -> None:
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(why) + 1).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"{why}\n".encode()})
