"""The runs that a page has started: their errors, and the text that a model has streamed but the log does not have yet.

The log has only whole answers. Streamed text is removed here as soon as the answer, or its failure, is in the log.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

import msgspec

from evener import streaming as st
from evener.errors import EvenerError

SHOWN = 20_000
"""Characters of an unfinished answer that a page gets: the last ones."""


class UnfinishedAnswer(msgspec.Struct):
    """An answer during streaming. `pieces` counts its deltas, so that a page can tell whether it has changed."""

    text: str = ""
    reasoning: str = ""
    tool: str = ""
    pieces: int = 0


class StreamedRun(Protocol):
    """A run as a stream of events. Closing the stream stops the run."""

    def __aiter__(self) -> AsyncIterator[st.StreamEvent]: ...

    async def aclose(self) -> None: ...


class LiveRuns:
    """Runs by their logs. `errors` has the last error of a log, until its next run."""

    def __init__(self) -> None:
        self.errors: dict[str, str] = {}
        self._partial: dict[str, UnfinishedAnswer] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def partial(self, log: str) -> UnfinishedAnswer | None:
        """Return the text that the model of this log has streamed so far; None if this process runs nothing in it."""
        found = self._partial.get(log)
        return found and msgspec.structs.replace(found, text=found.text[-SHOWN:], reasoning=found.reasoning[-SHOWN:])

    def follow(self, log: str, stream: StreamedRun) -> None:
        """Follow a run until it ends."""
        self.errors.pop(log, None)
        task = asyncio.create_task(self._follow(log, stream))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self, log: str, stream: StreamedRun) -> None:
        try:
            async for event in stream:
                if not event.place.parent_run:
                    self._take(log, event)
        except EvenerError as error:
            self.errors[log] = str(error)
        finally:
            self._partial.pop(log, None)
            await stream.aclose()

    def _take(self, log: str, event: st.StreamEvent) -> None:
        match event:
            case st.RequestStarted():
                self._partial[log] = UnfinishedAnswer()
            case st.TurnFinished() | st.Retracted():
                self._partial.pop(log, None)
            case st.RunFailed(error=error):
                self.errors[log] = str(error)
            case st.TextStreamed() | st.ReasoningStreamed() | st.ArgumentsStreamed() if log in self._partial:
                _add(self._partial[log], event)

    async def aclose(self) -> None:
        """Stop the runs. They can be resumed."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _add(partial: UnfinishedAnswer, event: st.TextStreamed | st.ReasoningStreamed | st.ArgumentsStreamed) -> None:
    partial.pieces += 1
    match event:
        case st.TextStreamed(text=text):
            partial.text += text
        case st.ReasoningStreamed(text=text):
            partial.reasoning += text
        case st.ArgumentsStreamed(tool=tool):
            partial.tool = tool
