"""Power cuts at any moment: a recording of every write and sync is played back with legal losses of what was not synced.

What was acknowledged is there, no append is there by half, the chains hold, and the store goes on. The recorder sees apsw's
SQLite, which is not the one of the module `sqlite3` but has the same settings; what it leaves is read with the latter.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.store.proofs.adapter import recorded
from tests.store.proofs.disk import Disk, Files, Mark, Step, Sync, files_after
from tests.store.proofs.scene import Scene, flaws_of, laid_out, lived, told_in

CUTS = 250


@pytest.fixture(scope="module")
def life(memory: Path) -> tuple[Scene, list[Step]]:
    return recorded_life(memory / "life")


def recorded_life(folder: Path, carelessly: str = "") -> tuple[Scene, list[Step]]:
    folder.mkdir()
    with recorded(carelessly=carelessly) as recorder:
        scene = lived(folder, recorder)
    return scene, recorder.steps


def cuts(steps: list[Step], many: int, seed: int) -> Iterator[tuple[int, Files]]:
    """Moments of power cuts, and what is found after each."""
    chance = Random(seed)
    moments = Counter(chance.randrange(len(steps)) for _ in range(many))
    disk = Disk()
    for number, step in enumerate(steps):
        disk.follow(step)
        for _ in range(moments[number]):
            yield number + 1, disk.chosen(chance)


def broken(scene: Scene, steps: list[Step], *, folder: Path, many: int, seed: int) -> list[str]:
    """The promises that some power cut breaks."""
    found = []
    folder.mkdir()
    for number, (moment, files) in enumerate(cuts(steps, many, seed)):
        flaws = asyncio.run(flaws_of(laid_out(files, folder / str(number)), scene, told_in(steps[:moment])))
        found += [f"after step {moment} of {len(steps)}, seed {seed}: {flaw}" for flaw in flaws]
    return found


def test_the_recording_is_what_was_done(life: tuple[Scene, list[Step]], memory: Path) -> None:
    _, steps = life
    there = {path.name: path.read_bytes() for path in (memory / "life").iterdir()}
    for name, content in files_after(steps).items():
        assert there[name] == content
    assert sum(isinstance(step, Mark) for step in steps) > 40
    assert sum(isinstance(step, Sync) for step in steps) > 40


def test_whatever_a_power_cut_takes_nothing_acknowledged_is_lost(life: tuple[Scene, list[Step]], memory: Path) -> None:
    scene, steps = life
    assert broken(scene, steps, folder=memory / "cuts", many=CUTS, seed=1) == []


@pytest.mark.parametrize("carelessly", ["OFF", "NORMAL"])
def test_without_a_sync_of_each_commit_losses_are_found(memory: Path, carelessly: str) -> None:
    scene, steps = recorded_life(memory / carelessly, carelessly)
    found = broken(scene, steps, folder=memory / f"cuts {carelessly}", many=60, seed=2)
    assert any("lost" in flaw for flaw in found)
