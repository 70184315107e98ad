"""One server: connects when it is first needed, and again when the connection is lost. Every wait has a deadline.

Everything here runs on one event loop, that of the servers. A task owns the connection from its beginning to its end. A call is
sent a second time only if it cannot have been received, or if repeating it is harmless.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

import anyio
import httpx2
from mcp import Client, MCPError
from mcp.client._transport import TransportStreams
from mcp.client.session import ElicitationFnT, IncomingMessage, SamplingFnT
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_REQUEST, Implementation, JSONRPCNotification, JSONRPCResponse
from mcp_types import Tool as ListedTool
from pydantic import ValidationError

from evener import __version__
from evener.errors import ConnectFailed, EvenerError, TimedOut, TransportError, WireError
from evener.mcp.config import McpServer
from evener.mcp.listing import read_pages
from evener.mcp.repair import mend_result
from evener.mcp.stdio import open_process
from evener.transport.secrets import known_secrets, scrub

T = TypeVar("T")
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
TRIES = 3
PROBE_SECONDS = 5.0
CLOSE_SECONDS = 10.0
ASSUMED = "2025-11-25"
LIST_CHANGED = "notifications/tools/list_changed"
# What the SDK 2.3.0 says for an HTTP status of 400 or more without a JSON-RPC body, and for 404 within a session.
BAD_STATUS, NO_SESSION = "Server returned an error response", "Session terminated"
for name in ("mcp", "client"):  # the SDK 2.3.0 logs under both
    logging.getLogger(name).addHandler(logging.NullHandler())


class McpRefused(EvenerError):
    """The server answered with an error."""


class McpLost(TransportError):
    """The connection ended before the answer: the server may have done what it was asked."""


class _Live:
    """A connection that was made. `ended`: the server is gone."""

    def __init__(self) -> None:
        self.ended = False
        self.stop = asyncio.Event()
        self.ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None


class McpConnection:
    """One server. `report` gets what was left out of its lists; `auth` logs in if the server requires it."""

    def __init__(
        self,
        server: McpServer,
        *,
        report: Callable[[str], None],
        auth: Callable[[], httpx2.Auth] | None = None,
        elicit: ElicitationFnT | None = None,
        sample: SamplingFnT | None = None,
    ) -> None:
        self.server = server
        self.connects = 0
        """How often a connection was made."""
        self.stale = True
        """True if the list of tools may have changed since it was read."""
        self._report = report
        self._auth = auth
        self._elicit = elicit
        self._sample = sample
        self._lock = asyncio.Lock()
        self._live: _Live | None = None
        self._tail: list[str] = []
        self._failures = 0
        self._not_before = 0.0

    async def ask(self, work: Callable[[Client], Awaitable[T]], *, repeatable: bool = True, waits: float = 0.0) -> T:
        """Run `work` with the connected client, within the server's timeout.

        `waits` adds seconds if the work has a timeout of its own.
        """
        limit = self.server.timeout
        try:
            async with asyncio.timeout(limit + self.server.connect_timeout + waits):
                for left in reversed(range(TRIES)):
                    client = await self._connect()
                    try:
                        async with asyncio.timeout(limit + waits):
                            return await work(client)
                    except MCPError as error:
                        if not (left and self._is_worth_repeating(error, repeatable)):
                            raise self._explain(error) from None
                        await asyncio.sleep(FIRST_PAUSE if error.message == BAD_STATUS else 0)
        except TimeoutError:
            await self._probe()
            raise TimedOut(f"{self._named} did not answer within {limit:g} seconds.") from None
        except EvenerError:
            raise
        except (RuntimeError, ValueError) as error:  # of the SDK: a wrong answer, or content that its own schema does not allow
            raise WireError(f"{self._named} gave an answer that is not MCP: {_first_problem(error)}.") from None
        raise AssertionError("unreachable")

    async def list_tools(self) -> list[ListedTool]:
        """Return all tools, page by page."""

        async def read(client: Client) -> list[ListedTool]:
            self.stale = False
            pages = await read_pages(lambda cursor: client.list_tools(cursor=cursor, cache_mode="refresh"))
            if pages[-1].next_cursor:
                self._report(f"its list of tools has more than {len(pages)} pages, or no end; the rest was left out")
            return [tool for page in pages for tool in page.tools]

        return await self.ask(read)

    async def aclose(self) -> None:
        """Close the connection, if there is one."""
        async with self._lock:
            await self._drop()

    # Connecting.

    @property
    def _named(self) -> str:
        return f"The MCP server {self.server.name!r}"

    async def _connect(self) -> Client:
        async with self._lock:
            live = self._live
            if live is not None and not live.ended and live.task is not None and not live.task.done():
                return live.ready.result()
            await self._drop()
            loop = asyncio.get_running_loop()
            await asyncio.sleep(max(0.0, self._not_before - loop.time()))
            try:
                client = await self._open()
            except EvenerError:
                self._failures += 1
                self._not_before = loop.time() + min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(self._failures, 10))
                raise
            self._failures, self._not_before = 0, loop.time() + FIRST_PAUSE if self.connects else 0.0
            self.connects += 1
            self.stale = True
            return client

    async def _open(self) -> Client:
        live = self._live = _Live()
        self._tail.clear()
        live.task = asyncio.create_task(self._own(live), name=f"mcp-{self.server.name}")
        seconds = self.server.connect_timeout
        done, _ = await asyncio.wait((live.ready, live.task), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if live.ready.done() and not live.ready.cancelled() and live.ready.exception() is None:
            return live.ready.result()
        error = live.ready.exception() if live.ready.done() else None
        await self._drop()
        if not done:
            raise ConnectFailed(f"{self._named} did not answer within {seconds:g} seconds of its start.{self._last_words()}")
        raise ConnectFailed(f"{self._named} could not be reached: {_describe(error)}.{self._last_words()}") from None

    async def _own(self, live: _Live) -> None:
        """Hold the connection open in one task: the SDK requires that the task that opened it closes it."""
        try:
            async with Client(
                self._watch_streams(live) if self.server.inside is None else self.server.inside,  # type: ignore[arg-type]
                client_info=Implementation(name="evener", version=__version__),
                read_timeout_seconds=self.server.timeout,
                message_handler=self._note,
                elicitation_callback=self._elicit,
                sampling_callback=self._sample,
                mode=self.server.protocol,
            ) as client:
                live.ready.set_result(client)
                await live.stop.wait()
        except Exception as error:
            if not live.ready.done():
                live.ready.set_exception(error)
        finally:
            live.ended = True

    @asynccontextmanager
    async def _watch_streams(self, live: _Live) -> AsyncIterator[TransportStreams]:
        """Yield the streams of the transport. Malformed answers are repaired; the end of the streams is recorded."""
        async with self._transport() as (read, write):
            forward, out = anyio.create_memory_object_stream[SessionMessage | Exception](0)

            async def pass_on() -> None:
                async with forward:
                    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                        async for message in read:
                            if not self._is_needless(message):
                                await forward.send(self._mend(message))
                live.ended = True

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(pass_on)
                try:
                    yield out, write
                finally:
                    tasks.cancel_scope.cancel()
            out.close()

    def _transport(self) -> AbstractAsyncContextManager[TransportStreams]:
        return open_process(self.server, self._tail) if self.server.command else self._http()

    @asynccontextmanager
    async def _http(self) -> AsyncIterator[TransportStreams]:
        """Connect over HTTP. Redirects to another origin are refused by the SDK."""
        limits = httpx2.Timeout(self.server.connect_timeout, read=self.server.timeout)
        auth = self._auth() if self._auth else None
        async with (
            httpx2.AsyncClient(
                headers=dict(self.server.headers),
                timeout=limits,
                auth=auth,
                event_hooks={"response": [_drop_body_of_no_session]},
            ) as client,
            streamable_http_client(self.server.url, http_client=client) as streams,
        ):
            yield streams

    def _is_needless(self, message: SessionMessage | Exception) -> bool:
        """True if a notification is ignored: a log message, or a change of a list that is always read again."""
        if isinstance(message, Exception) or not isinstance(message.message, JSONRPCNotification):
            return False
        stale, self.stale = self.stale, self.stale or message.message.method == LIST_CHANGED
        return message.message.method == "notifications/message" or (stale and message.message.method == LIST_CHANGED)

    def _mend(self, message: SessionMessage | Exception) -> SessionMessage | Exception:
        if isinstance(message, SessionMessage) and isinstance(message.message, JSONRPCResponse):
            message.message.result = mend_result(message.message.result, self._version, self._report)
        return message

    @property
    def _version(self) -> str:
        """The negotiated protocol version; before that, the version that the SDK assumes."""
        ready = self._live.ready if self._live is not None else None
        return (ready.result().protocol_version if ready is not None and ready.done() else None) or ASSUMED

    async def _note(self, message: IncomingMessage) -> None:
        """Record that the list of tools has changed. Other notifications are ignored."""
        if getattr(message, "method", "") == LIST_CHANGED:
            self.stale = True

    # Losing it.

    def _is_worth_repeating(self, error: MCPError, repeatable: bool) -> bool:
        """True if the connection was lost and reopened, and the call may be sent again."""
        if error.code == INVALID_REQUEST and error.message == NO_SESSION:
            self._lose()
            return True  # the server does not know the session, so it has done nothing
        if error.code == CONNECTION_CLOSED:
            self._lose()
            return repeatable
        return repeatable and error.code == INTERNAL_ERROR and error.message == BAD_STATUS

    def _explain(self, error: MCPError) -> EvenerError:
        if error.code == CONNECTION_CLOSED:
            return McpLost(f"{self._named} ended the connection before it answered.{self._last_words()}")
        if error.code == INTERNAL_ERROR and error.message == BAD_STATUS:
            return ConnectFailed(f"{self._named} answered with an HTTP error.")
        if error.code == -32001 and "timed out" in error.message.lower():
            return TimedOut(f"{self._named} did not answer in time.")
        return McpRefused(scrub(f"{self._named} answered with an error: {error.message}", known_secrets()))

    async def _probe(self) -> None:
        """Check after a timeout whether the server still answers. If not, end it; the next call connects again."""
        live = self._live
        if live is None or not live.ready.done() or live.ended or live.ready.exception() is not None:
            return
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await live.ready.result().list_tools(cache_mode="refresh")
        except (TimeoutError, MCPError, RuntimeError, ValueError):
            self._lose()

    def _lose(self) -> None:
        if self._live is not None:
            self._live.ended = True

    async def _drop(self) -> None:
        live, self._live = self._live, None
        if live is None or live.task is None:
            return
        live.stop.set()
        if not live.ready.done():
            live.task.cancel()
        await asyncio.wait((live.task,), timeout=CLOSE_SECONDS)
        if not live.task.done():
            live.task.cancel()
            await asyncio.wait((live.task,), timeout=CLOSE_SECONDS)
        if live.ready.done() and not live.ready.cancelled():
            live.ready.exception()  # it was told, or is no longer wanted

    def _last_words(self) -> str:
        """Return the last lines of the server's standard error, for an error message."""
        lines = "".join(self._tail).strip().splitlines()[-3:]
        return scrub(f" Its last output: {' / '.join(lines)}", known_secrets()) if lines else ""


async def _drop_body_of_no_session(response: httpx2.Response) -> None:
    """Mark the body of an HTTP 404 as plain text, so that the SDK detects a lost session by the status (specification of
    2025-11-25).

    SDK 2.3.0 prefers the error in the body, which each server words in its own way ("Session not found", -32600 or -32001).
    """
    if response.status_code == 404 and MCP_SESSION_ID in response.request.headers:
        response.headers["content-type"] = "text/plain"


def _first_problem(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return (str(error).splitlines() or [type(error).__name__])[0][:500]
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or error.title}: {first['msg']}"


def _describe(error: BaseException | None) -> str:
    """Return the message of the innermost error of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if error is None:
        return "it ended at once"
    if isinstance(error, ValidationError):
        return f"its answer is not MCP: {_first_problem(error)}"
    words: Any = scrub(str(error), known_secrets()).strip().rstrip(".")
    return f"{type(error).__name__}: {words.splitlines()[0]}" if words else type(error).__name__
