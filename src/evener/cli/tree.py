"""`evener tree`: the branches of a thread, each under the one it leaves; the head is marked. Only looks."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from evener import events as ev
from evener.cli.glance import age, flat
from evener.cli.ids import log_of, short_ids
from evener.cli.stores import inside
from evener.cli.terminal import print_json
from evener.store.log import Store, Summary

__all__ = ["run", "tree_lines"]

WORDS = 48
BETWEEN, AT_END = "|- ", "`- "
INNER = {"": "", BETWEEN: "|  ", AT_END: "   "}
NEAR = 12
"""How many events of a branch are read to find what was said there first."""


def run(id: str, *, store: str, as_json: bool) -> int:
    """Print the tree."""
    return inside(store, lambda opened: _drawn(opened, id, as_json=as_json))


async def _drawn(store: Store, id: str, *, as_json: bool) -> int:
    log = await log_of(store, id)
    if as_json:
        print_json(await _document(store, log))
        return 0
    for line in await tree_lines(store, log):
        print(line)
    return 0


async def tree_lines(store: Store, log: str, *, here: str = "") -> list[str]:
    """The tree that a log belongs to, a line for each branch. `here` is marked as the one that is used at the moment."""
    logs = await _branches(store, log)
    short = short_ids(one.log for one in logs)
    return [f"{lead}{_line(one, short, await _said(store, one), here=here)}" for lead, one in _walked(logs)]


async def _branches(store: Store, log: str) -> list[Summary]:
    """All branches of the thread that the log belongs to, the older first."""
    thread = next(one.thread for one in await store.logs() if one.log == log)
    return sorted(await store.logs(thread=thread), key=lambda one: (one.parent_seq, one.began, one.log))


def _walked(logs: Sequence[Summary]) -> Iterator[tuple[str, Summary]]:
    """Each branch after the one it leaves, with what is drawn before it. However deep: undone often, a tree is a long chain."""
    known = {one.log for one in logs}
    children: dict[str, list[Summary]] = {}
    for one in logs:
        children.setdefault(one.parent if one.parent in known else "", []).append(one)
    waiting = [("", "", one) for one in reversed(children.get("", []))]
    while waiting:
        lead, mark, one = waiting.pop()
        yield lead + mark, one
        inner = lead + INNER[mark]
        below = children.get(one.log, [])
        marks = [BETWEEN] * (len(below) - 1) + [AT_END]
        waiting += [(inner, mark, child) for mark, child in reversed(list(zip(marks, below, strict=False)))]


def _line(one: Summary, short: Mapping[str, str], said: str, *, here: str) -> str:
    marks = "".join(f"  <- {mark}" for mark, holds in (("head", one.head), ("here", one.log == here)) if holds)
    after = f"  after {one.parent_seq}" if one.parent else ""
    return f"{short[one.log]}{after}  {one.events} events  {age(one.changed)}{f'  {said}' if said else ''}{marks}"


async def _said(store: Store, one: Summary) -> str:
    """What the user said first on this branch."""
    events = await store.read(one.log, after=one.parent_seq, until=one.parent_seq + NEAR)
    return flat(next((event.message.text for event in events if isinstance(event, ev.Prompted)), ""), WORDS)


async def _document(store: Store, log: str) -> list[dict[str, object]]:
    return [{**msgspec.to_builtins(one), "said": await _said(store, one)} for one in await _branches(store, log)]
