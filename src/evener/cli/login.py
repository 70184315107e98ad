"""`evener mcp login` and `logout`: OAuth at an MCP server over HTTP. Tokens are in the key file, and are never printed."""

import asyncio
import os
import webbrowser
from pathlib import Path
from threading import Thread

from msgspec.structs import replace

from evener.cli.terminal import count, escape, say
from evener.errors import UsageError
from evener.mcp import McpServer, McpServers, find_servers
from evener.providers.config import load_config
from evener.providers.keys import key_file


def log_in_or_out(action: str, name: str, *, port: int, browser: bool) -> int:
    """Log in or out, and print the result."""
    try:
        import evener.mcp.oauth
    except ImportError as error:
        raise UsageError(f"A login needs the package `mcp` ({error}). Install it: pip install 'evener[mcp]'.") from None
    server, file = _find(name, action), key_file(os.environ)
    if file is None:
        raise UsageError("There is no folder for the key file. Set HOME or XDG_CONFIG_HOME.")
    if action == "logout":
        there = asyncio.run(evener.mcp.oauth.log_out(server, file))
        say(f"evener: {'Logged out' if there else 'There was no login'} at {server.name}.")
        return int(not there)
    return asyncio.run(_log_in(server, file, port=port or evener.mcp.oauth.PORT, browser=browser))


def _find(name: str, action: str) -> McpServer:
    if not name:
        raise UsageError(f"Name the server: evener mcp {action} NAME. It is a table [mcp.NAME] of a config file.")
    found = find_servers((name,), load_config(environ=os.environ), environ=os.environ)
    if len(found) != 1 or not found[0].url:
        raise UsageError(f"{name!r} must name one MCP server with a url: only servers over HTTP have a login. Name another.")
    return found[0]


async def _log_in(server: McpServer, file: Path, *, port: int, browser: bool) -> int:
    from evener.mcp.oauth import LOGIN_SECONDS, listen_for_redirect, log_in

    def show(url: str) -> None:
        say(f"evener: Log in at {server.name} in your browser: {escape(url)}")
        if browser:
            # Some browsers are waited for, until they end: meanwhile the redirect must be answered.
            Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    async def visit(url: str) -> str:
        return await listen_for_redirect(show, url, port=port)

    # The user takes longer than a server that answers.
    patient = replace(
        server, oauth=True, timeout=server.timeout + LOGIN_SECONDS, connect_timeout=server.connect_timeout + LOGIN_SECONDS
    )
    redirect = f"http://127.0.0.1:{port}/callback"
    async with McpServers([patient], login=lambda one: log_in(one, file=file, visit=visit, redirect=redirect)) as servers:
        tools = await servers.load()
        if servers.problems and not tools:
            say("\n".join(f"evener: {one}" for one in servers.problems))
            return 1
    say(f"evener: Logged in at {server.name}, which has {count(len(tools), 'tool')}. The tokens are in {file}.")
    if not server.oauth:
        say(f"evener: Write oauth = true in [mcp.{server.name}], so that runs use them.")
    return 0
