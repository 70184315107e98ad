"""Between the loop and the tools: runs a call and reports it as an event. Large output goes to the blobs."""

import asyncio
import contextvars
import inspect
import threading
import time
from base64 import b64decode
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from functools import lru_cache, partial
from hashlib import sha256
from queue import Empty, SimpleQueue
from typing import Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from evener.errors import StoreError, UsageError
from evener.events import CallFinished, CallPaused
from evener.tools.arguments import ReadArguments
from evener.tools.context import Cancellation, Progress, ToolContext, call_on
from evener.tools.result import Envelope, Scrub, envelope_of, failed, raised, scrubbed
from evener.tools.schema import told
from evener.tools.signature import Callee
from evener.tools.spill import Blobs, read_output_tool, spill
from evener.tools.tool import Tool, Toolbox
from evener.transcript.blocks import (
    DocumentBlock,
    ImageBlock,
    Inline,
    ResultContent,
    Stored,
    TextBlock,
    ToolCall,
    json_object,
    json_text,
)

__all__ = [
    "CallSite",
    "Caller",
    "Calling",
    "NoThread",
    "Raised",
    "Returned",
    "ThreadJob",
    "Threads",
    "digest_of",
    "run_call",
    "unchanged",
    "verify_call",
    "with_defaults",
    "with_reader",
]


IDLE_SECONDS = 10.0


class Returned(msgspec.Struct, frozen=True):
    """What a function gave back."""

    value: object


class Raised(msgspec.Struct, frozen=True):
    """What a function raised."""

    error: BaseException


class NoThread(Exception):
    """There is no thread for a call, and none will become free."""


class ThreadJob:
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
        self._handed: SimpleQueue[ThreadJob] = SimpleQueue()
        self._waiting: deque[ThreadJob] = deque()
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

    def start(self, function: Callable[[], object]) -> ThreadJob:
        """Run a function in a thread as soon as one is free. Raises NoThread when none ever will be."""
        job = ThreadJob(function)
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

    def give_up(self, job: ThreadJob) -> bool:
        """Nobody waits for it any more. True when it had begun and may still go on; otherwise it never will."""
        refused: list[ThreadJob] = []
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

    def _spawn(self, job: ThreadJob) -> None:
        try:
            threading.Thread(target=self._work, args=(job,), name="evener-tool", daemon=True).start()
        except RuntimeError as error:
            with self._lock:
                self._busy -= 1
            raise NoThread(f"the system has no thread for it ({error})") from None

    def _work(self, job: ThreadJob | None) -> None:
        while job is not None:
            onward = self._released(job, self._performed(job))
            del job  # an idle thread holds on to no result
            job = onward or self._handed_over()

    def _performed(self, job: ThreadJob) -> Returned | Raised:
        with self._lock:
            function, job.function = job.function, None
        if function is None:
            return Raised(NoThread("it was given up before it began"))
        try:
            return Returned(job.context.run(function))
        except BaseException as error:  # nobody is above a thread: SystemExit and KeyboardInterrupt end the tool only
            return Raised(error)

    def _released(self, job: ThreadJob, outcome: Returned | Raised) -> ThreadJob | None:
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

    def _handed_over(self) -> ThreadJob | None:
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


MOST_DEEP = 100


def with_defaults(tool: Tool, raw: str) -> str | None:
    """The JSON text of the arguments with all defaults in it; None when they do not fit, so that the tool will not run."""
    read = tool.read(raw)
    if not isinstance(read, ReadArguments):
        return None
    given = json_object(raw, "The arguments")
    known = _plain(read.whole[0]) if read.whole else {**_of_signature(tool), **{k: _plain(v) for k, v in read.named.items()}}
    schema = json_object(tool.schema, "The schema")
    full = _of_schema(_filled(given, known), schema, schema, 0)
    return raw if full == given or not isinstance(full, dict) else json_text(full, "The arguments")


def _of_signature(tool: Tool) -> dict[str, object]:
    found = inspect.signature(tool.function).parameters.values()
    context = tool.callee.context if tool.callee else ""
    return {one.name: _plain(one.default) for one in found if one.default is not one.empty and one.name != context}


