"""What a thread is about and where it stands, for lists. Reads its first and its last events; all of them only if it must."""

from collections.abc import Iterable, Sequence
from time import time

import msgspec

from evener import events as ev
from evener.cli.condition import Condition, condition_of
from evener.cli.terminal import clean
from evener.store.log import Store, Summary, state_of

__all__ = ["Glance", "age", "flat", "glance", "heads", "prompt_of"]

FIRST, LAST = 8, 16
"""How many events are read at either end."""


class Glance(msgspec.Struct, frozen=True):
    """`prompt` is the first thing that was said; `model` the one that was asked last."""

    prompt: str
    model: str
    condition: Condition


async def glance(store: Store, log: Summary) -> Glance:
    """Look at one log."""
    first = await store.read(log.log, until=FIRST)
    last = await store.read(log.log, after=max(0, log.events - LAST))
    ended = last[-1] if last else None
    if isinstance(ended, ev.Finished):
        condition: Condition = ended.cause
    else:
        condition = condition_of(await state_of(store, log.log), held=log.held)
    return Glance(prompt_of(first), _model(last) or _model(first), condition)


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
