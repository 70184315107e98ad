"""Threads for tools that are not async: daemon, capped, counted. A tool that hangs holds one of them and nothing else.

A thread cannot be killed. One whose caller has given up is *abandoned*: it is counted until its tool returns, and it never
keeps the program from ending. When all threads are abandoned, there is nobody left to run a call, and that is said at once.
"""

import asyncio
import contextvars
import inspect
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue

import msgspec

from evener.errors import UsageError
from evener.tools.context import call_on

__all__ = ["Job", "NoThread", "Raised", "Returned", "Threads"]

IDLE_SECONDS = 10.0


class Returned(msgspec.Struct, frozen=True):
    """What a function gave back."""

    value: object


class Raised(msgspec.Struct, frozen=True):
    """What a function raised."""

    error: BaseException


class NoThread(Exception):
    """There is no thread for a call, and none will become free."""


class Job:
    """A function on its way through a thread, in the context (as of contextvars) of whoever asked for it.

    `ended` is settled when it is over, or with None by whoever waits no longer. The pool's lock guards the rest: `function`
    is there until it begins.
    """

    def __init__(self, function: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self.context = contextvars.copy_context()
        self.function: Callable[[], object] | None = function
        self.abandoned = False
        self.outcome: Returned | Raised | None = None
        self.ended: asyncio.Future[Returned | Raised | None] = self._loop.create_future()

    def over(self, outcome: Returned | Raised) -> None:
        """Tell what it came to."""
        call_on(self._loop, lambda: self._settle(outcome))

    def _settle(self, outcome: Returned | Raised) -> None:
        if not self.ended.done():
            self.ended.set_result(outcome)


def _drop(outcome: Returned | Raised) -> None:
    """Nobody will ever await it."""
    if isinstance(outcome, Returned) and inspect.iscoroutine(outcome.value):
        outcome.value.close()


class Threads:
    """At most `limit` threads. `busy` counts those that run something, `abandoned` those of them that nobody waits for.

    `stray` counts coroutines that went on after they were cancelled. Shared by all runs of a process, and by all its loops.
    """

    def __init__(self, limit: int = 32) -> None:
        if limit < 1:
            raise UsageError(f"Threads need a limit of at least 1, not {limit}.")
        self.limit = limit
        self._lock = threading.Lock()
        self._handed: SimpleQueue[Job] = SimpleQueue()
        self._waiting: deque[Job] = deque()
        self._busy = 0
        self._idle = 0
        self._abandoned = 0
        self._stray: set[asyncio.Task[object]] = set()

    @property
    def busy(self) -> int:
        """How many threads run a tool now."""
        return self._busy

    @property
    def abandoned(self) -> int:
        """How many of them nobody waits for."""
        return self._abandoned

    @property
    def stray(self) -> int:
        """How many coroutines went on although they were cancelled."""
        return len(self._stray)

    def start(self, function: Callable[[], object]) -> Job:
        """Run a function in a thread as soon as one is free. Raises NoThread when none ever will be."""
        job = Job(function)
        with self._lock:
            if self._abandoned >= self.limit:
                raise self._all_hung()
            if self._busy >= self.limit:
                self._waiting.append(job)
                return job
            self._busy += 1
            if self._idle > 0:
                self._idle -= 1
                self._handed.put(job)
                return job
        self._spawn(job)
        return job

    def give_up(self, job: Job) -> bool:
        """Nobody waits for it any more. True when it had begun and may still go on; otherwise it never will."""
        refused: list[Job] = []
        with self._lock:
            if job.function is not None:
                job.function = None
                if job in self._waiting:
                    self._waiting.remove(job)
                return False
            if job.outcome is None:
                job.abandoned = True
                self._abandoned += 1
            else:
                _drop(job.outcome)
            if self._abandoned >= self.limit:
                refused, self._waiting = list(self._waiting), deque()
        for other in refused:
            other.over(Raised(self._all_hung()))
        return True

    def keep_stray(self, task: "asyncio.Task[object]") -> None:
        """Count a coroutine that does not end, and hold on to it until it does."""
        self._stray.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: "asyncio.Task[object]") -> None:
        self._stray.discard(task)
        if not task.cancelled():
            task.exception()  # seen, so that nobody warns of it

    def _spawn(self, job: Job) -> None:
        try:
            threading.Thread(target=self._work, args=(job,), name="evener-tool", daemon=True).start()
        except RuntimeError as error:
            with self._lock:
                self._busy -= 1
            raise NoThread(f"the system has no thread for it ({error})") from None

    def _work(self, job: Job | None) -> None:
        while job is not None:
            onward = self._released(job, self._performed(job))
            del job  # an idle thread holds on to no result
            job = onward or self._handed_over()

    def _performed(self, job: Job) -> Returned | Raised:
        with self._lock:
            function, job.function = job.function, None
        if function is None:
            return Raised(NoThread("it was given up before it began"))
        try:
            return Returned(job.context.run(function))
        except BaseException as error:  # nobody is above a thread: SystemExit and KeyboardInterrupt end the tool only
            return Raised(error)

    def _released(self, job: Job, outcome: Returned | Raised) -> Job | None:
        """The thread is free again: for a job that waits, or for one to come."""
        with self._lock:
            job.outcome = outcome
            if job.abandoned:
                self._abandoned -= 1
                _drop(outcome)
            onward = self._waiting.popleft() if self._waiting else None
            if onward is None:
                self._busy -= 1
                self._idle += 1
        job.over(outcome)
        return onward

    def _handed_over(self) -> Job | None:
        """The next job for a thread that has nothing to do; None when it has waited long enough."""
        try:
            return self._handed.get(timeout=IDLE_SECONDS)
        except Empty:
            with self._lock:
                if self._idle > 0:
                    self._idle -= 1
                    return None
            return self._handed.get()

    def _all_hung(self) -> NoThread:
        return NoThread(f"all {self.limit} threads for tools are held by calls that hang")
