"""`evener replay`: runs a recorded thread through the same code again, offline, and compares. Calls no model and no tool."""

from evener.cli.names import find_log
from evener.cli.terminal import flatten, print_json, say
from evener.harness.finding import find_harness
from evener.replay import replay
from evener.store.protocol import Store

LISTED = 50


async def run(store: Store, id: str, *, harness: str, as_json: bool) -> int:
    """Print the differences; return 1 if there are any."""
    log = await store.head(await find_log(store, id))
    events = await store.read(log)
    played = await replay(events, log=log, harness=find_harness(harness) if harness else None)
    if as_json:
        print_json({"same": played.ok, "log": log, "events": len(events), "differences": played.differences})
        return int(not played.ok)
    lines = [flatten(str(one)) for one in played.differences]
    for line in lines[:LISTED]:
        print(line)
    if len(lines) > LISTED:
        say(f"evener: {len(lines) - LISTED} more differences are not shown. --json prints all of them.")
    say(f"evener: Replayed {len(events)} events: {'they are the same' if played.ok else f'{len(lines)} differences'}.")
    return int(not played.ok)
