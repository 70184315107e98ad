"""What a long thread costs: opening it beside reading, hashing and parsing its rows, and forking it beside forking a short one.

The floor of opening knows the tables and nothing else: one query, a digest of each payload, a link, one parse. CPU time of
both; the fork is a durable write, so wall time, medians, taken in turns.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

from bench.table import Figure
from evener.events import CallFinished, CallStarted, Event, Opened, decode_event
from evener.store import SqliteStore
from evener.transcript.blocks import TextBlock

__all__ = ["figures"]

LOG = "long"
SHORT = "short"
BATCH = 500
TEXT = "The file has 120 lines, and the test that failed is on line 37. " * 6
ROWS = "SELECT digest, payload FROM events WHERE log = (SELECT number FROM logs WHERE log = ?) ORDER BY seq"


def figures(events: int, passes: int) -> list[Figure]:
    """Opening a thread of so many events, and forking it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "evener.db"
        asyncio.run(_fill(path, events))
        opening = asyncio.run(_opening(path, passes))
        floor = min(_cpu(lambda: _floor(path)) for _ in range(passes))
        ours, other = asyncio.run(_forks(path, max(20, passes * 4)))
    return [
        Figure(
            f"store: opening a thread of {events:,} events", opening * 1e3, floor * 1e3, "ms", most=2.0, note="beside its rows"
        ),
        Figure(f"store: forking a thread of {events:,} events", ours * 1e6, other * 1e6, most=2.0, note="beside one of 10"),
    ]


async def _fill(path: Path, events: int) -> None:
    store = SqliteStore(path)
    for name, many in ((LOG, events), (SHORT, 10)):
        log = await store.create(name, Opened(at=1.0, thread=name), holder="bench")
        for start in range(1, many, BATCH):
            await log.append(*(_event(number) for number in range(start, min(start + BATCH, many))))
        await log.aclose()
    await store.aclose()


def _event(number: int) -> Event:
    at, call = 1_700_000_000.25 + number, f"call_{number // 2}"
    if number % 2:
        return CallStarted(at=at, call=call, tool="read_file", key=f"{number:032x}", digest=f"{number:064x}")
    return CallFinished(at=at, call=call, ok=True, content=(TextBlock(TEXT),), seconds=0.25)


async def _opening(path: Path, passes: int) -> float:
    """The least CPU seconds until the events are there, from a store that is in use."""
    store = SqliteStore(path)
    await store.read(SHORT)
    best = float("inf")
    for _ in range(passes):
        start = process_time()
        log, _ = await store.open(LOG, holder="bench")
        best = min(best, process_time() - start)
        await log.aclose()
    await store.aclose()
    return best


def _floor(path: Path) -> list[Event]:
    events, chain = [], b""
    with closing(sqlite3.connect(path)) as connection:
        for digest, payload in connection.execute(ROWS, (LOG,)):
            if sha256(payload).digest() != digest:
                raise ValueError("the file is damaged")
            chain = sha256(chain + digest).digest()
            events.append(decode_event(payload))
    return events


def _cpu(act: Callable[[], object]) -> float:
    start = process_time()
    act()
    return process_time() - start


async def _forks(path: Path, many: int) -> tuple[float, float]:
    """Median seconds of a fork at the end of the long thread, and of the short one."""
    store = SqliteStore(path)
    taken: dict[str, list[float]] = {LOG: [], SHORT: []}
    for number in range(many):
        for name, times in taken.items():
            start = perf_counter()
            link = await store.link(name)
            first = Opened(at=1.0, thread=name, parent=link.log, parent_seq=link.seq, parent_hash=link.hash)
            log = await store.create(f"{name} fork {number}", first, holder="bench")
            times.append(perf_counter() - start)
            await log.aclose()
    await store.aclose()
    return median(taken[LOG]), median(taken[SHORT])
