"""Logs in at an MCP server over HTTP with OAuth 2.1. Tokens are stored in the key file, like any other key.

The SDK implements the protocol: discovery, registration, PKCE, refresh. This module stores tokens and asks the user.
"""

import asyncio
import re
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
import msgspec
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import BaseModel

from evener.errors import TimedOut, UsageError
from evener.mcp.config import McpServer
from evener.providers.keys import read_keys, remove_keys, store_key
from evener.transport.secrets import note_secret

Visit = Callable[[str], Awaitable[str]]
"""Takes the user to an address; returns the one that the browser was sent back to, with the code."""
PORT = 33_418
"""Where the browser is sent back to, on this machine: registered with the provider, so it stays the same."""
REDIRECT = f"http://127.0.0.1:{PORT}/callback"
LOGIN_SECONDS = 300.0
MOST_REQUEST = 16 * 1024
REQUEST_SECONDS = 10.0
REVOKE_SECONDS = 10.0
REFUSED = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nDone. You can close this window.\n"


class _Kept(msgspec.Struct):
    """What is kept for one server, as one value of the key file. `expires` is a time; `issuer` and `resource` are what the
    authorization server and the MCP server say of themselves: where a token is refreshed, and what for.
    """

    tokens: dict[str, object] | None = None
    client: dict[str, object] | None = None
    expires: float = 0.0
    issuer: dict[str, object] | None = None
    resource: dict[str, object] | None = None


class KeyFileTokens:
    """The SDK's storage of tokens, in our key file (mode 0600) under a name made of the server's name and address.

    With a `redirect`, a registration for another address counts as none: the provider would refuse it.
    """

    def __init__(self, server: McpServer, file: Path, *, redirect: str = "") -> None:
        self._file = file
        self._redirect = redirect
        mark = sha256(server.url.encode()).hexdigest()[:8]
        self._variable = f"MCP_{re.sub('[^A-Z0-9]', '_', server.name.upper())}_{mark.upper()}"
        self.context: OAuthContext | None = None
        """What the SDK knows of the servers, once it has asked them."""

    async def get_tokens(self) -> OAuthToken | None:
        """Return the stored tokens, if there are any."""
        found = self._read().tokens
        if found is None:
            return None
        tokens = OAuthToken.model_validate(found)
        note_secret(tokens.access_token, tokens.refresh_token or "")
        return tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store the tokens, with everything that another process needs to refresh them."""
        note_secret(tokens.access_token, tokens.refresh_token or "")
        kept = self._read()
        kept.tokens = tokens.model_dump(mode="json", exclude_none=True)
        kept.expires = time.time() + tokens.expires_in if tokens.expires_in else 0.0
        if self.context is not None:
            kept.issuer = _dump(self.context.oauth_metadata) or kept.issuer
            kept.resource = _dump(self.context.protected_resource_metadata) or kept.resource
        self._write(kept)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return our client registration at the provider, if there is one."""
        found = self._read().client
        if found is None:
            return None
        client = OAuthClientInformationFull.model_validate(found)
        return client if not self._redirect or self._redirect in map(str, client.redirect_uris or ()) else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store our client registration at the provider."""
        kept = self._read()
        kept.client = client_info.model_dump(mode="json", exclude_none=True)
        self._write(kept)

    def restore(self, context: OAuthContext) -> None:
        """Give the SDK the metadata that an earlier process found."""
        self.context, kept = context, self._read()
        if kept.tokens is None:
            return
        context.token_expiry_time = kept.expires or None
        if kept.issuer is not None:
            context.oauth_metadata = OAuthMetadata.model_validate(kept.issuer)
        if kept.resource is not None:
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(kept.resource)

    def forget(self) -> "_Kept | None":
        """Remove everything that is stored, and return it."""
        kept = self._read()
        return kept if remove_keys(self._file, (self._variable,)) else None

    def _read(self) -> _Kept:
        found = read_keys(self._file).get(self._variable)
        try:
            return _Kept() if found is None else msgspec.json.decode(urlsafe_b64decode(found), type=_Kept)
        except (ValueError, msgspec.DecodeError):
            return _Kept()  # not ours: the user logs in again

    def _write(self, kept: _Kept) -> None:
        store_key(self._file, self._variable, urlsafe_b64encode(msgspec.json.encode(kept)).decode())


def _dump(found: BaseModel | None) -> dict[str, object] | None:
    return found.model_dump(mode="json", exclude_none=True) if found is not None else None


class _Login(OAuthClientProvider):
    """The SDK's class, which forgets at the end of the process when a token expires and where to refresh it."""

    async def _initialize(self) -> None:
        await super()._initialize()
        assert isinstance(self.context.storage, KeyFileTokens)
        self.context.storage.restore(self.context)


