"""Sessions of an editor: each is a thread. Prompts run, approvals become requests for permission, a cancel stops the run.

The session's id is the thread's, so any later process can load it. Decides nothing: the policy and the user do.
"""

import asyncio
import os
from collections.abc import Callable
from datetime import UTC, datetime
from time import time

import msgspec
from msgspec.structs import replace

from evener import __version__
from evener.acp.calls import Frame, describe_call
from evener.acp.connection import NOT_FOUND, NOT_JSON, AcpConnection, RequestRefused, Send, open_pipes
from evener.acp.editor_tools import EditorTools, could_leak
from evener.acp.servers import EditorServers
from evener.acp.updates import UpdateEncoder, chunk, read_prompt
from evener.errors import ApprovalStale
from evener.events import Opened, Verdict
from evener.harness import Decision, Harness, Thread
from evener.harness.approvals import keyed
from evener.harness.stream import RunStream
from evener.result import Approval, RunResult
from evener.store.protocol import NoLog, Summary, state_of
from evener.store.sqlite.leases import new_claim
from evener.toolset.question import ASK_USER
from evener.transcript.mint import new_id

PERMISSION_SECONDS = 3_600.0
OPTIONS = (
    {"optionId": "allow", "name": "Allow", "kind": "allow_once"},
    {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
)
CALL_OPTIONS = (
    OPTIONS[0],
    {"optionId": "allow_always", "name": "Always allow this tool in this session", "kind": "allow_always"},
    OPTIONS[1],
    {"optionId": "reject_always", "name": "Always reject this tool in this session", "kind": "reject_always"},
)
VERDICTS: dict[str, Verdict] = {"allow": "allow", "allow_always": "allow", "reject": "reject", "reject_always": "reject"}
STOPS = {
    "done": "end_turn",
    "refusal": "refusal",
    "length": "max_tokens",
    "cancelled": "cancelled",
    "limit": "max_turn_requests",
}
PAGE = 50
MOST_TITLE = 80
Harnesses = Callable[[str], Harness]
"""The harness for a folder."""


class EditorSession(msgspec.Struct, eq=False):
    """One conversation of an editor. `always` are verdicts that the user gave for all calls of a tool."""

    id: str
    cwd: str
    harness: Harness
    thread: Thread
    servers: EditorServers
    always: dict[str, Verdict]
    run: RunStream | None = None
    asking: asyncio.Future[Frame] | None = None
    busy: bool = False
    cancelled: bool = False


class AcpAgent:
    """One editor. `send` writes a frame; `receive` takes one and returns when work on it has begun.

    `harness` is one agent for every folder, or a function that returns the agent for a folder.
    """

    def __init__(self, harness: Harness | Harnesses, send: Send) -> None:
        self._harness: Harnesses = (lambda _cwd: harness) if isinstance(harness, Harness) else harness
        self._connection = AcpConnection(send, self._perform)
        self.receive = self._connection.receive
        self._sessions: dict[str, EditorSession] = {}
        self._offers: Frame = {}

    async def aclose(self) -> None:
        """Stop all runs, because the editor is gone. The threads can be loaded later."""
        await self._connection.aclose()
        for session in tuple(self._sessions.values()):
            await self._close(session)

    async def _perform(self, method: str, params: Frame) -> Frame:
        match method:
            case "initialize":
                return self._initialize(params)
            case "authenticate":
                return {}
            case "session/cancel":
                await self._cancel(self._sessions.get(_text_of(params, "sessionId")))
                return {}
            case "session/list":
                return await self._list(params)
        known = {
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/fork": self._fork,
            "session/close": self._end,
            "session/prompt": self._prompt,
        }
        if method not in known:
            raise RequestRefused(f"There is no method {method[:100]!r}.", code=NOT_FOUND)
        return await known[method](params)

    def _initialize(self, params: Frame) -> Frame:
        offers = params.get("clientCapabilities")
        self._offers = offers if isinstance(offers, dict) else {}
        return {
            "protocolVersion": 1,
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": False},
                "sessionCapabilities": {"list": {}, "fork": {}, "resume": {}, "close": {}},
            },
            "agentInfo": {"name": "evener", "version": __version__},
            "authMethods": [],
        }

    # Sessions.

    async def _open(self, id: str, params: Frame) -> EditorSession:
        """Open a session with the tools of the harness, of the editor and of the servers that the editor names."""
        cwd = os.path.normpath(_text_of(params, "cwd"))
        if not os.path.isabs(cwd):
            raise RequestRefused("`cwd` must be an absolute path.")
        servers = EditorServers(params.get("mcpServers"), cwd=cwd)
        harness = self._harness(cwd)

        async def ask(method: str, given: Frame, seconds: float) -> Frame:
            return await self._connection.ask(method, {"sessionId": id, **given}, seconds=seconds)

        own = EditorTools(ask, lambda update: self._update(id, update), cwd=cwd).offered(self._offers)
        if could_leak(harness.tools, own):
            own = []
            servers.problems.append(
                "The editor's files are not offered as tools: the agent could send them out without approval."
            )
        tools = [one for one in (*own, *await servers.load()) if one.name not in harness.tools]
        harness = harness.with_tools(*tools) if tools else harness
        session = EditorSession(id, cwd, harness, harness.thread(id), servers, {})
        await self._close(self._sessions.get(id))
        self._sessions[id] = session
        return session

    async def _close(self, session: EditorSession | None) -> None:
        if session is not None:
            await self._cancel(session)
            if session.run is not None:
                await session.run.aclose()
            await session.servers.aclose()

    def _session(self, params: Frame) -> EditorSession:
        id = _text_of(params, "sessionId")
        if id not in self._sessions:
            raise RequestRefused(f"There is no session {id!r}. Begin a new one, or load it.")
        return self._sessions[id]

    async def _new(self, params: Frame) -> Frame:
        id = new_id()
        session = await self._open(id, params)
        # It is in the store before its first prompt: clients load a session that another process of the agent made.
        first = Opened(at=time(), thread=id, harness=session.harness.name)
        await (await session.harness.store.create(id, first, holder=new_claim())).aclose()
        for problem in session.servers.problems:
            await self._update(session.id, chunk("agent_message_chunk", f"[{problem}]\n"))
        return {"sessionId": session.id}

    async def _open_stored(self, params: Frame) -> EditorSession:
        """Open a session whose thread is in the store."""
        session = await self._open(_text_of(params, "sessionId"), params)
        try:
            await session.thread.state()
        except NoLog:
            await self._close(self._sessions.pop(session.id))
            raise RequestRefused(f"There is no session {session.id!r} in the store. Begin a new one.") from None
        return session

    async def _load(self, params: Frame) -> Frame:
        session = await self._open_stored(params)
        shown = UpdateEncoder(session.harness.tools, session.cwd)
        for message in (await session.thread.state()).transcript.messages:
            for update in shown.replay(message):
                await self._update(session.id, update)
        return {}

    async def _resume(self, params: Frame) -> Frame:
        await self._open_stored(params)
        return {}

    async def _fork(self, params: Frame) -> Frame:
        id = _text_of(params, "sessionId")
        known = self._sessions.get(id)
        thread = known.thread if known else (await self._open_stored(params)).thread
        made = await thread.fork()
        await self._open(made.id, params)
        return {"sessionId": made.id}

    async def _end(self, params: Frame) -> Frame:
        await self._close(self._sessions.pop(self._session(params).id))
        return {}

    async def _list(self, params: Frame) -> Frame:
        """List the threads of this harness, the newest first. The folder of each is in the metadata of its last prompt."""
        wanted, cursor = params.get("cwd"), params.get("cursor")
        start = int(cursor) if isinstance(cursor, str) and cursor.isdecimal() else 0
        harness = self._harness(wanted if isinstance(wanted, str) else os.getcwd())
        logs = [one for one in await harness.store.logs() if one.harness == harness.name and not one.erased]
        logs.sort(key=lambda one: -one.changed)
        found: list[Frame] = []
        for number, log in enumerate(logs[start:], start + 1):
            about = await _describe(harness, log)
            if about and (not wanted or about["cwd"] == wanted):
                found.append(about)
            if len(found) == PAGE and number < len(logs):
                return {"sessions": found, "nextCursor": str(number)}
        return {"sessions": found}

    async def _update(self, session: str, update: Frame) -> None:
        await self._connection.tell("session/update", {"sessionId": session, "update": update})

    # Prompts.

    async def _prompt(self, params: Frame) -> Frame:
        session = self._session(params)
        if session.busy:
            raise RequestRefused("This session is processing a prompt. Cancel it, or wait for its end.")
        prompt = read_prompt(params.get("prompt"))
        if not prompt:
            raise RequestRefused("The prompt is empty. Send a text.")
        session.busy, session.cancelled = True, False
        try:
            about = {"cwd": session.cwd, "session": session.id}
            shown = UpdateEncoder(session.harness.tools, session.cwd)
            result = await self._watch(session, session.thread.stream(prompt, metadata=about), shown)
            while result.stop == "approval" and await self._decide(session, result):
                result = await self._watch(session, session.thread.resume_stream(), shown)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not session.cancelled or (task is not None and task.cancelling()):
                raise
            return {"stopReason": "cancelled"}  # the session was closed or loaded anew, and the run closed with it
        finally:
            session.busy = False
        if result.stop not in STOPS and result.stop != "approval":
            await self._update(session.id, chunk("agent_message_chunk", f"\n\n[Stopped: {result.stop}. {result.detail}]"))
        stop = "cancelled" if session.cancelled else STOPS.get(result.stop, "end_turn")
        return {"stopReason": stop, "usage": _usage(result)}

    async def _watch(self, session: EditorSession, run: RunStream, shown: UpdateEncoder) -> RunResult:
        """Send the updates of a run to the editor until it stops; return its result."""
        session.run = run
        if session.cancelled:  # before there was a run to cancel
            asyncio.ensure_future(run.cancel("The user cancelled it.")).add_done_callback(lambda done: done.exception())
        try:
            async with run:
                async for event in run:
                    for update in shown.encode(event):
                        await self._update(session.id, update)
                return await run.result()
        finally:
            session.run = None

    async def _cancel(self, session: EditorSession | None) -> None:
        if session is None or not session.busy:
            return
        session.cancelled = True
        if session.asking is not None and not session.asking.done():
            session.asking.cancel()
        if session.run is not None:
            await session.run.cancel("The user cancelled it.")

    # Permissions.

    async def _decide(self, session: EditorSession, result: RunResult) -> bool:
        """Ask the editor about all approvals that wait. False if the user cancelled, or the run ended in another process."""
        made: dict[str, Decision] = {}
        for key, waiting in keyed(result.approvals).items():
            asks = waiting.interrupt == "tool" and waiting.call is not None and waiting.call.name == ASK_USER
            decision = await (self._put_question if asks else self._ask_permission)(session, waiting)
            if decision is None or session.cancelled:
                return False
            made[key] = replace(decision, digest=waiting.digest, by="editor")
        try:
            await session.thread.decide(made)
        except ApprovalStale as error:  # it was decided elsewhere, or too late: the log says how the run goes on
            await self._update(session.id, chunk("agent_message_chunk", f"\n\n[{error}]\n\n"))
            return (await session.thread.state()).finished is None
        return True

    async def _put_question(self, session: EditorSession, waiting: Approval) -> Decision | None:
        """Ask the user a question by a form, or by a list of options. Return None if the user cancelled.

        If the editor supports neither, the question is rejected.
        """
        assert waiting.call is not None
        asked = msgspec.json.decode(waiting.call.raw, type=dict[str, object])
        listed = asked.get("choices")
        choices = [str(one) for one in listed] if isinstance(listed, list) else []
        message = str(asked.get("question", ""))
        match self._offers.get("elicitation"):
            case {"form": dict()}:
                field = {"type": "string", "title": "Answer", **({"enum": choices} if choices else {})}
                schema = {"type": "object", "properties": {"answer": field}, "required": ["answer"]}
                found = await self._ask(
                    session, "elicitation/create", {"mode": "form", "message": message, "requestedSchema": schema}
                )
            case _ if choices:
                options = [{"optionId": one, "name": one, "kind": "allow_once"} for one in choices]
                call = {"toolCallId": waiting.key, "title": message, "status": "pending"}
                found = await self._ask(
                    session, "session/request_permission", {"toolCall": call, "options": [*options, OPTIONS[1]]}
                )
            case _:
                return Decision("reject", "The user's editor has no way to ask for an answer.")
        match found:
            case None:
                return None
            case {"action": "accept", "content": {"answer": str(answer)}}:
                return Decision("allow", arguments={**asked, "answer": answer})
            case {"outcome": {"outcome": "selected", "optionId": str(answer)}} if answer in choices:
                return Decision("allow", arguments={**asked, "answer": answer})
        return Decision("reject", "The user gave no answer.")

    async def _ask_permission(self, session: EditorSession, waiting: Approval) -> Decision | None:
        tool = waiting.call.name if waiting.call is not None and waiting.interrupt == "tool" else ""
        if tool in session.always:
            return Decision(session.always[tool])
        call: Frame = {"toolCallId": waiting.key, "title": waiting.why or waiting.interrupt}
        if waiting.call is not None:
            call = describe_call(waiting.call, session.harness.tools, session.cwd)
        options = CALL_OPTIONS if tool else OPTIONS
        answer = await self._ask(
            session, "session/request_permission", {"toolCall": {**call, "status": "pending"}, "options": options}
        )
        match answer:
            case {"outcome": {"outcome": "selected", "optionId": str(option)}} if option in VERDICTS:
                if tool and option.endswith("_always"):
                    session.always[tool] = VERDICTS[option]
                return Decision(VERDICTS[option])
            case {"error": _}:
                return Decision("reject")
        return None

    async def _ask(self, session: EditorSession, method: str, params: Frame) -> Frame | None:
        """Send a request to the editor and return its answer, or an `error` if it refuses; None if the user cancelled."""
        session.asking = asyncio.ensure_future(
            self._connection.ask(method, {"sessionId": session.id, **params}, seconds=PERMISSION_SECONDS)
        )
        try:
            return await session.asking
        except RequestRefused as error:
            return {"error": str(error)}
        except asyncio.CancelledError:
            if not session.cancelled:
                raise
            return None
        finally:
            session.asking = None


