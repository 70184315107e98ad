"""How tests wait, and the only place of the tests that reads a clock. No test asserts that something is fast.

A machine may be so busy that a test waits for seconds between two of its lines. So a deadline that is meant to pass is short,
and nothing else must be done before it; one that only guards against a hang is `PATIENCE`; and what is said about time is
said by a clock that the test owns: `run_on_virtual_time`.
"""

import asyncio
import faulthandler
import gc
import os
import selectors
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from evener.errors import EvenerError

T = TypeVar("T")

PATIENCE = float(os.environ.get("EVENER_PATIENCE", "120"))
"""Seconds after which a wait is taken for a hang. Fewer where hangs are expected: `python -m bench repairs`."""


def moment(seconds: float = 0.0) -> float:
    """Return a point in time for code that takes one: this many seconds from now, by `time.monotonic`."""
    return time.monotonic() + seconds


def wait_until(condition: Callable[[], object], *, seconds: float = PATIENCE) -> None:
    """Poll until the condition is true; fail when that takes too long."""
    end = moment(seconds)
    while not condition():
        assert moment() < end, "what the test waits for has not come true"
        time.sleep(0.005)


async def until(condition: Callable[[], object], *, seconds: float = PATIENCE) -> None:
    """Poll until the condition is true, while other tasks go on; fail when that takes too long."""
    end = moment(seconds)
    while not condition():
        assert moment() < end, "what the test waits for has not come true"
        await asyncio.sleep(0.002)


def at_some_pace(attempt: Callable[[float], None]) -> None:
    """Run a test that must be faster than one of its own deadlines, with all its times as given, then longer.

    A busy machine fails the short attempts only; code that is wrong fails each of them.
    """
    for pace in (1.0, 6.0):
        try:
            attempt(pace)
        except (AssertionError, EvenerError):
            continue
        return
    attempt(36.0)


@contextmanager
def ends() -> Iterator[None]:
    """Guard work that could take for ever, such as a regular expression in C: end the process with a traceback if it does."""
    faulthandler.dump_traceback_later(PATIENCE * 2, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


@contextmanager
def threads_end() -> Iterator[None]:
    """Check that each thread that is started inside ends, in its time. Those of other tests may end meanwhile."""
    before = set(threading.enumerate())
    yield
    wait_until(lambda: not set(threading.enumerate()) - before)


@contextmanager
def takes_at_least(seconds: float) -> Iterator[None]:
    """Check that something was waited for: a busy machine only makes it longer."""
    begin = time.monotonic()
    yield
    assert time.monotonic() - begin >= seconds, "it did not wait as long as it was told to"


class _Jump(selectors.DefaultSelector):
    """Instead of a wait, a jump of the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(PATIENCE if timeout is None else 0)
        if not ready and timeout:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that never waits: when nothing is left to do, its clock jumps to the next timer. Not for sockets."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        """Return the seconds that have passed for this loop."""
        return self._jump.now


def run_on_virtual_time(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run it on a `VirtualLoop`; `asyncio.get_running_loop().time` is its clock."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)


@contextmanager
def without_collector() -> Iterator[None]:
    """Hold the collector off while work is counted: what it calls, such as Hypothesis and finalizers, is no part of that."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def steps(work: Callable[[], object]) -> int:
    """Return how many lines of Python this work runs: a measure of cost that no load changes."""
    counted = 0

    def count(_frame: object, event: str, _argument: object) -> Any:
        nonlocal counted
        counted += event == "line"
        return count

    before = sys.gettrace()
    with without_collector():
        sys.settrace(count)
        try:
            work()
        finally:
            sys.settrace(before)
    return counted


def bytes_moved() -> int:
    """Return the bytes that this process has read and written so far, cached or not; 0 where that is unknown."""
    try:
        lines = Path("/proc/self/io").read_text(encoding="ascii").split("\n")
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("rchar", "wchar")))


async def lull() -> None:
    """Let everything that shares this loop come to rest: many turns, however late the machine makes each of them."""
    for _ in range(40):
        await asyncio.sleep(0.001)
