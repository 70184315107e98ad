"""Commands that serve a harness to another program: over MCP, or to an editor over ACP. Nothing but the protocol is printed."""

import asyncio

import msgspec

from evener.cli.commands.run import RunOptions, make_harness
from evener.errors import UsageError

__all__ = ["ServeOptions", "serve_editor", "serve_mcp"]


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `evener mcp` and `evener acp`."""

    model: str = ""
    system: str = ""
    tools: tuple[str, ...] = ()
    mcp: tuple[str, ...] = ()
    harness: str = ""
    store: str = ""
    http: int | None = None
    approve: bool = False

    @property
    def run(self) -> RunOptions:
        """The same, for a run."""
        return RunOptions(
            model=self.model, system=self.system, tools=self.tools, mcp=self.mcp, harness=self.harness, store=self.store
        )


def serve_mcp(options: ServeOptions) -> int:
    """Serve until the input ends, or the process is interrupted."""
    try:
        from evener.mcp.server import serve_http, serve_stdio
    except ImportError as error:
        raise UsageError(f"To serve MCP needs the package `mcp` ({error}). Install it: pip install 'evener[mcp]'.") from None
    harness = make_harness(options.run)
    if options.http is None:
        asyncio.run(serve_stdio(harness, approve=options.approve))
    else:
        asyncio.run(serve_http(harness, port=options.http, approve=options.approve))
    return 0


def serve_editor(options: ServeOptions) -> int:
    """Serve an editor over ACP until the input ends."""
    from evener.acp import serve_acp

    asyncio.run(serve_acp(make_harness(options.run)))
    return 0
