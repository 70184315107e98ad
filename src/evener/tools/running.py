"""Runs one call of a tool and says what it came to. It never raises because of a tool, and no tool can hold it up.

Functions run in threads, coroutines as tasks of their own; both are given up when their time is over. The order of calls,
hooks, approvals and the log are the driver's. Whatever a tool prints is its own business.
"""

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine
from functools import partial

import msgspec

from evener.tools.arguments import Accepted
from evener.tools.context import Cancellation, Progress, ToolContext, call_on
from evener.tools.problems import told
from evener.tools.result import Envelope, Scrub, envelope_of, failed, raised, scrubbed
from evener.tools.signature import Callee
from evener.tools.spill import Blobs, spill
from evener.tools.threads import Job, NoThread, Raised, Returned, Threads
from evener.tools.tool import Tool
from evener.transcript.blocks import ToolCall

__all__ = ["run_call", "unchanged", "verify_call"]

GRACE = 2.0
"""Seconds that a cancelled coroutine has to clean up."""

Ended = Returned | Raised


class _TimeOver(Exception):
    """The call took too long. `begun` tells whether it had started."""

    def __init__(self, *, begun: bool) -> None:
        super().__init__()
        self.begun = begun


class _Bounds(msgspec.Struct, frozen=True):
    """What keeps a call in check: when its time is over (None: never), how it is told to stop, and who holds what does not."""

    end: float | None
    cancelled: Cancellation
    threads: Threads
    grace: float

    def seconds_left(self) -> float | None:
        return None if self.end is None else max(0.0, self.end - time.monotonic())


def unchanged(text: str) -> str:
    """The text of one who has no secrets."""
    return text


def _same(value: object) -> object:
    return value


async def run_call(
    tool: Tool,
    call: ToolCall,
    *,
    context: ToolContext[object],
    threads: Threads,
    scrub: Scrub = unchanged,
    blobs: Blobs | None = None,
    grace: float = GRACE,
) -> Envelope:
    """Validate the arguments, run the tool, and put what came of it into an envelope.

    With `blobs`, output beyond the tool's limit is spilled there. Cancelling this cancels the tool: a coroutine has `grace`
    seconds to clean up, a thread is left to itself and counted.
    """
    envelope = await _ran(tool, call, context, threads, grace)
    if scrub is not unchanged:
        envelope = scrubbed(envelope, scrub)
    return envelope if blobs is None else spill(envelope, blobs, limit=tool.output_limit)


async def verify_call(
    tool: Tool, call: ToolCall, *, context: ToolContext[object], threads: Threads, grace: float = GRACE
) -> bool | None:
    """Whether a call that was interrupted took effect, as the tool's own `verify` says; None when that is not known."""
    if tool.verifier is None:
        return None
    try:
        accepted = tool.read(call.raw)
    except Exception:  # a type of the user's may raise anything when it is made, and then the tool has not begun
        return False
    if isinstance(accepted, tuple):
        return False
    bounds = _Bounds(_end(tool, context, time.monotonic()), context.cancelled, threads, grace)
    try:
        ended = await _ended(tool.verifier, _invocation(tool.verifier, accepted, context, bounds), _same, bounds)
    except (_TimeOver, NoThread):
        return None
    match ended:
        case Returned(value=bool() as answer):
            return answer
    return None


async def _ran(tool: Tool, call: ToolCall, context: ToolContext[object], threads: Threads, grace: float) -> Envelope:
    try:
        accepted = tool.read(call.raw)
    except Exception as error:  # a type of the user's may raise anything when it is made
        return raised(error, tool.name)
    if isinstance(accepted, tuple):
        return failed(told(tool.name, accepted), retry=True)
    begin = time.monotonic()
    bounds = _Bounds(_end(tool, context, begin), context.cancelled, threads, grace)
    if bounds.end is not None and bounds.end <= begin:
        return failed(f"The tool {tool.name!r} was not run: there is no time left.")
    callee = tool.callee or Callee.of(tool.function)
    try:
        ended = await _ended(callee, _invocation(callee, accepted, context, bounds), envelope_of, bounds)
    except _TimeOver as over:
        return _overdue(tool, over, (bounds.end or begin) - begin)
    except NoThread as error:
        return failed(f"The tool {tool.name!r} was not run: {error}. Only tools that are async still work.")
    return envelope_of(ended.value) if isinstance(ended, Returned) else raised(ended.error, tool.name)


def _end(tool: Tool, context: ToolContext[object], begin: float) -> float | None:
    """When the time of a call that begins now is over: its own or that of the run."""
    if tool.timeout is None:
        return context.deadline
    own = begin + tool.timeout
    return own if context.deadline is None else min(own, context.deadline)


def _within(context: ToolContext[object], bounds: _Bounds) -> ToolContext[object]:
    """The context with the call's own deadline, and with progress that arrives on the loop's thread."""
    loop = asyncio.get_running_loop()
    report = context.report

    def on_loop(progress: Progress) -> None:
        call_on(loop, lambda: report(progress))

    return msgspec.structs.replace(context, deadline=bounds.end, report=on_loop)


