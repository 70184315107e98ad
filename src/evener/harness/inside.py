"""What the runs inside calls have used and done, as their own logs say: for whoever takes over a log. Only reads.

A process that dies says nothing more to the log of the run at the root, but each run inside it has a log of its own. What they
say counts before the first step: else several that go on at once would all find room that is there only once.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from evener import events as ev
from evener.loop.limits import Spent
from evener.loop.plan import Setup
from evener.loop.state import State
from evener.nesting import DEEPEST, children_of
from evener.store.log import NoLog, Store, state_of
from evener.transcript.blocks import ToolCall

__all__ = ["has_acted", "with_use"]

HALTED = ("started", "paused", "interrupted")


async def with_use(beginning: tuple[ev.Event, ...], state: State, *, store: Store, log: str) -> tuple[ev.Event, ...]:
    """What a run begins with. If it is taken over, with what the runs inside its interrupted calls have used."""
    if not any(isinstance(event, ev.Resumed) for event in beginning):
        return beginning
    nested = await _used_inside(state, store, log, DEEPEST)
    return tuple(replace(event, nested=nested) if isinstance(event, ev.Resumed) else event for event in beginning)


def has_acted(events: Iterable[ev.Event], setup: Setup) -> bool:
    """Whether a run has started calls that change something, itself or by runs inside its calls."""
    for event in events:
        match event:
            case ev.CallStarted(tool=tool) if setup.is_write(tool):
                return True
            case ev.CallFinished(nested=ev.Nested(acted=True)) | ev.CallPaused(nested=ev.Nested(acted=True)):
                return True
            case _:
                pass
    return False


async def _used_inside(state: State, store: Store, log: str, levels: int) -> tuple[tuple[str, ev.Nested], ...]:
    """Call and use, for each call under way in which there are runs."""
    found = []
    for pending in state.calls:
        spent = await _used(state, pending.call, store, log, levels) if pending.status in HALTED and pending.key else None
        if spent is not None:
            acted = pending.nested is not None and pending.nested.acted
            used = ev.Nested(spent.requests, spent.tool_calls, spent.usage, spent.cost, spent.exact, acted)
            found.append((pending.call.id, used))
    return tuple(found)


async def _used(state: State, call: ToolCall, store: Store, log: str, levels: int) -> Spent | None:
    """What the run of this call has used; on a fork that has not come so far, what it had used where the fork began."""
    for name in children_of(state, call, log):
        try:
            child = await store.head(name) if name else ""
        except NoLog:
            continue
        if child:
            return await _used_by(child, store, levels - 1)
    return None


async def _used_by(log: str, store: Store, levels: int) -> Spent:
    state = await state_of(store, log)
    spent = state.most_spent
    counted = {one.call.id: one.nested for one in state.calls}
    for call, nested in await _used_inside(state, store, log, levels) if levels else ():
        spent = spent.with_nested(nested, counted[call])
    return spent
