"""`python -m bench pg-store`: durable events of 1 kB a second on PostgreSQL, beside bare COPY and INSERT as durable.

A real server on this machine's disk, `fsync` and `synchronous_commit` on. Ours is the whole store: JSON, search for secrets,
digests, chain, lease, event loop. The bare ones write the same columns and bytes under the same key over one connection, as we
do, and do nothing else. "As durable" means as many rows a commit, one commit at a time: each round first measures how many rows
our commits had, by the transactions that PostgreSQL has for them, and the bare ones write as many in each of theirs.
"""

import asyncio
import os
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import msgspec

from evener.events import Cancelled, Opened, encode_event
from evener.store.postgres import PostgresStore
from evener.store.postgres.connection import load_psycopg
from evener.store.protocol import Log
from evener.testing.postgres import PostgresServer

__all__ = ["main"]

EVENT = Cancelled(at=2.0, why="x" * 950)
LEAST_RATIO = 0.5
ROUNDS = 5
A_STEP = 4
"""Events that a step of a run writes at once, about: an answer, its calls, their results, the next request."""
WANTED = 20_000
TABLE = (
    "CREATE TABLE bare (id bigint GENERATED ALWAYS AS IDENTITY, log bigint, seq bigint, version int, rule int,"
    " at double precision, kind text, digest bytea, chain bytea, payload bytea, PRIMARY KEY (log, seq))"
)
COLUMNS = "(log, seq, version, rule, at, kind, digest, chain, payload)"


class Turn(msgspec.Struct):
    """What one of the three did in its time: events, seconds, and CPU seconds of this process and of the server's."""

    events: int = 0
    seconds: float = 0.0
    client: float = 0.0
    server: float = 0.0

    @property
    def rate(self) -> float:
        return self.events / self.seconds

    @property
    def cost(self) -> float:
        """CPU seconds of an event."""
        return (self.client + self.server) / self.events


Round = tuple[Turn, Turn, Turn]


def main(logs: int, seconds: float) -> int:
    """Print the rates; 1 when ours is neither fast enough by itself nor at least half of the quicker bare one.

    The three take turns, so that whatever else the machine does disturbs them alike; the ratio is the median of the rounds.
    """
    ratios: list[tuple[float, float]] = []
    print(
        "A commit is on the disk (fsync, synchronous_commit on) before the next begins; the bare ones write as many rows in it."
    )
    with PostgresServer() as server:
        for many, events in ((1, 1), (logs, 1), (logs, A_STEP)):
            found, group = asyncio.run(_take_turns(server, many, events, seconds / ROUNDS / 3))
            rate = median(ours.rate for ours, _, _ in found)
            ratios.append((rate, _ratio(found)))
            print(f"{many} logs at once, {events} events an append, {group:,.0f} rows a commit; ratio {_ratio(found):.2f}:")
            for place, name in enumerate(("ours", "COPY", "INSERT")):
                print(f"  {name:6} {_described([one[place] for one in found])}")
            print(f"  CPU of the quicker bare one, to ours: {median(_thrift(one) for one in found):.2f}")
    best, ratio = max(one for one, _ in ratios), max(one for _, one in ratios[1:])
    print(f"best ratio {ratio:.2f} (at least {LEAST_RATIO}), or {WANTED:,} events/s; {ROUNDS} rounds, medians")
    return 0 if best >= WANTED or ratio >= LEAST_RATIO else 1


def _ratio(rounds: list[Round]) -> float:
    return median(ours.rate / max(copied.rate, inserted.rate) for ours, copied, inserted in rounds)


def _thrift(one: Round) -> float:
    ours, copied, inserted = one
    return (copied if copied.rate > inserted.rate else inserted).cost / ours.cost


def _described(turns: list[Turn]) -> str:
    rate = median(turn.rate for turn in turns)
    client, server = (
        1e6 * median(each) for each in zip(*((t.client / t.events, t.server / t.events) for t in turns), strict=True)
    )
    return f"{rate:7,.0f} events/s, {1e6 / rate:6,.0f} us each; CPU of the client {client:.0f} us, of the server {server:.0f}"


async def _take_turns(server: PostgresServer, logs: int, events: int, seconds: float) -> tuple[list[Round], float]:
    """Return what each had in each round: ours, bare COPY, bare INSERT; and the rows of our commits, on average."""
    schema = f"ours_{logs}_{events}"
    store = PostgresStore(server.address, schema=schema)
    held = [await store.create(str(one), Opened(at=1.0, thread=str(one)), holder="bench") for one in range(logs)]
    rounds, commits, rows = [], _commits(server, schema), 0
    for _ in range(ROUNDS):
        ours = await _ours(server, held, events, seconds)
        rows += ours.events
        group = max(1, round(rows / (_commits(server, schema) - commits)))
        copied = await asyncio.to_thread(_bare, server, group, seconds, copy=True)
        rounds.append((ours, copied, await asyncio.to_thread(_bare, server, group, seconds, copy=False)))
    await store.aclose()
    return rounds, rows / (_commits(server, schema) - commits)


def _commits(server: PostgresServer, schema: str) -> int:
    """Return the number of transactions that added events."""
    with load_psycopg().connect(server.address) as connection:
        return int(connection.execute(f"SELECT count(DISTINCT xmin::text) FROM {schema}.events".encode()).fetchone()[0])


@contextmanager
def _measured(server: PostgresServer, turn: Turn) -> Iterator[None]:
    began, own, theirs = time.monotonic(), _own_cpu(), _server_cpu(server.pid)
    yield
    turn.seconds, turn.client, turn.server = time.monotonic() - began, _own_cpu() - own, _server_cpu(server.pid) - theirs


def _own_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _server_cpu(pid: int) -> float:
    """Return the CPU seconds of a process, of its children, and of those that have ended."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if path.parent.name == str(pid):
            ticks += sum(map(int, fields[11:15]))
        elif fields[1] == str(pid):
            ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _bare(server: PostgresServer, group: int, seconds: float, *, copy: bool) -> Turn:
    turn, payload = Turn(), encode_event(EVENT)
    with load_psycopg().connect(server.address, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS bare")
        connection.execute(TABLE)
        with _measured(server, turn):
            end = time.monotonic() + seconds
            while not turn.events or time.monotonic() < end:
                rows = [(one, turn.events, 1, 2, 2.0, "cancelled", b"d" * 32, b"c" * 32, payload) for one in range(group)]
                with connection.transaction(), connection.cursor() as cursor:
                    if copy:
                        with cursor.copy(f"COPY bare {COLUMNS} FROM STDIN") as sink:
                            for row in rows:
                                sink.write_row(row)
                    else:
                        cursor.executemany(f"INSERT INTO bare {COLUMNS} VALUES (%s, %s, %s, %s, %s, %s, %b, %b, %b)", rows)
                turn.events += group
    return turn


async def _ours(server: PostgresServer, held: Sequence[Log], events: int, seconds: float) -> Turn:
    turn, appended, end = Turn(), [EVENT] * events, time.monotonic() + seconds

    async def write(log: Log) -> None:
        while True:
            await log.append(*appended)
            turn.events += events
            if time.monotonic() > end:
                return

    with _measured(server, turn):
        await asyncio.gather(*map(write, held))
    return turn
