"""`evener title` and `evener tag`: what a thread is called, and what it is filed under."""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from evener import events as ev
from evener.cli.glance import WORDS, Condition, ThreadGlance, age, flat, glance, heads
from evener.cli.names import chosen, log_of, number_of, short_ids
from evener.cli.stores import inside, is_there, option, path_of
from evener.cli.terminal import print_json, print_table, say
from evener.errors import EvenerError, UsageError
from evener.harness.branches import fork_at
from evener.store.protocol import Store, Summary

__all__ = [
    "ListOptions",
    "ThreadRow",
    "fork",
    "is_inside",
    "run",
    "show_tree",
    "tag",
    "title",
    "tree_lines",
]


TITLE, EXCERPT = 60, 100


class ListOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asked for. A `limit` of 0 is none. `all`: also the threads of agents inside others."""

    store: str = ""
    search: str = ""
    tag: str = ""
    limit: int = 20
    all: bool = False
    json: bool = False


class ThreadRow(msgspec.Struct, frozen=True):
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


def run(wish: ListOptions) -> int:
    """Print the list."""
    if not is_there(wish.store):
        return _print([], wish, {}, left=0)
    return inside(wish.store, lambda store: _listed(store, wish))


async def _listed(store: Store, wish: ListOptions) -> int:
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


async def _found(store: Store, wish: ListOptions) -> dict[str, tuple[tuple[int, str], ...]]:
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


async def _row(store: Store, logs: Sequence[Summary], found: tuple[tuple[int, str], ...]) -> ThreadRow:
    """A thread that cannot be read has a line, too, which says so: it must not hide the others."""
    head = logs[0]
    root = next((one for one in logs if one.log == one.thread), head)
    try:
        seen = await glance(store, head)
    except EvenerError as error:
        seen = ThreadGlance(flat(str(error)), "", "unreadable")
    return ThreadRow(
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


def _print(rows: Sequence[ThreadRow], wish: ListOptions, short: Mapping[str, str], *, left: int) -> int:
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


def _plain(rows: Sequence[ThreadRow], short: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
    lines = [
        [short[row.thread], _words(row), str(row.events), str(row.branches), age(row.changed), row.model, _title(row, TITLE)]
        for row in rows
    ]
    return ["ID", "STATE", "EVENTS", "BRANCHES", "AGE", "MODEL", "TITLE"], lines


def _with_places(rows: Sequence[ThreadRow], short: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
    lines = [[short[row.thread], _words(row), age(row.changed), _title(row, TITLE // 2), _place(row)] for row in rows]
    return ["ID", "STATE", "AGE", "TITLE", "FOUND"], lines


def _words(row: ThreadRow) -> str:
    return WORDS[row.state]


def _title(row: ThreadRow, most: int) -> str:
    tags = "".join(f" #{flat(tag)}" for tag in row.tags)
    return flat(row.title or row.prompt, most) + tags


def _place(row: ThreadRow) -> str:
    number, excerpt = row.found[0]
    more = f" (and {len(row.found) - 1} more)" if len(row.found) > 1 else ""
    return f"[{number}] {excerpt}{more}" if number else f"{excerpt}{more}"


def _nothing(wish: ListOptions) -> str:
    if wish.search or wish.tag:
        return "Nothing was found."
    return f"There are no threads in {path_of(wish.store)} yet. Begin one with: evener chat"


WORDS_SHOWN = 48
BETWEEN, AT_END = "|- ", "`- "
INNER = {"": "", BETWEEN: "|  ", AT_END: "   "}
NEAR = 12
"""How many events of a branch are read to find what was said there first."""


def show_tree(id: str, *, store: str, as_json: bool) -> int:
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
    return flat(next((event.message.text for event in events if isinstance(event, ev.Prompted)), ""), WORDS_SHOWN)


async def _document(store: Store, log: str) -> list[dict[str, object]]:
    return [{**msgspec.to_builtins(one), "said": await _said(store, one)} for one in await _branches(store, log)]


def fork(id: str, *, at: str, store: str) -> int:
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


def title(id: str, text: str, *, store: str) -> int:
    """Give the thread a title; an empty one takes it away."""
    return inside(store, lambda opened: _titled(opened, id, text))


def tag(id: str, tags: Sequence[str], *, remove: Sequence[str], store: str) -> int:
    """Add tags and take tags away; print those that the thread has then."""
    for one in (*tags, *remove):
        if not one.strip() or one != flat(one) or " " in one:
            raise UsageError(f"A tag is one word; {one!r} is none. Use a dash in place of blanks.")
    return inside(store, lambda opened: _tagged(opened, id, tags, remove))


async def _titled(store: Store, id: str, text: str) -> int:
    found = await _thread(store, id)
    await store.describe(found.thread, title=flat(text))
    say(
        f"evener: {found.thread} is called {flat(text)!r} now." if text.strip() else f"evener: {found.thread} has no title now."
    )
    return 0


async def _tagged(store: Store, id: str, tags: Sequence[str], remove: Sequence[str]) -> int:
    found = await _thread(store, id)
    kept = [one for one in dict.fromkeys((*found.tags, *tags)) if one not in remove]
    if tags or remove:
        await store.describe(found.thread, tags=kept)
    for one in kept:
        print(flat(one))
    return 0


async def _thread(store: Store, id: str) -> Summary:
    logs = await store.logs()
    log = chosen(id, logs)
    return next(one for one in logs if one.log == log)
