"""What a thread is about and where it stands, for lists. Reads its first and its last events; all of them only if it must."""

from collections.abc import Iterable, Mapping, Sequence
from time import time
from typing import Literal

import msgspec

from evener import events as ev
from evener.cli.terminal import clean
from evener.events import Finished, StopCause
from evener.loop.state import RunState
from evener.store.protocol import Store, Summary, state_of

__all__ = ["WORDS", "Condition", "ThreadGlance", "age", "condition_of", "flat", "glance", "heads", "prompt_of"]


Condition = StopCause | Literal["empty", "interrupted", "running", "unreadable"]

WORDS: Mapping[Condition, str] = {
    "empty": "nothing said yet",
    "running": "running",
    "interrupted": "interrupted",
    "done": "done",
    "approval": "waits for approval",
    "refusal": "declined",
    "length": "cut at its length",
    "limit": "stopped at a limit",
    "repeated": "went in circles",
    "tool_retries": "gave up on a tool",
    "output_retries": "gave up on its form",
    "provider_error": "failed",
    "cancelled": "stopped",
    "unexpected": "failed",
    "unreadable": "unreadable",
}


def condition_of(state: RunState, *, held: bool) -> Condition:
    """What became of the last run. `held`: somebody works on the log at this moment."""
    match state.finished:
        case Finished(cause=cause):
            return cause
    if not state.run:
        return "empty"
    if held:
        return "running"
    return "approval" if state.phase == "waiting" else "interrupted"


FIRST, LAST = 8, 16
"""How many events are read at either end."""


class ThreadGlance(msgspec.Struct, frozen=True):
    """`prompt` is the first thing that was said; `model` the one that was asked last."""

    prompt: str
    model: str
    condition: Condition


async def glance(store: Store, log: Summary) -> ThreadGlance:
    """Look at one log."""
    first = await store.read(log.log, until=FIRST)
    last = await store.read(log.log, after=max(0, log.events - LAST))
    ended = last[-1] if last else None
    if isinstance(ended, ev.Finished):
        condition: Condition = ended.cause
    else:
        condition = condition_of(await state_of(store, log.log), held=log.held)
    return ThreadGlance(prompt_of(first), _model(last) or _model(first), condition)


def heads(logs: Iterable[Summary]) -> dict[str, list[Summary]]:
    """The logs of each thread, its head first; the threads in the order in which they are met."""
    found: dict[str, list[Summary]] = {}
    for one in logs:
        found.setdefault(one.thread, []).append(one)
    return {thread: sorted(several, key=lambda one: not one.head) for thread, several in found.items()}


def prompt_of(events: Sequence[ev.Event]) -> str:
    """What the user said first in these events, as one line."""
    said = next((event.message.text for event in events if isinstance(event, ev.Prompted)), "")
    return flat(said)


def flat(text: str, most: int = 0) -> str:
    """As one line, cleaned; cut to `most` characters."""
    line = " ".join(clean(text).split())
    return line if not most or len(line) <= most else line[: most - 3] + "..."


def age(at: float, *, now: float = 0.0) -> str:
    """How long ago that was, as people say it."""
    seconds = max(0.0, (now or time()) - at)
    for size, name in ((86400 * 365, "y"), (86400 * 7, "w"), (86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{name} ago"
    return "now"


def _model(events: Sequence[ev.Event]) -> str:
    """The model that was asked, or was to be asked, last."""
    for event in reversed(events):
        if isinstance(event, ev.ModelCalled | ev.Configured):
            return event.model
    return ""
