"""Logs in at an MCP server over HTTP, as OAuth 2.1 wants it. Tokens are kept in the key file, like any other key.

The SDK does the protocol: discovery, registration, PKCE, refresh. Ours is where tokens are kept and how the user is asked.
"""

import asyncio
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from evener.errors import TimedOut, UsageError
from evener.mcp.config import McpServer
from evener.providers.keys import read_keys, store_key
from evener.transport.secrets import note_secret

__all__ = ["KeyFileTokens", "listen_for_redirect", "log_in"]

Visit = Callable[[str], Awaitable[str]]
"""Takes the user to an address; returns the one that the browser was sent back to, with the code."""
PORT = 33_418
"""Where the browser is sent back to, on this machine: registered with the provider, so it stays the same."""
REDIRECT = f"http://127.0.0.1:{PORT}/callback"
LOGIN_SECONDS = 300.0
MOST_REQUEST = 16 * 1024
PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nDone. You can close this window.\n"


class _Kept(msgspec.Struct):
    """What is kept for one server, as one value of the key file."""

    tokens: dict[str, object] | None = None
    client: dict[str, object] | None = None


class KeyFileTokens:
    """The SDK's storage of tokens, in our key file (mode 0600) under a name made of the server's name and address."""

    def __init__(self, server: McpServer, file: Path) -> None:
        self._file = file
        mark = sha256(server.url.encode()).hexdigest()[:8]
        self._variable = f"MCP_{re.sub('[^A-Z0-9]', '_', server.name.upper())}_{mark.upper()}"

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens, if there are some."""
        found = self._read().tokens
        if found is None:
            return None
        tokens = OAuthToken.model_validate(found)
        note_secret(tokens.access_token, tokens.refresh_token or "")
        return tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep the tokens."""
        note_secret(tokens.access_token, tokens.refresh_token or "")
        kept = self._read()
        kept.tokens = tokens.model_dump(mode="json", exclude_none=True)
        self._write(kept)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return what the provider knows us as, if it does."""
        found = self._read().client
        return None if found is None else OAuthClientInformationFull.model_validate(found)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep what the provider knows us as."""
        kept = self._read()
        kept.client = client_info.model_dump(mode="json", exclude_none=True)
        self._write(kept)

    def _read(self) -> _Kept:
        found = read_keys(self._file).get(self._variable)
        try:
            return _Kept() if found is None else msgspec.json.decode(urlsafe_b64decode(found), type=_Kept)
        except (ValueError, msgspec.DecodeError):
            return _Kept()  # not ours: the user logs in again

    def _write(self, kept: _Kept) -> None:
        store_key(self._file, self._variable, urlsafe_b64encode(msgspec.json.encode(kept)).decode())


def log_in(server: McpServer, *, file: Path, visit: Visit, client_metadata_url: str | None = None) -> OAuthClientProvider:
    """Return what logs in at a server when it asks for that: with kept tokens, else by a visit of the user."""
    landed: list[str] = []

    async def go(url: str) -> None:
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
            "redirect_uris": [REDIRECT],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
        }
    )
    return OAuthClientProvider(
        server_url=server.url,
        client_metadata=metadata,
        storage=KeyFileTokens(server, file),
        redirect_handler=go,
        callback_handler=come_back,
        client_metadata_url=client_metadata_url,
    )


async def listen_for_redirect(show: Callable[[str], None], url: str) -> str:
    """Show the address to the user, and return the one that the browser comes back with, on loopback."""
    loop = asyncio.get_running_loop()
    landed: asyncio.Future[str] = loop.create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readline())[:MOST_REQUEST].decode("ascii", "replace").split()
        writer.write(PAGE)
        await writer.drain()
        writer.close()
        if len(line) > 1 and line[1].startswith("/callback") and not landed.done():
            landed.set_result(line[1])

    server = await asyncio.start_server(serve, "127.0.0.1", PORT, limit=MOST_REQUEST)
    async with server:
        show(url)
        try:
            return await asyncio.wait_for(landed, LOGIN_SECONDS)
        except TimeoutError:
            raise TimedOut(f"No login came back within {LOGIN_SECONDS:g} seconds. Try again.") from None
