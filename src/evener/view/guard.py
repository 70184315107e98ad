"""Access control of the viewer. A request needs the token, the viewer's own Host and, if it changes something, the viewer's own
Origin. All others get status 403.

The token is the first part of the path, so nothing is served without it. A page of another site does not know the token, and
with DNS rebinding its Host is refused. A browser that follows a link from another site gets only the page. It must get
that much, because `evener view` opens the address through a local file, which counts as another site.
"""

import hmac

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_BODY = 4 * 1024 * 1024
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    (b"cache-control", b"no-store"),
)
REFUSED = "Refused. Open the address that `evener view` printed.\n"


class Guard:
    """Checks requests before the app gets them. `port` is that of the server."""

    def __init__(self, app: ASGIApp, *, token: str, port: int) -> None:
        self._app = app
        self._token = token.encode()
        self._hosts = {f"{name}:{port}".encode() for name in ("127.0.0.1", "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http" or not self._may_pass(scope):
            await PlainTextResponse(REFUSED, 403)(scope, receive, _with_headers(send))
            return
        path = "/" + _read_quoted_path(scope).split("/", 2)[2]  # still quoted: the id of a thread may contain a slash
        await self._app({**scope, "path": path, "raw_path": path.encode()}, receive, _with_headers(send))

    def _may_pass(self, scope: Scope) -> bool:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        host = headers.get(b"host", b"")
        given = _read_quoted_path(scope).split("/", 2)
        if host not in self._hosts or len(given) < 3 or not hmac.compare_digest(given[1].encode(), self._token):
            return False
        origin = headers.get(b"origin")
        if origin is not None and origin != b"http://" + host:
            return False
        own = headers.get(b"sec-fetch-site", b"none") in (b"same-origin", b"none")
        if not own and not (scope["method"] == "GET" and given[2] == "" and _is_followed(headers)):
            return False
        return scope["method"] in ("GET", "HEAD") or (scope["method"] == "POST" and _is_ours(headers))


def _read_quoted_path(scope: Scope) -> str:
    return bytes(scope["raw_path"]).decode("latin-1")


def _is_followed(headers: dict[bytes, bytes]) -> bool:
    """True if the browser opens the address in a tab, as after a click. The site with the link cannot read the response."""
    return headers.get(b"sec-fetch-mode") == b"navigate" and headers.get(b"sec-fetch-dest") == b"document"


def _is_ours(headers: dict[bytes, bytes]) -> bool:
    """True if our own page sent this request. A form, or a page of another site, cannot send it with these headers."""
    length = headers.get(b"content-length", b"")
    return (
        b"origin" in headers
        and headers.get(b"content-type", b"").split(b";")[0] == b"application/json"
        and length.isdigit()
        and int(length) <= LARGEST_BODY
    )


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = {name for name, _ in message["headers"]}
            message = {**message, "headers": [*message["headers"], *(one for one in HEADERS if one[0] not in given)]}
        await send(message)

    return sending
