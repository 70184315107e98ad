"""`evener replay`: play what was recorded through the same code, offline, and compare. Asks no model and runs no tool."""

from evener.cli.glance import flat
from evener.cli.names import log_of
from evener.cli.stores import inside
from evener.cli.terminal import print_json, say
from evener.harness.finding import find_harness
from evener.replay import replay
from evener.store.protocol import Store

__all__ = [
    "run",
]


LISTED = 50


def run(id: str, *, store: str, harness: str, as_json: bool) -> int:
    """Print the differences; 1 if there are any."""
    return inside(store, lambda opened: _replayed(opened, id, harness, as_json=as_json))


async def _replayed(store: Store, id: str, harness: str, *, as_json: bool) -> int:
    log = await store.head(await log_of(store, id))
    events = await store.read(log)
    played = await replay(events, log=log, harness=find_harness(harness) if harness else None)
    if as_json:
        print_json({"same": played.ok, "log": log, "events": len(events), "differences": played.differences})
        return int(not played.ok)
    lines = [flat(str(one)) for one in played.differences]
    for line in lines[:LISTED]:
        print(line)
    if len(lines) > LISTED:
        say(f"evener: Not shown: {len(lines) - LISTED} more differences. --json has all.")
    say(f"evener: Played {len(events)} events again: they came out {'the same' if played.ok else 'otherwise'}.")
    return int(not played.ok)
