"""The first turn of a long thread in a new process reads a small part of it and holds less: counted, in a real process."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pytest

from evener import Harness
from evener.events import CallStarted
from evener.store import SqliteStore
from evener.testing import ScriptedModel
from tests.patience import PATIENCE
from tests.store.longthreads import KINDS, fill, happenings
from tests.store.stores import run

EVENTS = 10_000


class Turn(NamedTuple):
    moved: int
    rise: int
    messages: int
    text: str


def first_turn(path: Path, thread: str) -> Turn:
    """What one turn of another process says of itself."""
    command = [sys.executable, "-m", "tests.store.longthreads", str(path), thread]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    moved, rise, messages, text = done.stdout.split()
    return Turn(int(moved), int(rise), int(messages), text)


async def built(path: Path, kind: str, events: int = EVENTS) -> int:
    store = SqliteStore(path)
    await fill(store, "t", events, kind)
    await store.aclose()
    return path.stat().st_size


@pytest.mark.parametrize("kind", KINDS)
def test_it_reads_a_small_part_of_the_thread(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "evener.db"
    run(built(tmp_path / "short.db", kind, 20))
    short = first_turn(tmp_path / "short.db", "t")  # what any first turn reads: our own files
    most = short.moved + run(built(path, kind)) / 3  # a seventh; twice that if the kept fold is an old one, and is renewed
    turn = first_turn(path, "t")
    assert turn.text == "Good."
    assert turn.moved < most
    again = first_turn(path, "t")
    assert again.messages == turn.messages + 2
    assert again.moved < most


def test_so_does_a_fork_from_its_middle_also_within_a_call(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"
    told = islice(happenings(*KINDS["large outputs"]), EVENTS // 2)
    within = max(number for number, event in enumerate(told, 2) if isinstance(event, CallStarted))

    async def fork(at: int) -> str:
        store = SqliteStore(path)
        made = await Harness(ScriptedModel([]), store=store).thread("t").fork(at=at)
        await store.aclose()
        return made.id

    size = run(built(path, "large outputs"))
    for at in (within, within + 1):
        turn = first_turn(path, run(fork(at)))
        assert turn.text == "Good."
        assert turn.moved < size / 4


def test_a_store_that_was_never_folded_is_folded_in_little_memory_and_only_once(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"
    size = run(built(path, "large outputs"))
    forget_folds(path)
    turn = first_turn(path, "t")
    assert (turn.text, turn.rise < size / 2) == ("Good.", True), turn
    assert first_turn(path, "t").moved < size / 4


def forget_folds(path: Path) -> None:
    """Make it a store of an older Evener."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP TABLE IF EXISTS folds")
