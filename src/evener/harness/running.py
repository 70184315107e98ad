"""A run that can be watched: its events as they happen, then its result. Starts at once; closing it cancels the run."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType

from evener import streaming as st
from evener.errors import EvenerError, UsageError
from evener.harness.opening import Prompt, message_of
from evener.harness.unread import Unread
from evener.result import RunResult
from evener.transcript.blocks import DocumentBlock, ImageBlock, TextBlock

__all__ = ["RunStream", "steering"]

Show = Callable[[st.StreamEvent], None]
Say = Callable[[str, dict[str, object]], Awaitable[None]]


class RunStream:
    """Iterate over it for events; the last one carries the result, or the error. Use it as a context manager, or to its end.

    The run goes on whether or not it is watched, and never waits for its reader: of unread pieces of an answer, neighbours are
    joined, and what exceeds 4 MB is left out (`Omitted`). Leaving the context, or `aclose`, cancels it; the log can be resumed.
    """

    def __init__(self, start: Callable[[Show], Awaitable[RunResult]], say: Say) -> None:
        self._unread = Unread()
        self._more = asyncio.Event()
        self._begun = asyncio.Event()
        self._say = say
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise UsageError("A stream needs a running event loop, and there is none. Use async code, or run_sync.") from None
        self._task = loop.create_task(self._go(start))
        self._task.add_done_callback(lambda _: self._wake())  # also when it is cancelled before it begins

    async def _go(self, start: Callable[[Show], Awaitable[RunResult]]) -> RunResult:
        return await start(self._show)

    def _show(self, event: st.StreamEvent) -> None:
        self._unread.add(event)
        self._wake()

    def _wake(self) -> None:
        self._begun.set()
        self._more.set()

    async def __aiter__(self) -> AsyncIterator[st.StreamEvent]:
        while True:
            while self._unread:
                yield self._unread.take()
            if self._task.done():
                break
            self._more.clear()
            await self._more.wait()
        error = None if self._task.cancelled() else self._task.exception()
        if error is not None and not isinstance(error, EvenerError):
            raise error

    async def result(self) -> RunResult:
        """What the run came to. Raises what `run` would raise."""
        return await asyncio.shield(self._task)

    async def steer(self, prompt: Prompt, *, now: bool = False) -> None:
        """Say something to the model while it is busy: with its next request, or `now`, giving up the present one."""
        said = steering(prompt, now=now)
        await self._begun.wait()  # there is a log to say it to
        await self._say("steer", said)

    async def cancel(self, why: str = "") -> None:
        """Ask the run to stop; it ends with a result whose `stop` is `cancelled`."""
        await self._begun.wait()
        await self._say("cancel", {"why": why})

    async def aclose(self) -> None:
        """Cancel the run, if it still goes on, and wait until it has let go of everything."""
        self._task.cancel()
        await asyncio.wait((self._task,))
        if not self._task.cancelled():
            self._task.exception()  # it was shown, or nobody wanted to know

    async def __aenter__(self) -> "RunStream":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def steering(prompt: Prompt, *, now: bool) -> dict[str, object]:
    """What is said to a run under way, as a note holds it: a text, or the blocks of a user's message."""
    message = message_of(prompt)
    if message.role != "user" or not message.blocks:
        raise UsageError("A run is steered with what a user says: a text, or texts, pictures and documents.")
    for block in message.blocks:
        if not isinstance(block, TextBlock | ImageBlock | DocumentBlock):
            raise UsageError(f"A run is steered with texts, pictures and documents; not with a {type(block).__name__}.")
    match message.blocks:
        case (TextBlock(text=text) as block,) if block == TextBlock(text):
            return {"text": text, "now": now}
        case blocks:
            return {"blocks": blocks, "now": now}
