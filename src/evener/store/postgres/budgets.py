"""The budget of a tree of runs, as SQL: reserved before a call and settled after it, in one row that all machines share.

A reservation belongs to a log. The next lease holder of that log settles the reservations of the last one with their upper
bound, so a worker that dies never creates room that does not exist.
"""

from decimal import Decimal
from typing import TYPE_CHECKING

from evener.errors import StoreError
from evener.events import LimitName, Limits
from evener.loop.state import Spent
from evener.store.cluster import TreeRefusal
from evener.store.postgres.work import NOW
from evener.transcript.reply import Usage

if TYPE_CHECKING:
    import sqlite3


TABLES = (
    """
    CREATE TABLE budgets (
        tree text PRIMARY KEY,
        began double precision NOT NULL,
        requests bigint NOT NULL DEFAULT 0,
        tool_calls bigint NOT NULL DEFAULT 0,
        input_tokens bigint NOT NULL DEFAULT 0,
        output_tokens bigint NOT NULL DEFAULT 0,
        cost numeric NOT NULL DEFAULT 0,
        most_requests bigint,
        most_tool_calls bigint,
        most_input_tokens bigint,
        most_output_tokens bigint,
        most_cost numeric
    )
    """,
    "CREATE TABLE members (log text PRIMARY KEY, run text NOT NULL, tree text NOT NULL REFERENCES budgets ON DELETE CASCADE)",
    """
    CREATE TABLE reservations (
        tree text NOT NULL REFERENCES budgets (tree) ON DELETE CASCADE,
        key text NOT NULL,
        log text NOT NULL,
        cost numeric NOT NULL,
        calls bigint NOT NULL DEFAULT 0,
        PRIMARY KEY (tree, key)
    )
    """,
)
KEPT = 30 * 86_400
"""Seconds that the budget of a tree is kept. It holds numbers only."""
MEASURES = ("requests", "tool_calls", "input_tokens", "output_tokens", "cost")
COUNTED: tuple[LimitName, ...] = ("requests", "input_tokens", "output_tokens")


def begin(connection: "sqlite3.Connection", tree: str, *, log: str, limits: Limits, spent: Spent) -> None:
    """Begin the budget of a tree: `tree` is the run at its root, which has spent so much by now. Begun twice, it is one."""
    under_way = "SELECT tree FROM members WHERE log IN (SELECT log FROM work)"
    connection.execute(f"DELETE FROM budgets WHERE began < {NOW} - {KEPT} AND tree NOT IN ({under_way})", ())
    usage = spent.usage
    connection.execute(
        f"INSERT INTO budgets (tree, began, {', '.join(MEASURES)}, most_{', most_'.join(MEASURES)})"
        f" VALUES (?, {NOW}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (
            *(tree, spent.requests, spent.tool_calls, usage.input_total, usage.output_total, spent.cost),
            *(getattr(limits, name) for name in MEASURES),
        ),
    )
    join(connection, tree, log=log, run=tree)


def join(connection: "sqlite3.Connection", tree: str, *, log: str, run: str) -> None:
    """Let a run belong to a tree."""
    connection.execute(
        "INSERT INTO members VALUES (?, ?, ?) ON CONFLICT (log) DO UPDATE SET run = excluded.run, tree = excluded.tree",
        (log, run, tree),
    )


def tree_of(connection: "sqlite3.Connection", log: str, run: str) -> tuple[str, bool]:
    """Return the tree that the run belongs to, and whether its cost is limited; empty without one."""
    query = "SELECT tree, most_cost IS NOT NULL FROM members JOIN budgets USING (tree) WHERE log = ? AND run = ?"
    found = connection.execute(query, (log, run)).fetchone()
    return ("", False) if found is None else (found[0], found[1])


def members_of(connection: "sqlite3.Connection", tree: str) -> list[str]:
    """Return the logs of the runs that belong to a tree."""
    return [log for (log,) in connection.execute("SELECT log FROM members WHERE tree = ? ORDER BY log", (tree,)).fetchall()]


