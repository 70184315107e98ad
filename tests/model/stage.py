"""What the tests of the model layer share: models pointed at a fake server, and a watch over what a call leaves behind."""

import asyncio
import gc
import os
import traceback
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from typing import Any, TypeVar

from msgspec.structs import replace

from evener.model import Answer, Model, Stream
from evener.transcript.ask import Ask
from evener.transcript.message import Message
from evener.transcript.transcript import Transcript
from evener.transport.exchange import Request, Response, Transport
from evener.transport.http import HttpTransport

WIRES = ("anthropic_messages", "openai_responses", "openai_chat", "gemini")
MODELS = {
    "anthropic_messages": "anthropic:claude-opus-5-5",
    "openai_responses": "openai:gpt-5.5",
    "openai_chat": "openai-chat:gpt-4.1",
    "gemini": "google:gemini-3-flash-preview",
}
MODES = {"streamed": True, "whole": False}
NOWHERE: Mapping[str, str] = {}
"""An environment without keys, proxies or a home."""

MOST_SECONDS = 300.0
T = TypeVar("T")
_numbers = count(1)


def fresh_key() -> str:
    """A key that no other test has: the limiter of a key is shared by the whole process."""
    return f"sk-SENTINEL-{os.getpid()}-{next(_numbers):05d}-do-not-show"


def asking(model: Model, text: str = "Hi!", *, streamed: bool = True, system: str = "Be brief.") -> Ask:
    """A short question."""
    ask = model.ask(Transcript([Message.user_text(text)], system))
    return ask if streamed else replace(ask, stream=False)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result; no test of a call takes longer than this, and no task outlives it."""

    async def bounded() -> T:
        async with asyncio.timeout(MOST_SECONDS):
            result = await coroutine
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks were left behind: {left}"
        return result

    return asyncio.run(bounded())


class Watched:
    """A transport that counts the answers which nobody has closed."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.open = 0
        self.sent = 0
        self.closed = 0

    async def send(self, request: Request) -> Response:
        self.sent += 1
        response = await self._inner.send(request)
        self.open += 1
        return _Watched(response, self)


class _Watched:
    def __init__(self, inner: Response, watch: Watched) -> None:
        self._inner = inner
        self._watch = watch
        self._closed = False
        self.status = inner.status
        self.headers = inner.headers

    async def read(self) -> bytes:
        return await self._inner.read()

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._watch.open -= 1
            self._watch.closed += 1
        await self._inner.aclose()


@asynccontextmanager
async def watched(*, ca_file: str | None = None) -> AsyncIterator[Watched]:
    """A real transport under watch: every answer must have been closed by the time it is."""
    async with HttpTransport(trust_env=False, ca_file=ca_file) as http:
        watch = Watched(http)
        yield watch
        assert watch.open == 0, f"{watch.open} answers were never closed"


@contextmanager
def nothing_left() -> Iterator[None]:
    """No file or socket more than before."""
    before = _descriptors()
    yield
    if _descriptors() - before:
        gc.collect()
    assert _descriptors() - before == set()


def _descriptors() -> set[tuple[str, str]]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add((name, os.readlink(f"/proc/self/fd/{name}")))
        except FileNotFoundError:
            continue
    return found


async def read_to_end(stream: Stream) -> Answer:
    """All of it, and the answer."""
    async with stream:
        while await stream.read():
            pass
        return stream.answer


def told_by(error: BaseException) -> str:
    """Everything that an error could show to somebody, with what it is chained to."""
    shown, seen = [*traceback.format_exception(error)], set[int]()
    links: list[BaseException | None] = [error]
    while links:
        link = links.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        notes = [str(note) for note in vars(link).get("__notes__", ())]
        shown += [str(link), repr(link), repr(link.args), repr(vars(link)), *notes]
        links += [link.__cause__, link.__context__]
    return "\n".join(shown)
