"""`evener threads`, `tree`, `fork`, `title` and `tag`: list threads, draw and make their branches, name them."""

import shlex
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from evener.cli.glance import WORDS, Condition, ThreadGlance, first_prompt, format_age, glance, group_by_thread
from evener.cli.names import find_event, find_log, match_id, short_ids
from evener.cli.stores import exists, is_address, path_of, same_store, with_store, without_password
from evener.cli.terminal import Style, count, cut_text, flatten, print_json, print_lines, print_table, say, terminal_width
from evener.errors import EvenerError, UsageError
from evener.events import Compacted, ContextRestored, Opened
from evener.harness.branches import fork_at
from evener.store.protocol import Store, Summary

TITLE, EXCERPT = 60, 100


class ListOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command. A `limit` of 0 is no limit. `subagents`: list their threads, too."""

    store: str = ""
    search: str = ""
    tag: str = ""
    limit: int = 20
    subagents: bool = False
    as_json: bool = False


class ThreadRow(msgspec.Struct, frozen=True):
    """One thread in the list. `found` are the hits of a search: event number and excerpt."""

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
    metadata: str = ""


def run(options: ListOptions) -> int:
    """Print the list."""
    if not exists(options.store):
        return _print([], options, {}, left=0)
    return with_store(options.store, lambda store: _list(store, options))


async def _list(store: Store, options: ListOptions) -> int:
    logs = await store.logs()
    found = await _search(store, options)
    kept = {
        thread: several
        for thread, several in group_by_thread(logs).items()
        if not all(one.erased for one in several)
        and (not options.search or thread in found)
        and (not options.tag or any(options.tag in one.tags for one in several))
    }
    listed = [thread for thread, several in kept.items() if options.subagents or not is_subagent(several[0])]
    shown = listed[: options.limit or None]
    rows = [await _make_row(store, kept[thread], found.get(thread, ())) for thread in shown]
    code = _print(rows, options, short_ids(one.log for one in logs), left=len(listed) - len(shown))
    if len(listed) < len(kept):
        say(f"{count(len(kept) - len(listed), 'thread')} of subagents not shown. Use --all to list them, too.")
    return code


def is_subagent(log: Summary) -> bool:
    """True if the log belongs to a subagent: its harness is a path of names then."""
    return "/" in log.harness


async def _search(store: Store, options: ListOptions) -> dict[str, tuple[tuple[int, str], ...]]:
    """Return the hits of the search, by thread."""
    places: dict[str, tuple[tuple[int, str], ...]] = {}
    if options.search:
        hits = await store.search(options.search)
        if hits.unread:
            say(f"evener: {count(hits.unread, 'event')} could not be read and were skipped. Run `evener verify` to see why.")
        for hit in hits:
            thread = hit.summary.thread
            places[thread] = (*places.get(thread, ()), (hit.seq, flatten(hit.excerpt, EXCERPT)))
    return places


async def _make_row(store: Store, logs: Sequence[Summary], found: tuple[tuple[int, str], ...]) -> ThreadRow:
    """Return the row of a thread. A thread that cannot be read has a row that says so, and does not hide the others."""
    head = logs[0]
    root = next((one for one in logs if one.log == one.thread), head)
    try:
        seen = await glance(store, head)
    except EvenerError as error:
        seen = ThreadGlance(flatten(str(error)), "", "unreadable")
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
        metadata=seen.metadata,
    )


# Printing.

WIDE, METADATA = 120, 60

BAD: tuple[Condition, ...] = ("provider_error", "unexpected", "unreadable", "tool_retries", "output_retries")
STYLES: Mapping[str, Style] = {
    WORDS["done"]: "green", WORDS["approval"]: "yellow", WORDS["running"]: "cyan", WORDS["interrupted"]: "yellow",
    **{WORDS[one]: "red" for one in BAD},
}  # fmt: skip


def _print(rows: Sequence[ThreadRow], options: ListOptions, short: Mapping[str, str], *, left: int) -> int:
    if options.as_json:
        print_json(rows)
    elif rows:
        head, lines = (_make_hit_table if options.search else _make_table)(rows, short)
        print_table(head, lines, styles=STYLES)
    else:
        say(_explain_empty(options))
    if left:
        say(f"{left} more not shown. Use --limit {options.limit + left} to list them, or --limit 0 for all.")
    return 0


def _make_table(rows: Sequence[ThreadRow], short: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
    """Return the columns; a terminal is narrow, and gets those that people look for."""
    if 0 < terminal_width() < WIDE:
        lines = [
            [short[row.thread], WORDS[row.state], format_age(row.changed), row.model.partition(":")[2], _title(row, 0)]
            for row in rows
        ]
        return ["ID", "STATE", "AGE", "MODEL", "TITLE"], lines
    lines = [
        [
            short[row.thread],
            WORDS[row.state],
            str(row.events),
            str(row.branches),
            format_age(row.changed),
            row.model,
            _title(row, TITLE),
        ]
        for row in rows
    ]
    return ["ID", "STATE", "EVENTS", "BRANCHES", "AGE", "MODEL", "TITLE"], lines


def _make_hit_table(rows: Sequence[ThreadRow], short: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
    lines = [
        [short[row.thread], WORDS[row.state], format_age(row.changed), _title(row, TITLE // 2), _place(row)] for row in rows
    ]
    return ["ID", "STATE", "AGE", "TITLE", "FOUND"], lines


def _title(row: ThreadRow, most: int) -> str:
    tags = "".join(f" #{flatten(tag)}" for tag in row.tags)
    return flatten(row.title or row.prompt, most) + tags + (f" {flatten(row.metadata, METADATA)}" if row.metadata else "")


def _place(row: ThreadRow) -> str:
    number, excerpt = row.found[0]
    more = f" (and {len(row.found) - 1} more)" if len(row.found) > 1 else ""
    return f"[{number}] {excerpt}{more}" if number else f"{excerpt}{more}"


def _name_store(given: str) -> str:
    return without_password(given) if is_address(given) else str(path_of(given))


def _explain_empty(options: ListOptions) -> str:
    if options.search or options.tag:
        return "No thread was found."
    return f"There are no threads in {_name_store(options.store)} yet. Start one with: evener chat"


PROMPT_SHOWN = 48
BETWEEN, AT_END = "|- ", "`- "
INNER = {"": "", BETWEEN: "|  ", AT_END: "   "}
NEAR = 12
"""How many events of a branch are read to find its first prompt."""


async def show_tree(store: Store, id: str, *, as_json: bool) -> int:
    """Print the tree."""
    log = await find_log(store, id)
    if as_json:
        print_json(await _document(store, log))
        return 0
    most = terminal_width()
    print_lines(cut_text(line, most) if most else line for line in await tree_lines(store, log))
    return 0


async def tree_lines(store: Store, log: str, *, here: str = "") -> list[str]:
    """Return the tree of a log, one line per branch, and below it one for each of its compactions. `here` is the branch in use,
    which is marked.
    """
    logs = await _branches(store, log)
    short = short_ids(one.log for one in logs)
    lines: list[str] = []
    for lead, below, one in _walk(logs):
        said, compactions = await _read_branch(store, one)
        lines.append(f"{lead}{_line(one, short, said, here=here)}")
        lines += [f"{below}{_compaction_line(made)}" for made in compactions]
    return lines


async def _branches(store: Store, log: str) -> list[Summary]:
    """Return all branches of the thread that the log belongs to, older ones first."""
    thread = next(one.thread for one in await store.logs() if one.log == log)
    return sorted(await store.logs(thread=thread), key=lambda one: (one.parent_seq, one.began, one.log))


def _walk(logs: Sequence[Summary]) -> Iterator[tuple[str, str, Summary]]:
    """Yield each branch after its parent, with what is drawn before it, and before a line below it. Iterative: after many undos
    a tree is a deep chain.
    """
    known = {one.log for one in logs}
    children: dict[str, list[Summary]] = {}
    for one in logs:
        children.setdefault(one.parent if one.parent in known else "", []).append(one)
    waiting = [("", "", one) for one in reversed(children.get("", []))]
    while waiting:
        lead, mark, one = waiting.pop()
        inner = lead + INNER[mark]
        below = children.get(one.log, [])
        yield lead + mark, inner + INNER[BETWEEN if below else AT_END], one
        marks = [BETWEEN] * (len(below) - 1) + [AT_END]
        waiting += [(inner, mark, child) for mark, child in reversed(list(zip(marks, below, strict=False)))]


def _line(one: Summary, short: Mapping[str, str], said: str, *, here: str) -> str:
    marks = "".join(f"  <- {mark}" for mark, holds in (("head", one.head), ("here", one.log == here)) if holds)
    after = f"  after {one.parent_seq}" if one.parent else ""
    return (
        f"{short[one.log]}{after}  {count(one.events, 'event')}  {format_age(one.changed)}{f'  {said}' if said else ''}{marks}"
    )


class CompactionNode(msgspec.Struct):
    """A compaction in a branch: the number of its event, and what it removed from requests."""

    event: int
    model: str
    saved: int
    tokens: int
    undone: bool = False


def _compaction_line(made: CompactionNode) -> str:
    undone = "  (undone)" if made.undone else ""
    return f"event {made.event}  compacted by {made.model}, about {made.saved:,} of {made.tokens:,} tokens less{undone}"


async def _read_branch(store: Store, one: Summary) -> tuple[str, list[CompactionNode]]:
    """Return the label of this branch with its first prompt, and its compactions."""
    events = await store.read(one.log, after=one.parent_seq)
    label = next((event.label for event in events if isinstance(event, Opened)), "")
    made: dict[str, CompactionNode] = {}
    for number, event in enumerate(events, one.parent_seq + 1):
        if isinstance(event, Compacted):
            made[event.id] = CompactionNode(number, event.model, event.saved, event.tokens)
        elif isinstance(event, ContextRestored):
            for id, node in made.items():
                node.undone = node.undone or event.id in ("", id)
    said = f"{f'[{flatten(label)}] ' if label else ''}{first_prompt(events[:NEAR], PROMPT_SHOWN)}".strip()
    return said, list(made.values())


async def _document(store: Store, log: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for one in await _branches(store, log):
        said, compactions = await _read_branch(store, one)
        found.append({**msgspec.to_builtins(one), "said": said, "compactions": msgspec.to_builtins(compactions)})
    return found


def fork(id: str, *, at: str, label: str, store: str) -> int:
    """Create a branch and print its id."""
    return with_store(store, lambda opened: _fork(opened, id, at, label, store))


async def _fork(store: Store, id: str, at: str, label: str, where: str) -> int:
    log = await store.head(await find_log(store, id))
    number = find_event(at, await store.read(log), log) if at else None
    made = await fork_at(store, log, number, harness="", label=label)
    print(made.log)
    words = shlex.join(["evener", "chat", *same_store(where), "-r", made.log])
    say(f"evener: New branch of {made.first.thread} after event {made.first.parent_seq}. Continue it with: {words}")
    return 0


async def title(store: Store, id: str, text: str) -> int:
    """Set the title of a thread; an empty one removes it."""
    found = await _find_thread(store, id)
    await store.describe(found.thread, title=flatten(text))
    say(
        f"evener: The title of {found.thread} is now {flatten(text)!r}."
        if text.strip()
        else f"evener: {found.thread} has no title now."
    )
    return 0


async def tag(store: Store, id: str, tags: Sequence[str], *, remove: Sequence[str]) -> int:
    """Add and remove tags; print those that the thread has then."""
    for one in (*tags, *remove):
        if not one.strip() or one != flatten(one) or " " in one:
            raise UsageError(f"A tag is one word without spaces, and {one!r} is not. Use dashes instead of spaces.")
    found = await _find_thread(store, id)
    kept = [one for one in dict.fromkeys((*found.tags, *tags)) if one not in remove]
    if tags or remove:
        await store.describe(found.thread, tags=kept)
    for one in kept:
        print(flatten(one))
    return 0


async def _find_thread(store: Store, id: str) -> Summary:
    logs = await store.logs()
    log = match_id(id, logs)
    return next(one for one in logs if one.log == log)
