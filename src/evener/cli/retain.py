"""`evener retain`: erase every thread that nothing was added to for so long, after a question. What is held is left alone."""

import re
from collections.abc import Sequence
from time import time

from evener.cli.glance import age, flat, heads
from evener.cli.remove import STAYS, confirmed
from evener.cli.stores import inside
from evener.cli.terminal import say
from evener.errors import UsageError
from evener.store.log import Store, Summary

__all__ = ["run", "seconds_of"]

UNITS = {"h": 3600, "d": 86400, "w": 604800, "y": 31536000}


def run(older: str, *, store: str, dry: bool, yes: bool) -> int:
    """Erase; 1 if somebody said no."""
    before = time() - seconds_of(older)
    return inside(store, lambda opened: _kept(opened, before, dry=dry, yes=yes))


def seconds_of(text: str) -> int:
    """`90d` as seconds."""
    found = re.fullmatch(r"([1-9][0-9]{0,6})([hdwy])", text.strip())
    if not found:
        raise UsageError(f"--older-than is {text!r}; write a number and h, d, w or y, as in 90d for ninety days.")
    return int(found[1]) * UNITS[found[2]]


async def _kept(store: Store, before: float, *, dry: bool, yes: bool) -> int:
    old = [several for several in heads(await store.logs()).values() if _is_old(several, before)]
    for several in old:
        say(_line(several))
    if not old or dry:
        say(f"evener: {len(old)} threads are that old.{' Nothing was erased.' if dry else ''}")
        return 0
    if not yes and not confirmed(f"Erase these {len(old)} threads for good?"):
        say("evener: Nothing was erased.")
        return 1
    count = sum([await store.erase(several[0].thread) for several in old])
    say(f"evener: Erased {count} events of {len(old)} threads. {STAYS}")
    return 0


def _line(logs: Sequence[Summary]) -> str:
    head = logs[0]
    changed = age(max(one.changed for one in logs))
    return f"{head.thread}  {len(logs)} branches, {head.events} events, {changed}  {flat(head.title)}".rstrip()


def _is_old(logs: Sequence[Summary], before: float) -> bool:
    """Whether nothing was added to any branch since then, nobody is at it, and there is something to erase."""
    return all(one.changed < before and not one.held for one in logs) and not all(one.erased for one in logs)
