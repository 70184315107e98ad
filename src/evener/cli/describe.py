"""`evener title` and `evener tag`: what a thread is called, and what it is filed under."""

from collections.abc import Sequence

from evener.cli.glance import flat
from evener.cli.ids import chosen
from evener.cli.stores import inside
from evener.cli.terminal import say
from evener.errors import UsageError
from evener.store.log import Store, Summary

__all__ = ["tag", "title"]


def title(id: str, text: str, *, store: str) -> int:
    """Give the thread a title; an empty one takes it away."""
    return inside(store, lambda opened: _titled(opened, id, text))


def tag(id: str, tags: Sequence[str], *, remove: Sequence[str], store: str) -> int:
    """Add tags and take tags away; print those that the thread has then."""
    for one in (*tags, *remove):
        if not one.strip() or one != flat(one) or " " in one:
            raise UsageError(f"A tag is one word; {one!r} is none. Use a dash in place of blanks.")
    return inside(store, lambda opened: _tagged(opened, id, tags, remove))


async def _titled(store: Store, id: str, text: str) -> int:
    found = await _thread(store, id)
    await store.describe(found.thread, title=flat(text))
    say(
        f"evener: {found.thread} is called {flat(text)!r} now." if text.strip() else f"evener: {found.thread} has no title now."
    )
    return 0


async def _tagged(store: Store, id: str, tags: Sequence[str], remove: Sequence[str]) -> int:
    found = await _thread(store, id)
    kept = [one for one in dict.fromkeys((*found.tags, *tags)) if one not in remove]
    if tags or remove:
        await store.describe(found.thread, tags=kept)
    for one in kept:
        print(flat(one))
    return 0


async def _thread(store: Store, id: str) -> Summary:
    logs = await store.logs()
    log = chosen(id, logs)
    return next(one for one in logs if one.log == log)
