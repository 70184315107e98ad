"""Which threads and logs of a SQLite store lie inside calls of another. Reads only; see `kin`."""

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from evener.errors import EvenerError
from evener.store import kin, refusals
from evener.store.chain import MISFITS
from evener.store.guard import Guard

if TYPE_CHECKING:
    import sqlite3

__all__ = ["logs_inside", "threads_inside"]

STARTS = (
    "SELECT l.log, e.seq, e.payload FROM logs l JOIN events e ON e.log = l.number"
    " WHERE l.thread = ? AND e.kind = 'call_started' ORDER BY l.number, e.seq"
)


class Start(msgspec.Struct):
    """What the start of a call says. It is not erased with the rest: only so can what lies inside be found later."""

    key: str


_start = msgspec.json.Decoder(Start)


def threads_inside(connection: "sqlite3.Connection", thread: str, guard: Guard) -> list[str]:
    """The threads of agents inside the calls of the thread of that id, or that the log of that id belongs to."""
    owner = _thread_of(connection, thread)
    if not owner and not connection.execute("SELECT 1 FROM logs WHERE thread = ?", (thread,)).fetchone():
        raise refusals.no_log(thread)
    return kin.threads_inside(owner or thread, partial(_started, connection, guard), partial(_thread_of, connection))


def logs_inside(connection: "sqlite3.Connection", log: str, guard: Guard) -> list[str]:
    """The logs of agents inside the calls of one branch."""
    return kin.logs_inside(log, partial(_started, connection, guard), partial(_thread_of, connection))


def _started(connection: "sqlite3.Connection", guard: Guard, thread: str) -> list[tuple[str, str]]:
    """A damaged start is passed over: nobody can tell what lies inside it."""
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
