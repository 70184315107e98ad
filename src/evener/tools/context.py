"""What a tool gets beside its arguments: the call, the dependencies, its deadline, and whether it should stop.

A function gets it in a parameter annotated `ToolContext` (or `ToolContext[Deps]`); the model never sees that parameter.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakValueDictionary

import msgspec

from evener.errors import BadValue

if TYPE_CHECKING:  # defaults of type variables are for checkers, which know them on any Python
    from typing_extensions import TypeVar as DefaultTypeVar

    Deps = DefaultTypeVar("Deps", default=object)
else:
    Deps = TypeVar("Deps")
T = TypeVar("T")
MOST_TEXT = 2_000


class Progress(msgspec.Struct, frozen=True):
    """The progress of a call. `fraction` is from 0 to 1; None if unknown."""

    call_id: str
    text: str = ""
    fraction: float | None = None


class Cancellation:
    """A flag that is set once, and visible everywhere: to threads that check it or wait for it, and to coroutines that await
    it.
    """

    def __init__(self) -> None:
        self.outlived = False
        """True if the call was given up and its tool went on."""
        self._set = False
        self._event: threading.Event | None = None  # made for the first thread that waits: most calls have none
        self._lock = threading.Lock()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def set(self) -> None:
        """Request a stop, from any thread. A second request changes nothing."""
        with self._lock:
            self._set = True
            if self._event is not None:
                self._event.set()
            waiting, self._waiting = self._waiting, []
        for loop, future in waiting:
            call_on(loop, partial(settle, future, None))

    def is_set(self) -> bool:
        """True if a stop was requested."""
        return self._set

    def wait(self, seconds: float | None = None) -> bool:
        """Wait in a thread, instead of `time.sleep`. True if a stop was requested."""
        with self._lock:
            if self._set:
                return True
            event = self._event = self._event or threading.Event()
        return event.wait(seconds)

    async def until_set(self) -> None:
        """Wait in a coroutine."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._set:
                return
            future: asyncio.Future[None] = loop.create_future()
            self._waiting.append((loop, future))
        try:
            await future
        finally:
            with self._lock:
                self._waiting = [entry for entry in self._waiting if entry[1] is not future]


_RUNS: "WeakValueDictionary[str, Cancellation]" = WeakValueDictionary()


def cancellation_of(run: str) -> Cancellation:
    """Return the object that is set when a run of this process is cancelled: the same one as long as it is referenced."""
    return _RUNS.setdefault(run, Cancellation())


def cancel_run(run: str) -> None:
    """Set the cancellation of a run, for calls that are still running."""
    if (found := _RUNS.get(run)) is not None:
        found.set()


def settle(future: "asyncio.Future[T]", value: T) -> None:
    """Set the result of a future, unless it is done."""
    if not future.done():
        future.set_result(value)


def call_on(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    """Schedule a function on a loop's thread. A closed loop has no waiter left, so then nothing is done."""
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:
        return


def _drop(_progress: Progress) -> None:
    """Drop progress that has no listener."""


class ToolContext(msgspec.Struct, Generic[Deps], frozen=True, kw_only=True, eq=False):
    """One call of a tool. `key` is the same whenever this call is repeated: pass it to services that support idempotency
    keys.

    `deadline` is in seconds of `time.monotonic()`; None if there is none. `report` receives the `progress`. `cancelled` is
    set when this call is abandoned; `run_cancelled` when its run is, also after the call: for work that a tool left running.
    """

    call_id: str
    deps: Deps
    run_id: str = ""
    key: str = ""
    deadline: float | None = None
    cancelled: Cancellation = msgspec.field(default_factory=Cancellation)
    report: Callable[[Progress], None] = _drop
    run_cancelled: Cancellation = msgspec.field(default_factory=Cancellation)

    def progress(self, text: str = "", *, fraction: float | None = None) -> None:
        """Report how far the call is, from any thread. Reports of a cancelled call are dropped."""
        if fraction is not None and not 0 <= fraction <= 1:
            raise BadValue(f"The fraction of progress must be from 0 to 1, not {fraction}.")
        if not self.cancelled.is_set():
            self.report(Progress(self.call_id, text[:MOST_TEXT], fraction))

    def __repr__(self) -> str:
        return f"ToolContext(call_id={self.call_id!r}, run_id={self.run_id!r})"  # dependencies may hold secrets

    @property
    def seconds_left(self) -> float | None:
        """The time until the deadline, never below 0; None when there is none."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())