def _plain(value: object) -> object:
    """The value as JSON has it."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_dumped)


def _dumped(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json", by_alias=True) if callable(dump) else str(value)


def _filled(given: object, known: object) -> object:
    """What was given, and what is only known."""
    match given, known:
        case dict(), dict():
            return {**{name: _filled(value, known.get(name)) for name, value in given.items()}, **_only(known, given)}
        case list(), list() if len(given) == len(known):
            return [_filled(*pair) for pair in zip(given, known, strict=True)]
        case _:
            return given


def _only(known: Mapping[str, object], given: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in known.items() if name not in given}


def _of_schema(value: object, node: object, root: Mapping[str, object], depth: int) -> object:
    """With the defaults that the schema names, for tools that are made from one."""
    node = _followed(node, root)
    if not isinstance(node, dict) or depth > MOST_DEEP:
        return value
    match value:
        case dict():
            properties = node.get("properties")
            shapes = properties if isinstance(properties, dict) else {}
            inner = {name: _of_schema(item, shapes.get(name), root, depth + 1) for name, item in value.items()}
            said = {name: shape["default"] for name, shape in shapes.items() if isinstance(shape, dict) and "default" in shape}
            return {**inner, **_only(said, inner)}
        case list():
            return [_of_schema(item, node.get("items"), root, depth + 1) for item in value]
        case _:
            return value


def _followed(node: object, root: Mapping[str, object]) -> object:
    """What a reference inside the schema stands for."""
    for _ in range(MOST_DEEP):
        target = node.get("$ref") if isinstance(node, dict) else None
        if not isinstance(target, str) or not target.startswith("#"):
            return node
        node = root
        for step in target.lstrip("#/").split("/") if target != "#" else ():
            node = node.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(node, dict) else None
    return None


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


def _invocation(callee: Callee, accepted: ReadArguments, context: ToolContext[object], bounds: _Bounds) -> Callable[[], object]:
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


def _given_up(job: ThreadJob, bounds: _Bounds) -> bool:
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


READER = "read_output"
LARGE = 16 * 1024
"""Characters: larger media of a result lie in the blobs, and the log names them."""
PATIENCE = 30.0

T = TypeVar("T")

_objects = msgspec.json.Decoder(dict[str, object])
_sorting = msgspec.json.Encoder(order="deterministic")


class Shelf(Protocol):
    """Where large things lie."""

    def put_blob(self, content: bytes) -> Coroutine[object, object, str]: ...

    def get_blob(self, digest: str) -> Coroutine[object, object, bytes]: ...


_around: ContextVar[tuple[asyncio.AbstractEventLoop, Shelf]] = ContextVar("evener_around")
"""The loop of the run that a tool runs in, and its shelf: not always that of the harness which the tool was made for."""


class CallSite(msgspec.Struct, frozen=True):
    """Where a call belongs: its run, its idempotency key, and who hears of its progress (call, text, fraction).

    `deadline` is when the time of the run is over, by `time.monotonic()`; None when it has no limit. `leave` is told when a
    call is given up and its tool goes on all the same.
    """

    run: str
    key: str
    report: Callable[[str, str, float], None]
    deadline: float | None = None
    leave: Callable[[], None] = lambda: None


def with_reader(toolbox: Toolbox) -> Toolbox:
    """The tools and, if there are any, the one that pages through output that was too large to be shown."""
    if not toolbox or READER in toolbox:
        return toolbox
    return toolbox.add(read_output_tool(_Lying()))


class Calling(Protocol):
    """What a driver does with calls. `Caller` runs them; `evener.replay` plays back what became of them."""

    def digest(self, call: ToolCall) -> str: ...

    async def run(self, call: ToolCall, site: CallSite) -> CallFinished | CallPaused: ...

    async def verify(self, call: ToolCall, site: CallSite) -> CallFinished | None: ...

    def given_up(self, call: ToolCall) -> CallFinished: ...


def digest_of(call: ToolCall, schema: str) -> str:
    """The same for the same tool with the same arguments and the same schema (empty where there is no such tool)."""
    try:
        arguments = _sorting.encode(_objects.decode(call.raw))
    except (msgspec.MsgspecError, RecursionError):
        arguments = call.raw.encode()
    name = _hashed(call.name) if schema else sha256(call.name.encode()).digest()  # of a tool that is not there, of any length
    return sha256(b"\0".join((name, sha256(arguments).digest(), _hashed(schema)))).hexdigest()


@lru_cache(256)
def _hashed(text: str) -> bytes:
    """Of the names and schemas of tools, which are the same in each call."""
    return sha256(text.encode()).digest()


class Caller:
    """Runs calls of one toolbox. Holds nothing of a run."""

    def __init__(
        self, toolbox: Toolbox, *, threads: Threads, shelf: Shelf, deps: object = None, scrub: Scrub | None = None
    ) -> None:
        self._toolbox = toolbox
        self._tools = dict(toolbox)
        self._threads = threads
        self._shelf = shelf
        self._deps = deps
        self._scrub = scrub or unchanged

    @property
    def toolbox(self) -> Toolbox:
        return self._toolbox

    def digest(self, call: ToolCall) -> str:
        """The same for the same tool with the same arguments and the same schema."""
        tool = self._tools.get(call.name)
        return digest_of(call, tool.spec.schema if tool else "")

    async def run(self, call: ToolCall, site: CallSite) -> CallFinished | CallPaused:
        """Run the call. Whatever the tool does, this is its result; or it waits for a decision inside it, and has none yet."""
        tool = self._tools.get(call.name)
        began = time.perf_counter()
        if tool is None:
            return _reported(call, self._toolbox.unknown(call.name), began)
        here = (asyncio.get_running_loop(), self._shelf)
        if _around.get(None) != here:
            _around.set(here)
        context = self._context(call, site)
        try:
            envelope = await run_call(tool, call, context=context, threads=self._threads, scrub=self._scrub)
        except asyncio.CancelledError:
            if context.cancelled.outlived:
                site.leave()
            raise
        if envelope.waits is not None:
            return CallPaused(at=time.time(), call=call.id, thread=envelope.waits.thread, inner=envelope.waits.inner)
        if not _is_short(envelope, tool.output_limit):
            envelope = await self._stowed(envelope, tool.output_limit)
        return _reported(call, envelope, began)

    async def _stowed(self, envelope: Envelope, limit: int) -> Envelope:
        """The envelope with what is large in it on the shelf."""
        spilled = _Spilled()
        envelope = spill(envelope, spilled, limit=limit)
        for name, body in spilled.held.items():
            envelope = _renamed(envelope, name, await self._shelf.put_blob(body))
        content = tuple([await self._shelved(block) for block in envelope.content])
        return replace(envelope, content=content)

    async def verify(self, call: ToolCall, site: CallSite) -> CallFinished | None:
        """What the tool's own `verify` says of an interrupted start. None: it did not take effect, and may be run."""
        tool = self._toolbox.get(call.name)
        began = time.perf_counter()
        took = await verify_call(tool, call, context=self._context(call, site), threads=self._threads) if tool else None
        match took:
            case False:
                return None
            case True:
                text = "Interrupted, and checked afterwards: this call took effect. What it returned is not known."
                return _reported(call, Envelope(True, text), began)  # type: ignore[arg-type] # it takes a str, too
            case _:
                text = "Interrupted: this call was started, and it could not be found out whether it took effect."
                return _reported(call, failed(text, outcome="unknown"), began)

    def given_up(self, call: ToolCall) -> CallFinished:
        """The result of a call that was cancelled while it ran."""
        tool = self._toolbox.get(call.name)
        if tool is not None and tool.effect != "write":
            return _reported(call, failed("Cancelled before it ended."), time.perf_counter())
        text = "Cancelled while it ran: it is not known whether it took effect."
        return _reported(call, failed(text, outcome="unknown"), time.perf_counter())

    def _context(self, call: ToolCall, site: CallSite) -> ToolContext[object]:
        def report(progress: Progress) -> None:
            site.report(call.id, progress.text, -1.0 if progress.fraction is None else progress.fraction)

        return ToolContext(
            call_id=call.id, deps=self._deps, run_id=site.run, key=site.key, deadline=site.deadline, report=report
        )

    async def _shelved(self, block: ResultContent) -> ResultContent:
        match block:
            case ImageBlock(source=Inline(text)) | DocumentBlock(source=Inline(text)) if len(text) > LARGE:
                content = b64decode(text)
                return replace(block, source=Stored(await self._shelf.put_blob(content), len(content)))
            case _:
                return block


