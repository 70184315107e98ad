"""An app that serves one harness to web pages: `/api/chat` speaks the UI message stream, `/ag-ui` AG-UI. Needs the extra
`web`.

The id of a chat is the id of a thread, so a run that waits for an approval can continue after a restart. When a client
disconnects, its run is cancelled; the log is kept.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Protocol, TypeVar

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from evener import streaming as st
from evener.errors import ApprovalStale, EvenerError
from evener.harness import Harness
from evener.harness.stream import RunStream
from evener.transport.loopback import open_socket
from evener.web.ag_ui import AgUiEncoder, read_ag_ui
from evener.web.guard import LOOPBACK, WebGuard
from evener.web.messages import Frame, PageRequest, decide_by_answers, write_event
from evener.web.ui_stream import UiStreamEncoder, read_chat

__all__ = ["make_app", "serve_web"]

MOST_BODY = 16 << 20
BODY_SECONDS = 30.0
RUN_SECONDS = 3_600.0
MOST_RUNS = 64
BEAT = 10.0
"""Seconds of silence after which a comment is sent: sending fails if the client has disconnected."""
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no", "x-content-type-options": "nosniff"}
UNUSED = "This agent ignores the {} that the page sent: it has its own tools and memory."
T = TypeVar("T")


class PageEncoder(Protocol):
    """Encodes the events of one run for a protocol."""

    finished: bool
    headers: Mapping[str, str]
    end: bytes

    def encode(self, event: st.StreamEvent) -> list[Frame]: ...
    def fail(self, error: EvenerError) -> list[Frame]: ...
    def notice(self, text: str) -> list[Frame]: ...


class _Refused(Exception):
    """A request that is refused: status and text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class _EventResponse(StreamingResponse):
    """Sends events until they end, the deadline passes or the client disconnects; then closes their source."""

    def __init__(self, events: AsyncGenerator[bytes, None], *, seconds: float, headers: Mapping[str, str]) -> None:
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._events = events
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        tasks = {asyncio.create_task(self.stream_response(send)), asyncio.create_task(_await_disconnect(receive))}
        try:
            await asyncio.wait(tasks, timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._events.aclose()


async def _await_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class _Pages:
    """The routes, and the state that they share."""

    def __init__(self, harness: Harness, *, by: str, seconds: float, most_runs: int) -> None:
        self._harness = harness
        self._by = by
        self._seconds = seconds
        self._left = most_runs

    async def chat(self, request: Request) -> Response:
        """Answer a chat of the AI SDK."""
        return await self._answer(request, read_chat, lambda _asked: UiStreamEncoder())

    async def ag_ui(self, request: Request) -> Response:
        """Answer an AG-UI client."""

        def encoder(asked: PageRequest) -> PageEncoder:
            return AgUiEncoder(thread=asked.thread, run=asked.run, shown=asked.shown)

        return await self._answer(request, read_ag_ui, encoder)

    async def _answer(
        self,
        request: Request,
        read: Callable[[Mapping[str, object]], PageRequest],
        made: Callable[[PageRequest], PageEncoder],
    ) -> Response:
        try:
            asked = read(await _read_body(request))
            if not self._left:
                raise _Refused(503, "Too many runs are in progress. Try again later.")
        except _Refused as why:
            return JSONResponse({"error": str(why)}, status_code=why.status)
        except EvenerError as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        encoder = made(asked)
        return _EventResponse(self._events(asked, encoder), seconds=self._seconds, headers={**HEADERS, **encoder.headers})

    async def _events(self, asked: PageRequest, encoder: PageEncoder) -> AsyncGenerator[bytes, None]:
        self._left -= 1
        try:
            async with aclosing(self._frames(asked, encoder)) as frames:
                async for frame in frames:
                    yield write_event(frame) if frame else b": still here\n\n"
            yield encoder.end
        finally:
            self._left += 1

    async def _frames(self, asked: PageRequest, encoder: PageEncoder) -> AsyncGenerator[Frame, None]:
        """Yield the frames of the run, and an empty frame after each silence."""
        try:
            run, told = await self._open(asked)
            async with run, aclosing(_with_beats(aiter(run))) as events:
                async for event in events:
                    if event is None:
                        yield {}
                        continue
                    for frame in encoder.encode(event):
                        yield frame
                    if isinstance(event, st.RunStarted):
                        for frame in (frame for text in told for frame in encoder.notice(text)):
                            yield frame
                await run.result()
        except EvenerError as error:
            for frame in () if encoder.finished else encoder.fail(error):
                yield frame

    async def _open(self, asked: PageRequest) -> tuple[RunStream, list[str]]:
        """Start the requested run; return its stream and the notices for the page."""
        told = [UNUSED.format(name) for name in asked.unused]
        thread = self._harness.thread(asked.thread, begin=True)
        if not asked.answers:
            if asked.again:
                await thread.rollback()
            return thread.stream(asked.prompt), told
        try:
            await thread.decide(decide_by_answers(await thread.approvals(), asked.answers, by=self._by))
        except ApprovalStale as error:
            told.append(str(error))  # it was decided elsewhere, or too late: the log has the decision
        return thread.resume_stream(), told


async def _with_beats(events: AsyncIterator[T]) -> AsyncGenerator[T | None, None]:
    """Yield the events, and None after each silence of some seconds."""
    coming = asyncio.ensure_future(anext(events))
    try:
        while True:
            done, _ = await asyncio.wait({coming}, timeout=BEAT)
            if not done:
                yield None
                continue
            try:
                event = coming.result()
            except StopAsyncIteration:
                return
            yield event
            coming = asyncio.ensure_future(anext(events))
    finally:
        coming.cancel()


async def _read_body(request: Request) -> dict[str, object]:
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
        raise _Refused(415, "Send JSON, with the content type application/json.")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MOST_BODY:
                    raise _Refused(413, f"The request has more than {MOST_BODY >> 20} MB.")
        return msgspec.json.decode(body, type=dict[str, object])
    except TimeoutError:
        raise _Refused(408, "The request did not arrive in time.") from None
    except ClientDisconnect:
        raise _Refused(400, "The client disconnected.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _Refused(400, "The request must be a JSON object.") from None


async def _answer_nothing(request: Request) -> Response:
    """Tell a chat that reconnects that there is no stream: a disconnect cancels the run."""
    del request
    return Response(status_code=204)


def make_app(
    harness: Harness,
    *,
    hosts: Iterable[str] = LOOPBACK,
    origins: Iterable[str] = (),
    token: str = "",
    by: str = "web",
    seconds: float = RUN_SECONDS,
    most_runs: int = MOST_RUNS,
) -> WebGuard:
    """Return the ASGI app. Each caller can use all threads of the store: serve the app to one user, or behind a login.

    `hosts` are the host names of the app. `origins` are the origins of pages that other servers serve, such as
    `http://localhost:3000`. If there is a `token`, requests need it as a bearer token. A run ends after `seconds`.
    """
    allowed = list(origins)
    pages = _Pages(harness, by=by, seconds=seconds, most_runs=most_runs)
    routes = [
        Route("/api/chat", pages.chat, methods=["POST"]),
        Route("/api/chat/{id}/stream", _answer_nothing),
        Route("/ag-ui", pages.ag_ui, methods=["POST"]),
    ]
    shared = Middleware(CORSMiddleware, allow_origins=allowed, allow_methods=["POST"], allow_headers=["*"])
    return WebGuard(Starlette(routes=routes, middleware=[shared]), hosts=hosts, origins=allowed, token=token)


async def serve_web(
    harness: Harness,
    *,
    port: int = 0,
    origins: Iterable[str] = (),
    token: str = "",
    by: str = "web",
    ready: Callable[[str], None] = lambda _url: None,
) -> None:
    """Serve on loopback until interrupted, at `port` or at a free one. `ready` is called with the address."""
    with open_socket(port) as listening:
        config = uvicorn.Config(
            make_app(harness, origins=origins, token=token, by=by), log_level="critical", access_log=False, lifespan="off",
            server_header=False, ws="none", limit_concurrency=200, timeout_graceful_shutdown=1,
        )  # fmt: skip
        ready(f"http://127.0.0.1:{listening.getsockname()[1]}")
        await uvicorn.Server(config).serve(sockets=[listening])
