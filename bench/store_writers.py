"""Many processes that write to one store at once: how long an append waits for the others, and that nothing is lost.

`python -m bench.store_writers <processes> <appends> <folder>` prints a report as JSON. Forks: it runs in a process of its own.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import msgspec

from evener.errors import EvenerError
from evener.events import Cancelled, Opened
from evener.store import Note, SqliteStore

__all__ = ["Report", "run_apart", "writers"]

ROOT = Path(__file__).resolve().parents[1]
FILE = "evener.db"
SHARED = "shared"
EVENT = "x" * 950
NOTES = 10
"""Every tenth append is followed by a note to a log of all."""


class Told(msgspec.Struct, frozen=True):
    """What one writer has to say: the seconds that each of its appends took, when each was done, and what was refused."""

    log: str
    waits: list[float]
    done: list[float]
    notes: int
    refused: list[str]


class Report(msgspec.Struct, frozen=True):
    """What it came to. Waits are in seconds."""

    processes: int
    appends: int
    seconds: float
    usual: float
    most_of_all: float  # 99 of 100 were quicker
    longest: float
    slowest: float  # the share of its appends that the slowest writer had done when the first was through
    lost: int
    refused: list[str]
    findings: list[str]


def writers(processes: int, appends: int, folder: Path) -> Report:
    """Let so many processes append so often each."""
    path = folder / FILE
    asyncio.run(_prepare(path))
    started = perf_counter()
    gate_out, gate_in = os.pipe()
    children = [_start(path, number, appends, (gate_out, gate_in)) for number in range(processes)]
    os.close(gate_out)
    os.close(gate_in)  # the gate is open
    told = [_heard(child, pipe) for child, pipe in children]
    seconds = perf_counter() - started
    lost, findings = asyncio.run(_look(path, told))
    waits = sorted(wait for one in told for wait in one.waits)
    return Report(
        processes=processes,
        appends=len(waits),
        seconds=seconds,
        usual=waits[len(waits) // 2],
        most_of_all=waits[len(waits) * 99 // 100],
        longest=waits[-1],
        slowest=_slowest(told),
        lost=lost,
        refused=[text for one in told for text in one.refused],
        findings=findings,
    )


def _slowest(told: Sequence[Told]) -> float:
    first = min(one.done[-1] for one in told)
    return min(sum(time <= first for time in one.done) / len(one.done) for one in told)


def run_apart(processes: int, appends: int, folder: Path, *, seconds: float = 300.0) -> Report:
    """The same in a process of its own, with its files in a new folder below this one."""
    command = [sys.executable, "-W", "error", "-m", "bench.store_writers", str(processes), str(appends), str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=seconds)
    if done.returncode:
        raise RuntimeError(f"The writers failed: {done.stderr.decode()[-2000:]}")
    return msgspec.json.decode(done.stdout, type=Report)


async def _prepare(path: Path) -> None:
    store = SqliteStore(path)
    await store.create(SHARED, Opened(at=1.0, thread=SHARED), holder="all")
    await store.aclose()


def _start(path: Path, number: int, appends: int, gate: tuple[int, int]) -> tuple[int, int]:
    """A writer that waits at the gate; it and where it will tell."""
    inlet, outlet = os.pipe()
    child = os.fork()
    if child:
        os.close(outlet)
        return child, inlet
    code = 1
    try:
        os.close(inlet)
        os.close(gate[1])
        os.read(gate[0], 1)
        told = asyncio.run(_write(path, f"log{number}", appends))
        with os.fdopen(outlet, "wb") as pipe:
            pipe.write(msgspec.json.encode(told))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _heard(child: int, pipe: int) -> Told:
    with os.fdopen(pipe, "rb") as file:
        said = file.read()
    os.waitpid(child, 0)
    return msgspec.json.decode(said, type=Told)


async def _write(path: Path, name: str, appends: int) -> Told:
    store = SqliteStore(path)
    waits: list[float] = []
    done: list[float] = []
    refused: list[str] = []
    notes = 0
    log = await store.create(name, Opened(at=1.0, thread=name), holder=name)
    for number in range(appends):
        start = perf_counter()
        try:
            await log.append(Cancelled(at=2.0, why=f"{number} {EVENT}"))
            done.append(perf_counter())
            waits.append(done[-1] - start)
            if number % NOTES == 0:
                notes += await store.post(SHARED, Note(f"{name} {number}", "steer"))
        except EvenerError as error:
            refused.append(f"{name}: {error}")
    await log.aclose()
    await store.aclose()
    return Told(name, waits, done, notes, refused)


async def _look(path: Path, told: Sequence[Told]) -> tuple[int, list[str]]:
    """How much of what was acknowledged is missing, and what a check of the whole store finds."""
    store = SqliteStore(path)
    lost = 0
    for one in told:
        events = await store.read(one.log)
        lost += 1 + len(one.waits) - len(events)
    shared, _ = await store.open(SHARED, holder="look", patience=1.0)
    lost += sum(one.notes for one in told) - len(await shared.notes())
    findings = [f"{finding.log} {finding.seq}: {finding.what}" for finding in await store.verify()]
    await store.aclose()
    return lost, findings


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="evener-writers-", dir=sys.argv[3]) as place:
        sys.stdout.write(msgspec.json.encode(writers(int(sys.argv[1]), int(sys.argv[2]), Path(place))).decode())
