"""Titles, tags and search, as SQL: what helps people to find a thread. Reads events, never changes one."""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from evener.errors import BadValue, EvenerError
from evener.events import decode_event
from evener.store import protocol, subagent_logs
from evener.store.integrity.digests import MISFITS
from evener.store.protocol import Found, Hits, Summary
from evener.store.redaction import Funnel, Redaction
from evener.store.search import SPOKEN, Query, parse, said_in
from evener.store.sqlite.rows import summaries
from evener.store.sqlite.search_index import PART, SearchIndex, part_of

if TYPE_CHECKING:
    import sqlite3


STARTS = (
    "SELECT l.log, e.seq, e.payload FROM logs l JOIN events e ON e.log = l.number"
    " WHERE l.thread = ? AND e.kind = 'call_started' ORDER BY l.number, e.seq"
)


class StartRow(msgspec.Struct):
    """The content of a call's start. It is not erased with the rest, so that logs inside the call can be found later."""

    key: str


_start = msgspec.json.Decoder(StartRow)


def threads_inside(connection: "sqlite3.Connection", thread: str, guard: Redaction) -> list[str]:
    """Return the threads of agents inside the calls of the thread of that id, or that the log of that id belongs to."""
    owner = _thread_of(connection, thread)
    if not owner and not connection.execute("SELECT 1 FROM logs WHERE thread = ?", (thread,)).fetchone():
        raise protocol.no_log(thread)
    return subagent_logs.threads_inside(
        owner or thread, partial(_find_start, connection, guard), partial(_thread_of, connection)
    )


def logs_inside(connection: "sqlite3.Connection", log: str, guard: Redaction) -> list[str]:
    """Return the logs of agents inside the calls of one branch."""
    return subagent_logs.logs_inside(log, partial(_find_start, connection, guard), partial(_thread_of, connection))


def _find_start(connection: "sqlite3.Connection", guard: Redaction, thread: str) -> list[tuple[str, str]]:
    """Return the keys of the calls that were started. A damaged start is passed over: what lies inside it is unknown."""
    found: list[tuple[str, str]] = []
    for log, seq, payload in connection.execute(STARTS, (thread,)).fetchall():
        try:
            found.append((log, _start.decode(guard.open("event", log, payload, number=seq)).key))
        except (EvenerError, msgspec.MsgspecError, *MISFITS):
            continue
    return found


def _thread_of(connection: "sqlite3.Connection", log: str) -> str:
    found = connection.execute("SELECT thread FROM logs WHERE log = ?", (log,)).fetchone()
    return str(found[0]) if found else ""


LONGEST_TITLE = 200
LONGEST_TAG = 64
MOST_TAGS = 32
ROWS = 1_000
BATCH = 200
BYTES = 8 << 20
LAST = 1 << 62


class Label(msgspec.Struct, frozen=True):
    """A title and tags for a thread, without secrets; None leaves them unchanged."""

    title: str | None = None
    tags: tuple[str, ...] | None = None


class SearchPage(msgspec.Struct, frozen=True):
    """What was found among some events, and where to continue: with the events before this row; 0 is the end. `unread` is a
    count.
    """

    found: list[Found]
    before: int
    unread: int = 0


Run = Callable[["Callable[[sqlite3.Connection], SearchPage]"], Awaitable[SearchPage]]
"""Has a job done by the store's reader."""


def label_of(title: str | None, tags: Iterable[str] | None, funnel: Funnel) -> Label:
    """Return title and tags as they are stored: without secrets, on one line, not too long."""
    if isinstance(tags, str):
        raise BadValue("Tags are given as several texts, not as one. Write tags=[...].")
    kept = None if tags is None else tuple(sorted({_line(tag, "tag", LONGEST_TAG, funnel) for tag in tags} - {""}))
    if kept is not None and len(kept) > MOST_TAGS:
        raise BadValue(f"A thread has at most {MOST_TAGS} tags, and {len(kept)} were given. Give fewer.")
    return Label(None if title is None else _line(title, "title", LONGEST_TITLE, funnel), kept)


def describe(connection: "sqlite3.Connection", thread: str, label: Label, guard: Redaction) -> None:
    """Give the thread a title, or tags in place of those it had."""
    found = connection.execute(
        "SELECT thread, erased FROM logs WHERE thread = ? OR log = ? ORDER BY thread = ? DESC, erased LIMIT 1",
        (thread, thread, thread),
    ).fetchone()
    if found is None:
        raise protocol.no_log(thread)
    owner, erased = found
    if erased is not None:
        raise protocol.erased(thread, erased)
    if label.title is not None:
        sealed = guard.seal_text("title", owner, label.title)
        connection.execute("UPDATE logs SET title = ? WHERE thread = ?", (sealed, owner))
    if label.tags is not None:
        connection.execute("DELETE FROM tags WHERE thread = ?", (owner,))
        rows = [(owner, guard.seal_text("tag", owner, tag)) for tag in label.tags]
        connection.executemany("INSERT INTO tags (thread, tag) VALUES (?, ?)", rows)


