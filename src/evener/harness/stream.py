"""A run that can be watched: its events as they happen, then its result. Starts at once; closing it cancels the run."""

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Generic, TypeGuard, final

from msgspec.structs import replace

from evener import streaming as st
from evener.errors import EvenerError, UsageError
from evener.harness.opening import Prompt, is_blank, message_of
from evener.result import Output, RunResult
from evener.transcript.blocks import DocumentBlock, ImageBlock, TextBlock

FEW = 2_000
"""Unread events that are kept one by one. From there on, a piece joins the unread piece before it, if both belong together."""
MOST = 4 * 1024 * 1024
"""Bytes of unread pieces. What comes beyond is left out and counted in one `Omitted`; joining pieces takes as much again."""
EACH = 128
"""Bytes that an event takes beside its text."""
RUN = 256
"""Pieces that are joined at once, so that joining is O(length)."""

Piece = st.TextStreamed | st.ReasoningStreamed | st.ArgumentsStreamed
PIECES = frozenset({st.TextStreamed, st.ReasoningStreamed, st.ArgumentsStreamed})
State = st.OutputStreamed | st.ToolProgressed
STATES = frozenset({st.OutputStreamed, st.ToolProgressed})
"""Of these, the newest says all that the ones before it said."""


@final
class Joined:
    """Unread pieces that will be merged into one event."""

    __slots__ = ("_joined", "_last", "_texts", "size")

    def __init__(self, first: Piece) -> None:
        self.size = size_of(first)
        self._last = first
        self._joined: list[str] = []
        self._texts = [first.text]

    def takes(self, piece: Piece) -> bool:
        """True if the piece continues the pieces that are merged here."""
        return belongs(self._last, piece)

    def add(self, piece: Piece) -> int:
        """Merge a piece. Return the bytes that it adds to the memory in use; those of a text are counted when it is read."""
        self._last = piece
        self._texts.append(piece.text)
        if len(self._texts) < RUN:
            return 0
        joined = "".join(self._texts)
        self._texts.clear()
        self._joined.append(joined)
        size = sys.getsizeof(joined)
        self.size += size
        return size

    def event(self) -> Piece:
        """Return one event with the merged text. Its sequence number is that of the last piece."""
        return replace(self._last, text="".join([*self._joined, *self._texts]))


@final
class Gaps:
    """The number of pieces that were left out at one position of the queue, by run."""

    __slots__ = ("_gaps",)

    def __init__(self) -> None:
        self._gaps: dict[st.Place, st.Omitted] = {}

    def __len__(self) -> int:
        return len(self._gaps)

    def add(self, piece: Piece) -> None:
        """Count a piece that was left out."""
        gap = self._gaps.get(piece.place)
        pieces, characters = (gap.pieces, gap.characters) if gap else (0, 0)
        self._gaps[piece.place] = st.Omitted(
            place=piece.place, sequence=piece.sequence, pieces=pieces + 1, characters=characters + len(piece.text)
        )

    def take(self) -> st.Omitted:
        """Return and remove one of the `Omitted` events."""
        return self._gaps.pop(next(iter(self._gaps)))


class Unread:
    """The queue of events that a reader has not read yet. Only pieces of an answer are ever left out."""

    __slots__ = ("_events", "_size")

    def __init__(self) -> None:
        self._events: deque[st.StreamEvent | Joined | Gaps] = deque()
        self._size = 0

    def __bool__(self) -> bool:
        return bool(self._events)

    def add(self, event: st.StreamEvent) -> None:
        """Add an event to the queue of the reader."""
        if is_piece(event):
            self._add_piece(event)
        elif len(self._events) >= FEW and is_state(event) and replaces(self._events[-1], event):
            self._events[-1] = event
        else:
            self._events.append(event)

    def take(self) -> st.StreamEvent:
        """Remove and return the oldest event. The queue must not be empty."""
        event = self._events.popleft()
        if type(event) is Joined:
            self._size -= event.size
            return event.event()
        if type(event) is Gaps:
            gap = event.take()
            if event:
                self._events.appendleft(event)
            return gap
        if is_piece(event):
            self._size -= size_of(event)
        return event

    def _add_piece(self, piece: Piece) -> None:
        events, size = self._events, size_of(piece)
        if events and self._size + size > MOST:
            self._omit(piece)
            return
        if len(events) >= FEW:
            last = events[-1]
            if is_piece(last) and belongs(last, piece):
                last = events[-1] = Joined(last)
            if type(last) is Joined and last.takes(piece):
                self._size += last.add(piece)
                return
        events.append(piece)
        self._size += size

    def _omit(self, piece: Piece) -> None:
        """Count a piece that is left out. Each run of the tree gets one `Omitted` event."""
        last = self._events[-1]
        if type(last) is not Gaps:
            last = Gaps()
            self._events.append(last)
        last.add(piece)


def size_of(piece: Piece) -> int:
    """Return the bytes that an unread piece takes."""
    return sys.getsizeof(piece.text) + EACH


def is_piece(event: st.StreamEvent | Joined | Gaps) -> TypeGuard[Piece]:
    """True if it is a piece of an answer."""
    return type(event) in PIECES


