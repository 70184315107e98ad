"""`evener context`: shows how full a model's window is, as a table and as a picture, and undoes an eviction or compaction."""

from collections.abc import Iterator
from time import time

import msgspec

from evener import events as ev
from evener.cli.names import find_log
from evener.cli.terminal import count, print_json, say
from evener.context.accounting import KINDS, ContextKind
from evener.context.gate import ContextRules
from evener.driver.context_window import ContextKeeper, ContextReport
from evener.errors import UsageError
from evener.harness.preview import open_offline
from evener.loop.state import RunState
from evener.store.protocol import Store, state_of
from evener.store.sqlite.leases import new_claim

WIDTH, ROWS = 40, 5
SIGNS: dict[ContextKind, str] = {
    "system": "s", "tools": "t", "user": "u", "assistant": "a", "reasoning": "r", "calls": "c", "results": "=", "media": "m",
}  # fmt: skip
FREE, RESERVED = ".", "_"
WHAT: dict[ContextKind, str] = {
    "system": "system prompt", "tools": "tools", "user": "what the user said", "assistant": "what the model said",
    "reasoning": "reasoning", "calls": "tool calls", "results": "tool results", "media": "images and documents",
}  # fmt: skip


async def run(store: Store, id: str, *, model: str, undo: bool, as_json: bool) -> int:
    """Print the table and the picture. `undo`: undo the newest eviction or compaction first."""
    log = await store.head(await find_log(store, id))
    if undo:
        await _undo(store, log)
    state = await state_of(store, log)
    report = _report(store, state, model)
    if as_json:
        print_json({"thread": state.thread, "log": log, **msgspec.to_builtins(report)})
    else:
        for line in draw_context(report):
            print(line)
    return 0


def _report(store: Store, state: RunState, name: str) -> ContextReport:
    config = state.config
    name = name or state.model or (config.model if config else "")
    if not name:
        raise UsageError("No model was asked in this thread yet. Name one with -m.")
    model = open_offline(name)
    keeper = ContextKeeper(ContextRules(), specs=config.tools if config else (), put_blob=store.put_blob)
    return keeper.report(state, model)


async def _undo(store: Store, log: str) -> None:
    context = (await state_of(store, log)).context
    if context is None or not context.undoable:
        raise UsageError("There is no eviction or compaction to undo in this thread. Only the newest can be undone.")
    held, _ = await store.open(log, holder=new_claim())
    try:
        await held.append(ev.ContextRestored(at=time(), id=context.undoable))
    finally:
        await held.aclose()
    say("evener: Undone: requests contain the same messages as before that edit.")


def draw_context(report: ContextReport) -> Iterator[str]:
    """Yield the lines of the table, and of the picture where the window is known."""
    total = report.tally.total or 1.0
    scale = report.total / total  # the kinds are estimated; their sum is what the provider counted, and what is new
    gate = report.gate
    of = f" of {gate.window:,} ({report.total / gate.window:.0%})" if gate.window else ", and the window is not known"
    yield f"{report.model}: about {report.total:,} tokens{of}"
    for kind in KINDS:
        tokens = report.tally.of(kind) * scale
        yield f"  {SIGNS[kind]} {WHAT[kind]:22}{round(tokens):>10,}{tokens / max(report.total, 1):>6.0%}"
    if gate.window:
        yield f"  {RESERVED} {'reserved for the answer':22}{gate.reserved:>9,}"
        yield f"    {'shortened above':22}{gate.gate:>10,}"
    yield f"    {'never taken out':22}{report.floor:>10,}"
    edits = f"{count(report.evictions, 'eviction')}, {count(report.compactions, 'compaction')}, {len(report.pinned)} pinned"
    yield f"{count(report.messages, 'message')}, {report.left_out} of them left out of requests; {edits}"
    if gate.window:
        yield from _picture(report, scale)


def _picture(report: ContextReport, scale: float) -> Iterator[str]:
    """Yield the window as cells, each of the same share: what is in it, what is free, and what is kept for the answer."""
    cells, window = WIDTH * ROWS, report.gate.window
    drawn = ""
    seen = 0.0
    for kind in KINDS:
        seen += report.tally.of(kind) * scale
        drawn += SIGNS[kind] * (min(round(seen / window * cells), cells) - len(drawn))
    kept = min(round(report.gate.reserved / window * cells), cells - len(drawn))
    drawn += FREE * (cells - kept - len(drawn)) + RESERVED * kept
    for row in range(ROWS):
        yield f"  [{drawn[row * WIDTH : (row + 1) * WIDTH]}]"
