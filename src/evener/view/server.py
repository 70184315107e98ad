"""The viewer's server: a JSON API over one store, and the page. Loopback only, behind the guard; one live stream a page."""

import asyncio
import secrets
import socket
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from typing import TypeVar
from urllib.parse import quote, unquote

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from evener import events as ev
from evener.errors import EvenerError, UsageError
from evener.harness import Harness
from evener.harness.approvals import Bench, Decision, decide, keyed
from evener.harness.branches import Branch, branches_of, diff_of, fork_at, root_of
from evener.harness.preview import open_offline
from evener.loop.plan import Judgement
from evener.model import Model
from evener.observe.metrics import CONTENT_TYPE
from evener.observe.spans import fold_spans
from evener.result import Approval, approvals_of
from evener.store.protocol import Erased, Store, state_of
from evener.store.transfer.jsonl import Portable, export_lines
from evener.tools.call import digest_of
from evener.tools.tool import Tool, Toolbox
from evener.toolset.question import question_tool
from evener.transcript.ask import ToolSpec
from evener.transcript.blocks import ToolCall
from evener.view.arguments import question_of, write_arguments
from evener.view.conversation import Conversation, Piece, pieces_of
from evener.view.document import write_document
from evener.view.guard import Guard
from evener.view.index import ListedThread, ThreadIndex
from evener.view.markdown import parse_markdown
from evener.view.media import find_image
from evener.view.runs import LiveRuns
from evener.view.sent import compare_bodies, explain_changes, list_requests, rebuild

KEPT_LOGS = 8
READ = 1_000
"""Events that are read at a time."""
PAGE = 200
CHUNK = 100
"""Items that the page loads at a time."""
LISTED = 100
LARGEST_PAGE = 1_000
LOOK = 0.15
"""Seconds between two checks whether a log that a page shows has grown."""
BEAT = 10.0
MOST_STREAMS = 32
SHOWN_SPANS = 20_000
LARGEST_SHOWN = 200_000
"""Characters of arguments that a page shows at most. A call with longer arguments cannot be approved there."""
LABEL = 2_000
MARKED = 200
"""Branches of a tree that are searched for compactions."""
KINDS = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
"""Media types of the page's own files, by file extension."""

Answering = Callable[[Request], Awaitable[object]]
B = TypeVar("B", bound=msgspec.Struct)


class OpenLog(msgspec.Struct):
    """A log that is open in a page: its events so far, and their state."""

    log: str
    events: list[ev.Event]
    conversation: Conversation
    lock: asyncio.Lock