async def log_out(server: McpServer, file: Path) -> bool:
    """Remove the tokens, and revoke them if the authorization server supports it. False if there were none."""
    kept = KeyFileTokens(server, file).forget()
    if kept is None:
        return False
    where = (kept.issuer or {}).get("revocation_endpoint")
    token, client = (kept.tokens or {}).get("refresh_token"), (kept.client or {}).get("client_id")
    if isinstance(where, str) and isinstance(token, str) and isinstance(client, str):
        with suppress(httpx2.HTTPError):  # they are gone from here in any case
            async with httpx2.AsyncClient(timeout=REVOKE_SECONDS) as sender:
                await sender.post(where, data={"token": token, "token_type_hint": "refresh_token", "client_id": client})
    return True


def log_in(
    server: McpServer,
    *,
    file: Path,
    visit: Visit | None = None,
    redirect: str = REDIRECT,
    client_metadata_url: str | None = None,
) -> OAuthClientProvider:
    """Return an `httpx2` auth that logs in when the server asks for it: with stored tokens, else in the browser.

    `visit` opens an address for the user, who is redirected to `redirect`. Without `visit` only stored tokens are used.
    """
    landed: list[str] = []

    async def go(url: str) -> None:
        if visit is None:
            raise UsageError(f"it wants a login. Run: evener mcp login {server.name}")
        landed[:] = [await asyncio.wait_for(visit(url), LOGIN_SECONDS)]

    async def come_back() -> AuthorizationCodeResult:
        found = parse_qs(urlsplit(landed.pop() if landed else "").query)
        if "code" not in found:
            why = found.get("error_description", found.get("error", ["no code came back"]))[0]
            raise UsageError(f"The login at the MCP server {server.name!r} failed: {why[:500]}.")
        state, issuer = found.get("state", [None])[0], found.get("iss", [None])[0]
        return AuthorizationCodeResult(code=found["code"][0], state=state, iss=issuer)

    metadata = OAuthClientMetadata.model_validate(
        {
            "client_name": "Evener",
            "redirect_uris": [redirect],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
        }
    )
    return _Login(
        server_url=server.url,
        client_metadata=metadata,
        storage=KeyFileTokens(server, file, redirect=redirect if visit else ""),
        redirect_handler=go,
        callback_handler=come_back,
        client_metadata_url=client_metadata_url,
    )


async def listen_for_redirect(show: Callable[[str], None], url: str, *, port: int = PORT) -> str:
    """Show the address to the user, and return the address to which the browser is redirected on loopback.

    A request with another `state` is refused, so that no other page can end the login.
    """
    loop = asyncio.get_running_loop()
    landed: asyncio.Future[str] = loop.create_future()
    state = parse_qs(urlsplit(url).query).get("state")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ValueError, OSError, TimeoutError):
            line = await asyncio.wait_for(reader.readline(), REQUEST_SECONDS)
            words = line.decode("ascii", "replace").split()
            parts = urlsplit(words[1] if len(words) > 1 else "")
            fits = parts.path == "/callback" and parse_qs(parts.query).get("state") == state
            writer.write(PAGE if fits else REFUSED)
            await writer.drain()
            if fits and not landed.done():
                landed.set_result(words[1])
        writer.close()

    try:
        server = await asyncio.start_server(serve, "127.0.0.1", port, limit=MOST_REQUEST)
    except OSError as error:
        raise UsageError(
            f"Port {port} of this machine, which the browser is redirected to, is not free ({error.strerror}). End the program "
            "that uses it, or choose another port with --port."
        ) from None
    async with server:
        show(url)
        try:
            return await asyncio.wait_for(landed, LOGIN_SECONDS)
        except TimeoutError:
            raise TimedOut(f"No login came back within {LOGIN_SECONDS:g} seconds. Try again.") from None
