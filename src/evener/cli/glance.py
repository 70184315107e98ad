"""Summarizes threads for lists: title, model, condition. Reads the first and last events, and all of them only if needed."""

from collections.abc import Iterable, Mapping, Sequence
from time import time
from typing import Literal

import msgspec

from evener import events as ev
from evener.cli.terminal import flatten
from evener.events import Finished, StopCause
from evener.loop.state import RunState
from evener.store.protocol import Store, Summary, state_of

Condition = StopCause | Literal["empty", "interrupted", "running", "unreadable"]

WORDS: Mapping[Condition, str] = {
    "empty": "empty",
    "running": "running",
    "interrupted": "interrupted",
    "done": "done",
    "approval": "waits for approval",
    "refusal": "declined",
    "length": "cut at the token limit",
    "limit": "stopped at a limit",
    "repeated": "stopped in a loop",
    "tool_retries": "gave up on a tool",
    "output_retries": "gave up on the schema",
    "provider_error": "failed",
    "cancelled": "stopped",
    "unexpected": "failed",
    "unreadable": "unreadable",
}


def condition_of(state: RunState, *, held: bool) -> Condition:
    """Return the condition of the last run. `held`: a process holds the lease of the log."""
    match state.finished:
        case Finished(cause=cause):
            return cause
    if not state.run:
        return "empty"
    if held:
        return "running"
    return "approval" if state.phase == "waiting" else "interrupted"


FIRST, LAST = 8, 16
"""How many events are read at each end of a log."""


class ThreadGlance(msgspec.Struct, frozen=True):
    """One thread in short. `prompt` is its first one; `model` is the one that was called last."""

    prompt: str
    model: str
    condition: Condition
    metadata: str = ""


async def glance(store: Store, log: Summary) -> ThreadGlance:
    """Summarize one log."""
    first = await store.read(log.log, until=FIRST)
    last = await store.read(log.log, after=max(0, log.events - LAST))
    ended = last[-1] if last else None
    if isinstance(ended, ev.Finished):
        condition: Condition = ended.cause
    else:
        condition = condition_of(await state_of(store, log.log), held=log.held)
    given = next((event.metadata for event in reversed((*first, *last)) if isinstance(event, ev.Prompted)), "")
    return ThreadGlance(first_prompt(first), _find_model(last) or _find_model(first), condition, given)


def group_by_thread(logs: Iterable[Summary]) -> dict[str, list[Summary]]:
    """Return the logs of each thread, its head first; the threads stay in order."""
    found: dict[str, list[Summary]] = {}
    for one in logs:
        found.setdefault(one.thread, []).append(one)
    return {thread: sorted(several, key=lambda one: not one.head) for thread, several in found.items()}


def first_prompt(events: Sequence[ev.Event], most: int = 0) -> str:
    """Return the first prompt among these events, as one line of at most `most` characters."""
    return flatten(next((event.message.text for event in events if isinstance(event, ev.Prompted)), ""), most)


def format_age(at: float, *, now: float = 0.0) -> str:
    """Return how long ago that was, as in `3d ago`."""
    seconds = max(0.0, (now or time()) - at)
    for size, name in ((86400 * 365, "y"), (86400 * 7, "w"), (86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{name} ago"
    return "now"


def _find_model(events: Sequence[ev.Event]) -> str:
    """Return the model that was called or configured last."""
    for event in reversed(events):
        if isinstance(event, ev.ModelCalled | ev.Configured):
            return event.model
    return ""