class Viewer:
    """Reads one store. With a harness it can also resume and continue runs; without one it shows the command for that.

    `by` is recorded with decisions. `words` are the options with which another command uses the same store.
    """

    def __init__(self, store: Store, *, harness: Harness | None = None, by: str = "", words: Sequence[str] = ()) -> None:
        self.store = store
        self._harness = harness
        self._by = by
        self._words = tuple(words)
        self._index = ThreadIndex(store)
        self._logs: OrderedDict[str, OpenLog] = OrderedDict()
        self._windows: dict[str, int] = {}
        self._runs = LiveRuns()
        self._streams = 0
        self.closing = asyncio.Event()

    def app(self, *, token: str, port: int) -> Guard:
        """Return the ASGI app, with its guard."""
        return Guard(Starlette(routes=self.routes()), token=token, port=port)

    def routes(self) -> list[Route]:
        """Return the routes, without the guard."""
        gets: dict[str, Answering] = {
            "/api/threads": self._threads,
            "/api/items/{log}": self._items,
            "/api/event/{log}/{n:int}": self._event,
            "/api/events/{log}": self._events,
            "/api/tree/{log}": self._tree,
            "/api/diff/{a}/{b}": self._diff,
            "/api/spans/{log}": self._spans,
            "/api/requests/{log}": self._requests,
            "/api/sent/{log}/{n:int}": self._sent,
            "/api/approvals": self._approvals,
            "/api/audit/{log}": self._audit,
            "/api/live": self._live,
            "/api/media/{log}/{n:int}/{place:path}": self._media,
            "/export/{log}.jsonl": self._export,
            "/export/{log}.html": self._export_html,
            "/metrics": self._metrics,
        }
        posts: dict[str, Answering] = {"/api/decide": self._decide, "/api/fork": self._fork, "/api/run": self._run}
        return [
            *(Route(path, _answer(work)) for path, work in gets.items()),
            *(Route(path, _answer(work), methods=["POST"]) for path, work in posts.items()),
            Route("/{name:path}", _static),
        ]

    async def aclose(self) -> None:
        """Stop the runs that were started here. They can be resumed."""
        self.closing.set()
        await self._runs.aclose()

    # Lists.

    async def _threads(self, request: Request) -> object:
        """List a page of the threads that match a filter, or that contain a text."""
        params = request.query_params
        text, agents, start = params.get("text", "")[:500], "agents" in params, _number(params.get("start", "0"))
        await self._index.lines()
        hits: dict[str, dict[str, object]] = {}
        if "said" in params and text.strip():
            for hit in await self.store.search(text, limit=200):
                found = {"log": hit.summary.log, "n": hit.seq, "excerpt": hit.excerpt}
                hits.setdefault(hit.summary.thread, found)
        only = hits if "said" in params else None
        chosen = self._index.choose(text, group=params.get("group", ""), agents=agents, only=only)
        page = chosen[start : start + LISTED]
        return {
            "start": start, "total": len(chosen), "threads": page, "unread": self._index.left,
            "cost": sum(line.seen.cost for line in chosen if line.seen), "counts": self._index.count(agents=agents),
            "hits": {line.thread: hits[line.thread] for line in page if line.thread in hits},
        }  # fmt: skip

    # One log.

    async def _open_log(self, log: str, *, items: int = 0) -> OpenLog:
        """Return the log with all its present events. With `items`, stop reading when it has that many items."""
        found = self._logs.get(log)
        if found is None:
            found = self._logs[log] = OpenLog(log, [], Conversation(), asyncio.Lock())
            while len(self._logs) > KEPT_LOGS:
                self._logs.popitem(last=False)
        self._logs.move_to_end(log)
        more = True
        while more and (not items or len(found.conversation.items) < items):
            async with found.lock:  # for one batch only, so that a request for a few items does not wait for one that needs all
                more = await self._read_on(found)
        return found

    async def _read_on(self, found: OpenLog) -> bool:
        """Read the next events of a log. True if there may be more."""
        known = len(found.events)
        try:
            new = await self.store.read(found.log, after=known, until=known + READ)
        except EvenerError:
            self._logs.pop(found.log, None)
            raise
        found.events += new
        found.conversation.feed(new)
        return len(new) == READ

    async def _items(self, request: Request) -> object:
        """Return a page of items. With `since`, return the changed items of the pages that the browser has (`have`)."""
        params, log = request.query_params, request.path_params["log"]
        start = _number(params.get("start", "0"))
        end = start + min(_number(params.get("many", str(PAGE))), LARGEST_PAGE)
        opened = await self._open_log(log, items=0 if "since" in params or "near" in params else end)
        conversation = opened.conversation
        if "near" in params:
            found = conversation.near(_number(params["near"]))
            return {"place": found.place if found else 0, "key": found.key if found else ""}
        if "since" in params:
            have = {_number(one) for one in params.get("have", "").split(",")}
            chosen = [item for item in conversation.since(_number(params["since"])) if item.place // CHUNK in have]
        else:
            chosen = conversation.items[start:end]
        for item in chosen:
            _with_markdown(item.role, item.pieces)
        return {"events": len(opened.events), "total": len(conversation.items), "items": chosen}

    async def _event(self, request: Request) -> object:
        n = request.path_params["n"]
        found = await self.store.read(request.path_params["log"], after=n - 1, until=n)
        if not found:
            raise UsageError(f"There is no event {n} in this log. Give the number of an event that the log has.")
        return {"n": n, "event": found[0]}

    async def _events(self, request: Request) -> object:
        opened = await self._open_log(request.path_params["log"])
        start = max(0, _number(request.query_params.get("start", "0")))
        chosen = opened.events[start : start + PAGE]
        return {"events": len(opened.events), "start": start, "chosen": [_raw(event) for event in chosen]}

    async def _tree(self, request: Request) -> object:
        log = request.path_params["log"]
        thread = await root_of(self.store, log)
        branches = await branches_of(self.store, thread)
        said = {branch.log: await self._first_words(branch.log, branch.at) for branch in branches}
        if "marks" not in request.query_params:
            return {"thread": thread, "branches": branches, "said": said, "listed": self._index.find(log)}
        inside = []
        for one in await self.store.inside(thread):
            inside.append({"thread": one, "log": await self.store.head(one), "said": await self._first_words(one, 0)})
        marks = {branch.log: await self._marks(branch) for branch in branches[:MARKED]}
        return {"thread": thread, "branches": branches, "said": said, "inside": inside, "marks": marks}

    async def _first_words(self, log: str, after: int) -> str:
        """Return the label of a branch, and its first prompt."""
        try:
            first = await self.store.read(log, after=after, until=after + 12)
        except EvenerError:
            return ""
        label = next((event.label for event in first if isinstance(event, ev.Opened)), "")
        words = next((event.message.text for event in first if isinstance(event, ev.Prompted)), "")
        return " · ".join(filter(None, (label, words)))[:160]

    async def _marks(self, branch: Branch) -> list[dict[str, object]]:
        """Return the events at which a branch was compacted, or blocks were evicted."""
        try:
            events = await self.store.read(branch.log, after=branch.at)
        except EvenerError:
            return []
        found: list[dict[str, object]] = []
        for n, event in enumerate(events, branch.at + 1):
            if isinstance(event, ev.Compacted | ev.Evicted):
                kind = "compacted" if isinstance(event, ev.Compacted) else "evicted"
                found.append({"n": n, "kind": kind, "saved": event.saved, "tokens": event.tokens})
        return found

    async def _diff(self, request: Request) -> object:
        a, b = request.path_params["a"], request.path_params["b"]
        found = await diff_of(self.store, await root_of(self.store, a), a, b)
        sides = []
        for messages in (found.only_a, found.only_b):
            shown = [(one, _with_markdown(one.role, pieces_of(one.blocks))) for one in messages[:PAGE]]
            sides.append([{"role": one.role, "id": one.id, "pieces": pieces} for one, pieces in shown])
        return {"at": found.at, "common": found.common, "a": sides[0], "b": sides[1]}

    async def _spans(self, request: Request) -> object:
        opened = await self._open_log(request.path_params["log"])
        spans = await asyncio.to_thread(fold_spans, list(opened.events), log=opened.log)
        return {"spans": spans[-SHOWN_SPANS:], "last": opened.events[-1].at if opened.events else 0.0}

    async def _requests(self, request: Request) -> object:
        opened = await self._open_log(request.path_params["log"])
        names = {event.model for event in opened.events if isinstance(event, ev.ModelCalled)}
        windows = {name: self._window(name) for name in names}
        return {"requests": await asyncio.to_thread(list_requests, list(opened.events), windows)}

    def _window(self, name: str) -> int:
        if name not in self._windows:
            self._windows[name] = 0
            with suppress(EvenerError):
                self._windows[name] = open_offline(name).endpoint.facts.window
        return self._windows[name]

    async def _sent(self, request: Request) -> object:
        opened = await self._open_log(request.path_params["log"])
        n, other = request.path_params["n"], request.query_params.get("as", "")
        models = [one for one in self._harness.models if isinstance(one, Model)] if self._harness else []
        try:
            made = await rebuild(self.store, opened.events, n, models=models, as_model=other[:200])
        except EvenerError as error:
            if other or not 0 < n <= len(opened.events) or not isinstance(opened.events[n - 1], ev.ModelCalled):
                raise
            return {"sent": None, "problem": str(error)}  # a model that is unknown here is not an error of the page
        before = [seq for seq, event in enumerate(opened.events[: n - 1], 1) if isinstance(event, ev.ModelCalled)]
        difference = None
        if before and not other:
            earlier = await rebuild(self.store, opened.events, before[-1], models=models)
            difference = await asyncio.to_thread(compare_bodies, earlier.body, made.body)
            difference["why"] = explain_changes(opened.events, before[-1], n, (earlier.body, made.body))
        return {"sent": made, "before": before[-1] if before else 0, "difference": difference}

    async def _audit(self, request: Request) -> object:
        log = request.path_params["log"]
        findings = await self.store.verify(log)
        end = await self.store.link(log)
        return {"findings": findings, "end": end, "intact": not any(one.damage for one in findings)}

    # Decisions.

    async def _approvals(self, request: Request) -> object:
        del request
        waiting = []
        lines, unread = await self._index.lines(), self._index.left
        for line in lines:
            if line.inside or line.group != "waiting":
                continue  # the approvals of a subagent are listed with the run that called it
            try:
                found = await self._describe_waiting(line)
            except EvenerError:
                continue  # the list of threads shows that this log cannot be read
            waiting += [found] if found else []
        return {"waiting": waiting, "unread": unread}

    async def _describe_waiting(self, line: ListedThread) -> dict[str, object] | None:
        state = await state_of(self.store, line.log)
        asked = keyed(approvals_of(state, line.log)) if state.finished is None else {}
        if not asked:
            return None
        answer = (state.reply.output or state.reply.message.text) if state.reply else ""
        shown = [_show_approval(key, one, answer if one.interrupt == "output" else "") for key, one in asked.items()]
        title = line.title or (line.seen.prompt if line.seen else "")
        return {"thread": line.thread, "log": line.log, "title": title, "asked": shown}

    async def _decide(self, request: Request) -> object:
        body = await _body(request, DecideBody)
        made = {key: msgspec.structs.replace(one, by=self._by or "viewer") for key, one in body.decisions.items()}
        if any(not one.digest for one in made.values()):
            raise UsageError("A decision must contain the digest of what the page showed. Reload the page, then decide.")
        if self._harness is not None:
            await self._harness.decide(body.log, made)
        else:
            benches = await self._benches(body.log)
            await decide(self.store, body.log, made, court=lambda name: benches[name])
        self._index.expire()
        return {"decided": list(made), **self._next_words("resume", body.log)}

    async def _benches(self, log: str) -> Mapping[str, Bench]:
        """Return the tools that the logs describe, to check decisions with. The run checks them again with its own tools."""
        found: dict[str, Bench] = {}
        for one in approvals_of(await state_of(self.store, log), log):
            state = await state_of(self.store, one.thread)
            found[state.harness] = _bench_of(state.config.tools if state.config else ())
        return found

    # Forking and continuing.

    async def _fork(self, request: Request) -> object:
        body = await _body(request, ForkBody)
        made = await fork_at(self.store, body.log, body.at, harness="")
        self._index.expire()
        return {"log": made.log, **self._next_words("chat", made.log)}

    async def _run(self, request: Request) -> object:
        body = await _body(request, RunBody)
        if self._harness is None:
            return {"started": False, **self._next_words("chat" if body.prompt else "resume", body.log, model=body.model)}
        harness = self._harness.with_model(body.model) if body.model else self._harness
        thread = harness.thread(branch=body.log)
        stream = thread.stream(body.prompt) if body.prompt else thread.resume_stream()
        self._runs.follow(body.log, stream)
        return {"started": True}

    def _next_words(self, command: str, log: str, *, model: str = "") -> dict[str, object]:
        """Return the command that continues from here, for actions that this process cannot do."""
        named = ["-r", log] if command == "chat" else [log]
        return {"command": ["evener", command, *self._words, *(["-m", model] if model else []), *named]}

    # Streams and files.

    async def _live(self, request: Request) -> Response:
        if self._streams >= MOST_STREAMS:
            return Response(status_code=503)
        return StreamingResponse(self._changes(request, request.query_params.get("log", "")), media_type="text/event-stream")

    async def _changes(self, request: Request, log: str) -> AsyncIterator[bytes]:
        """Notify a page when its log, or any log, has new events."""
        self._streams += 1
        known: object = None
        beat = 0.0
        try:
            while not self.closing.is_set() and not await request.is_disconnected():
                seq = 0
                with suppress(EvenerError):
                    seq = (await self.store.link(log)).seq if log else 0
                await self._index.lines(rarely=True)
                error, partial = self._runs.errors.get(log, ""), self._runs.partial(log)
                found = (seq, self._index.version, error, partial and partial.pieces)
                now = asyncio.get_running_loop().time()
                if found != known or now >= beat:
                    known, beat = found, now + BEAT
                    waiting = self._index.count(agents=False)["waiting"]
                    body = {
                        "log": log, "events": seq, "threads": self._index.version, "waiting": waiting, "error": error,
                        "partial": partial,
                    }  # fmt: skip
                    yield b"data: " + msgspec.json.encode(body) + b"\n\n"
                await asyncio.sleep(LOOK)
        finally:
            self._streams -= 1

    async def _media(self, request: Request) -> Response:
        params = request.path_params
        events = await self.store.read(params["log"], after=params["n"] - 1, until=params["n"])
        found = await find_image(self.store, events[0], params["place"]) if events else None
        if found is None:
            return Response(
                status_code=204
            )  # the page shows a text instead; an error status would appear on the browser's console
        media_type, content = found
        return Response(content, media_type=media_type, headers={"content-disposition": "inline; filename=image"})

    async def _export(self, request: Request) -> Response:
        store = self.store
        if not isinstance(store, Portable):
            return Response(status_code=404)
        log = request.path_params["log"]
        await store.link(log)  # raises if the log cannot be read, before the file begins
        return StreamingResponse(export_lines(store, log), media_type="application/x-ndjson", headers=_as_file(log, "jsonl"))

    async def _export_html(self, request: Request) -> Response:
        opened = await self._open_log(request.path_params["log"])
        page = await asyncio.to_thread(write_document, opened.log, list(opened.conversation.items))
        return Response(page, media_type="text/html; charset=utf-8", headers=_as_file(opened.log, "html"))

    async def _metrics(self, request: Request) -> Response:
        del request
        return Response(await self._index.metrics(), media_type=CONTENT_TYPE)


class DecideBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Decisions about the approvals that wait in a log, by their keys."""

    log: str
    decisions: dict[str, Decision]


class ForkBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where to fork: after the event of this number, or after the message of this id."""

    log: str
    at: int | str


class RunBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which log to continue, and how. Without a prompt its run is resumed; without a model the harness's own is used."""

    log: str
    prompt: str = ""
    model: str = ""


def _show_approval(key: str, approval: Approval, answer: str) -> dict[str, object]:
    """Return the part of an approval that a page shows: all of it, or, if it is too large, enough to reject it."""
    call = approval.call
    size = len(call.raw) + len(call.name) if call else len(answer)
    if size > LARGEST_SHOWN:
        call = msgspec.structs.replace(call, name=call.name[:LABEL], raw=call.raw[:LABEL]) if call else None
        answer = answer[:LABEL]
    short = msgspec.structs.replace(approval, call=call, why=approval.why[:LABEL], rule=approval.rule[:LABEL])
    return {
        "key": key, "approval": short, "answer": answer, "too_large": size if size > LARGEST_SHOWN else 0,
        "shown": write_arguments(call.raw) if call else "", "question": question_of(call) if call else None,
    }  # fmt: skip


async def _body(request: Request, kind: type[B]) -> B:
    try:
        return msgspec.json.decode(await request.body(), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"The request is invalid: {error}.") from None


def _bench_of(specs: Sequence[ToolSpec]) -> Bench:
    """Return tools that cannot run: only their schemas are known."""
    asking = question_tool()  # its real tool accepts the user's answer, which is not in the schema
    toolbox = Toolbox(
        asking if spec.schema == asking.spec.schema else Tool.of(spec.name, spec.schema, function=_never, description="")
        for spec in specs
    )
    schemas = {spec.name: spec.schema for spec in specs}

    def judge(call: ToolCall) -> Judgement:
        return Judgement("ask", digest=digest_of(call, schemas.get(call.name, "")))

    return Bench(toolbox, judge)


def _never(arguments: dict[str, object]) -> str:
    del arguments
    raise UsageError("The viewer cannot run tools.")


def _as_file(log: str, ending: str) -> dict[str, str]:
    """Return the header that names a download after its log (RFC 6266)."""
    return {"content-disposition": f"attachment; filename*=UTF-8''{quote(log[:32], safe='')}.{ending}"}


def _answer(work: Answering) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that answers with JSON. An error of Evener becomes a status and a sentence."""

    async def endpoint(request: Request) -> Response:
        for name, value in request.path_params.items():  # the guard passes them on still quoted
            request.path_params[name] = unquote(value) if isinstance(value, str) else value
        try:
            made = await work(request)
            return made if isinstance(made, Response) else _json(made)
        except EvenerError as error:
            return _json({"error": str(error), "kind": type(error).__name__}, status=410 if isinstance(error, Erased) else 409)
        except (ValueError, OverflowError) as error:
            return _json({"error": f"The request is invalid: {error}.", "kind": "BadRequest"}, status=400)

    return endpoint


def _json(value: object, *, status: int = 200) -> Response:
    return Response(_encoder.encode(value), status_code=status, media_type="application/json")


_encoder = msgspec.json.Encoder(decimal_format="string", enc_hook=str)


def _raw(event: ev.Event) -> object:
    """Return an event as plain values. Long texts are cut; the event's own address returns it whole."""
    return _cut(msgspec.to_builtins(event, enc_hook=str))


def _cut(value: object) -> object:
    match value:
        case str() if len(value) > 5_000:
            return f"{value[:5_000]}... ({len(value):,} characters)"
        case dict():
            return {key: _cut(one) for key, one in value.items()}
        case list() | tuple():
            return [_cut(one) for one in value]
        case _:
            return value


def _with_markdown(role: str, pieces: list[Piece]) -> list[Piece]:
    """Parse the Markdown of a model's text, once."""
    for piece in pieces:
        if piece.kind == "text" and role == "assistant" and not piece.markdown and not piece.length:
            piece.markdown = parse_markdown(piece.text)
    return pieces


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 12 else 0


async def _static(request: Request) -> Response:
    name = request.path_params["name"] or "index.html"
    found = next((one for one in files("evener.view").joinpath("static").iterdir() if one.name == name), None)
    if found is None:
        return Response(status_code=404)
    return Response(found.read_bytes(), media_type=KINDS[name.rpartition(".")[2]])


# Serving.


async def serve(viewer: Viewer, listening: socket.socket, ready: Callable[[str], None]) -> None:
    """Serve until `viewer.closing` is set, or until interrupted.

    `ready` is called with the address, which contains the token.
    """
    token = secrets.token_urlsafe(24)
    port = listening.getsockname()[1]
    app = viewer.app(token=token, port=port)
    config = uvicorn.Config(
        app, log_level="critical", access_log=False, server_header=False, lifespan="off", timeout_graceful_shutdown=1,
        limit_concurrency=200, ws="none",
    )  # fmt: skip
    server = uvicorn.Server(config)
    ready(f"http://127.0.0.1:{port}/{token}/")

    async def stop() -> None:
        await viewer.closing.wait()
        server.should_exit = True

    stopping = asyncio.create_task(stop())
    try:
        await server.serve(sockets=[listening])
    finally:
        stopping.cancel()
        await viewer.aclose()
        listening.close()
