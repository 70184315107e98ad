"""Finds what happened last in a log, from its end: a thread may be long. Only reads."""

from collections.abc import Callable

from evener import events as ev
from evener.store.log import Store

__all__ = ["PAGE", "since_last"]

PAGE = 256
"""How many events are read at once, where the whole log could be meant."""
FURTHER = 8


async def since_last(
    store: Store, log: str, is_wanted: Callable[[ev.Event], bool], *, at_least: int = 0
) -> tuple[int, list[ev.Event]]:
    """The events of the log from the last one that is wanted on, or more, and the number before them. All if none is."""
    end = (await store.link(log)).seq
    many = at_least + PAGE
    while True:
        after = max(0, end - many)
        events = await store.read(log, after=after, until=end)
        if not after or any(map(is_wanted, events)):
            return after, events
        many *= FURTHER