def _invocation(callee: Callee, accepted: Accepted, context: ToolContext[object], bounds: _Bounds) -> Callable[[], object]:
    """The call itself."""
    named = accepted.named
    if callee.context:
        named = {**named, callee.context: _within(context, bounds)}
    return partial(callee.function, *accepted.whole, **named)


def _ended(
    callee: Callee, invoke: Callable[[], object], finish: Callable[[object], object], bounds: _Bounds
) -> Coroutine[object, object, Ended]:
    """What the call comes to. What a thread gives is finished there: large output is not turned into text on the loop's."""
    reports = bool(callee.context)
    if callee.awaits:
        return _as_task(invoke, bounds, reports=reports)

    def work() -> object:
        value = invoke()
        return value if inspect.iscoroutine(value) else finish(value)

    return _by_thread(work, bounds, reports=reports)


async def _by_thread(work: Callable[[], object], bounds: _Bounds, *, reports: bool) -> Ended:
    """In a thread; and if that gave a coroutine, as a task."""
    ended = await _in_thread(work, bounds)
    if isinstance(ended, Returned) and inspect.iscoroutine(ended.value):
        coroutine = ended.value
        try:
            return await _as_task(lambda: coroutine, bounds, reports=reports)
        finally:
            if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                coroutine.close()
    return ended


async def _in_thread(work: Callable[[], object], bounds: _Bounds) -> Ended:
    job = bounds.threads.start(work)
    try:
        ended = await _settled(job.ended, bounds) or job.outcome  # which may have come at the last moment
    except asyncio.CancelledError:
        _given_up(job, bounds)
        raise
    if ended is None:
        raise _TimeOver(begun=_given_up(job, bounds))
    if isinstance(ended, Raised) and isinstance(ended.error, NoThread):
        raise ended.error
    return ended


def _given_up(job: Job, bounds: _Bounds) -> bool:
    bounds.cancelled.set()
    begun = bounds.threads.give_up(job)
    bounds.cancelled.outlived = job.abandoned
    return begun


async def _settled(ended: "asyncio.Future[Ended | None]", bounds: _Bounds) -> Ended | None:
    """What a future comes to; None when the time is over before that."""
    left = bounds.seconds_left()
    if left is None:
        return await ended
    timer = asyncio.get_running_loop().call_later(left, _settle, ended)
    try:
        return await ended
    finally:
        timer.cancel()


def _settle(ended: "asyncio.Future[Ended | None]") -> None:
    if not ended.done():
        ended.set_result(None)


async def _as_task(invoke: Callable[[], object], bounds: _Bounds, *, reports: bool) -> Ended:
    """In a task of its own, which can be left to itself. It wakes us by itself, without a detour through its callbacks.

    One that waits for nothing is done when the loop comes round, and needs no timer. One that `reports` does not get ahead
    of its reports, which take a round as well.
    """
    loop = asyncio.get_running_loop()
    waiting: list[asyncio.Future[Ended | None]] = []
    task: asyncio.Task[object] = loop.create_task(_awaited(invoke, waiting))
    try:
        if not reports:
            await asyncio.sleep(0)
        if not task.done():
            waiting.append(loop.create_future())
            await _settled(waiting[0], bounds)
    except asyncio.CancelledError:
        await _stopped(task, bounds)
        raise
    if not task.done():
        await _stopped(task, bounds)
        raise _TimeOver(begun=True)
    return _outcome(task)


async def _awaited(invoke: Callable[[], object], waiting: "list[asyncio.Future[Ended | None]]") -> object:
    """The coroutine of a tool, for whoever is waiting then. What asyncio would end the program with ends the tool instead."""
    try:
        made = invoke()
        return Returned(await made if inspect.isawaitable(made) else made)
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:
        return Raised(error)
    finally:
        for ended in waiting:
            _settle(ended)


def _outcome(task: "asyncio.Task[object]") -> Ended:
    if task.cancelled():
        return Raised(RuntimeError("it cancelled itself"))
    ended = task.result()
    return ended if isinstance(ended, (Returned, Raised)) else Returned(ended)


async def _stopped(task: "asyncio.Task[object]", bounds: _Bounds) -> None:
    """Cancel a coroutine and give it time to clean up; one that goes on is counted and left to itself."""
    bounds.cancelled.set()
    task.cancel()
    try:
        await asyncio.wait((task,), timeout=bounds.grace)
    finally:
        if not task.done():
            bounds.cancelled.outlived = True
            bounds.threads.keep_stray(task)
        elif not task.cancelled():
            task.exception()


def _overdue(tool: Tool, over: _TimeOver, allowed: float) -> Envelope:
    spent = f"{allowed:.3g} seconds"
    if not over.begun:
        return failed(f"The tool {tool.name!r} was not run: no thread became free within {spent}. Try again later.")
    if tool.effect == "write":
        return failed(
            f"The tool {tool.name!r} was given up after {spent}. It is not known whether it took effect. "
            "Find that out before you call it again.",
            outcome="unknown",
        )
    return failed(f"The tool {tool.name!r} was given up after {spent}. It may be called again.")