async def search(run: Run, text: str, limit: int, now: float, guard: Redaction, index: SearchIndex | None = None) -> Hits:
    """Find all words of the text: titles and tags first, then events, the newest first. Others read in between."""
    query = parse(text)
    first = await run(partial(_find_named, query=query, now=now, guard=guard))
    found, before, unread = first.found, first.before, 0
    while before and len(found) < limit:
        left = limit - len(found)
        page = await run(partial(_page, query=query, before=before, limit=left, now=now, guard=guard, index=index))
        found, before, unread = found + page.found, page.before, unread + page.unread
    return Hits(found[:limit], unread=unread)


def _find_named(connection: "sqlite3.Connection", query: Query, now: float, guard: Redaction) -> SearchPage:
    """Return the threads whose title and tags match, each with the log it stands on."""
    found = []
    for summary in summaries(connection, "", now, guard):
        if summary.head and (excerpt := query.excerpt(" ".join([summary.title, *summary.tags]))):
            found.append(Found(summary, 0, excerpt))
    return SearchPage(found, LAST)


def _page(
    connection: "sqlite3.Connection",
    query: Query,
    before: int,
    limit: int,
    now: float,
    guard: Redaction,
    index: SearchIndex | None,
) -> SearchPage:
    """Return what matches among some of the events before a row: by the index as far as it reaches, else by looking at each."""
    (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM events WHERE id < ?", (before,)).fetchone()
    part = part_of(last)
    rows = None if index is None else index.candidates(connection, part, query.words)
    if rows is None:
        lowest = 0 if index is None else part * PART
        where, values = "e.id < ? AND e.id >= ?", [before, lowest]
        page = _matches(connection, query, where, values, limit, now, guard)
        return page if page.before or not lowest else msgspec.structs.replace(page, before=lowest)
    found: list[Found] = []
    unread = 0
    wanted = [row for row in rows if row < before]
    for start in range(0, len(wanted), BATCH):
        batch = wanted[start : start + BATCH]
        where = f"e.id IN ({', '.join('?' * len(batch))})"
        page = _matches(connection, query, where, batch, limit - len(found), now, guard)
        found, unread = found + page.found, unread + page.unread
        if page.before:
            return SearchPage(found, page.before, unread)
    return SearchPage(found, part * PART, unread)


def _matches(
    connection: "sqlite3.Connection", query: Query, where: str, values: list[int], limit: int, now: float, guard: Redaction
) -> SearchPage:
    """Return what matches among some hundred events. One that cannot be read is passed over and counted."""
    marks = ", ".join("?" * len(SPOKEN))
    spoken = connection.execute(
        "SELECT e.id, l.log, l.thread, e.seq, e.version, e.payload FROM events e JOIN logs l ON l.number = e.log"
        f" WHERE {where} AND e.erased IS NULL AND e.payload IS NOT NULL AND e.kind IN ({marks}) ORDER BY e.id DESC LIMIT ?",
        (*values, *SPOKEN, ROWS),
    )
    found: list[Found] = []
    known: dict[str, Summary] = {}
    left, size, last, unread = ROWS, 0, 0, 0
    with closing(spoken) as rows:
        for last, log, thread, seq, version, stored in rows:
            left -= 1
            try:
                size += len(stored)
                excerpt = _excerpt(query, guard.open("event", log, stored, number=seq), version)
            except (EvenerError, *MISFITS):
                excerpt, unread = "", unread + 1
            if excerpt:
                if log not in known:
                    known |= {summary.log: summary for summary in summaries(connection, thread, now, guard)}
                found.append(Found(known[log], seq, excerpt))
            if size > BYTES or len(found) == limit:
                return SearchPage(found, last, unread)
    return SearchPage(found, 0 if left else last, unread)


def _excerpt(query: Query, payload: bytes, version: int) -> str:
    """Return what the event says around the words; empty when it does not say them."""
    return query.excerpt(said_in(decode_event(payload, version))) if query.may_match(payload) else ""


def _line(text: str, what: str, longest: int, funnel: Funnel) -> str:
    if not isinstance(text, str):
        raise BadValue(f"A {what} is a text, not {type(text).__name__}.")
    line = " ".join(funnel.text(text).split())
    if len(line) > longest:
        raise BadValue(f"A {what} has at most {longest} characters, and {len(line)} were given. Shorten it.")
    if not line.isprintable():
        found = next(one for one in line if not one.isprintable())
        raise BadValue(f"A {what} has visible characters only, and U+{ord(found):04X} was given. Leave it out.")
    return line
