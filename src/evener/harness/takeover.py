"""What a run that is taken over is told at once: who else may still act on it, and what another branch knows. Only reads."""

from collections.abc import Iterable
from time import time

from msgspec.structs import replace

from evener import events as ev
from evener.harness.recent import PAGE, since_last
from evener.loop.plan import Setup
from evener.loop.state import Pending, State
from evener.store.log import Erased, NoLog, Store

__all__ = ["with_results", "with_rival"]

Beginning = tuple[ev.Event, ...]


def with_rival(beginning: Beginning, state: State, rival: ev.Rival) -> Beginning:
    """What a run begins with. If an earlier holder may be alive, or the log is a copy, the event of the takeover says so.

    A copy is told in any case: also what was allowed and not done yet may be done by the log that it was copied from.
    """
    if not rival or _speaks(beginning):
        return beginning
    if rival == "copy":
        beginning = _taken_over(beginning, state)
    return tuple(replace(event, rival=rival) if isinstance(event, ev.Resumed) else event for event in beginning)


async def with_results(beginning: Beginning, state: State, *, store: Store, log: str, setup: Setup) -> Beginning:
    """What a run begins with, and the results that other branches have by now of writes which they started."""
    found: list[ev.CallFinished] = []
    for one in state.calls:
        if _is_theirs(one) and setup.may_write(one.call.name):
            result = await _result(one, store, log)
            found += [] if result is None else [result]
    if not found:
        return beginning
    beginning = _taken_over(beginning, state)
    return tuple(replace(event, results=tuple(found)) if isinstance(event, ev.Resumed) else event for event in beginning)


def _taken_over(beginning: Beginning, state: State) -> Beginning:
    """With the event of a takeover, which stands before anything that goes on."""
    if any(isinstance(event, ev.Resumed) for event in beginning):
        return beginning
    place = next((n for n, event in enumerate(beginning) if not isinstance(event, ev.Configured)), len(beginning))
    return (*beginning[:place], ev.Resumed(at=time(), epoch=state.epoch + 1), *beginning[place:])


def _speaks(beginning: Iterable[ev.Event]) -> bool:
    return any(isinstance(event, ev.Prompted) for event in beginning)


def _is_theirs(pending: Pending) -> bool:
    """True if another branch started the call and this one does not know its end. One that lost a part is another call."""
    started_there = pending.abroad and bool(pending.source) and not pending.here
    return started_there and pending.status != "finished" and not pending.call.redacted


async def _result(pending: Pending, store: Store, log: str) -> ev.CallFinished | None:
    """What became of the call on the branch that started it. What runs inside it used is counted there.

    The start lies before the fork, so it has the same number on both branches.
    """
    after, _ = await since_last(store, log, lambda event: _is_start(event, pending))
    mine = False
    try:
        while events := await store.read(pending.source, after=after, until=after + PAGE):
            for event in events:
                mine = mine or _is_start(event, pending)
                if mine and isinstance(event, ev.Replied):
                    return None  # another answer may use the id of the call again: only its own turn counts
                done = _finished(event, pending) if mine else None
                if done is not None:
                    return replace(done, at=time(), nested=None)
            after += len(events)
    except (NoLog, Erased):
        return None
    return None


def _is_start(event: ev.Event, pending: Pending) -> bool:
    return isinstance(event, ev.CallStarted) and (event.key, event.call) == (pending.key, pending.call.id)


def _finished(event: ev.Event, pending: Pending) -> ev.CallFinished | None:
    """The result of the call, if this event has one."""
    match event:
        case ev.CallFinished(call=call) if call == pending.call.id:
            return event
        case ev.Resumed(results=results):
            return next((result for result in results if result.call == pending.call.id), None)
        case _:
            return None