def is_state(event: st.StreamEvent | Joined | Gaps) -> TypeGuard[State]:
    """True if the event reports progress, so that only the newest matters."""
    return type(event) in STATES


def belongs(before: Piece, piece: Piece) -> bool:
    """True if two pieces are consecutive parts of the same text."""
    same = type(before) is type(piece) and before.place == piece.place
    return same and getattr(before, "call", "") == getattr(piece, "call", "")


def replaces(before: st.StreamEvent | Joined | Gaps, state: State) -> bool:
    """True if the event before is obsolete once this one arrives."""
    same = is_state(before) and type(before) is type(state) and before.place == state.place
    return same and getattr(before, "call", "") == getattr(state, "call", "")


Show = Callable[[st.StreamEvent], None]
Say = Callable[[str, dict[str, object]], Awaitable[None]]


class Subscription:
    """One reader of a run: its events in order, from the moment of subscribing to the end of the run."""

    def __init__(self, task: Callable[[], "asyncio.Task[RunResult]"], *, children: bool = True) -> None:
        self._task = task
        self._children = children
        self._unread = Unread()
        self._more = asyncio.Event()

    def add(self, event: st.StreamEvent) -> None:
        """Add an event to the queue, unless this subscription leaves out such events."""
        if self._children or not event.place.parent_run:
            self._unread.add(event)
            self._more.set()

    def wake(self) -> None:
        """Wake the reader, because the run is over."""
        self._more.set()

    async def __aiter__(self) -> AsyncIterator[st.StreamEvent]:
        while True:
            while self._unread:
                yield self._unread.take()
            task = self._task()
            if task.done():
                break
            self._more.clear()
            await self._more.wait()
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, EvenerError):
            raise error


class RunStream(Generic[Output]):
    """Iterate over it for events; the last one has the result, or the error. Use it as a context manager, or read it to its
    end.

    The run continues whether or not it is watched, and never waits for its reader: unread neighbouring pieces of an answer are
    merged, and pieces beyond 4 MB are left out (`Omitted`). Leaving the context, or `aclose`, cancels the run; its log can be
    resumed. `subscribe` returns further readers; a reader can leave out the events of runs inside calls.
    """

    def __init__(self, start: Callable[[Show], Awaitable[RunResult[Output]]], say: Say) -> None:
        self._own = Subscription(lambda: self._task)
        self._others: list[Subscription] = []
        self._begun = asyncio.Event()
        self._say = say
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise UsageError("A stream needs a running event loop, and there is none. Use async code, or run_sync.") from None
        self._task = loop.create_task(self._go(start))
        self._task.add_done_callback(lambda _: self._wake())  # also when it is cancelled before it begins

    async def _go(self, start: Callable[[Show], Awaitable[RunResult[Output]]]) -> RunResult[Output]:
        return await start(self._show)

    def _show(self, event: st.StreamEvent) -> None:
        self._own.add(event)
        for other in self._others:
            other.add(event)
        self._begun.set()

    def _wake(self) -> None:
        self._begun.set()
        self._own.wake()
        for other in self._others:
            other.wake()

    def subscribe(self, *, children: bool = True) -> Subscription:
        """Return another reader, with a queue of its own, of all events from now on.

        Without `children` it leaves out the events of runs inside calls.
        """
        made = Subscription(lambda: self._task, children=children)
        self._others.append(made)
        return made

    def __aiter__(self) -> AsyncIterator[st.StreamEvent]:
        return aiter(self._own)

    async def result(self) -> RunResult[Output]:
        """Wait for the result of the run. Raises what `run` would raise."""
        return await asyncio.shield(self._task)

    async def steer(self, prompt: Prompt, *, now: bool = False) -> None:
        """Send a message to the busy run.

        The model gets it with the next request; with `now`, the present request is aborted.
        """
        said = steering(prompt, now=now)
        await self._begun.wait()  # there is a log to say it to
        await self._say("steer", said)

    async def cancel(self, why: str = "") -> None:
        """Ask the run to stop. It then ends with a result whose `stop` is `cancelled`."""
        await self._begun.wait()
        await self._say("cancel", {"why": why})

    async def aclose(self) -> None:
        """Cancel the run if it is still running, and wait until it has released everything."""
        self._task.cancel()
        await asyncio.wait((self._task,))
        if not self._task.cancelled():
            self._task.exception()  # it was shown, or the caller did not ask for it

    async def __aenter__(self) -> "RunStream[Output]":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def steering(prompt: Prompt, *, now: bool) -> dict[str, object]:
    """Return the body of a note that steers a run: a text, or the blocks of a user's message."""
    message = message_of(prompt)
    if message.role != "user" or is_blank(message):
        raise UsageError("There is nothing to steer the run with. Give a text, or a list of texts, images and documents.")
    for block in message.blocks:
        if not isinstance(block, TextBlock | ImageBlock | DocumentBlock):
            raise UsageError(f"Steer a run with texts, images and documents, not with a {type(block).__name__}.")
    match message.blocks:
        case (TextBlock(text=text) as block,) if block == TextBlock(text):
            return {"text": text, "now": now}
        case blocks:
            return {"blocks": blocks, "now": now}
