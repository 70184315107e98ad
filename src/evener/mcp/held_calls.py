"""Calls of a server that may ask questions: one at a time, kept open while a question waits for the user. Loaded with the
SDK.

Everything here runs on the event loop of the servers. A question that is not answered in time is declined, and the call
continues.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
from mcp.client import ClientRequestContext
from mcp.client.session import ElicitationFnT, SamplingFnT
from mcp_types import (
    INVALID_PARAMS,
    AudioContent,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    ImageContent,
    TextContent,
)

from evener.mcp.content import block_of
from evener.mcp.questions import MOST_QUESTION, Fields, ServerQuestion
from evener.tools.result import Envelope

if TYPE_CHECKING:
    from evener.mcp.servers import Answer

T = TypeVar("T")
Ask = Callable[[ServerQuestion], Awaitable[Fields | None]]
"""Puts a question; None if there is no answer."""
DECLINED = ElicitResult(action="decline")
TOO_LONG = ErrorData(code=INVALID_PARAMS, message=f"A question has at most {MOST_QUESTION:,} characters.")
REJECTED = -1
"""The code of a sampling request that the user rejected, as the specification has it."""


class Open(msgspec.Struct, eq=False):
    """A question that waits. `number` counts those of one call."""

    number: int
    question: ServerQuestion
    answer: "asyncio.Future[Fields | None]"


class HeldCall:
    """One call in progress. Its clock is stopped while a question waits."""

    def __init__(self, seconds: float, owner: str) -> None:
        self.owner = owner
        self.task: asyncio.Task[Envelope] | None = None
        self._clock: asyncio.Timeout | None = None
        self._seconds = seconds
        self._open: list[Open] = []
        self._asked = 0
        self._news = asyncio.Event()

    @property
    def waits(self) -> bool:
        """True if a question waits for an answer."""
        return bool(self._open)

    async def timed(self, work: Awaitable[T]) -> T:
        """Run `work` within the server's timeout. The time in which its questions wait is not counted."""
        async with asyncio.timeout(self._seconds) as self._clock:
            try:
                return await work
            finally:
                self._clock = None

    async def put(self, question: ServerQuestion, seconds: float) -> Fields | None:
        """Wait for the answer to a question; None if it does not come within `seconds`."""
        loop = asyncio.get_running_loop()
        one = Open(self._asked, question, loop.create_future())
        self._asked += 1
        self._open.append(one)
        self._news.set()
        self._set_clock(None)
        try:
            return await asyncio.wait_for(one.answer, seconds)
        except TimeoutError:
            return None
        finally:
            self._open.remove(one)
            if not self._open:
                self._set_clock(loop.time() + self._seconds)

    def _set_clock(self, when: float | None) -> None:
        if self._clock is not None and not self._clock.expired():
            self._clock.reschedule(when)

    async def next(self) -> Envelope | Open:
        """Wait for the next question, or for the result."""
        assert self.task is not None
        while not self.task.done():
            if self._open:
                return self._open[0]
            self._news.clear()
            news = asyncio.ensure_future(self._news.wait())
            try:
                await asyncio.wait((self.task, news), return_when=asyncio.FIRST_COMPLETED)
            finally:
                news.cancel()
        return await self.task

    async def answer(self, one: Open, given: Fields | None) -> None:
        """Send the answer to the server."""
        if not one.answer.done():
            one.answer.set_result(given)
            await asyncio.sleep(0)

    async def cancel(self) -> None:
        """Cancel the call."""
        if self.task is not None and not self.task.done():
            self.task.cancel()
            await asyncio.wait((self.task,))


