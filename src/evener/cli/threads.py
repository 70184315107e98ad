"""`evener threads`: which conversations the store keeps, the one that changed last first. Only looks."""

import os
from collections.abc import Mapping, Sequence

import msgspec

from evener.cli.condition import WORDS, Condition
from evener.cli.glance import Glance, age, flat, glance, heads
from evener.cli.ids import short_ids
from evener.cli.stores import inside, is_there, path_of
from evener.cli.terminal import print_json, print_table, say
from evener.errors import EvenerError
from evener.store.log import Store, Summary

__all__ = ["Row", "Wish", "is_inside", "run"]

TITLE, EXCERPT = 60, 100


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asked for. A `limit` of 0 is none. `all`: also the threads of agents inside others."""

    store: str = ""
    search: str = ""
    tag: str = ""
    limit: int = 20
    all: bool = False
    json: bool = False


class Row(msgspec.Struct, frozen=True):
    """One thread in the list. `found` are the places where the text stands that was looked for: number and excerpt."""

    thread: str
    log: str
    title: str
    tags: tuple[str, ...]
    prompt: str
    harness: str
    model: str
    state: Condition
    events: int
    branches: int
    began: float
    changed: float
    found: tuple[tuple[int, str], ...] = ()


def run(wish: Wish) -> int:
    """Print the list."""
    if not is_there(wish.store):
        return _print([], wish, {}, left=0)
    return inside(wish.store, lambda store: _listed(store, wish))


async def _listed(store: Store, wish: Wish) -> int:
    logs = await store.logs()
    found = await _found(store, wish)
    kept = {
        thread: several
        for thread, several in heads(logs).items()
        if not all(one.erased for one in several)
        and (not wish.search or thread in found)
        and (not wish.tag or any(wish.tag in one.tags for one in several))
    }
    listed = [thread for thread, several in kept.items() if wish.all or not is_inside(several[0])]
    shown = listed[: wish.limit or None]
    rows = [await _row(store, kept[thread], found.get(thread, ())) for thread in shown]
    code = _print(rows, wish, short_ids(one.log for one in logs), left=len(listed) - len(shown))
    if len(listed) < len(kept):
        say(f"Not shown: {len(kept) - len(listed)} of agents inside other runs. --all shows them, too.")
    return code


def is_inside(log: Summary) -> bool:
    """Whether it belongs to an agent inside another run: its harness is a path of names then."""
    return "/" in log.harness


async def _found(store: Store, wish: Wish) -> dict[str, tuple[tuple[int, str], ...]]:
    """Where the text stands, by thread."""
    places: dict[str, tuple[tuple[int, str], ...]] = {}
    if wish.search:
        hits = await store.search(wish.search)
        if hits.unread:
            say(f"evener: {hits.unread} events could not be read and were passed over. Run `evener verify` to see why.")
        for hit in hits:
            thread = hit.summary.thread
            places[thread] = (*places.get(thread, ()), (hit.seq, flat(hit.excerpt, EXCERPT)))
    return places


async def _row(store: Store, logs: Sequence[Summary], found: tuple[tuple[int, str], ...]) -> Row:
    """A thread that cannot be read has a line, too, which says so: it must not hide the others."""
    head = logs[0]
    root = next((one for one in logs if one.log == one.thread), head)
    try:
        seen = await glance(store, head)
    except EvenerError as error:
        seen = Glance(flat(str(error)), "", "unreadable")
    return Row(
        thread=head.thread,
        log=head.log,
        title=root.title or head.title,
        tags=root.tags or head.tags,
        prompt=seen.prompt,
        harness=head.harness,
        model=seen.model,
        state=seen.condition,
        events=head.events,
        branches=len(logs),
        began=root.began,
        changed=max(one.changed for one in logs),
        found=found,
    )


# What is printed.


def _print(rows: Sequence[Row], wish: Wish, short: Mapping[str, str], *, left: int) -> int:
    if wish.json:
        print_json(rows)
    elif rows:
        head, lines = (_with_places if wish.search else _plain)(rows, short)
        print_table(head, lines, environ=os.environ)
    else:
        say(_nothing(wish))
    if left:
        say(f"Not shown: {left} more. --limit {wish.limit + left} shows them, --limit 0 all there are.")
    return 0


def _plain(rows: Sequence[Row], short: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
    lines = [
        [short[row.thread], _words(row), str(row.events), str(row.branches), age(row.changed), row.model, _title(row, TITLE)]
        for row in rows
    ]
    return ["ID", "STATE", "EVENTS", "BRANCHES", "AGE", "MODEL", "TITLE"], lines


def _with_places(rows: Sequence[Row], short: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
    lines = [[short[row.thread], _words(row), age(row.changed), _title(row, TITLE // 2), _place(row)] for row in rows]
    return ["ID", "STATE", "AGE", "TITLE", "FOUND"], lines


def _words(row: Row) -> str:
    return WORDS[row.state]


def _title(row: Row, most: int) -> str:
    tags = "".join(f" #{flat(tag)}" for tag in row.tags)
    return flat(row.title or row.prompt, most) + tags


def _place(row: Row) -> str:
    number, excerpt = row.found[0]
    more = f" (and {len(row.found) - 1} more)" if len(row.found) > 1 else ""
    return f"[{number}] {excerpt}{more}" if number else f"{excerpt}{more}"


def _nothing(wish: Wish) -> str:
    if wish.search or wish.tag:
        return "Nothing was found."
    return f"There are no threads in {path_of(wish.store)} yet. Begin one with: evener chat"
