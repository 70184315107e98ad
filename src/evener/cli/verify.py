"""`evener verify`: whether everything is as it was written, in one thread or in the whole store. Changes nothing."""

import os
import sys

from evener.cli.glance import flat
from evener.cli.ids import log_of
from evener.cli.stores import inside
from evener.cli.terminal import print_json, say, styled
from evener.store.log import Finding, Store

__all__ = ["run"]


def run(id: str, *, store: str, as_json: bool) -> int:
    """Print the findings; 1 if something is damaged."""
    return inside(store, lambda opened: _verified(opened, id, as_json=as_json))


async def _verified(store: Store, id: str, *, as_json: bool) -> int:
    logs = [await log_of(store, id)] if id else []
    if id:
        logs = await _of_thread(store, logs[0])
    found = [one for log in logs or [""] for one in await store.verify(log)]
    found = list(dict.fromkeys(found))  # branches share what lies before them
    damaged = any(one.damage for one in found)
    if as_json:
        print_json(found)
        return int(damaged)
    for one in found:
        print(_line(one))
    if not damaged:
        what = f"thread {logs[0]}" if logs else f"all {len(await store.logs())} logs"
        say(f"evener: Everything that was checked is as it was written: {what}.")
    return int(damaged)


async def _of_thread(store: Store, log: str) -> list[str]:
    """All branches of a thread; a branch that is named by its own id stands for itself."""
    several = [one.log for one in await store.logs(thread=log)]
    return [log, *(one for one in several if one != log)] if log in several else [log]


def _line(one: Finding) -> str:
    mark = styled("damage" if one.damage else "note", "red" if one.damage else "yellow", stream=sys.stdout, environ=os.environ)
    where = f"{flat(one.log)} event {one.seq}: " if one.seq else f"{flat(one.log)}: " if one.log else ""
    return f"{mark}  {where}{flat(one.what)}"
