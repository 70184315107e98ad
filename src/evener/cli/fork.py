"""`evener fork`: another branch of a thread, from its end or from an earlier place. Copies nothing and moves no head."""

import shlex

from evener.cli.ids import log_of
from evener.cli.places import number_of
from evener.cli.stores import inside, option
from evener.cli.terminal import say
from evener.harness.lineage import fork_at
from evener.store.log import Store

__all__ = ["run"]


def run(id: str, *, at: str, store: str) -> int:
    """Fork, and print the id of the new branch."""
    return inside(store, lambda opened: _forked(opened, id, at, store))


async def _forked(store: Store, id: str, at: str, where: str) -> int:
    log = await store.head(await log_of(store, id))
    number = number_of(at, await store.read(log), log) if at else None
    made = await fork_at(store, log, number, harness="")
    print(made.log)
    words = shlex.join(["evener", "chat", *option(where), "-r", made.log])
    say(f"evener: A branch of {made.first.thread} after event {made.first.parent_seq}. Go on with it: {words}")
    return 0
