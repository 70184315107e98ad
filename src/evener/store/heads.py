"""Which log a thread stands on, and the list of all logs, as SQL."""

from typing import TYPE_CHECKING

from evener.store import refusals
from evener.store.claim import deserted
from evener.store.guard import Guard
from evener.store.log import Summary
from evener.store.rows import log_of

if TYPE_CHECKING:
    import sqlite3

__all__ = ["head", "move", "summaries"]

LISTED = (
    "SELECT l.log, l.thread, l.harness, l.length, l.began, l.changed,"
    " CASE WHEN h.log IS NULL THEN l.parent = '' ELSE h.log = l.log END,"
    " l.parent, l.base, l.title, l.claim, l.lease_until, l.erased"
    " FROM logs l LEFT JOIN heads h ON h.thread = l.thread"
)


def head(connection: "sqlite3.Connection", thread: str) -> str:
    """The log that the thread stands on. The id of a log that is no thread's stands for itself."""
    for query in (
        "SELECT log FROM heads WHERE thread = ?",
        "SELECT log FROM logs WHERE log = ?",
        "SELECT log FROM logs WHERE thread = ? AND parent = '' ORDER BY number LIMIT 1",
    ):
        found = connection.execute(query, (thread,)).fetchone()
        if found is not None:
            return str(found[0])
    raise refusals.no_log(thread)


def move(connection: "sqlite3.Connection", thread: str, log: str) -> None:
    """Let the thread stand on that log, which must be one of its own."""
    (owner,) = log_of(connection, log, "thread")
    if owner != thread:
        raise refusals.another_thread(log, owner, thread)
    connection.execute("INSERT OR REPLACE INTO heads (thread, log) VALUES (?, ?)", (thread, log))


def summaries(connection: "sqlite3.Connection", thread: str, now: float, guard: Guard) -> list[Summary]:
    """Every log, or those of one thread, the one that changed last first. A title that does not open is shown as such."""
    where, values = (" WHERE l.thread = ?", (thread,)) if thread else ("", ())
    tags: dict[str, list[str]] = {}
    for owner, tag in connection.execute("SELECT l.thread, l.tag FROM tags l" + where, values).fetchall():
        tags.setdefault(owner, []).append(guard.label("tag", owner, tag))
    found = connection.execute(LISTED + where + " ORDER BY l.changed DESC, l.number", values).fetchall()
    return [
        Summary(
            log=log, thread=owner, harness=harness, events=events, began=began, changed=changed, head=bool(stands),
            parent=parent, parent_seq=seq, title=guard.label("title", owner, title),
            tags=tuple(sorted(tags.get(owner, ()))), held=bool(claim) and until > now and not deserted(claim),
            erased=erased or 0.0,
        )
        for log, owner, harness, events, began, changed, stands, parent, seq, title, claim, until, erased in found
    ]  # fmt: skip
