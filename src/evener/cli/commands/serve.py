"""Commands that serve a harness to another program: over MCP, to an editor over ACP, or to web pages.

Over pipes, nothing but the protocol is printed.
"""

import asyncio
import os
from contextlib import suppress

from evener.cli.approvals import user_name
from evener.cli.commands.run import AgentOptions, make_harness
from evener.cli.outside import load_outside
from evener.cli.terminal import say
from evener.errors import UsageError
from evener.harness import Harness


class ServeOptions(AgentOptions, frozen=True, kw_only=True):
    """The options of `evener mcp`, `evener acp` and `evener serve`."""

    http: int | None = None
    approve: bool = False
    port: int = 0
    origins: tuple[str, ...] = ()
    token: str = ""
    action: str = ""
    server: str = ""
    no_browser: bool = False


def serve_mcp(options: ServeOptions) -> int:
    """Serve until the input ends or the process is interrupted; or log in to, or out of, a remote server."""
    if options.action:
        from evener.cli.login import log_in_or_out

        return log_in_or_out(options.action, options.server, port=options.port, browser=not options.no_browser)
    try:
        from evener.mcp.server import serve_http, serve_stdio
    except ImportError as error:
        raise UsageError(f"Serving MCP needs the package `mcp` ({error}). Install it: pip install 'evener[mcp]'.") from None
    harness = make_harness(options)
    if options.http is None:
        asyncio.run(serve_stdio(harness, approve=options.approve))
        return 0

    def tell(url: str) -> None:
        say(f"evener: Serving MCP at {url}. Ctrl-C ends it.")

    with suppress(KeyboardInterrupt):
        asyncio.run(serve_http(harness, port=options.http, approve=options.approve, ready=tell))
    return 0


def serve_editor(options: ServeOptions) -> int:
    """Serve an editor over ACP until the input ends."""
    from evener.acp import serve_acp

    if options.harness:
        asyncio.run(serve_acp(make_harness(options)))
        return 0
    outside = load_outside(options.mcp, skills=options.skills, agents_md=options.agents_md, model=options.model)
    first = make_harness(options, outside=outside)  # what is wrong with the options is said before an editor asks
    made: dict[str, Harness] = {}

    def at(cwd: str) -> Harness:
        """Return the harness for the folder that the editor has open: tools work there, and rules about paths begin there."""
        if cwd not in made:
            made[cwd] = make_harness(options, store=first.store, root=cwd, outside=outside)
        return made[cwd]

    asyncio.run(serve_acp(at))
    return 0


def serve_pages(options: ServeOptions) -> int:
    """Serve web pages until Ctrl-C."""
    try:
        from evener.web.app import serve_web
    except ImportError:
        raise UsageError("Serving web pages needs Starlette. Install it: pip install 'evener[web]'.") from None
    token = os.environ.get(options.token, "") if options.token else ""
    if options.token and not token:
        raise UsageError(
            f"--token names the environment variable {options.token}, which is not set. Set it to a long random text."
        )

    def tell(url: str) -> None:
        say(f"evener: Serving {url}/api/chat (UI message stream) and {url}/ag-ui (AG-UI). Ctrl-C ends it.")

    served = serve_web(
        make_harness(options), port=options.port, origins=options.origins, token=token, by=user_name() or "web", ready=tell
    )
    with suppress(KeyboardInterrupt):
        asyncio.run(served)
    return 0
