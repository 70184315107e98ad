"""Several MCP servers as tools of a harness. Connects when tools are first needed; a failing server does not affect the
others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypedDict, TypeVar, cast

import msgspec

from evener.call_context import current_site
from evener.errors import EvenerError, TimedOut, UsageError, WireError
from evener.mcp.background import BackgroundLoop
from evener.mcp.config import McpServer
from evener.mcp.naming import name_tool
from evener.mcp.pins import MemoryPins, Pins, digest_tool
from evener.observe.trace_context import trace_header
from evener.tools.context import ToolContext
from evener.tools.result import Envelope, report_failure
from evener.tools.tool import Effect, Tool

if TYPE_CHECKING:  # the SDK is loaded with the first connection
    import httpx2
    from mcp import Client
    from mcp.client.session import ElicitationFnT, SamplingFnT
    from mcp_types import Prompt, RequestParamsMeta
    from mcp_types import Tool as ListedTool

    from evener.mcp.connection import McpConnection
    from evener.mcp.held_calls import HeldCall, HeldCalls
    from evener.transcript.blocks import ResultContent

T = TypeVar("T")
MOST_DESCRIPTION = 8_000
MOST_SHOWN = 40_000
"""Characters of schemas and descriptions: about 10,000 tokens of every request. More are hidden behind a search."""
CLOSE_SECONDS = 30.0
CHANGED = (
    "The tool {!r} of the MCP server {!r} is no longer as it was shown to you: the server has changed it. It was not called. "
    "A new conversation shows it as it is now, and asks the user before its first call."
)


STATELESS = "2026-07-28"
"""From this version on, a server that asks back ends the call, and expects it again with the answer."""
BUSY = (
    "The MCP server {!r} waits for the user's answer to a question of another call, or still works on that call. This call "
    "was not sent. Try again later."
)


class _Callbacks(TypedDict, total=False):
    elicit: ElicitationFnT
    sample: SamplingFnT


class Elicitation(msgspec.Struct, frozen=True):
    """A question of a server to the user: an answer that fits `schema`, or a visit to `url`."""

    server: str
    message: str
    schema: Mapping[str, object] = {}
    url: str = ""


class ResourceListing(msgspec.Struct, frozen=True):
    """A resource that a server offers."""

    server: str
    uri: str
    name: str
    description: str = ""
    media_type: str = ""


class PromptListing(msgspec.Struct, frozen=True):
    """A prompt that a server offers, with the names of its arguments, the required ones first."""

    server: str
    name: str
    description: str = ""
    arguments: tuple[str, ...] = ()


Answer = Callable[[Elicitation], Awaitable[Mapping[str, object] | None]]
"""Asks the user; None declines."""


class McpServers:
    """Servers by name. Pass `await load()` (or `load_sync()`) to a harness as tools; then `aclose`, or use it as a context
    manager.

    `pins` remembers the definitions of tools: a tool that has changed needs approval. `answer` forwards questions of servers
    to the user; without it they wait in the log for an answer, if the server may ask (`elicitation`), else they are
    declined. `login` creates the object that logs in at a server over HTTP (`evener.mcp.oauth`).
    """

    def __init__(
        self,
        servers: Iterable[McpServer],
        *,
        pins: Pins | None = None,
        answer: Answer | None = None,
        login: Callable[[McpServer], httpx2.Auth] | None = None,
        most_shown: int = MOST_SHOWN,
    ) -> None:
        self._most_shown = most_shown
        self._servers: dict[str, McpServer] = {}
        for one in servers:
            if one.name in self._servers:
                raise UsageError(f"Two MCP servers are named {one.name!r}. Give each a name of its own.")
            self._servers[one.name] = one
        self._pins = pins or MemoryPins()
        self._answer = answer
        self._login = login
        self._loop = BackgroundLoop("evener-mcp")
        self._connections: dict[str, McpConnection] = {}
        self._live: dict[str, dict[str, str]] = {}  # server -> tool -> digest, as last listed
        self._problems: dict[str, None] = {}
        self._calls: dict[str, HeldCalls] = {}  # server -> its calls, if it may ask back

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the servers."""
        return tuple(self._servers)

    @property
    def problems(self) -> tuple[str, ...]:
        """Sentences about what was left out so far: servers that could not be reached, tools that could not be read."""
        return tuple(self._problems)

    async def load(self) -> tuple[Tool, ...]:
        """Connect to all servers at once and return their tools. A server that cannot be reached is in `problems`.

        If the tools' descriptions have more characters than `most_shown`, the tools are hidden behind one that finds them.
        """
        found = await asyncio.gather(*(self._loop.run(self._load(one)) for one in self._servers.values()))
        return self._offer(tool for tools in found for tool in tools)

    def load_sync(self) -> tuple[Tool, ...]:
        """Load without an event loop; see `load`."""
        waiting = [self._loop.submit(self._load(one)) for one in self._servers.values()]
        return self._offer(tool for one in waiting for tool in one.result())

    def _offer(self, found: Iterable[Tool]) -> tuple[Tool, ...]:
        named: dict[str, Tool] = {}
        for one in found:
            if one.name in named:
                server, listed = one.metadata["mcp_server"], one.metadata["mcp_tool"]
                self._note(f"MCP server {server!r}: the tool {listed!r} was left out: another tool has its name, {one.name!r}.")
            named.setdefault(one.name, one)
        tools = tuple(named.values())
        if sum(len(one.schema) + len(one.description) for one in tools) <= self._most_shown:
            return tools
        from evener.tools.finding import hide_tools

        return hide_tools(tools)

    def accept(self, server: str) -> None:
        """Accept the changed tools of a server, after the user has checked them."""
        self._find(server)
        self._pins.write(server, self._live.get(server, {}))

    async def resources(self) -> tuple[ResourceListing, ...]:
        """Return the resources of all servers that have some."""
        from evener.mcp.listing import list_resources

        found = await self._each(list_resources)
        return tuple(
            ResourceListing(server, str(one.uri), one.name, one.description or "", one.mime_type or "")
            for server, listed in found
            for one in listed
        )

    async def read_resource(self, server: str, uri: str) -> tuple[ResultContent, ...]:
        """Return the content of a resource."""
        from evener.mcp.content import resource_block

        async def read(client: Client) -> tuple[ResultContent, ...]:
            return tuple(map(resource_block, (await client.read_resource(uri)).contents))

        return await self._loop.run(self._with(server, read))

    async def prompts(self) -> tuple[PromptListing, ...]:
        """Return the prompts of all servers that have some."""
        from evener.mcp.listing import list_prompts

        found = await self._each(list_prompts)
        return tuple(_describe_prompt(server, one) for server, listed in found for one in listed)

    async def get_prompt(self, server: str, name: str, arguments: Mapping[str, str]) -> tuple[tuple[str, ResultContent], ...]:
        """Return the messages of a prompt: who speaks (user or assistant), and the content."""
        from evener.mcp.content import block_of

        async def read(client: Client) -> tuple[tuple[str, ResultContent], ...]:
            found = await client.get_prompt(name, dict(arguments))
            return tuple((one.role, block_of(one.content)) for one in found.messages)

        return await self._loop.run(self._with(server, read))

    async def aclose(self) -> None:
        """End all connections and their processes."""
        if self._connections:
            await self._loop.run(self._close())
        await asyncio.get_running_loop().run_in_executor(None, self._loop.stop)

    def close(self) -> None:
        """Close without an event loop; see `aclose`."""
        if self._connections:
            self._loop.submit(self._close()).result(CLOSE_SECONDS)
        self._loop.stop()

    def __enter__(self) -> McpServers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> McpServers:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # On the loop of the servers.

    async def _close(self) -> None:
        await asyncio.gather(*(one.aclose() for one in self._calls.values()))
        connections, self._connections = self._connections, {}
        await asyncio.gather(*(one.aclose() for one in connections.values()))

    def _connection(self, server: McpServer) -> McpConnection:
        if server.name not in self._connections:
            try:
                from evener.mcp.connection import McpConnection
            except ImportError as error:
                raise UsageError(
                    f"MCP servers need the package `mcp` ({error}). Install it: pip install 'evener[mcp]'."
                ) from None
            login = self._login
            self._connections[server.name] = McpConnection(
                server,
                report=lambda text: self._note(f"MCP server {server.name!r}: {text}."),
                auth=(lambda: login(server)) if login and server.oauth else None,
                **self._callbacks(server),
            )
        return self._connections[server.name]

    def _note(self, problem: str) -> None:
        self._problems[problem] = None

    def _find(self, name: str) -> McpServer:
        if name not in self._servers:
            raise UsageError(f"There is no MCP server {name!r}. Known are {', '.join(self._servers) or 'none'}.")
        return self._servers[name]

    async def _with(self, server: str, work: Callable[[Client], Awaitable[T]]) -> T:
        return await self._connection(self._find(server)).ask(work)

    async def _each(self, listing: Callable[[Client], Awaitable[Sequence[T]]]) -> list[tuple[str, Sequence[T]]]:
        """Return what each server lists. If a server fails, that is reported in `problems`."""

        async def one(name: str) -> tuple[str, Sequence[T]]:
            try:
                return name, await self._with(name, listing)
            except EvenerError as error:
                self._note(str(error))
                return name, ()

        return list(await asyncio.gather(*(self._loop.run(one(name)) for name in self._servers)))

    async def _load(self, server: McpServer) -> tuple[Tool, ...]:
        try:
            listed = await self._list(server)
        except EvenerError as error:
            self._note(str(error))
            return ()
        pinned = self._pins.read(server.name)
        digests = self._live[server.name]
        taken: set[str] = set()
        found: list[Tool] = []
        for one in listed:
            if not _is_offered(server, one.name):
                continue
            name = name_tool(server.name, one.name, taken)
            changed = pinned.get(one.name, digests[one.name]) != digests[one.name]
            try:
                found.append(self._tool(server, one, name, digests[one.name], changed=changed))
            except EvenerError as error:
                self._note(f"MCP server {server.name!r}: the tool {one.name!r} was left out: {error}")
                continue
            taken.add(name)
            if changed:
                self._note(
                    f"MCP server {server.name!r}: the tool {one.name!r} has changed since it was first used, so its calls need "
                    "approval."
                )
        self._pins.write(server.name, {name: digest for name, digest in digests.items() if name not in pinned})
        return tuple(found)

    async def _list(self, server: McpServer) -> list[ListedTool]:
        found: dict[str, ListedTool] = {}
        for one in await self._connection(server).list_tools():
            if not one.name or one.name in found:
                self._note(f"MCP server {server.name!r}: a tool was left out: its name, {one.name!r}, is empty or taken.")
                continue
            found[one.name] = one
        self._live[server.name] = {name: _digest(one) for name, one in found.items()}
        return list(found.values())

    def _tool(self, server: McpServer, listed: ListedTool, name: str, digest: str, *, changed: bool) -> Tool:
        effect = _effect(server, listed)

        async def call(arguments: dict[str, object], context: ToolContext[object]) -> Envelope:
            return await self._loop.run(self._call(server, listed.name, arguments, digest, effect, context))

        async def call_and_answer(arguments: dict[str, object], context: ToolContext[object]) -> Envelope:
            def begin(held: HeldCall) -> Awaitable[Envelope]:
                return self._call(server, listed.name, arguments, digest, effect, context, held)

            key, site = context.key or context.call_id, current_site.get()
            held = await self._loop.run(self._hold(server, key, site.thread if site else key, begin))
            if held is None:
                return report_failure(BUSY.format(server.name))
            return await self._converse(held, server, key)

        async def verify(arguments: dict[str, object], context: ToolContext[object]) -> bool | None:
            del arguments
            return await self._is_repeatable(server, context.key)

        asks = server.elicitation or server.sampling
        made = Tool.of(
            name,
            listed.input_schema,
            function=call_and_answer if asks else call,
            description=(listed.description or listed.title or listed.name)[:MOST_DESCRIPTION],
            effect=effect,
            sequential=asks,
            timeout=None if asks else server.timeout + server.connect_timeout + 5,
            approval=server.approval or changed,
            verify=verify if asks and effect == "write" else None,
            metadata={"mcp_server": server.name, "mcp_tool": listed.name},
        )
        if not asks:
            return made
        from evener.mcp.questions import inner_tools

        return msgspec.structs.replace(made, inner=inner_tools(server.name))

    async def _hold(
        self, server: McpServer, key: str, owner: str, begin: Callable[[HeldCall], Awaitable[Envelope]]
    ) -> HeldCall | None:
        """Return the open call of this key, or start a new one."""
        calls = self._get_calls(server)
        return calls.find(key) or await calls.begin(key, owner, begin)

    async def _call(
        self,
        server: McpServer,
        tool: str,
        arguments: dict[str, object],
        digest: str,
        effect: Effect,
        context: ToolContext[object],
        held: HeldCall | None = None,
    ) -> Envelope:
        from evener.mcp.connection import McpLost
        from evener.mcp.content import result_envelope

        connection = self._connection(server)
        trace = cast("RequestParamsMeta", dict(trace_header())) or None  # MCP has it in `_meta`, on every transport

        async def show(progress: float, total: float | None, message: str | None) -> None:
            fraction = min(1.0, max(0.0, progress / total)) if total else None
            context.progress(message or "", fraction=fraction)

        began = False

        async def send(client: Client) -> Envelope | None:
            nonlocal began
            if connection.stale:
                await self._list(server)
            if self._live[server.name].get(tool) != digest:
                return None
            began = True
            sent = client.call_tool(tool, arguments, server.timeout + waits, progress_callback=show, meta=trace)
            return result_envelope(await (held.timed(sent) if held else sent))

        waits = 10 * server.question_timeout if held else 0.0
        try:
            found = await connection.ask(send, repeatable=effect != "write", waits=waits)
        except EvenerError as error:
            if not began or not isinstance(error, TimedOut | McpLost | WireError):
                return report_failure(str(error))
            return report_failure(
                f"{error} It is not known whether the call took effect.", outcome="unknown" if effect == "write" else "failed"
            )
        return found or report_failure(CHANGED.format(tool, server.name))

    # Questions of servers.

    def _callbacks(self, server: McpServer) -> _Callbacks:
        """Return the callbacks that answer the questions of a server."""
        if self._answer is None and not (server.elicitation or server.sampling):
            return {}
        from evener.mcp.held_calls import answer_elicitation, ask_elicitation, ask_sampling

        put = self._get_calls(server).put if server.elicitation or server.sampling else None
        made: _Callbacks = {}
        if self._answer is not None:
            made["elicit"] = answer_elicitation(server.name, self._answer)
        elif put is not None and server.elicitation:
            made["elicit"] = ask_elicitation(server.name, put)
        if put is not None and server.sampling:
            made["sample"] = ask_sampling(server.name, put)
        return made

    def _get_calls(self, server: McpServer) -> HeldCalls:
        from evener.mcp.held_calls import HeldCalls

        if server.name not in self._calls:
            seconds = server.timeout
            self._calls[server.name] = HeldCalls(seconds=seconds, question_seconds=server.question_timeout)
        return self._calls[server.name]

    async def _find_held(self, server: McpServer, key: str) -> HeldCall | None:
        return self._get_calls(server).find(key)

    async def _converse(self, held: HeldCall, server: McpServer, key: str) -> Envelope:
        """Ask each question of a call until its result arrives. Runs on the event loop of the run."""
        from evener.mcp.questions import put_question

        while True:
            try:
                found = await self._loop.run(held.next())
            except asyncio.CancelledError:
                self._loop.submit(held.cancel())
                self._get_calls(server).forget(key)
                raise
            if isinstance(found, Envelope):
                self._get_calls(server).forget(key)
                return found
            given = await put_question(found.question, found.number, key)
            if isinstance(given, Envelope):
                return given  # it waits, and the call with it
            await self._loop.run(held.answer(found, given))

    async def _is_repeatable(self, server: McpServer, key: str) -> bool | None:
        """Return False if an interrupted call did not take effect: it is still open, or the server expects it again with an
        answer.

        None if that is not known.
        """
        if await self._loop.run(self._find_held(server, key)):
            return False
        from evener.mcp.questions import has_open_question

        if not await has_open_question(server.name, key):
            return None

        async def read(client: Client) -> str:
            return str(client.protocol_version)

        try:
            return False if await self._loop.run(self._with(server.name, read)) >= STATELESS else None
        except EvenerError:
            return None


def _is_offered(server: McpServer, tool: str) -> bool:
    wanted = not server.tools or any(fnmatchcase(tool, pattern) for pattern in server.tools)
    return wanted and not any(fnmatchcase(tool, pattern) for pattern in server.without)


def _digest(listed: ListedTool) -> str:
    hints = listed.annotations.model_dump(exclude_none=True) if listed.annotations else None
    return digest_tool(listed.name, listed.description or "", listed.input_schema, hints)


def _effect(server: McpServer, listed: ListedTool) -> Effect:
    """Return the effect that the server declares for a tool, if the user trusts the server."""
    hints = listed.annotations
    if not server.trusted or hints is None:
        return "write"
    if hints.read_only_hint:
        return "read"
    return "idempotent" if hints.idempotent_hint else "write"


def _describe_prompt(server: str, prompt: Prompt) -> PromptListing:
    arguments = sorted(prompt.arguments or [], key=lambda one: not one.required)
    return PromptListing(server, prompt.name, prompt.description or "", tuple(one.name for one in arguments))
