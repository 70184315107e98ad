"""Runs one call of a tool and says what it came to. It never raises because of a tool, and no tool can hold it up.

Functions run in threads, coroutines as tasks of their own; both are given up when their time is over. The order of calls,
hooks, approvals and the log are the driver's. Whatever a tool prints is its own business.
"""

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine

import msgspec

from evener.tools.arguments import Accepted
from evener.tools.context import Progress, ToolContext, call_on
from evener.tools.problems import told
from evener.tools.result import Envelope, Scrub, envelope_of, failed, raised, scrubbed
from evener.tools.signature import Callee
from evener.tools.spill import Blobs, spill
from evener.tools.threads import Job, NoThread, Raised, Returned, Threads
from evener.tools.tool import Tool
from evener.transcript.blocks import ToolCall

__all__ = ["run_call", "verify_call"]

GRACE = 2.0
"""Seconds that a cancelled coroutine has to clean up."""

Ended = Returned | Raised


class _TimeOver(Exception):
    """The call took too long. `begun` tells whether it had started."""

    def __init__(self, *, begun: bool) -> None:
        super().__init__()
        self.begun = begun


def _unchanged(text: str) -> str:
    return text


def _same(value: object) -> object:
    return value


async def run_call(
    tool: Tool,
    call: ToolCall,
    *,
    context: ToolContext[object],
    threads: Threads,
    scrub: Scrub = _unchanged,
    blobs: Blobs | None = None,
    grace: float = GRACE,
) -> Envelope:
    """Validate the arguments, run the tool, and put what came of it into an envelope.

    With `blobs`, output beyond the tool's limit is spilled there. Cancelling this cancels the tool: a coroutine has `grace`
    seconds to clean up, a thread is left to itself and counted.
    """
    envelope = await _ran(tool, call, context, threads, grace)
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
    try:
        own = _within(tool, context)
        invoke = _invocation(tool.verifier, accepted, own, _same)
        ended = await _ended(tool.verifier, invoke, own, threads, grace)
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
    own = _within(tool, context)
    allowed = own.seconds_left
    if allowed == 0:
        return failed(f"The tool {tool.name!r} was not run: there is no time left.")
    callee = tool.callee or Callee.of(tool.function)
    try:
        ended = await _ended(callee, _invocation(callee, accepted, own, envelope_of), own, threads, grace)
    except _TimeOver as over:
        return _overdue(tool, over, allowed)
    except NoThread as error:
        return failed(f"The tool {tool.name!r} was not run: {error}. Only tools that are async still work.")
    return envelope_of(ended.value) if isinstance(ended, Returned) else raised(ended.error, tool.name)


def _within(tool: Tool, context: ToolContext[object]) -> ToolContext[object]:
    """The context with the tool's own deadline, and with progress that arrives on the loop's thread."""
    loop = asyncio.get_running_loop()
    own = None if tool.timeout is None else time.monotonic() + tool.timeout
    ends = [end for end in (own, context.deadline) if end is not None]
    report = context.report

    def on_loop(progress: Progress) -> None:
        call_on(loop, lambda: report(progress))

    return msgspec.structs.replace(context, deadline=min(ends, default=None), report=on_loop)


def _invocation(
    callee: Callee, accepted: Accepted, context: ToolContext[object], finish: Callable[[object], object]
) -> Callable[[], object]:
    """The call itself. What it gives is finished where it runs: large output is not turned into text on the loop's thread."""
    own = {callee.context: context} if callee.context else {}

    def invoke() -> object:
        value = callee.function(*accepted.whole, **accepted.named, **own)
        return value if inspect.iscoroutine(value) or callee.awaits else finish(value)

    return invoke


async def _ended(
    callee: Callee, invoke: Callable[[], object], context: ToolContext[object], threads: Threads, grace: float
) -> Ended:
    if callee.awaits:
        return await _as_task(invoke, context, threads, grace)
    ended = await _in_thread(invoke, context, threads)
    if isinstance(ended, Returned) and inspect.iscoroutine(ended.value):
        coroutine = ended.value
        try:
            return await _as_task(lambda: coroutine, context, threads, grace)
        finally:
            if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                coroutine.close()
    return ended


async def _in_thread(invoke: Callable[[], object], context: ToolContext[object], threads: Threads) -> Ended:
    job = threads.start(invoke)
    try:
        await asyncio.wait((job.ended,), timeout=context.seconds_left)
        if not job.ended.done():
            raise _TimeOver(begun=_given_up(job, context, threads))
    except asyncio.CancelledError:
        _given_up(job, context, threads)
        raise
    ended = job.ended.result()
    if isinstance(ended, Raised) and isinstance(ended.error, NoThread):
        raise ended.error
    return ended


def _given_up(job: Job, context: ToolContext[object], threads: Threads) -> bool:
    context.cancelled.set()
    return threads.give_up(job)


async def _as_task(invoke: Callable[[], object], context: ToolContext[object], threads: Threads, grace: float) -> Ended:
    """In a task of its own, which can be left to itself. It wakes us by itself, without a detour through its callbacks."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    task: asyncio.Task[object] = loop.create_task(_awaited(invoke, ended))
    left = context.seconds_left
    timer = None if left is None else loop.call_later(left, _wake, ended)
    try:
        await ended
    except asyncio.CancelledError:
        await _stopped(task, context, threads, grace)
        raise
    finally:
        if timer is not None:
            timer.cancel()
    if not task.done():
        await _stopped(task, context, threads, grace)
        raise _TimeOver(begun=True)
    return _outcome(task)


async def _awaited(invoke: Callable[[], object], ended: "asyncio.Future[None]") -> object:
    """The coroutine of a tool. What asyncio would end the program with ends the tool instead."""
    try:
        made = invoke()
        return Returned(await made if isinstance(made, Coroutine) or inspect.isawaitable(made) else made)
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:
        return Raised(error)
    finally:
        _wake(ended)


def _wake(ended: "asyncio.Future[None]") -> None:
    if not ended.done():
        ended.set_result(None)


def _outcome(task: "asyncio.Task[object]") -> Ended:
    if task.cancelled():
        return Raised(RuntimeError("it cancelled itself"))
    ended = task.result()
    return ended if isinstance(ended, Returned | Raised) else Returned(ended)


async def _stopped(task: "asyncio.Task[object]", context: ToolContext[object], threads: Threads, grace: float) -> None:
    """Cancel a coroutine and give it time to clean up; one that goes on is counted and left to itself."""
    context.cancelled.set()
    task.cancel()
    try:
        await asyncio.wait((task,), timeout=grace)
    finally:
        if not task.done():
            threads.keep_stray(task)
        elif not task.cancelled():
            task.exception()


def _overdue(tool: Tool, over: _TimeOver, allowed: float | None) -> Envelope:
    spent = f"{allowed or 0:.3g} seconds"
    if not over.begun:
        return failed(f"The tool {tool.name!r} was not run: no thread became free within {spent}. Try again later.")
    if tool.effect == "write":
        return failed(
            f"The tool {tool.name!r} was given up after {spent}. It is not known whether it took effect. "
            "Find that out before you call it again.",
            outcome="unknown",
        )
    return failed(f"The tool {tool.name!r} was given up after {spent}. It may be called again.")
