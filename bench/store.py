"""What keeping an event costs: one durable append beside a bare commit, many at once, and in memory. Wall time, medians.

The bare commit writes the same row into the same tables with the same settings, on the thread that asks: no check, no hash.
"""

import asyncio
import sqlite3
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from bench import store_first_turn, store_threads, store_writers
from bench.clock import cheapest
from bench.table import Figure
from evener.events import Cancelled, Opened, encode_event
from evener.store import MemoryStore, SqliteStore, Store
from evener.store.sqlite.file import connect

__all__ = ["figures"]

FIRST = Opened(at=1.0, thread="bench")
EVENT = Cancelled(at=1_700_000_000.25, why="x" * 950)
PAYLOAD = encode_event(EVENT)
SMALL = Cancelled(at=1_700_000_000.25, why="x" * 150)
LOGS = 100
LEAST_RATE = 5_000
IDLE = 1.2
WRITERS = 16
LONGEST_WAIT = 2.0
"""Seconds that an append may wait for other processes: a fifth of what a store waits before it says that the file is busy."""
INSERT = "INSERT INTO events (log, seq, version, at, kind, digest, chain, payload) VALUES (1, ?, 1, 1.0, 'cancelled', ?, ?, ?)"


def figures(appends: int, passes: int) -> list[Figure]:
    """One append, many at once, one in memory, and the bytes of an idle log."""
    with TemporaryDirectory() as folder:
        ours, bare = asyncio.run(_one(Path(folder), appends))
        each = min(
            asyncio.run(_many(Path(folder) / f"many{number}", max(2, appends // 20))) for number in range(min(passes, 3))
        )
    kept, size = _idle(max(2, appends // 10))
    append, encode = _in_memory(passes)
    many = f"{1 / each:,.0f} events a second; the bar is {LEAST_RATE:,}"
    return [
        Figure("store: one durable append of 1 kB", ours * 1e6, bare * 1e6, most=2.0, note="beside a bare commit of the row"),
        Figure(f"store: an append of 1 kB, {LOGS} logs at once", each * 1e6, 1e6 / LEAST_RATE, most=1.0, note=many),
        Figure("store: an append in memory", append * 1e6, encode * 1e6, note="beside encoding the event; CPU"),
        Figure("store: an event of an idle log in memory", kept, size, "B", most=IDLE, note="beside its bytes"),
        *store_threads.figures(appends * 20, passes),
        *store_first_turn.figures(appends * 200, min(passes, 5)),
        _waits(appends),
    ]


def _waits(appends: int) -> Figure:
    """The longest wait of many processes that write to one file. One that was refused or lost an event has no figure."""
    name = f"store: the longest wait of {WRITERS} processes"
    with TemporaryDirectory() as folder:
        report = store_writers.run_apart(WRITERS, max(10, appends // 2), Path(folder))
    if report.refused or report.lost or report.findings:
        return Figure(name, most=1.0, note=f"{len(report.refused)} refused, {report.lost} lost, {report.findings[:3]}")
    note = f"99 of 100 within {report.most_of_all * 1e3:,.0f} ms; the slowest had {report.slowest:.0%} when the first was done"
    return Figure(name, report.longest * 1e3, LONGEST_WAIT * 1e3, "ms", most=1.0, note=note)


async def _one(folder: Path, appends: int) -> tuple[float, float]:
    """Seconds of one append and of one bare commit, taken in turns."""
    store = SqliteStore(folder / "ours.db")
    log = await store.create("log", FIRST, holder="bench")
    other = SqliteStore(folder / "bare.db")
    await (await other.create("log", FIRST, holder="bench")).aclose()
    await other.aclose()
    connection = connect(folder / "bare.db", 10.0)
    ours, bare = [], []
    for number in range(appends):
        ours.append(await _timed(lambda: log.append(EVENT)))
        start = perf_counter()
        _commit(connection, number + 2)
        bare.append(perf_counter() - start)
    connection.close()
    await store.aclose()
    return median(ours), median(bare)


def _commit(connection: sqlite3.Connection, seq: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(INSERT, (seq, bytes(32), bytes(32), PAYLOAD))
    connection.execute("COMMIT")


async def _timed(action: Callable[[], Awaitable[object]]) -> float:
    start = perf_counter()
    await action()
    return perf_counter() - start


async def _many(path: Path, rounds: int) -> float:
    """Seconds an event, when many logs append at once and each waits for its own."""
    store = SqliteStore(path)
    logs = [await store.create(str(number), FIRST, holder="bench") for number in range(LOGS)]

    async def fill(number: int) -> None:
        for _ in range(rounds):
            await logs[number].append(EVENT)

    start = perf_counter()
    await asyncio.gather(*(fill(number) for number in range(LOGS)))
    taken = perf_counter() - start
    await store.aclose()
    return taken / (LOGS * rounds)


def _in_memory(passes: int) -> tuple[float, float]:
    """CPU seconds of an append and of encoding the event alone."""

    async def fill() -> None:
        store: Store = MemoryStore()
        log = await store.create("log", FIRST, holder="bench")
        for _ in range(1000):
            await log.append(EVENT)

    def encode() -> None:
        for _ in range(1000):
            encode_event(EVENT)

    append, alone = cheapest([lambda: asyncio.run(fill()), encode], passes)
    return append / 1000, alone / 1000


def _idle(logs: int) -> tuple[float, float]:
    """Bytes held for each event of closed logs, and the size of its encoding."""

    async def fill(store: MemoryStore, name: str) -> None:
        log = await store.create(name, FIRST, holder="bench")
        for _ in range(99):
            await log.append(SMALL)
        await log.aclose()

    async def measure() -> int:
        store = MemoryStore()
        await fill(store, "warm")
        tracemalloc.start()
        for number in range(logs):
            await fill(store, str(number))
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return held

    size = 99 * len(encode_event(SMALL)) + len(encode_event(FIRST))
    return asyncio.run(measure()) / (100 * logs), size / 100