class _Spilled:
    """What one call spilled, until it is on the shelf."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}

    def put(self, body: bytes) -> str:
        digest = sha256(body).hexdigest()
        self.held[digest] = body
        return digest

    def get(self, id: str) -> bytes | None:
        return self.held.get(id)


class _Lying:
    """The run's shelf, for a tool that runs in a thread while the run's loop goes on."""

    def put(self, body: bytes) -> str:
        loop, shelf = _around.get()
        return _waited(shelf.put_blob(body), loop)

    def get(self, id: str) -> bytes | None:
        loop, shelf = _around.get()
        try:
            return _waited(shelf.get_blob(id), loop)
        except StoreError:
            return None


def _waited(work: Coroutine[object, object, T], loop: asyncio.AbstractEventLoop) -> T:
    return asyncio.run_coroutine_threadsafe(work, loop).result(PATIENCE)


def _is_short(envelope: Envelope, limit: int) -> bool:
    """Whether it is one text within the limit, so that there is nothing large in it."""
    content = envelope.content
    return len(content) == 1 and isinstance(content[0], TextBlock) and len(content[0].text) <= limit


def _renamed(envelope: Envelope, name: str, stored: str) -> Envelope:
    """The envelope with the name that the shelf gave to what was spilled: another one if it took a secret out of it."""
    if stored == name:
        return envelope
    content = tuple(
        replace(block, text=block.text.replace(name, stored)) if isinstance(block, TextBlock) else block
        for block in envelope.content
    )
    spilled = envelope.spilled and replace(envelope.spilled, id=stored)
    return replace(envelope, content=content, spilled=spilled)


def _reported(call: ToolCall, envelope: Envelope, began: float) -> CallFinished:
    return CallFinished(
        at=time.time(), call=call.id, ok=envelope.ok, content=envelope.content, outcome=envelope.outcome, retry=envelope.retry,
        metadata=envelope.meta, seconds=time.perf_counter() - began, spilled=envelope.spilled,
    )  # fmt: skip
