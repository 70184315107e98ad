"""Access control of the app. A request needs an allowed Host, an allowed Origin and, if a token is set, that token.

A page of another site can send requests to this machine, but its browser adds its Origin. With DNS rebinding, its requests
have another Host.
"""

import hmac
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class WebGuard:
    """Checks requests before the app gets them. `hosts` are names without a port; `origins` are those of other pages, as
    browsers send them.
    """

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str] = LOOPBACK, origins: Iterable[str] = (), token: str = "") -> None:
        self._app = app
        self._hosts = frozenset(hosts)
        self._origins = frozenset(origins)
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, why = (200, "") if scope["type"] == "lifespan" else self._judge(scope)
        if status == 200:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            headers = {"www-authenticate": "Bearer"} if status == 401 else None
            await PlainTextResponse(f"{why}\n", status, headers)(scope, receive, send)

    def _judge(self, scope: Scope) -> tuple[int, str]:
        if scope["type"] != "http":
            return 403, ""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        host, origin = headers.get(b"host", b"").decode("latin-1"), headers.get(b"origin", b"").decode("latin-1")
        if _place_of(f"http://{host}")[0] not in self._hosts:
            return 403, "The app does not serve this host. Add it to `hosts` when you make the app."
        if origin and origin not in self._origins and _place_of(origin)[1] != host:
            return 403, "Pages of this origin are not allowed. Add it to `origins` when you make the app."
        if self._token and scope["method"] != "OPTIONS" and not self._knows(headers.get(b"authorization", b"")):
            return 401, "The bearer token is missing or wrong."
        return 200, ""

    def _knows(self, given: bytes) -> bool:
        scheme, _, token = given.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)


def _place_of(url: str) -> tuple[str, str]:
    """Return the host name of a URL, and the same with its port; empty if it is not a URL."""
    try:
        found = urlsplit(url)
        return found.hostname or "", found.netloc
    except ValueError:
        return "", ""
