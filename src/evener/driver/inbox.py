"""Reads the inbox while a step takes time: a message to a run is read at once, and may end the present step.

The step runs in the task of the run. A timer checks the inbox, and starts a task only when there may be something to read: a
step that is not disturbed costs no task. One listener belongs to one run.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TypeVar
from weakref import WeakMethod

import msgspec

from evener.errors import EvenerError
from evener.model.stream import begin

POLL = 0.5
"""Seconds between two looks while a model or a tool is at work."""

T = TypeVar("T")


class Listener:
    """`look` reads the inbox, and has applied its content when it returns. It is a method of the object that owns the listener.

    The listener does not keep its owner alive: what a finished run holds is freed at once, not when the garbage collector runs.
    """

    def __init__(self, look: Callable[[], Awaitable[None]]) -> None:
        self._look = WeakMethod(look)
        self._watch: _Watch | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._worker: asyncio.Task[object] | None = None
        self._task: asyncio.Task[None] | None = None
        self._nudged = False

    async def during(self, work: Coroutine[object, object, T], *, until: Callable[[], bool]) -> T | None:
        """Run `work`, and read the inbox meanwhile. Return None if a message ended the work, as `until` decides."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(POLL, self._poll)
            self._worker = asyncio.current_task()
        worker = self._worker
        watch = self._watch = _Watch(until, worker, worker.cancelling() if worker is not None else 0)
        try:
            return await work
        except (asyncio.CancelledError, EvenerError):
            if not watch.over:
                raise
            return None
        finally:
            self._watch = None
            try:
                if self._task is not None:
                    await self._await_listener(self._task)
            finally:
                if watch.over:
                    watch.leave()

    def nudge(self) -> None:
        """Look now, if something is at work; else it is looked before the next step."""
        watch = self._watch
        if watch is None:
            return
        self._nudged = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._listen(watch))

    def close(self) -> None:
        """Stop polling: nothing is under way any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _poll(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(POLL, self._poll)
        self.nudge()

    async def _listen(self, watch: "_Watch") -> None:
        """Look, and end the work if what was said, or that we may not look, ends it."""
        try:
            while self._nudged and (look := self._look()) is not None:
                self._nudged = False
                await look()
            if self._watch is watch and watch.until():
                watch.give_up(None)
        except EvenerError as error:
            if self._watch is watch:
                watch.give_up(error)

    async def _await_listener(self, task: asyncio.Task[None]) -> None:
        """Wait until the listener has ended: what was said must not be settled twice."""
        self._task = None
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait((task,))
            raise


class _Watch(msgspec.Struct, eq=False):
    """A step that runs in a task, and what would end it. When that is complete, the step is cancelled.

    `cancels` is how often the task had been asked to stop when the step began.
    """

    until: Callable[[], bool]
    task: asyncio.Task[object] | None
    cancels: int
    over: bool = False
    error: EvenerError | None = None

    def give_up(self, error: EvenerError | None) -> None:
        """End the work."""
        if self.task is not None and not self.over:
            self.over, self.error = True, error
            self.task.cancel()

    def leave(self) -> None:
        """Take our cancelling back. Raises why the work was given up, if it is an error; the caller's cancelling stays."""
        if self.task is None:
            return
        if self.task.uncancel() > self.cancels:
            raise asyncio.CancelledError
        if self.error is not None:
            raise self.error


class WritingOnWait:
    """Calls `write` if the code inside waits for anything. A tool that does not wait is finished before."""

    def __init__(self, write: Callable[[], Coroutine[object, object, object]]) -> None:
        self._write = write
        self._task: asyncio.Task[object] | None = None

    async def __aenter__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_soon(self._after_one_iteration)  # in which the tool's task runs

    def _after_one_iteration(self) -> None:
        self._handle = self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._write())

    async def __aexit__(self, *_: object) -> None:
        self._handle.cancel()
        if self._task is not None:
            await self._task


async def pause(seconds: float) -> bool:
    """Return True after this time."""
    await asyncio.sleep(seconds)
    return True


async def finish_anyway(work: Coroutine[object, object, object]) -> None:
    """Run `work` to its end even if the caller is cancelled: an append must be known, or it would be repeated.

    It begins at once, in the caller's task. An append to a log in memory ends there; work that waits continues in a task of its
    own.
    """
    rest = begin(work)
    if rest is not None:
        await finish_rest(rest)


async def finish_rest(rest: Awaitable[None]) -> None:
    """Run what `begin` left of the work to its end, as `finish_anyway` does."""
    task = asyncio.ensure_future(rest)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()
        raise


def run_together(work: list[Coroutine[object, object, None]]) -> Coroutine[object, object, None]:
    """Return one coroutine that runs all of them at once; the first error ends the others."""
    return work[0] if len(work) == 1 else _run_group(work)


async def _run_group(work: list[Coroutine[object, object, None]]) -> None:
    """Run all of them; the first error cancels the others.

    Not a TaskGroup: that cancels the task of the run when a child fails, and some Python versions do not take this back, so
    that a lost lease would look like a request to stop.
    """
    tasks = [asyncio.ensure_future(one) for one in work]
    ended: set[asyncio.Future[None]] = set()
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        await _stop_all(tasks)
    for task in (*ended, *tasks):
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


async def _stop_all(tasks: "Sequence[asyncio.Future[None]]") -> None:
    """Cancel those that go on, and wait until none does, even when the wait is cancelled."""
    interrupted: asyncio.CancelledError | None = None
    for task in tasks:
        task.cancel()
    while left := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(left)
        except asyncio.CancelledError as error:
            interrupted = error
    for task in tasks:
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not warn of it
    if interrupted is not None:
        raise interrupted
