"""`evener schedule`: submits a prompt repeatedly, lists schedules, and removes one."""

import asyncio
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from evener.cli.terminal import flatten, say
from evener.cluster.schedules import make_schedule
from evener.errors import UsageError
from evener.harness.finding import find_harness
from evener.harness.harness import Harness
from evener.harness.remote import tables_of
from evener.store.cluster import Schedule


def run(*, prompt: str, harness: str, name: str, every: float, cron: str, remove: str, as_json: bool) -> int:
    """Add, remove or list."""
    if bool(prompt) != bool(name):
        raise UsageError("A new schedule needs a prompt and --name.")
    if not prompt and (every or cron):
        raise UsageError("There is no prompt to submit at these times. Give one, and --name.")
    return asyncio.run(_manage(find_harness(harness), prompt, name, every, cron, remove, as_json=as_json))


async def _manage(harness: Harness, prompt: str, name: str, every: float, cron: str, remove: str, *, as_json: bool) -> int:
    tables = tables_of(harness.store)
    try:
        if remove:
            if not await tables.remove_schedule(remove):
                raise UsageError(f"There is no schedule {remove!r}. `evener schedule` without a prompt lists them.")
            say(f"evener: Removed the schedule {remove!r}. The runs that it has submitted continue.")
        elif prompt:
            made = make_schedule(name, harness.name, prompt, every=every, cron=cron)
            if not await tables.put_schedule(made):
                raise UsageError(f"There is a schedule {name!r} already. Remove it first, or give another name.")
            say(f"evener: {name} is due at {_format_schedule(made)}")
        else:
            _list(await tables.schedules(), as_json=as_json)
    finally:
        await harness.aclose()
    return 0


def _list(found: Sequence[Schedule], *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(msgspec.json.encode(list(found)).decode() + "\n")
        return
    for one in found:
        often = one.cron or f"every {one.every:g} s"
        sys.stdout.write(
            f"{flatten(one.name)}  {often}  next {_format_schedule(one)}  {one.harness}: {flatten(one.prompt, 60)}\n"
        )


def _format_schedule(one: Schedule) -> str:
    return f"{datetime.fromtimestamp(one.due, UTC):%Y-%m-%d %H:%M:%S} UTC"
