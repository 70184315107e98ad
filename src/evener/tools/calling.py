"""Between the loop and the tools: runs a call and reports it as an event. Large output goes to the blobs."""

import asyncio
from base64 import b64decode
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from functools import lru_cache
from hashlib import sha256
from time import perf_counter, time
from typing import Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from evener.errors import StoreError
from evener.events import CallFinished, CallPaused
from evener.tools.context import Progress, ToolContext
from evener.tools.result import Envelope, Scrub, failed
from evener.tools.running import run_call, unchanged, verify_call
from evener.tools.spill import read_output_tool, spill
from evener.tools.threads import Threads
from evener.tools.toolbox import Toolbox
from evener.transcript.blocks import DocumentBlock, ImageBlock, Inline, ResultContent, Stored, TextBlock, ToolCall

__all__ = ["CallSite", "Caller", "Calling", "digest_of", "with_reader"]

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
        began = perf_counter()
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
            return CallPaused(at=time(), call=call.id, thread=envelope.waits.thread, inner=envelope.waits.inner)
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
        began = perf_counter()
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
            return _reported(call, failed("Cancelled before it ended."), perf_counter())
        text = "Cancelled while it ran: it is not known whether it took effect."
        return _reported(call, failed(text, outcome="unknown"), perf_counter())

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
        at=time(), call=call.id, ok=envelope.ok, content=envelope.content, outcome=envelope.outcome, retry=envelope.retry,
        metadata=envelope.meta, seconds=perf_counter() - began, spilled=envelope.spilled,
    )  # fmt: skip
