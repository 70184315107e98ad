"""A strict authorization server on loopback, and an MCP server that wants its tokens (RFC 7009, 7591, 7636, 8707, 9728)."""

import json
import re
import secrets
import threading
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.mcp.test_http import Shaky

__all__ = ["Authority", "guarded"]


class Authority:
    """What the authorization server knows. `faults` says what it refused, `seen` which grants it gave.

    `life` is how long a token is said to live, in seconds. It does live until `expire`: a busy machine may need it for longer.
    """

    def __init__(self) -> None:
        self.url = self.resource = ""
        self.life = 3_600.0
        self.clients: dict[str, list[str]] = {}
        self.codes: dict[str, dict[str, str]] = {}
        self.access: set[str] = set()
        self.refresh: dict[str, str] = {}
        self.faults: list[str] = []
        self.seen: list[str] = []

    def metadata(self) -> dict[str, object]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/oauth/token",
            "registration_endpoint": f"{self.url}/register",
            "revocation_endpoint": f"{self.url}/revoke",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": True,
        }

    def register(self, asked: dict[str, object]) -> dict[str, object]:
        uris = asked.get("redirect_uris")
        if not isinstance(uris, list) or not all(re.match(r"http://127\.0\.0\.1:\d+/", str(one)) for one in uris):
            return self._refuse("invalid_redirect_uri", str(uris))
        id = f"client-{len(self.clients)}"
        self.clients[id] = [str(one) for one in uris]
        return {**asked, "client_id": id, "token_endpoint_auth_method": "none"}

    def authorize(self, given: dict[str, str]) -> str | None:
        """Return where the browser goes; None if the request is refused."""
        rules = {
            "response_type": given.get("response_type") == "code",
            "redirect_uri": given.get("redirect_uri") in self.clients.get(given.get("client_id", ""), []),
            "code_challenge_method": given.get("code_challenge_method") == "S256",
            "code_challenge": bool(re.fullmatch(r"[A-Za-z0-9_-]{43}", given.get("code_challenge", ""))),
            "state": len(given.get("state", "")) >= 16,
            "resource": given.get("resource") == self.resource,
        }
        wrong = [name for name, holds in rules.items() if not holds]
        if wrong:
            self.faults.append(f"authorize: {', '.join(wrong)}")
            return None
        code = secrets.token_urlsafe(16)
        self.codes[code] = given
        return f"{given['redirect_uri']}?{urlencode({'code': code, 'state': given['state'], 'iss': self.url})}"

    def grant(self, given: dict[str, str]) -> dict[str, object]:
        if given.get("resource") != self.resource:
            return self._refuse("invalid_target", str(given.get("resource")))
        match given.get("grant_type"):
            case "authorization_code":
                asked = self.codes.pop(given.get("code", ""), None)
                made = urlsafe_b64encode(sha256(given.get("code_verifier", "").encode()).digest()).rstrip(b"=").decode()
                same = asked is not None and all(asked[name] == given.get(name) for name in ("client_id", "redirect_uri"))
                if asked is None or not same or asked["code_challenge"] != made:
                    return self._refuse("invalid_grant", "the code, its client, its address or its verifier")
            case "refresh_token":
                if self.refresh.pop(given.get("refresh_token", ""), None) != given.get("client_id"):
                    return self._refuse("invalid_grant", "the refresh token was used before, or is another client's")
            case other:
                return self._refuse("unsupported_grant_type", str(other))
        self.seen.append(given["grant_type"])
        access, refresh = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self.access.add(access)
        self.refresh[refresh] = given["client_id"]
        return {
            "access_token": access,
            "token_type": "Bearer",
            "expires_in": int(self.life),
            "refresh_token": refresh,
        }

    def expire(self) -> None:
        """Take no token that was given so far."""
        self.access.clear()

    def revoke(self, given: dict[str, str]) -> None:
        self.refresh.pop(given.get("token", ""), None)
        self.seen.append("revoked")

    def _refuse(self, error: str, why: str) -> dict[str, object]:
        self.faults.append(f"{error}: {why}")
        return {"error": error, "error_description": why}


class _Issuer(BaseHTTPRequestHandler):
    authority: Authority

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == "/.well-known/oauth-authorization-server":
            return self._send(200, self.authority.metadata())
        if parts.path != "/authorize":
            return self._send(404, {})
        where = self.authority.authorize(_single(parts.query))
        if where is None:
            return self._send(400, {"error": "invalid_request"})
        self.send_response(302)
        self.send_header("location", where)
        self.send_header("content-length", "0")
        return self.end_headers()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        if self.path == "/register":
            made = self.authority.register(json.loads(body))
            return self._send(400 if "error" in made else 201, made)
        if self.path == "/revoke":
            self.authority.revoke(_single(body))
            return self._send(200, {})
        made = self.authority.grant(_single(body)) if self.path == "/oauth/token" else {"error": "not_found"}
        return self._send(400 if "error" in made else 200, made)

    def _send(self, status: int, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class _Guarded(Shaky, BaseHTTPRequestHandler):
    """An MCP server that answers only with a token that is not expired."""

    authority: Authority

    def do_POST(self) -> None:
        token = self.headers.get("authorization", "").removeprefix("Bearer ")
        if token in self.authority.access:
            return super().do_POST()
        self.rfile.read(int(self.headers["content-length"]))
        about = self.authority.resource.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
        self.send_response(401)
        self.send_header("www-authenticate", f'Bearer resource_metadata="{about}"')
        self.send_header("content-length", "0")
        return self.end_headers()

    def do_GET(self) -> None:
        if self.path == "/.well-known/oauth-protected-resource/mcp":
            return self._send(200, {"resource": self.authority.resource, "authorization_servers": [self.authority.url]})
        return super().do_GET()


def _single(query: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(query).items() if len(values) == 1}


@contextmanager
def guarded() -> Iterator[Authority]:
    """Serve both, on two ports; the MCP server is at `resource`."""
    authority = Authority()
    made = {"authority": authority}
    kinds = (type("Issuer", (_Issuer,), made), type("Resource", (_Guarded,), {**made, "plan": [], "sessions": []}))
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), kinds[0]) as issuer,
        ThreadingHTTPServer(("127.0.0.1", 0), kinds[1]) as resource,
    ):
        authority.url = f"http://127.0.0.1:{issuer.server_port}"
        authority.resource = f"http://127.0.0.1:{resource.server_port}/mcp"
        for one in (issuer, resource):
            one.daemon_threads = True
            threading.Thread(target=one.serve_forever, args=(0.01,), daemon=True).start()
        yield authority
        issuer.shutdown()
        resource.shutdown()
