"""The jobs on a log that somebody holds, as SQL: each is one step within a transaction that the lane begins and ends.

Whoever writes has checked first: a StoreError is raised before the first change, never after it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from evener.events import VERSION, Event, Opened, Rival, decode_event, encode_event
from evener.store import checkpoints, refusals
from evener.store.chain import RULE, digest_of, link, origin_of
from evener.store.checkpoints import Mark
from evener.store.claim import claims, deserted, may_act, rival_of, seconds_of
from evener.store.guard import Guard
from evener.store.log import LeaseHeld

if TYPE_CHECKING:
    import sqlite3

__all__ = [
    "Claim",
    "Grown",
    "Held",
    "Row",
    "append",
    "create",
    "end_of",
    "log_of",
    "release",
    "renew",
    "row_of",
    "rows_of",
    "take",
]

KINDS = {kind: str(kind.__struct_config__.tag) for kind in get_args(Event)}
COLUMNS = "log, seq, version, rule, at, kind, digest, chain, payload"


class Row(msgspec.Struct, frozen=True):
    """An event, ready to be stored."""

    at: float
    kind: str
    payload: bytes


class Claim(msgspec.Struct, frozen=True):
    """Who wants to hold a log, from when and until when."""

    holder: str
    mark: str
    now: float
    until: float


class Held(msgspec.Struct, frozen=True):
    """A log as its holder knows it: its name, its number in the file, the holder's epoch and claim, and who may still act."""

    log: str
    number: int
    epoch: int
    mark: str = ""
    rival: Rival = ""


class Grown(msgspec.Struct, frozen=True):
    """How long a log is now, and the checkpoint that was due, if one was."""

    length: int
    mark: Mark | None = None


def row_of(event: Event, guard: Guard) -> Row:
    """The event as it is stored, but for the cipher: that needs to know the event's number."""
    return Row(event.at, KINDS[type(event)], guard.funnel.clean(encode_event(event)))


def rows_of(events: tuple[Event, ...], guard: Guard) -> tuple[tuple[Event, ...], list[Row]]:
    """The events as they are kept, and ready to be stored."""
    kept, payloads = guard.funnel.events(events)
    return kept, [Row(event.at, KINDS[type(event)], payload) for event, payload in zip(kept, payloads, strict=True)]


def create(connection: "sqlite3.Connection", log: str, first: Event, claim: Claim, guard: Guard) -> tuple[Held, Grown]:
    """A new log with its first event. A fork goes on from an event of its parent; nothing is copied."""
    if connection.execute("SELECT 1 FROM logs WHERE log = ?", (log,)).fetchone():
        raise refusals.already_there(log)
    row = row_of(first, guard)
    first = decode_event(row.payload)  # without secrets
    opened = first if isinstance(first, Opened) else Opened(at=first.at, thread=log)
    base, title = _parent(connection, opened) if opened.parent else (0, "")
    made = connection.execute(
        "INSERT INTO logs (log, thread, harness, parent, parent_seq, parent_hash, began, changed, length, head,"
        " epoch, holder, claim, lease_until, base, title) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?)",
        (
            log, opened.thread, opened.harness, opened.parent, opened.parent_seq, opened.parent_hash, first.at, first.at,
            base, origin_of(log), claim.holder, claim.mark, claim.until, base, title,
        ),
    )  # fmt: skip
    held = Held(log, int(made.lastrowid or 0), 1, claim.mark)
    return held, append(connection, held, [row], claim.until, guard)


def take(connection: "sqlite3.Connection", log: str, claim: Claim, *, force: bool = False) -> tuple[Held, int] | LeaseHeld:
    """Take the log over, unless a process that may be alive holds it; return it and its length.

    A lease that runs longer than it lasts is cut: then the refusal is returned, so that it does not undo that.
    """
    number, length, epoch, holder, mark, until, erased = log_of(
        connection, log, "number, length, epoch, holder, claim, lease_until, erased"
    )
    if erased is not None:
        raise refusals.erased(log, erased)
    if mark and until > claim.now and not force and not deserted(mark):
        longest = seconds_of(mark, claim.until - claim.now)
        if until - claim.now <= longest:
            raise refusals.held(log, holder, until - claim.now)
        connection.execute("UPDATE logs SET lease_until = ? WHERE number = ?", (claim.now + longest, number))
        return refusals.held(log, holder, longest)
    earlier = [one for one in claims(mark) if may_act(one)]
    connection.execute(
        "UPDATE logs SET epoch = ?, holder = ?, claim = ?, lease_until = ? WHERE number = ?",
        (epoch + 1, claim.holder, ";".join((claim.mark, *earlier)), claim.until, number),
    )
    return Held(log, number, epoch + 1, claim.mark, rival_of(earlier)), length


