"""Runs the calls of a model: threads for sync tools, deadlines and cancelling, and the event that reports the result.

Large output goes to the blobs.
"""

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
from evener.tools.arguments import ReadArguments, unchanged
from evener.tools.context import Cancellation, Progress, ToolContext, call_on, settle
from evener.tools.result import Envelope, Scrub, envelope_of, report_error, report_failure, scrub_envelope
from evener.tools.schema import explain_refusal
from evener.tools.signature import Callee
from evener.tools.spill import READER, Blobs, MemoryBlobs, read_output_tool, spill
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
from evener.transcript.scan import resolve_pointer

IDLE_SECONDS = 10.0


class Returned(msgspec.Struct, frozen=True):
    """The value that a function returned."""

    value: object


class Raised(msgspec.Struct, frozen=True):
    """The exception that a function raised."""

    error: BaseException


Ended = Returned | Raised


class NoThread(Exception):
    """No thread is free for a call, and none will be."""


class ThreadJob:
    """A function that runs in a thread, in its caller's context (as of contextvars).

    `ended` is set when it ends, or to None by a caller that stops waiting. The pool's lock guards the rest: `function` is
    set until it begins.
    """

    def __init__(self, function: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self.context = contextvars.copy_context()
        self.function: Callable[[], object] | None = function
        self.abandoned = False
        self.outcome: Ended | None = None
        self.ended: asyncio.Future[Ended | None] = self._loop.create_future()

    def finish(self, outcome: Ended) -> None:
        """Pass the outcome to the caller's loop."""
        call_on(self._loop, partial(settle, self.ended, outcome))


def _drop(outcome: Ended) -> None:
    """Close a coroutine that no caller will await."""
    if isinstance(outcome, Returned) and inspect.iscoroutine(outcome.value):
        outcome.value.close()


class Threads:
    """At most `limit` threads. `busy` counts those that run something, `abandoned` those of them whose caller stopped
    waiting.

    `stray` counts coroutines that continued after they were cancelled. Shared by all runs and event loops of a process.
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
        """The number of threads that run a tool now."""
        return self._busy

    @property
    def abandoned(self) -> int:
        """The number of them whose caller has given up."""
        return self._abandoned

    @property
    def stray(self) -> int:
        """The number of coroutines that went on although they were cancelled."""
        return len(self._stray)

    def start(self, function: Callable[[], object]) -> ThreadJob:
        """Run a function in a thread as soon as one is free. Raise NoThread when none ever will be."""
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
        """Stop waiting for a job. Return True if it has begun and may still be running; otherwise it will never run."""
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
            other.finish(Raised(self._all_hung()))
        return True

    def keep_stray(self, task: "asyncio.Task[object]") -> None:
        """Count a coroutine that does not end, and keep a reference to it until it does."""
        self._stray.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: "asyncio.Task[object]") -> None:
        self._stray.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, else asyncio logs it

    def _spawn(self, job: ThreadJob) -> None:
        try:
            threading.Thread(target=self._work, args=(job,), name="evener-tool", daemon=True).start()
        except RuntimeError as error:
            with self._lock:
                self._busy -= 1
            raise NoThread(f"the system has no thread for it ({error})") from None

    def _work(self, job: ThreadJob | None) -> None:
        while job is not None:
            onward = self._release(job, self._perform(job))
            del job  # an idle thread keeps no result alive
            job = onward or self._next_job()

    def _perform(self, job: ThreadJob) -> Ended:
        with self._lock:
            function, job.function = job.function, None
        if function is None:
            return Raised(NoThread("it was given up before it began"))
        try:
            return Returned(job.context.run(function))
        except BaseException as error:  # nothing above a thread catches it: SystemExit and KeyboardInterrupt end the tool only
            return Raised(error)

    def _release(self, job: ThreadJob, outcome: Ended) -> ThreadJob | None:
        """Record the outcome and free the thread. Return the next job that waits, if any."""
        with self._lock:
            job.outcome = outcome
            if job.abandoned:
                self._abandoned -= 1
                _drop(outcome)
            onward = self._waiting.popleft() if self._waiting else None
            if onward is None:
                self._busy -= 1
                self._idle += 1
        job.finish(outcome)
        return onward

    def _next_job(self) -> ThreadJob | None:
        """Wait for the next job of an idle thread; return None after IDLE_SECONDS."""
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
    """Return the JSON text of the arguments with all defaults; None when they do not fit, so that the tool will not run."""
    read = tool.read(raw)
    if not isinstance(read, ReadArguments):
        return None
    given = json_object(raw, "The arguments")
    known = _plain(read.whole[0] if read.whole else {**_signature_defaults(tool), **read.named})
    schema = json_object(tool.schema, "The schema")
    full = _add_schema_defaults(_fill(given, known), schema, schema, 0)
    return raw if full == given or not isinstance(full, dict) else json_text(full, "The arguments")


def _signature_defaults(tool: Tool) -> dict[str, object]:
    found = inspect.signature(tool.function).parameters.values()
    context = tool.callee.context if tool.callee else ""
    return {one.name: one.default for one in found if one.default is not one.empty and one.name != context}


def _plain(value: object) -> object:
    """Return the value as plain JSON values."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_dump)


def _dump(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json", by_alias=True) if callable(dump) else str(value)


def _fill(given: object, known: object) -> object:
    """Return the given arguments, with defaults for those that are missing."""
    match given, known:
        case dict(), dict():
            return {**{name: _fill(value, known.get(name)) for name, value in given.items()}, **_only(known, given)}
        case list(), list() if len(given) == len(known):
            return [_fill(*pair) for pair in zip(given, known, strict=True)]
        case _:
            return given


def _only(known: Mapping[str, object], given: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in known.items() if name not in given}


def _add_schema_defaults(value: object, node: object, root: Mapping[str, object], depth: int) -> object:
    """Add the defaults that the schema names, for tools that are made from one."""
    node = _follow(node, root)
    if not isinstance(node, dict) or depth > MOST_DEEP:
        return value
    match value:
        case dict():
            properties = node.get("properties")
            shapes = properties if isinstance(properties, dict) else {}
            inner = {name: _add_schema_defaults(item, shapes.get(name), root, depth + 1) for name, item in value.items()}
            said = {name: shape["default"] for name, shape in shapes.items() if isinstance(shape, dict) and "default" in shape}
            return {**inner, **_only(said, inner)}
        case list():
            return [_add_schema_defaults(item, node.get("items"), root, depth + 1) for item in value]
        case _:
            return value


def _follow(node: object, root: Mapping[str, object]) -> object:
    """Return what a reference inside the schema refers to; the node itself if it is none."""
    for _ in range(MOST_DEEP):
        reference = node.get("$ref") if isinstance(node, dict) else None
        if not isinstance(reference, str):
            return node
        node = resolve_pointer(root, reference)
    return None


GRACE = 2.0
"""Seconds that a cancelled coroutine has to clean up."""


class _TimeOver(Exception):
    """The call took too long. `begun`: it had started."""

    def __init__(self, *, begun: bool) -> None:
        super().__init__()
        self.begun = begun


class _Bounds(msgspec.Struct, frozen=True):
    """The bounds of a call: its deadline (None: none), how it is asked to stop, and the threads that keep a job that does
    not stop.
    """

    end: float | None
    cancelled: Cancellation
    threads: Threads
    grace: float

    def seconds_left(self) -> float | None:
        return None if self.end is None else max(0.0, self.end - time.monotonic())


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
    """Validate the arguments, run the tool, and return its result in an envelope.

    With `blobs`, output beyond the tool's limit is spilled there. Cancelling this cancels the tool: a coroutine has `grace`
    seconds to clean up, a thread goes on and is counted as abandoned.
    """
    envelope = await _run(tool, call, context, threads, grace)
    if scrub is not unchanged:
        envelope = scrub_envelope(envelope, scrub)
    return envelope if blobs is None else spill(envelope, blobs, limit=tool.output_limit)


async def verify_call(
    tool: Tool, call: ToolCall, *, context: ToolContext[object], threads: Threads, grace: float = GRACE
) -> bool | None:
    """Return whether an interrupted call took effect, as the tool's own `verify` says; None when that is not known."""
    if tool.verifier is None:
        return None
    try:
        accepted = tool.read(call.raw)
    except Exception:  # the constructor of a user's type may raise anything, and then the tool has not begun
        return False
    if isinstance(accepted, tuple):
        return False
    bounds = _Bounds(_end(tool, context, time.monotonic()), context.cancelled, threads, grace)
    try:
        ended = await _perform(tool.verifier, _bind(tool.verifier, accepted, context, bounds), unchanged, bounds)
    except (_TimeOver, NoThread):
        return None
    match ended:
        case Returned(value=bool() as answer):
            return answer
    return None


async def _run(tool: Tool, call: ToolCall, context: ToolContext[object], threads: Threads, grace: float) -> Envelope:
    try:
        accepted = tool.read(call.raw)
    except Exception as error:  # the constructor of a user's type may raise anything
        return report_error(error, tool.name)
    if isinstance(accepted, tuple):
        return report_failure(explain_refusal(tool.name, accepted), retry=True)
    begin = time.monotonic()
    bounds = _Bounds(_end(tool, context, begin), context.cancelled, threads, grace)
    if bounds.end is not None and bounds.end <= begin:
        return report_failure(f"The tool {tool.name!r} was not run: there is no time left.")
    callee = tool.callee or Callee.of(tool.function)
    try:
        ended = await _perform(callee, _bind(callee, accepted, context, bounds), envelope_of, bounds)
    except _TimeOver as over:
        return _report_overdue(tool, over, (bounds.end or begin) - begin)
    except NoThread as error:
        return report_failure(f"The tool {tool.name!r} was not run: {error}. Only tools that are async still work.")
    return envelope_of(ended.value) if isinstance(ended, Returned) else report_error(ended.error, tool.name)


def _end(tool: Tool, context: ToolContext[object], begin: float) -> float | None:
    """Return the deadline of a call that begins now: its own or that of the run."""
    if tool.timeout is None:
        return context.deadline
    own = begin + tool.timeout
    return own if context.deadline is None else min(own, context.deadline)


def _bind(callee: Callee, accepted: ReadArguments, context: ToolContext[object], bounds: _Bounds) -> Callable[[], object]:
    """Return the call of the function, ready to be made. Its context has the call's own deadline and reports on the loop."""
    if not callee.context:
        return partial(callee.function, *accepted.whole, **accepted.named)
    loop, report = asyncio.get_running_loop(), context.report

    def on_loop(progress: Progress) -> None:
        call_on(loop, lambda: report(progress))

    own = replace(context, deadline=bounds.end, report=on_loop)
    return partial(callee.function, *accepted.whole, **accepted.named, **{callee.context: own})


def _perform(
    callee: Callee, invoke: Callable[[], object], finish: Callable[[object], object], bounds: _Bounds
) -> Coroutine[object, object, Ended]:
    """Make the call. A thread also finishes its value, so that large output is not turned into text on the loop's thread."""
    reports = bool(callee.context)
    if callee.awaits:
        return _as_task(invoke, bounds, reports=reports)

    def work() -> object:
        value = invoke()
        return value if inspect.iscoroutine(value) else finish(value)

    return _in_thread(work, bounds, reports=reports)


async def _in_thread(work: Callable[[], object], bounds: _Bounds, *, reports: bool) -> Ended:
    """Run work in a thread; if that returns a coroutine, run it as a task."""
    job = bounds.threads.start(work)
    try:
        ended = await _wait_for(job.ended, bounds) or job.outcome  # set at the last moment, perhaps
    except asyncio.CancelledError:
        _give_up(job, bounds)
        raise
    if ended is None:
        raise _TimeOver(begun=_give_up(job, bounds))
    if isinstance(ended, Raised) and isinstance(ended.error, NoThread):
        raise ended.error
    if not isinstance(ended, Returned) or not inspect.iscoroutine(ended.value):
        return ended
    coroutine = ended.value
    try:
        return await _as_task(lambda: coroutine, bounds, reports=reports)
    finally:
        if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
            coroutine.close()


def _give_up(job: ThreadJob, bounds: _Bounds) -> bool:
    bounds.cancelled.set()
    begun = bounds.threads.give_up(job)
    bounds.cancelled.outlived = job.abandoned
    return begun


async def _wait_for(ended: "asyncio.Future[Ended | None]", bounds: _Bounds) -> Ended | None:
    """Return what a future is set to; None when the time is over before that."""
    left = bounds.seconds_left()
    if left is None:
        return await ended
    timer = asyncio.get_running_loop().call_later(left, settle, ended, None)
    try:
        return await ended
    finally:
        timer.cancel()


async def _as_task(invoke: Callable[[], object], bounds: _Bounds, *, reports: bool) -> Ended:
    """Run a coroutine in a task of its own, which may outlive the call. It wakes the waiter itself, not by done callbacks.

    One that waits for nothing is done in the next iteration of the loop, and needs no timer. One that `reports` must not
    overtake its reports, which take an iteration as well.
    """
    loop = asyncio.get_running_loop()
    waiting: list[asyncio.Future[Ended | None]] = []
    task: asyncio.Task[Ended] = loop.create_task(_await_tool(invoke, waiting))
    try:
        if not reports:
            await asyncio.sleep(0)
        if not task.done():
            waiting.append(loop.create_future())
            await _wait_for(waiting[0], bounds)
    except asyncio.CancelledError:
        await _stop(task, bounds)
        raise
    if not task.done():
        await _stop(task, bounds)
        raise _TimeOver(begun=True)
    return Raised(RuntimeError("it cancelled itself")) if task.cancelled() else task.result()


async def _await_tool(invoke: Callable[[], object], waiting: "list[asyncio.Future[Ended | None]]") -> Ended:
    """Await the coroutine of a tool, then wake the waiter. What would make asyncio end the program ends the tool only."""
    try:
        made = invoke()
        return Returned(await made if inspect.isawaitable(made) else made)
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:
        return Raised(error)
    finally:
        for ended in waiting:
            settle(ended, None)


async def _stop(task: "asyncio.Task[Ended]", bounds: _Bounds) -> None:
    """Cancel a coroutine and give it time to clean up; count one that goes on."""
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


def _report_overdue(tool: Tool, over: _TimeOver, allowed: float) -> Envelope:
    spent = f"{allowed:.3g} seconds"
    if not over.begun:
        return report_failure(f"The tool {tool.name!r} was not run: no thread became free within {spent}. Try again later.")
    if tool.effect == "write":
        return report_failure(
            f"The tool {tool.name!r} was given up after {spent}. It is not known whether it took effect. "
            "Find that out before you call it again.",
            outcome="unknown",
        )
    return report_failure(f"The tool {tool.name!r} was given up after {spent}. It may be called again.")


LARGE = 16 * 1024
"""Characters: larger media of a result are stored as blobs, and the log names them."""
PATIENCE = 30.0

T = TypeVar("T")

_objects = msgspec.json.Decoder(dict[str, object])
_sorting = msgspec.json.Encoder(order="deterministic")


class Shelf(Protocol):
    """The part of a store that contains blobs."""

    def put_blob(self, content: bytes) -> Coroutine[object, object, str]: ...

    def get_blob(self, digest: str) -> Coroutine[object, object, bytes]: ...


_current_run: ContextVar[tuple[asyncio.AbstractEventLoop, Shelf]] = ContextVar("evener_around")
"""The loop of the run that a tool runs in, and its shelf: not always that of the harness for which the tool was made."""


class CallSite(msgspec.Struct, frozen=True):
    """The place of a call: its run, its idempotency key, and the receiver of its progress (call, text, fraction).

    `deadline` is the end of the run's time, by `time.monotonic()`; None without a limit. `leave` is called when a call is
    abandoned but its tool continues. `cancelled` is set when the run is cancelled.
    """

    run: str
    key: str
    report: Callable[[str, str, float], None]
    deadline: float | None = None
    leave: Callable[[], None] = lambda: None
    cancelled: Cancellation = msgspec.field(default_factory=Cancellation)


def with_reader(toolbox: Toolbox) -> Toolbox:
    """Return the tools and, if there are any, the one that pages through output that was too large to be shown."""
    if not toolbox or READER in toolbox:
        return toolbox
    return toolbox.add(read_output_tool(_RunBlobs()))


class Calling(Protocol):
    """What a driver needs to run calls. `Caller` runs them; `evener.replay` plays back recorded results."""

    @property
    def shares(self) -> bool:
        """True if calls that are the same may share one run."""
        ...

    def digest(self, call: ToolCall) -> str: ...

    async def run(self, call: ToolCall, site: CallSite) -> CallFinished | CallPaused: ...

    async def verify(self, call: ToolCall, site: CallSite) -> CallFinished | None: ...

    def give_up(self, call: ToolCall) -> CallFinished: ...


def digest_of(call: ToolCall, schema: str) -> str:
    """Return a digest of the tool, its arguments and its schema (empty where there is no such tool)."""
    try:
        arguments = _sorting.encode(_objects.decode(call.raw))
    except (msgspec.MsgspecError, RecursionError):
        arguments = call.raw.encode()
    name = _hash(call.name) if schema else sha256(call.name.encode()).digest()  # an unknown name may be of any length
    return sha256(b"\0".join((name, sha256(arguments).digest(), _hash(schema)))).hexdigest()


@lru_cache(256)
def _hash(text: str) -> bytes:
    """Hash the name or schema of a tool, which are the same in each call."""
    return sha256(text.encode()).digest()


class Caller(msgspec.Struct, frozen=True):
    """Runs the calls of one toolbox. Has no state of a run. Only an empty toolbox needs no `threads`."""

    toolbox: Toolbox
    threads: Threads | None
    shelf: Shelf
    deps: object = None
    scrub: Scrub = unchanged

    @property
    def shares(self) -> bool:
        """True: the first of several equal calls runs for all of them."""
        return True

    def digest(self, call: ToolCall) -> str:
        """Return a digest that is the same for the same tool with the same arguments and the same schema."""
        tool = self.toolbox.get(call.name)
        return digest_of(call, tool.spec.schema if tool else "")

    async def run(self, call: ToolCall, site: CallSite) -> CallFinished | CallPaused:
        """Run the call and return its result, whatever the tool does; or that it waits for a decision inside it."""
        tool = self.toolbox.get(call.name)
        began = time.perf_counter()
        if tool is None:
            return _finish(call, self.toolbox.unknown(call.name), began)
        here = (asyncio.get_running_loop(), self.shelf)
        if _current_run.get(None) != here:
            _current_run.set(here)
        context = self._context(call, site)
        assert self.threads is not None  # there is a tool
        try:
            envelope = await _run(tool, call, context, self.threads, GRACE)
        except asyncio.CancelledError:
            if context.cancelled.outlived:
                site.leave()
            raise
        if self.scrub is not unchanged:
            envelope = scrub_envelope(envelope, self.scrub)
        if envelope.waits is not None:
            return CallPaused(at=time.time(), call=call.id, thread=envelope.waits.thread, inner=envelope.waits.inner)
        if not _is_short(envelope, tool.output_limit):
            envelope = await self._store_large(envelope, tool.output_limit)
        return _finish(call, envelope, began)

    async def _store_large(self, envelope: Envelope, limit: int) -> Envelope:
        """Return the envelope with its large parts stored on the shelf."""
        spilled = MemoryBlobs()
        envelope = spill(envelope, spilled, limit=limit)
        for name, body in spilled.held.items():
            envelope = _rename_blob(envelope, name, await self.shelf.put_blob(body))
        content = tuple([await self._store_media(block) for block in envelope.content])
        return replace(envelope, content=content)

    async def verify(self, call: ToolCall, site: CallSite) -> CallFinished | None:
        """Return what the tool's own `verify` says of an interrupted call. None: it did not take effect, and may be run."""
        tool = self.toolbox.get(call.name)
        began = time.perf_counter()
        took = None
        if tool is not None and self.threads is not None:
            took = await verify_call(tool, call, context=self._context(call, site), threads=self.threads)
        match took:
            case False:
                return None
            case True:
                text = "Interrupted, and checked afterwards: this call took effect. What it returned is not known."
                return _finish(call, Envelope(True, text), began)  # type: ignore[arg-type] # it takes a str, too
            case _:
                text = "Interrupted: this call was started, and it could not be found out whether it took effect."
                return _finish(call, report_failure(text, outcome="unknown"), began)

    def give_up(self, call: ToolCall) -> CallFinished:
        """Return the result of a call that was cancelled while it ran."""
        tool = self.toolbox.get(call.name)
        if tool is not None and tool.effect != "write":
            return _finish(call, report_failure("Cancelled before it ended."), time.perf_counter())
        text = "Cancelled while it ran: it is not known whether it took effect."
        return _finish(call, report_failure(text, outcome="unknown"), time.perf_counter())

    def _context(self, call: ToolCall, site: CallSite) -> ToolContext[object]:
        def report(progress: Progress) -> None:
            site.report(call.id, progress.text, -1.0 if progress.fraction is None else progress.fraction)

        return ToolContext(
            call_id=call.id, deps=self.deps, run_id=site.run, key=site.key, deadline=site.deadline, report=report,
            run_cancelled=site.cancelled,
        )  # fmt: skip

    async def _store_media(self, block: ResultContent) -> ResultContent:
        match block:
            case ImageBlock(source=Inline(text)) | DocumentBlock(source=Inline(text)) if len(text) > LARGE:
                content = b64decode(text)
                return replace(block, source=Stored(await self.shelf.put_blob(content), len(content)))
            case _:
                return block


class _RunBlobs:
    """The blobs of the run's store, for a tool that runs in a thread while the run's event loop continues."""

    def put(self, body: bytes) -> str:
        loop, shelf = _current_run.get()
        return _wait_on(shelf.put_blob(body), loop)

    def get(self, id: str) -> bytes | None:
        loop, shelf = _current_run.get()
        try:
            return _wait_on(shelf.get_blob(id), loop)
        except StoreError:
            return None


def _wait_on(work: Coroutine[object, object, T], loop: asyncio.AbstractEventLoop) -> T:
    return asyncio.run_coroutine_threadsafe(work, loop).result(PATIENCE)


def _is_short(envelope: Envelope, limit: int) -> bool:
    """True if it is one text within the limit, so that there is nothing large in it."""
    content = envelope.content
    return len(content) == 1 and isinstance(content[0], TextBlock) and len(content[0].text) <= limit


def _rename_blob(envelope: Envelope, name: str, stored: str) -> Envelope:
    """Return the envelope with the name that the shelf gave to a blob: another one if it removed a secret from it."""
    if stored == name:
        return envelope
    content = tuple(
        replace(block, text=block.text.replace(name, stored)) if isinstance(block, TextBlock) else block
        for block in envelope.content
    )
    spilled = envelope.spilled and replace(envelope.spilled, id=stored)
    return replace(envelope, content=content, spilled=spilled)


def _finish(call: ToolCall, envelope: Envelope, began: float) -> CallFinished:
    return CallFinished(
        at=time.time(), call=call.id, ok=envelope.ok, content=envelope.content, outcome=envelope.outcome, retry=envelope.retry,
        metadata=envelope.meta, seconds=time.perf_counter() - began, spilled=envelope.spilled,
        keep=envelope.keep, reveals=envelope.reveals,
    )  # fmt: skip
