"""The rate limits of keys, as SQL: which calls began in the last minute, on all machines. A key is named by its fingerprint."""

from typing import TYPE_CHECKING

from evener.store.postgres.work import NOW

if TYPE_CHECKING:
    import sqlite3

    from evener.transport.limiter import Rate


TABLES = (
    """
    CREATE TABLE rate_calls (
        id text PRIMARY KEY,
        key text NOT NULL,
        at double precision NOT NULL,
        tokens bigint NOT NULL,
        until double precision NOT NULL
    )
    """,
    "CREATE INDEX rate_calls_of_key ON rate_calls (key, at)",
    "CREATE TABLE rate_pauses (key text PRIMARY KEY, until double precision NOT NULL)",
)
NEVER_LESS = 0.05
FULL = 0.25
"""Seconds until we look again, where only the end of another call makes room."""


def admit(
    connection: "sqlite3.Connection", key: str, *, id: str, tokens: int, rate: "Rate", within: float, minute: float = 60.0
) -> float:
    """Begin a call with the key if there is room: 0.0. Else return the seconds after which to ask again.

    `within` is how long the call may take: after that its place is free, even if its process died.
    """
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(?, 21))", (key,))
    if connection.execute("SELECT 1 FROM rate_calls WHERE id = ?", (id,)).fetchone():
        return 0.0  # the answer to an earlier attempt was lost
    (now,) = connection.execute(f"SELECT {NOW}").fetchone()
    connection.execute("DELETE FROM rate_calls WHERE key = ? AND at <= ? AND until <= ?", (key, now - minute, now))
    paused = connection.execute("SELECT until FROM rate_pauses WHERE key = ?", (key,)).fetchone()
    wait = max(paused[0] - now, 0.0) if paused else 0.0
    if rate.concurrent:
        query = "SELECT count(*) FROM rate_calls WHERE key = ? AND until > ?"
        (active,) = connection.execute(query, (key, now)).fetchone()
        wait = max(wait, FULL) if active >= rate.concurrent else wait
    wait = max(wait, _window_wait(connection, key, tokens, rate, now, minute))
    if wait > 0.0:
        return max(wait, NEVER_LESS)
    connection.execute("INSERT INTO rate_calls VALUES (?, ?, ?, ?, ?)", (id, key, now, tokens, now + within))
    return 0.0


def _window_wait(connection: "sqlite3.Connection", key: str, tokens: int, rate: "Rate", now: float, minute: float) -> float:
    """Return the seconds until the last minute has room for the call; one that never fits goes when the minute is empty."""
    if not rate.requests_per_minute and not rate.tokens_per_minute:
        return 0.0
    query = "SELECT at, tokens FROM rate_calls WHERE key = ? AND at > ? ORDER BY at"
    begun = connection.execute(query, (key, now - minute)).fetchall()
    wait, most = 0.0, rate.requests_per_minute
    if most and len(begun) >= most:
        wait = begun[len(begun) - most][0] + minute - now
    over = sum(count for _, count in begun) + tokens - rate.tokens_per_minute if rate.tokens_per_minute else 0
    for at, count in begun:
        if over <= 0:
            break
        over -= count
        wait = max(wait, at + minute - now)
    return wait


def leave(connection: "sqlite3.Connection", id: str) -> None:
    """End a call: another one may begin. It stays in its minute. Does not wait."""
    connection.execute("UPDATE rate_calls SET until = 0 WHERE id = ?", (id,))


def recount(connection: "sqlite3.Connection", id: str, tokens: int) -> None:
    """Replace the estimate by the number of tokens that the call used."""
    connection.execute("UPDATE rate_calls SET tokens = ? WHERE id = ?", (tokens, id))


def pause(connection: "sqlite3.Connection", key: str, seconds: float) -> None:
    """Begin no call with the key for so many seconds: its provider asked for it."""
    connection.execute(
        f"INSERT INTO rate_pauses VALUES (?, {NOW} + ?) ON CONFLICT (key) DO UPDATE"
        " SET until = greatest(rate_pauses.until, excluded.until)",
        (key, seconds),
    )
