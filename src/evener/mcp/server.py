"""A harness as an MCP server: its tools, and its conversations as one more tool. Over stdio, or over HTTP on loopback.

The policy of the harness holds: what it denies is refused. What it would ask about is refused, too, because a caller over MCP
is not the user; `approve` allows that.
"""

from collections.abc import Mapping

import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    ImageContent,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    ToolAnnotations,
)
from mcp_types import Tool as ServedTool

from evener import __version__
from evener.errors import EvenerError
from evener.harness import Harness
from evener.tools.result import Envelope
from evener.tools.spill import READER
from evener.tools.tool import Tool
from evener.transcript.blocks import ImageBlock, Inline, ResultContent, TextBlock, ToolCall
from evener.transcript.mint import new_id

__all__ = ["make_server", "serve_http", "serve_stdio"]

ASK = "ask"
ASK_SCHEMA = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string", "description": "what to do"},
        "thread": {"type": "string", "description": "the thread of an earlier answer, to go on with it"},
    },
    "required": ["prompt"],
}


def make_server(harness: Harness, *, name: str = "", approve: bool = False) -> Server[object]:
    """Return the server. `name` is what it calls itself, and what the tool that runs the agent is called: `ask_name`."""
    own = name or harness.name or "evener"
    ask = f"{ASK}_{own}"
    served = {one.name: one for one in harness.tools.values() if one.name not in (READER, ask)}

    async def list_tools(context: ServerRequestContext[object], params: PaginatedRequestParams | None) -> ListToolsResult:
        del context, params
        agent = ServedTool(
            name=ask, description=f"Hand a task to the agent {own!r} and return its answer.", input_schema=ASK_SCHEMA
        )
        return ListToolsResult(tools=[*map(_describe, served.values()), agent])

    async def call_tool(context: ServerRequestContext[object], params: CallToolRequestParams) -> CallToolResult:
        del context
        given = params.arguments or {}
        if params.name == ask:
            return await _ask(harness, given)
        if params.name not in served:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name}")
        call = ToolCall(new_id(), params.name, msgspec.json.encode(given).decode())
        return _result(await harness.call(call, approve=approve))

    return Server(own, version=__version__, on_list_tools=list_tools, on_call_tool=call_tool)


async def serve_stdio(harness: Harness, *, name: str = "", approve: bool = False) -> None:
    """Serve over standard input and output until the input ends."""
    server = make_server(harness, name=name, approve=approve)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def serve_http(harness: Harness, *, port: int, name: str = "", approve: bool = False) -> None:
    """Serve over HTTP at /mcp on loopback. Requests that name another host are refused (DNS rebinding)."""
    import uvicorn

    app = make_server(harness, name=name, approve=approve).streamable_http_app(host="127.0.0.1")
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning", timeout_graceful_shutdown=5)
    await uvicorn.Server(config).serve()


def _describe(tool: Tool) -> ServedTool:
    hints = ToolAnnotations(read_only_hint=tool.effect == "read", idempotent_hint=tool.effect != "write")
    return ServedTool(name=tool.name, description=tool.description, input_schema=tool.spec.input_schema, annotations=hints)


async def _ask(harness: Harness, given: Mapping[str, object]) -> CallToolResult:
    """Run the agent. What waits for approval is told, with the thread in which it can be decided."""
    prompt, thread = given.get("prompt"), given.get("thread", "")
    if not isinstance(prompt, str) or not isinstance(thread, str) or not prompt:
        raise MCPError(INVALID_PARAMS, "`prompt` must be a text, and `thread` too if it is given.")
    try:
        result = await harness.run(prompt, thread=thread)
    except EvenerError as error:
        return CallToolResult(content=[TextContent(text=str(error))], is_error=True)
    text = result.text if result.ok else f"Stopped ({result.stop}). {result.detail} {result.text}".strip()
    told = {"thread": result.thread, "stop": result.stop}
    return CallToolResult(content=[TextContent(text=text)], structured_content=told, is_error=not result.ok)


def _result(envelope: Envelope) -> CallToolResult:
    return CallToolResult(content=[_block(block) for block in envelope.content], is_error=not envelope.ok)


def _block(block: ResultContent) -> ContentBlock:
    match block:
        case TextBlock():
            return TextContent(text=block.text)
        case ImageBlock(source=Inline(data=data)):
            return ImageContent(data=data, mime_type=block.media_type)
    return TextContent(text=f"[{block.kind}]")