def reserve(connection: "sqlite3.Connection", tree: str, *, log: str, key: str, cost: Decimal) -> TreeRefusal | None:
    """Reserve room for one request of a run of the tree; None when there is."""
    used, most = _lock(connection, tree)
    if connection.execute("SELECT 1 FROM reservations WHERE tree = ? AND key = ?", (tree, key)).fetchone():
        return None  # the answer to an earlier attempt was lost
    (held,) = connection.execute("SELECT coalesce(sum(cost), 0) FROM reservations WHERE tree = ?", (tree,)).fetchone()
    for name in COUNTED:
        limit = most[name]
        if limit is not None and used[name] >= limit:
            return TreeRefusal(name, limit, used[name])
    if most["cost"] is not None and used["cost"] + held + cost > most["cost"]:
        return TreeRefusal("cost", most["cost"], used["cost"] + held, cost, held=held > 0)
    connection.execute("INSERT INTO reservations VALUES (?, ?, ?, ?)", (tree, key, log, cost))
    connection.execute("UPDATE budgets SET requests = requests + 1 WHERE tree = ?", (tree,))
    return None


def claim(connection: "sqlite3.Connection", tree: str, *, log: str, key: str, count: int) -> TreeRefusal | None:
    """Claim so many tool calls of a run of the tree; None when there is room. The same key is counted once."""
    used, most = _lock(connection, tree)
    if connection.execute("SELECT 1 FROM reservations WHERE tree = ? AND key = ?", (tree, key)).fetchone():
        return None
    if most["tool_calls"] is not None and used["tool_calls"] + count > most["tool_calls"]:
        return TreeRefusal("tool_calls", most["tool_calls"], used["tool_calls"], count)
    connection.execute("INSERT INTO reservations VALUES (?, ?, ?, 0, ?)", (tree, key, log, count))
    connection.execute("UPDATE budgets SET tool_calls = tool_calls + ? WHERE tree = ?", (count, tree))
    return None


def settle(connection: "sqlite3.Connection", tree: str, *, key: str, usage: Usage, cost: Decimal, made: bool) -> None:
    """Replace a reservation by what the call used. `made`: the request was sent; else it does not count."""
    gone = connection.execute("DELETE FROM reservations WHERE tree = ? AND key = ? RETURNING 1", (tree, key)).fetchone()
    if gone is None:
        return  # settled before: by an earlier attempt, or by the next holder of the log
    connection.execute(
        "UPDATE budgets SET requests = requests - ?, input_tokens = input_tokens + ?, output_tokens = output_tokens + ?,"
        " cost = cost + ? WHERE tree = ?",
        (0 if made else 1, usage.input_total, usage.output_total, cost, tree),
    )


def settle_left(connection: "sqlite3.Connection", tree: str, *, log: str) -> None:
    """Settle what an earlier holder of the log had reserved, with the most that it may have cost."""
    found = connection.execute(
        "DELETE FROM reservations WHERE tree = ? AND log = ? AND calls = 0 RETURNING cost", (tree, log)
    ).fetchall()
    if found:
        connection.execute("UPDATE budgets SET cost = cost + ? WHERE tree = ?", (sum(cost for (cost,) in found), tree))


def renew(connection: "sqlite3.Connection", tree: str) -> None:
    """Start a fresh allowance for the tree: a user allowed it. What is reserved stays so."""
    connection.execute(
        "UPDATE budgets SET requests = 0, tool_calls = 0, input_tokens = 0, output_tokens = 0, cost = 0 WHERE tree = ?", (tree,)
    )


def _lock(connection: "sqlite3.Connection", tree: str) -> "tuple[dict[str, Decimal], dict[str, Decimal | None]]":
    """Return what the tree has used and may use, its row locked until the transaction ends."""
    query = f"SELECT {', '.join(MEASURES)}, most_{', most_'.join(MEASURES)} FROM budgets WHERE tree = ? FOR UPDATE"
    found = connection.execute(query, (tree,)).fetchone()
    if found is None:
        raise StoreError(f"The budget of the tree {tree!r} is gone, so nothing was reserved. Submit its root again.")
    many = len(MEASURES)
    return dict(zip(MEASURES, found[:many], strict=True)), dict(zip(MEASURES, found[many:], strict=True))
