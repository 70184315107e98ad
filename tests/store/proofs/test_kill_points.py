"""Killed between any two writes, or the power cut there, a run of twenty events opens and goes on to the same end.

Every prefix of the recording is tried twice: with everything that was written, as a killed process leaves it, and with the
synced part alone. Files that are the same are tried once.
"""

import asyncio
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from bench.kill_check import DOUBLE, violations
from bench.kill_life import live
from bench.kill_world import Mark as Effect
from bench.kill_world import Saga, World, marks
from evener.errors import EvenerError
from evener.events import Event
from evener.store import SqliteStore
from tests.store.proofs.adapter import recorded
from tests.store.proofs.disk import Disk, Files, Mark, Step, Sync, Write
from tests.store.proofs.scene import FILE, LATER, laid_out

WORLD = World("twenty", ((("pay", "c0-0"), ("look", "c0-1")), (("post", "c1-0"), ("book", "c1-1")), (("step", "c2-0"),)))
SAGA = Saga("twenty", WORLD)


class Run:
    """A recorded run, the events it had, and what its tools did."""

    def __init__(self, folder: Path, carelessly: str = "") -> None:
        folder.mkdir()
        side = folder / "effects"
        with recorded(carelessly=carelessly) as recorder:
            asyncio.run(live(SAGA, SqliteStore(folder / FILE), side=side, tell=recorder.mark))
        self.steps: list[Step] = recorder.steps
        self.effects = {effect.call: effect for effect in marks(side)}
        self.events = len(asyncio.run(_events(folder / FILE)))

    def prefixes(self) -> Iterator[tuple[int, Files, list[Effect]]]:
        """Moment, files and effects: each prefix, as a kill and as a power cut leaves it. What was there before comes once."""
        disk, seen = Disk(), set()
        acted: list[Effect] = []
        for number, step in enumerate(self.steps, 1):
            disk.follow(step)
            if isinstance(step, Mark) and step.text.startswith("acted "):
                acted.append(self.effects[step.text.split()[1]])
            for files in (disk.whole(), disk.synced()):
                same = _same(files, acted)
                if same not in seen:
                    seen.add(same)
                    yield number, files, list(acted)


@pytest.fixture(scope="module")
def run(memory: Path) -> Run:
    return Run(memory / "run")


async def _events(path: Path) -> list[Event]:
    store = SqliteStore(path)
    (summary,) = await store.logs()
    events = await store.read(summary.log)
    await store.aclose()
    return events


async def _gone_on(path: Path) -> list[str]:
    """Bring it to its end, and say what is wrong with that."""
    side = path.with_name("effects")
    try:
        await live(SAGA, SqliteStore(path, clock=lambda: LATER), side=side, tell=lambda _: None)
        return violations(await _events(path), marks(side), WORLD)
    except EvenerError as error:
        return [str(error)]


def _flaws(run: Run, folder: Path) -> Iterator[str]:
    """What is wrong after a kill or a power cut, at any moment."""
    folder.mkdir()
    for number, (moment, files, effects) in enumerate(run.prefixes()):
        path = laid_out(files, folder / str(number))
        path.with_name("effects").write_bytes(b"".join(_line(effect) for effect in effects))
        yield from (f"after step {moment}: {flaw}" for flaw in asyncio.run(_gone_on(path)))


def _line(effect: Effect) -> bytes:
    return msgspec.json.encode(effect) + b"\n"


def _same(files: Files, effects: list[Effect]) -> bytes:
    key = sha256(repr(effects).encode())
    for name, content in sorted(files.items()):
        key.update(f"{name} {len(content)} ".encode() + content)
    return key.digest()


def test_the_run_has_twenty_events_and_every_kind_of_step(run: Run) -> None:
    assert run.events >= 20
    assert len(run.effects) == 5
    assert sum(isinstance(step, Write) for step in run.steps) > 100
    assert sum(isinstance(step, Sync) for step in run.steps) > 20
    assert sum(1 for _ in run.prefixes()) > 150


def test_killed_at_every_write_and_sync_it_goes_on_to_the_same_end(run: Run, memory: Path) -> None:
    """S0.48, S1.24."""
    assert list(_flaws(run, memory / "flaws")) == []


def test_without_a_sync_of_each_commit_a_write_starts_twice(memory: Path) -> None:
    careless = Run(memory / "careless", "OFF")
    assert any(DOUBLE in flaw for flaw in _flaws(careless, memory / "careless flaws"))
