"""A harness as an MCP server: its tools, and its conversations as one more tool. Over stdio, or over HTTP on loopback.

The policy of the harness applies: what it denies is refused. Calls that need approval are refused, too, because a caller
over MCP is not the user; `approve` allows them.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial

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
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    ToolAnnotations,
)
from mcp_types import Tool as ServedTool

from evener import __version__
from evener.errors import EvenerError
from evener.harness import Harness
from evener.observe.trace_context import join_trace, parse_traceparent
from evener.streaming import ToolStarted
from evener.tools.context import Progress, call_on
from evener.tools.result import Envelope
from evener.tools.spill import READER
from evener.tools.tool import Tool
from evener.transcript.blocks import ImageBlock, Inline, ResultContent, TextBlock, ToolCall
from evener.transcript.mint import new_id
from evener.transport.loopback import open_socket

TELL_SECONDS = 5.0
"""How long a caller that takes no progress can hold up its own result."""
Context = ServerRequestContext[object]
ASK = "ask"
ASK_SCHEMA = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string", "description": "what to do"},
        "thread": {"type": "string", "description": "the thread of an earlier answer, to go on with it"},
    },
    "required": ["prompt"],
}


def make_server(harness: Harness, *, approve: bool = False) -> Server[object]:
    """Return the server. Its name is that of the harness; the tool that runs the agent is `ask_name`."""
    own = harness.name or "evener"
    ask = f"{ASK}_{own}"
    served = {one.name: one for one in harness.tools.values() if one.name not in (READER, ask)}

    async def list_tools(context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        del context, params
        agent = ServedTool(
            name=ask, description=f"Hand a task to the agent {own!r} and return its answer.", input_schema=ASK_SCHEMA
        )
        return ListToolsResult(tools=[*map(_describe, served.values()), agent])

    async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult:
        given = params.arguments or {}
        if params.name != ask and params.name not in served:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name}")
        with _trace_of(params):
            async with _report_progress(context) as report:
                if params.name == ask:
                    return await _ask(harness, given, report)
                call = ToolCall(new_id(), params.name, msgspec.json.encode(given).decode())
                return _result(await harness.call(call, approve=approve, report=report))

    return Server(
        own,
        version=__version__,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=_list_no_prompts,
        on_list_resources=_list_no_resources,
        on_list_resource_templates=_list_no_templates,
    )


# A harness has none of these. Clients that ask all the same get an empty list instead of an error.


async def _list_no_prompts(_: Context, __: PaginatedRequestParams | None) -> ListPromptsResult:
    return ListPromptsResult(prompts=[])


async def _list_no_resources(_: Context, __: PaginatedRequestParams | None) -> ListResourcesResult:
    return ListResourcesResult(resources=[])


async def _list_no_templates(_: Context, __: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
    return ListResourceTemplatesResult(resource_templates=[])


@asynccontextmanager
async def _report_progress(context: Context) -> AsyncIterator[Callable[[Progress], None]]:
    """Yield a function that reports progress to the caller, from any thread. All of it is sent, in order, before the result."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[Progress | None] = asyncio.Queue()

    async def send() -> None:
        last = -1.0
        while (one := await waiting.get()) is not None:
            told, total = (last + 1, None) if one.fraction is None else (one.fraction, 1.0)
            if told > last:  # the protocol wants it to rise
                await context.session.report_progress(told, total, one.text or None)
                last = told

    sending = asyncio.create_task(send())
    try:
        yield lambda one: call_on(loop, partial(waiting.put_nowait, one))
    finally:
        loop.call_soon(waiting.put_nowait, None)
        await asyncio.wait((sending,), timeout=TELL_SECONDS)
        sending.cancel()


async def serve_stdio(harness: Harness, *, approve: bool = False) -> None:
    """Serve over standard input and output until the input ends."""
    server = make_server(harness, approve=approve)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def serve_http(
    harness: Harness, *, port: int, approve: bool = False, ready: Callable[[str], None] = lambda _url: None
) -> None:
    """Serve over HTTP at /mcp on loopback, at `port`, or at a free one for 0. `ready` is called with the address.

    Requests for another host name are refused (DNS rebinding).
    """
    import uvicorn

    with open_socket(port) as listening:
        app = make_server(harness, approve=approve).streamable_http_app(host="127.0.0.1")
        # h11 strips the white space around a header's value, as RFC 9110 wants; httptools leaves what follows it.
        config = uvicorn.Config(app, log_level="critical", access_log=False, timeout_graceful_shutdown=5, http="h11")
        ready(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp")
        await uvicorn.Server(config).serve(sockets=[listening])


def _trace_of(params: CallToolRequestParams) -> AbstractContextManager[object]:
    """Return a context that joins the caller's trace. An invalid `traceparent` is ignored."""
    given = str(dict(params.meta or {}).get("traceparent", ""))
    return join_trace(given) if parse_traceparent(given) else nullcontext()


def _describe(tool: Tool) -> ServedTool:
    hints = ToolAnnotations(read_only_hint=tool.effect == "read", idempotent_hint=tool.effect != "write")
    return ServedTool(name=tool.name, description=tool.description, input_schema=tool.spec.input_schema, annotations=hints)


async def _ask(harness: Harness, given: Mapping[str, object], report: Callable[[Progress], None]) -> CallToolResult:
    """Run the agent; each tool call is reported as progress.

    If it waits for approval, the result names the thread to decide in.
    """
    prompt, thread = given.get("prompt"), given.get("thread", "")
    if not isinstance(prompt, str) or not isinstance(thread, str) or not prompt:
        raise MCPError(INVALID_PARAMS, "`prompt` must be a text, and `thread` too if it is given.")
    try:
        async with harness.stream(prompt, thread=thread) as stream:
            async for event in stream:
                if isinstance(event, ToolStarted):
                    report(Progress(event.call.id, event.call.name))
            result = await stream.result()
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
