"""`evener rm`: erase what threads say, for good, after a question. Numbers, times, kinds and hashes of their events stay."""

import sys
from collections.abc import Sequence

from evener.cli.glance import flat, glance
from evener.cli.ids import chosen
from evener.cli.stores import inside
from evener.cli.terminal import say
from evener.errors import EvenerError, UsageError
from evener.store.log import Store, Summary

__all__ = ["confirmed", "run"]

STAYS = (
    "What stays are tombstones: that there were events, when, of which kind, and their hashes, so that the rest can be "
    "verified. Copies elsewhere (backups, exports) are not touched."
)


def run(ids: Sequence[str], *, store: str, yes: bool) -> int:
    """Erase; 1 if somebody said no."""
    return inside(store, lambda opened: _removed(opened, ids, yes=yes))


async def _removed(store: Store, ids: Sequence[str], *, yes: bool) -> int:
    logs = await store.logs()
    named = list(dict.fromkeys(chosen(id, logs) for id in ids))
    meant = [(log, await _described(store, log, logs)) for log in named]
    for _, what in meant:
        say(what)
    if not yes and not confirmed("Erase this for good?"):
        say("evener: Nothing was erased.")
        return 1
    for log, _ in meant:
        count = await store.erase(log)
        say(f"evener: Erased {count} events of {log}.")
    say(f"evener: {STAYS}")
    return 0


def confirmed(question: str) -> bool:
    """Whether whoever sits at the terminal says yes. Where nobody does, it must be said on the command line."""
    if sys.stdin is None or not sys.stdin.isatty() or not sys.stderr.isatty():
        raise UsageError("This cannot be taken back, and nobody is there to be asked. Nothing was done. Say it with --yes.")
    while True:
        sys.stderr.write(f"{question} [y/n] ")
        sys.stderr.flush()
        word = sys.stdin.readline()
        if not word:
            sys.stderr.write("\n")
        if not word or word.strip().lower() in ("n", "no"):
            return False
        if word.strip().lower() in ("y", "yes"):
            return True


async def _described(store: Store, log: str, logs: Sequence[Summary]) -> str:
    """What would be erased, in a line. The id of a thread stands for all its branches."""
    one = next(one for one in logs if one.log == log)
    several = [other for other in logs if other.thread == log]
    try:
        title = one.title or (await glance(store, one)).prompt
    except EvenerError:
        title = one.title
    what = f"thread, {len(several)} branches" if len(several) > 1 else "thread" if one.log == one.thread else "branch"
    agents = len(await store.inside(log)) if several else 0
    more = f", with {agents} {'threads' if agents > 1 else 'thread'} of agents inside its calls" if agents else ""
    return f"{log}  {what}, {one.events} events{more}  {flat(title, 60)}".rstrip()