def release(connection: "sqlite3.Connection", log: str, mark: str, *, left: bool = False) -> Mark | None:
    """Give a lease back, if the claim still stands; the checkpoint that this makes, if the log has grown since the last.

    `left`: what was begun under it goes on, so that the claim stays for the next holder to see.
    """
    found = connection.execute("SELECT number, length, head, claim FROM logs WHERE log = ?", (log,)).fetchone()
    if found is None or claims(found[3])[:1] != [mark]:
        return None
    number, length, head, stored = found
    kept = claims(stored)[0 if left else 1 :]
    connection.execute("UPDATE logs SET holder = '', claim = ?, lease_until = 0 WHERE number = ?", (";".join(kept), number))
    return checkpoints.put(connection, number, seq=length, chain=head)


def append(connection: "sqlite3.Connection", held: Held, rows: Sequence[Row], until: float, guard: Guard) -> Grown:
    """Add rows and renew the lease. Writes nothing when the epoch is not the holder's."""
    if not rows:
        return renew(connection, held, until)
    before, head = end_of(connection, held)
    links = []
    for seq, row in enumerate(rows, before + 1):
        payload = guard.seal("event", held.log, row.payload, number=seq)
        digest = digest_of(payload)
        head = link(head, digest, seq=seq, version=VERSION, at=row.at, kind=row.kind)
        links.append((held.number, seq, VERSION, RULE, row.at, row.kind, digest, head, payload))
    connection.executemany(f"INSERT INTO events ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", links)
    length = before + len(links)
    connection.execute(
        "UPDATE logs SET length = ?, head = ?, changed = ?, lease_until = ?, claim = ? WHERE number = ? AND epoch = ?",
        (length, head, rows[-1].at, until, held.mark, held.number, held.epoch),
    )
    if not checkpoints.due(before, length):
        return Grown(length)
    return Grown(length, checkpoints.put(connection, held.number, seq=length, chain=head))


def renew(connection: "sqlite3.Connection", held: Held, until: float) -> Grown:
    """Keep the lease."""
    length, _ = end_of(connection, held)
    connection.execute("UPDATE logs SET lease_until = ? WHERE number = ? AND epoch = ?", (until, held.number, held.epoch))
    return Grown(length)


def log_of(connection: "sqlite3.Connection", log: str, columns: str) -> tuple[Any, ...]:
    """Columns of a log. NoLog when there is none of that id."""
    found: tuple[Any, ...] | None = connection.execute(f"SELECT {columns} FROM logs WHERE log = ?", (log,)).fetchone()
    if found is None:
        raise refusals.no_log(log)
    return found


def _parent(connection: "sqlite3.Connection", opened: Opened) -> tuple[int, str | bytes]:
    """How many events a fork has before its own, and the title of its thread. Refuses what it cannot go on from."""
    number, thread, title, erased = log_of(connection, opened.parent, "number, thread, title, erased")
    if erased is not None:
        raise refusals.erased(opened.parent, erased)
    if thread != opened.thread:
        raise refusals.another_thread(opened.parent, thread, opened.thread)
    found = connection.execute("SELECT chain FROM events WHERE log = ? AND seq = ?", (number, opened.parent_seq)).fetchone()
    if found is None:
        raise refusals.no_event(opened.parent, opened.parent_seq)
    if bytes(found[0]).hex() != opened.parent_hash:
        raise refusals.another_hash(opened.parent, opened.parent_seq)
    return opened.parent_seq, title


def end_of(connection: "sqlite3.Connection", held: Held) -> tuple[int, bytes]:
    """Length and head of the log. LeaseLost when the epoch is not the holder's any more."""
    found = connection.execute("SELECT epoch, length, head, holder, log FROM logs WHERE number = ?", (held.number,)).fetchone()
    if found is None or found[0] != held.epoch or found[4] != held.log:
        raise refusals.lost(held.log, found[3] if found else "")
    return found[1], found[2]
