"""The first turn of a long thread in a new process, beside reading its rows with nothing but SQLite; and a search in it.

The turn is one run of a harness with a scripted model: the log is opened, folded, and four events are appended. CPU time, and
the most memory that the process ever held, its interpreter and modules included. What is searched for is said once.
"""

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import count, islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time

import msgspec

from bench.memory import most_resident
from bench.table import Figure
from evener import Harness
from evener import events as ev
from evener.store import SqliteStore
from evener.testing import ScriptedModel
from evener.transcript.blocks import TextBlock, ToolCall
from evener.transcript.message import Message
from evener.transcript.reply import Stop

__all__ = ["figures"]

BATCH = 500
RARE = "needle"
MOST_SECONDS = 1.0
MOST_BYTES = 200e6
ROWS = "SELECT seq, digest, chain, payload FROM events ORDER BY log, seq"
LINE = "The file has 120 lines, and the test that failed is on line 37. "


class Cost(msgspec.Struct, frozen=True):
    """What a process says of its turn: CPU seconds, and bytes at most."""

    seconds: float
    held: float


def figures(events: int, passes: int) -> list[Figure]:
    """The first turn of a thread of so many events: as it is kept, and in a store that no fold was ever kept in; a search."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "evener.db"
        asyncio.run(_fill(path, events))
        floor = min(_cpu_of_rows(path) for _ in range(passes))
        turns = [_turn(path) for _ in range(max(3, passes))]
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("DROP TABLE IF EXISTS folds")
        unfolded = _turn(path)
        found, looked = asyncio.run(_searched(path))
    cost = Cost(median(one.seconds for one in turns), max(one.held for one in turns))
    thread = f"of a thread of {events:,} events"
    rows = "beside reading its rows"
    return [
        Figure(f"store: the first turn {thread}", cost.seconds * 1e3, floor * 1e3, "ms", most=1.0, note=rows),
        Figure("store: the same, beside one second", cost.seconds * 1e3, MOST_SECONDS * 1e3, "ms", most=1.0),
        Figure("store: the memory of that turn", cost.held / 1e6, MOST_BYTES / 1e6, "MB", most=1.0, note="of the process"),
        Figure("store: the first turn without a kept fold", unfolded.seconds * 1e3, floor * 1e3, "ms", note="once for a store"),
        Figure("store: its memory", unfolded.held / 1e6, MOST_BYTES / 1e6, "MB", most=1.0),
        Figure(f"store: a search {thread}", found * 1e3, looked * 1e3, "ms", most=1.0, note="indexed, beside looking at all"),
    ]  # fmt: skip


def _happenings() -> Iterator[ev.Event]:
    """Runs of two calls each, without end."""
    at = map(float, count(1_700_000_000))
    yield ev.Configured(at=next(at), model="scripted:model")
    for run in count():
        yield ev.Prompted(at=next(at), run=f"r{run}", message=Message.user_text(f"Question {run}: what is on that line?"))
        for number in (2 * run, 2 * run + 1):
            yield ev.ModelCalled(at=next(at), model="scripted:model", id=f"m{number}")
            call = ToolCall(f"c{number}", "read_file", f'{{"number":{number}}}')
            yield ev.Replied(at=next(at), message=Message.assistant_tool_call(call), stop=Stop("tools"))
            yield ev.CallStarted(at=next(at), call=call.id, tool="read_file", key=f"{number:032x}")
            output = LINE * 4 + (RARE if number == 1 else "")
            yield ev.CallFinished(at=next(at), call=call.id, ok=True, content=(TextBlock(output),))
        yield ev.ModelCalled(at=next(at), model="scripted:model", id=f"l{run}")
        yield ev.Replied(at=next(at), message=Message.assistant_text(f"Answer {run}: a test."), stop=Stop("done"))
        yield ev.Finished(at=next(at), run=f"r{run}", cause="done")


async def _fill(path: Path, events: int) -> None:
    store = SqliteStore(path)
    log = await store.create("t", ev.Opened(at=1_700_000_000.0, thread="t"), holder="bench")
    told = islice(_happenings(), events - 1)
    while batch := list(islice(told, BATCH)):
        await log.append(*batch)
    await log.aclose()
    await store.aclose()


def _cpu_of_rows(path: Path) -> float:
    """CPU seconds of reading every row, and nothing else."""
    start = process_time()
    with closing(sqlite3.connect(path)) as connection:
        for _ in connection.execute(ROWS):
            pass
    return process_time() - start


def _turn(path: Path) -> Cost:
    done = subprocess.run([sys.executable, "-m", __name__, str(path)], capture_output=True, check=True)
    return msgspec.json.decode(done.stdout, type=Cost)


async def _take_turn(path: Path) -> Cost:
    store = SqliteStore(path)
    harness = Harness(ScriptedModel(["Good."]), store=store)
    start = process_time()
    result = await harness.thread("t").run("How is it?")
    seconds = process_time() - start
    assert result.text == "Good."
    await store.aclose()
    return Cost(seconds, float(most_resident()))


async def _searched(path: Path) -> tuple[float, float]:
    """CPU seconds of a search with the index, and of one that looks at everything."""
    store = SqliteStore(path)
    await store.index()
    found = await _cpu_of_search(store)
    await store.aclose()
    path.with_name(path.name + ".search").unlink()
    bare = SqliteStore(path)
    looked = await _cpu_of_search(bare, grows=False)
    await bare.aclose()
    return found, looked


async def _cpu_of_search(store: SqliteStore, *, grows: bool = True) -> float:
    if not grows:
        store._indexes = None
    start = process_time()
    [hit] = await store.search(RARE)
    assert hit.seq
    return process_time() - start


if __name__ == "__main__":
    print(msgspec.json.encode(asyncio.run(_take_turn(Path(sys.argv[1])))).decode())
