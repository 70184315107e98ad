"""What a run that is taken over is told at once: who else may still act on it, and what another branch knows. Only reads."""

from collections.abc import Iterable, Sequence
from time import time

from msgspec.structs import replace

from evener import events as ev
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


async def with_results(beginning: Beginning, state: State, *, store: Store, setup: Setup) -> Beginning:
    """What a run begins with, and the results that other branches have by now of writes which they started."""
    found: list[ev.CallFinished] = []
    for one in state.calls:
        if _is_theirs(one) and setup.may_write(one.call.name):
            result = await _result(one, store)
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


async def _result(pending: Pending, store: Store) -> ev.CallFinished | None:
    """What became of the call on the branch that started it. What runs inside it used is counted there."""
    try:
        events = await store.read(pending.source)
    except (NoLog, Erased):
        return None
    done = _finished(events, pending)
    return None if done is None else replace(done, at=time(), nested=None)


def _finished(events: Sequence[ev.Event], pending: Pending) -> ev.CallFinished | None:
    """The result of the start with this key. Another answer may use the id of the call again, so only its own turn counts."""
    mine = False
    for event in events:
        match event:
            case ev.CallStarted(key=key, call=call):
                mine = mine or (key == pending.key and call == pending.call.id)
            case ev.CallFinished(call=call) if mine and call == pending.call.id:
                return event
            case ev.Resumed(results=results) if mine:
                for result in results:
                    if result.call == pending.call.id:
                        return result
            case ev.Replied():
                mine = False
            case _:
                pass
    return None