async def _describe(harness: Harness, log: Summary) -> Frame | None:
    """Return the entry of a log for the list of sessions; None for a branch that is not a session."""
    state = await state_of(harness.store, log.log)
    about = msgspec.json.decode(state.metadata) if state.metadata else {}
    if not isinstance(about.get("cwd"), str) or (not log.head and about.get("session") != log.log):
        return None
    first = next((message.text for message in state.transcript.messages if message.role == "user" and message.text), "")
    title = log.title or " ".join(first.split())[:MOST_TITLE]
    changed = datetime.fromtimestamp(log.changed, UTC).isoformat()
    return {"sessionId": log.thread if log.head else log.log, "cwd": about["cwd"], "title": title, "updatedAt": changed}


def _usage(result: RunResult) -> Frame:
    used = result.usage
    return {
        "inputTokens": used.input_total, "outputTokens": used.output_total, "totalTokens": used.input_total + used.output_total,
        "thoughtTokens": used.reasoning, "cachedReadTokens": used.cache_read, "cachedWriteTokens": used.cache_write,
    }  # fmt: skip


def _text_of(params: Frame, name: str) -> str:
    found = params.get(name)
    if not isinstance(found, str) or not found:
        raise RequestRefused(f"`{name}` must be a text.")
    return found


async def serve_acp(harness: Harness | Harnesses) -> None:
    """Serve one editor over standard input and output until the input ends."""
    async with open_pipes() as (frames, send):
        agent = AcpAgent(harness, send)
        try:
            async for frame in frames:
                if frame is None:
                    told = {"code": NOT_JSON, "message": "This line is not JSON, or longer than 16 MB."}
                    await send({"jsonrpc": "2.0", "id": None, "error": told})
                else:
                    agent.receive(frame)
        finally:
            await agent.aclose()
