"""Sessions of an editor: each is a thread. Prompts run, approvals become requests for permission, a cancel stops the run.

The session's id is the thread's, so that any later process can load it. Decides nothing: the policy and the user do.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from evener import __version__
from evener.acp.updates import Frame, describe_call, prompt_text, replay_message, updates_of
from evener.errors import EvenerError
from evener.harness import Decision, Harness, Thread
from evener.harness.approvals import keyed
from evener.harness.stream import RunStream
from evener.result import Approval, RunResult
from evener.store.protocol import NoLog
from evener.transcript.mint import new_id

__all__ = ["AcpAgent", "serve_acp"]

MOST_LINE = 16 << 20
PERMISSION_SECONDS = 3_600.0
OPTIONS = (
    {"optionId": "allow", "name": "Allow", "kind": "allow_once"},
    {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
)
STOPS = {"done": "end_turn", "refusal": "refusal", "length": "max_tokens", "cancelled": "cancelled"}
INVALID, NOT_FOUND, INTERNAL = -32602, -32601, -32603

Send = Callable[[Frame], Awaitable[None]]
Params = Mapping[str, object]


class _Wrong(Exception):
    """An error for the editor: code and text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class AcpAgent:
    """One connection. `send` writes a frame; `receive` takes one and returns when it has begun to be worked on."""

    def __init__(self, harness: Harness, send: Send) -> None:
        self._harness = harness
        self._send = send
        self._threads: dict[str, Thread] = {}
        self._runs: dict[str, RunStream] = {}
        self._cancelled: set[str] = set()
        self._asked: dict[object, asyncio.Future[Params]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._number = 0

    def receive(self, frame: Frame) -> None:
        """Work on a request, a notification, or an answer to a request of ours."""
        if "method" not in frame:
            asked = self._asked.pop(frame.get("id"), None)
            result = frame.get("result")
            if asked is not None and not asked.done():
                asked.set_result(result if isinstance(result, dict) else {})
            return
        task = asyncio.get_running_loop().create_task(self._answer(frame))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Stop what is under way: the editor is gone. The threads can be loaded later."""
        for task in tuple(self._tasks):
            task.cancel()
        for run in tuple(self._runs.values()):
            await run.aclose()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _answer(self, frame: Frame) -> None:
        id, params = frame.get("id"), frame.get("params")
        try:
            result = await self._perform(str(frame["method"]), params if isinstance(params, dict) else {})
            answer: Frame = {"result": result}
        except _Wrong as error:
            answer = {"error": {"code": error.code, "message": str(error)}}
        except EvenerError as error:
            answer = {"error": {"code": INTERNAL, "message": str(error)}}
        if id is not None:
            await self._send({"jsonrpc": "2.0", "id": id, **answer})

    async def _perform(self, method: str, params: Params) -> Frame:
        match method:
            case "initialize":
                return _capabilities()
            case "authenticate":
                return {}
            case "session/new":
                id = new_id()
                self._threads[id] = self._harness.thread(id, begin=True)
                return {"sessionId": id}
            case "session/load":
                return await self._load(params)
            case "session/prompt":
                return await self._prompt(params)
            case "session/cancel":
                await self._cancel(_text_of(params, "sessionId"))
                return {}
        raise _Wrong(NOT_FOUND, f"There is no method {method[:100]!r}.")

    # Sessions.

    def _thread(self, params: Params) -> tuple[str, Thread]:
        id = _text_of(params, "sessionId")
        if id not in self._threads:
            raise _Wrong(INVALID, f"There is no session {id!r}. Begin a new one, or load it.")
        return id, self._threads[id]

    async def _load(self, params: Params) -> Frame:
        id = _text_of(params, "sessionId")
        thread = self._harness.thread(id)
        try:
            state = await thread.state()
        except NoLog:
            raise _Wrong(INVALID, f"There is no session {id!r} in the store.") from None
        self._threads[id] = thread
        for message in state.transcript.messages:
            for update in replay_message(message, self._harness.tools):
                await self._update(id, update)
        return {}

    async def _update(self, session: str, update: Frame) -> None:
        params = {"sessionId": session, "update": update}
        await self._send({"jsonrpc": "2.0", "method": "session/update", "params": params})

    # Prompts.

    async def _prompt(self, params: Params) -> Frame:
        id, thread = self._thread(params)
        if id in self._runs:
            raise _Wrong(INVALID, "A prompt is being worked on in this session. Cancel it, or wait for its end.")
        text = prompt_text(params.get("prompt"))
        if not text:
            raise _Wrong(INVALID, "The prompt is empty.")
        self._cancelled.discard(id)
        result = await self._watch(id, thread.stream(text))
        while result.stop == "approval" and await self._decide(id, thread, result):
            result = await self._watch(id, thread.resume_stream())
        stop = "cancelled" if id in self._cancelled else STOPS.get(result.stop, "max_turn_requests")
        if result.stop not in STOPS and result.stop != "approval":
            await self._say(id, f"\n\n[Stopped: {result.stop}. {result.detail}]")
        return {"stopReason": stop}

    async def _say(self, session: str, text: str) -> None:
        content = {"type": "text", "text": text}
        await self._update(session, {"sessionUpdate": "agent_message_chunk", "content": content})

    async def _watch(self, session: str, run: RunStream) -> RunResult:
        """Show a run to its end. Runs inside its calls are not shown."""
        self._runs[session] = run
        try:
            async with run:
                async for event in run:
                    if not event.place.parent_run:
                        for update in updates_of(event, self._harness.tools):
                            await self._update(session, update)
                return await run.result()
        finally:
            del self._runs[session]

    async def _cancel(self, session: str) -> None:
        self._cancelled.add(session)
        for asked in tuple(self._asked.values()):
            if not asked.done():
                asked.set_result({"outcome": {"outcome": "cancelled"}})
        if session in self._runs:
            await self._runs[session].cancel("The user cancelled it.")

    async def _decide(self, session: str, thread: Thread, result: RunResult) -> bool:
        """Ask the editor about everything that waits; False if the user cancelled instead."""
        made: dict[str, Decision] = {}
        for key, waiting in keyed(result.approvals).items():
            chosen = await self._ask(session, waiting)
            if chosen is None:
                return False
            verdict = "allow" if chosen == "allow" else "reject"
            if verdict == "reject" and waiting.call is not None:  # it will not run, so no event tells its end
                shown = describe_call(waiting.call, self._harness.tools)
                await self._update(session, {"sessionUpdate": "tool_call", "status": "failed", **shown})
            made[key] = Decision(verdict, digest=waiting.digest, by="editor")  # type: ignore[arg-type]
        await thread.decide(made)
        return True

    async def _ask(self, session: str, waiting: Approval) -> str | None:
        call: Frame = {"toolCallId": waiting.key, "title": waiting.why or waiting.interrupt}
        if waiting.call is not None:
            call = {**describe_call(waiting.call, self._harness.tools), "status": "pending"}
        self._number += 1
        asked = self._asked[self._number] = asyncio.get_running_loop().create_future()
        params = {"sessionId": session, "toolCall": call, "options": OPTIONS}
        await self._send({"jsonrpc": "2.0", "id": self._number, "method": "session/request_permission", "params": params})
        try:
            answer = await asyncio.wait_for(asked, PERMISSION_SECONDS)
        except TimeoutError:
            return "reject"
        match answer.get("outcome"):
            case {"outcome": "selected", "optionId": str(option)}:
                return option
        return None


def _capabilities() -> Frame:
    return {
        "protocolVersion": 1,
        "agentCapabilities": {"loadSession": True, "promptCapabilities": {"embeddedContext": True}},
        "agentInfo": {"name": "evener", "version": __version__},
        "authMethods": [],
    }


def _text_of(params: Params, name: str) -> str:
    found = params.get(name)
    if not isinstance(found, str) or not found:
        raise _Wrong(INVALID, f"`{name}` must be a text.")
    return found


async def serve_acp(harness: Harness) -> None:
    """Serve one editor over standard input and output until the input ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MOST_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    output = sys.stdout.buffer

    async def send(frame: Frame) -> None:
        output.write(msgspec.json.encode(frame) + b"\n")
        output.flush()

    agent = AcpAgent(harness, send)
    try:
        while line := await reader.readline():
            try:
                frame = msgspec.json.decode(line, type=dict[str, object])
            except msgspec.DecodeError:
                await send({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "This line is not JSON."}})
                continue
            agent.receive(frame)
    finally:
        await agent.aclose()