class HeldCalls:
    """The calls of one server, by the key of each call."""

    def __init__(self, *, seconds: float, question_seconds: float) -> None:
        self._seconds = seconds
        self._question_seconds = question_seconds
        self._calls: dict[str, HeldCall] = {}
        self._turn = asyncio.Lock()
        self._current: HeldCall | None = None

    def find(self, key: str) -> HeldCall | None:
        """Return the open call of this key, or the finished one whose result was not fetched; None if there is neither."""
        return self._calls.get(key)

    async def begin(self, key: str, owner: str, work: Callable[[HeldCall], Awaitable[Envelope]]) -> HeldCall | None:
        """Start a call after the one before it has ended. None if that one waits for the user, or takes too long.

        `owner` is the calling thread. It calls one at a time, so a new call means that it has abandoned the one before.
        """
        before = self._current
        if before is not None and before.waits:
            if before.owner != owner:
                return None
            await before.cancel()
        try:
            await asyncio.wait_for(self._turn.acquire(), self._seconds)
        except TimeoutError:
            return None
        held = self._current = self._calls[key] = HeldCall(self._seconds, owner)
        held.task = asyncio.create_task(self._run(held, work))
        return held

    async def _run(self, held: HeldCall, work: Callable[[HeldCall], Awaitable[Envelope]]) -> Envelope:
        try:
            return await work(held)
        finally:
            self._current = None
            self._turn.release()

    def forget(self, key: str) -> None:
        """Remove a call whose result was fetched."""
        self._calls.pop(key, None)

    async def put(self, question: ServerQuestion) -> Fields | None:
        """Pass on a question of the server: it belongs to the open call.

        None without an open call, because no user can be asked.
        """
        if self._current is None:
            return None
        return await self._current.put(question, self._question_seconds)

    async def aclose(self) -> None:
        """Cancel all calls."""
        calls, self._calls = self._calls, {}
        for one in calls.values():
            await one.cancel()


def answer_elicitation(server: str, answer: "Answer") -> ElicitationFnT:
    """Return a callback that passes a server's question to a function of the caller. An answer is sent only if there is one."""
    from evener.mcp.servers import Elicitation

    async def ask(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        del context
        if isinstance(params, ElicitRequestFormParams):
            asked = Elicitation(server, params.message, dict(params.requested_schema))
        else:
            asked = Elicitation(server, params.message, url=params.url)
        given = await answer(asked)
        if given is None:
            return DECLINED
        return ElicitResult(action="accept", content=dict(given) if asked.schema else None)  # type: ignore[arg-type]

    return ask


def ask_elicitation(server: str, put: Ask) -> ElicitationFnT:
    """Return a callback that writes a server's question into the log, and waits for the user's answer."""

    async def ask(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        del context
        kind: Literal["form", "visit"] = "visit"
        if isinstance(params, ElicitRequestFormParams):
            kind, body = "form", {"message": params.message, "schema": dict(params.requested_schema)}
        else:
            body = {"message": params.message, "url": params.url}
        question = ServerQuestion(server, kind, body)
        if len(question.text) > MOST_QUESTION:
            return TOO_LONG
        given = await put(question) or {}
        if given.get("action") != "accept":
            return DECLINED
        content: Any = given.get("content")
        return ElicitResult(action="accept", content=content)

    return ask


def ask_sampling(server: str, put: Ask) -> SamplingFnT:
    """Return a callback that sends a server's messages to the model, if the user allows it."""

    async def ask(context: ClientRequestContext, params: CreateMessageRequestParams) -> CreateMessageResult | ErrorData:
        del context
        body = _sampling_body(params)
        if body is None:
            return ErrorData(code=INVALID_PARAMS, message="A sampling request takes text and images, and no tools.")
        question = ServerQuestion(server, "sampling", body)
        if len(question.text) > MOST_QUESTION:
            return TOO_LONG
        match await put(question):
            case {"text": str(text), "model": str(model), "stop": str(stop)}:
                return CreateMessageResult(role="assistant", content=TextContent(text=text), model=model, stop_reason=stop)
            case {"error": str(why)}:
                return ErrorData(code=REJECTED, message=why)
        return ErrorData(code=REJECTED, message="The user rejected the request, or gave no answer in time.")

    return ask


def _sampling_body(params: CreateMessageRequestParams) -> Fields | None:
    """Return the request for the model; None if it contains something that cannot be sent."""
    messages: list[object] = []
    for one in params.messages:
        content = one.content_as_list
        if params.tools or not content or not all(isinstance(part, TextContent | ImageContent) for part in content):
            return None
        blocks = [block_of(part) for part in content if isinstance(part, TextContent | ImageContent | AudioContent)]
        messages.append({"role": one.role, "blocks": msgspec.to_builtins(blocks)})
    body: dict[str, object] = {"messages": messages, "max_tokens": max(1, params.max_tokens)}
    body |= {"system": params.system_prompt} if params.system_prompt else {}
    body |= {"temperature": params.temperature} if params.temperature is not None else {}
    return body | ({"stop": list(params.stop_sequences)} if params.stop_sequences else {}) if messages else None
