"""Runs one call of a tool, for the tests."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import TypeVar

from evener.tools import Blobs, Envelope, Progress, Threads, Tool, ToolContext, run_call
from evener.transcript import ToolCall

__all__ = ["call", "context", "named", "run"]

T = TypeVar("T")
SECONDS = 120


def context(deps: object = None, *, report: Callable[[Progress], None] | None = None) -> ToolContext[object]:
    if report is None:
        return ToolContext(call_id="call-1", deps=deps, run_id="run-1", key="key-1")
    return ToolContext(call_id="call-1", deps=deps, run_id="run-1", key="key-1", report=report)


async def call(
    tool: Tool,
    raw: str = "{}",
    *,
    threads: Threads | None = None,
    within: ToolContext[object] | None = None,
    scrub: Callable[[str], str] = str,
    blobs: Blobs | None = None,
    grace: float = 0.2,
) -> Envelope:
    return await run_call(
        tool,
        ToolCall("call-1", tool.name, raw),
        context=within or context(),
        threads=threads or Threads(2),
        scrub=scrub,
        blobs=blobs,
        grace=grace,
    )


def run(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine, but not for ever."""

    async def bounded() -> T:
        return await asyncio.wait_for(work, SECONDS)

    return asyncio.run(bounded())


def named(part: object) -> str:
    """The id of a case: short, and the same in every process, so without addresses."""
    text = getattr(part, "__name__", None) or repr(part)
    return re.sub(r" at 0x[0-9a-f]+", "", str(text))[:50]
