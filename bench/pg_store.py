"""`python -m bench pg-store`: durable events of 1 kB a second on PostgreSQL, beside bare COPY and INSERT as durable.

A real server on this machine's disk, `fsync` and `synchronous_commit` on. The floor writes the same rows in groups of the same
size over one connection, and does nothing else: no chain, no lease, no JSON, no event loop.
"""

import asyncio
import time

from evener.events import Cancelled, Opened
from evener.store.postgres import PostgresStore
from evener.store.postgres.connection import load_psycopg
from evener.testing.postgres import PostgresServer

__all__ = ["main"]

EVENT = Cancelled(at=2.0, why="x" * 950)
LEAST_RATIO = 0.5
WANTED = 20_000
TABLE = (
    "CREATE TABLE bare (id bigint GENERATED ALWAYS AS IDENTITY, log bigint, seq bigint, version int, rule int,"
    " at double precision, kind text, digest bytea, chain bytea, payload bytea, PRIMARY KEY (log, seq))"
)
COLUMNS = "(log, seq, version, rule, at, kind, digest, chain, payload)"


def main(logs: int, seconds: float) -> int:
    """Print the rates; 1 when ours is neither fast enough by itself nor at least half of a bare COPY."""
    with PostgresServer() as server:
        copied = _bare(server.address, logs, seconds, copy=True)
        inserted = _bare(server.address, logs, seconds, copy=False)
        rows = [(1, "one log"), (logs, f"{logs} logs at once")]
        print(f"bare COPY, groups of {logs}: {copied:,.0f} events/s; bare INSERT: {inserted:,.0f} events/s")
        best = 0.0
        for many, name in rows:
            best = asyncio.run(_ours(server.address, many, seconds))
            alone = _bare(server.address, many, seconds, copy=False)
            print(
                f"ours, {name}: {best:,.0f} events/s, {1e6 / best:,.0f} us each; {best / alone:.2f} of a bare INSERT so grouped"
            )
    ratio = best / max(copied, inserted)
    print(f"ratio to the quicker of both {ratio:.2f} (at least {LEAST_RATIO}), or {WANTED:,} events/s")
    return 0 if best >= WANTED or ratio >= LEAST_RATIO else 1


def _bare(address: str, group: int, seconds: float, *, copy: bool) -> float:
    payload = b'{"kind":"cancelled","at":2.0,"why":"' + b"x" * 950 + b'"}'
    with load_psycopg().connect(address, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS bare")
        connection.execute(TABLE)
        done, began = 0, time.monotonic()
        while time.monotonic() - began < seconds:
            rows = [(one, done, 1, 2, 2.0, "cancelled", b"d" * 32, b"c" * 32, payload) for one in range(group)]
            with connection.transaction(), connection.cursor() as cursor:
                if copy:
                    with cursor.copy(f"COPY bare {COLUMNS} FROM STDIN") as sink:
                        for row in rows:
                            sink.write_row(row)
                else:
                    cursor.executemany(f"INSERT INTO bare {COLUMNS} VALUES (%s, %s, %s, %s, %s, %s, %b, %b, %b)", rows)
            done += group
        return done / (time.monotonic() - began)


async def _ours(address: str, logs: int, seconds: float) -> float:
    store = PostgresStore(address, schema=f"ours_{logs}")
    held = [await store.create(str(one), Opened(at=1.0, thread=str(one)), holder="bench") for one in range(logs)]
    done, began = 0, time.monotonic()

    async def write(log: object) -> None:
        nonlocal done
        while time.monotonic() - began < seconds:
            await log.append(EVENT)  # type: ignore[attr-defined]
            done += 1

    await asyncio.gather(*map(write, held))
    rate = done / (time.monotonic() - began)
    await store.aclose()
    return rate
