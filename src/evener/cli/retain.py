"""`evener retain`: erase every thread that nothing was added to for so long, after a question.

What somebody runs stays; what waits for a decision or cannot be read stays, too, unless it is forced. Each is named.
"""

import re
from collections.abc import Iterable, Sequence

from evener.cli.glance import age, flat, heads
from evener.cli.remove import STAYS, confirmed
from evener.cli.stores import inside
from evener.cli.terminal import say
from evener.errors import UsageError
from evener.store.keeping import Reason, Spared, keep
from evener.store.log import Store, Summary

__all__ = ["run", "seconds_of"]

UNITS = {"h": 3600, "d": 86400, "w": 604800, "y": 31536000}
WHY: dict[Reason, str] = {
    "running": "somebody runs it",
    "waiting": "it waits for a decision; decide, or give --force",
    "damaged": "it cannot be read; run `evener verify`, or give --force",
}


def run(older: str, *, store: str, dry: bool, yes: bool, force: bool = False) -> int:
    """Erase; 1 if somebody said no."""
    seconds = seconds_of(older)
    return inside(store, lambda opened: _kept(opened, seconds, dry=dry, yes=yes, force=force))


def seconds_of(text: str) -> int:
    """`90d` as seconds."""
    found = re.fullmatch(r"([1-9][0-9]{0,6})([hdwy])", text.strip())
    if not found:
        raise UsageError(f"--older-than is {text!r}; write a number and h, d, w or y, as in 90d for ninety days.")
    return int(found[1]) * UNITS[found[2]]


async def _kept(store: Store, seconds: int, *, dry: bool, yes: bool, force: bool) -> int:
    old = await keep(store, older_than=seconds, dry=True, force=force)
    threads = heads(await store.logs())
    for thread in old.erased:
        say(_line(threads[thread]))
    _say_spared(old.spared)
    if not old.erased or dry:
        say(f"evener: {len(old.erased)} threads are that old.{' Nothing was erased.' if dry else ''}")
        return 0
    if not yes and not confirmed(f"Erase these {len(old.erased)} threads for good?"):
        say("evener: Nothing was erased.")
        return 1
    done = await keep(store, older_than=seconds, force=force)
    _say_spared(one for one in done.spared if one not in old.spared)
    say(f"evener: Erased {done.events} events of {len(done.erased)} threads. {STAYS}")
    return 0


def _say_spared(spared: Iterable[Spared]) -> None:
    for one in spared:
        say(f"{one.thread}  is kept: {WHY[one.why]}.")


def _line(logs: Sequence[Summary]) -> str:
    head = logs[0]
    changed = age(max(one.changed for one in logs))
    return f"{head.thread}  {len(logs)} branches, {head.events} events, {changed}  {flat(head.title)}".rstrip()
