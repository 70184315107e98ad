"""Processes that die or run out of room: what was acknowledged is there, whole and in order, and the next one goes on."""

import os
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from evener.events import Event
from evener.store import LeaseHeld, SqliteStore
from tests.store.children import child, finished, line, say
from tests.store.stores import flaws, run, said, texts

KILLS = 16
ROUNDS = 2  # each begins with a new file
LOGS = 3
PIECE = re.compile(r"(\d+\.\d+) (\d)/(\d) ")


def acknowledged(turn: int, path: Path, lines: int) -> dict[str, int]:
    """Let a child write, kill it after so many acknowledgements: the highest acknowledged number of each log."""
    told: dict[str, int] = {}
    with child("write", path, LOGS, turn) as running:
        for _ in range(lines):
            name, number = line(running).split()
            told[name] = int(number)
        running.kill()
        while rest := line(running):
            name, number = rest.split()
            told[name] = int(number)
    return told


def torn(events: list[Event]) -> list[str]:
    """Appends of which a piece is missing."""
    pieces = [match.groups() for match in map(PIECE.match, texts(events)) if match]
    sizes = {name: int(size) for name, _, size in pieces}
    counts = Counter(name for name, _, _ in pieces)
    return [name for name, size in sizes.items() if counts[name] != size]


@pytest.mark.parametrize("part", range(ROUNDS))
def test_killed_at_any_time_nothing_acknowledged_is_lost(tmp_path: Path, part: int) -> None:
    chance = random.Random(part)
    path = tmp_path / "evener.db"
    for turn in range(KILLS // ROUNDS):
        told = acknowledged(turn, path, LOGS + chance.randrange(60))

        async def look(told: dict[str, int] = told) -> None:
            store = SqliteStore(path)
            for name, number in told.items():
                events = await store.read(name)
                assert len(events) >= number
                assert torn(events) == []
            await store.aclose()

        run(look())
        assert flaws(path) == []


def test_a_torn_append_is_caught() -> None:
    assert torn([said("0.1 0/2 x"), said("0.1 1/2 x")]) == []
    assert torn([said("0.1 0/2 x"), said("0.2 0/1 x")]) == ["0.1"]


def test_a_living_holder_keeps_its_log_and_a_dead_one_loses_it_at_once(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"
    with child("hold", path, "a") as running:
        assert line(running) == "held"

        async def refused() -> None:
            store = SqliteStore(path)
            with pytest.raises(LeaseHeld, match="'child'"):
                await store.open("a", holder="me", patience=0.05)
            await store.aclose()

        async def taken() -> None:
            store = SqliteStore(path)
            log, events = await store.open("a", holder="me")
            assert (log.lease.epoch, texts(events)) == (2, ["hello"])
            await store.aclose()

        run(refused())
        say(running, "hello")
        assert line(running) == "done"
        run(refused())
        running.kill()
        os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOWAIT)
        run(taken())  # it is dead, and nobody has buried it


def test_a_process_that_lost_its_lease_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"
    with child("hold", path, "a") as running:
        assert line(running) == "held"

        async def take() -> None:
            late = SqliteStore(path, clock=lambda: 4e9)
            log, _ = await late.open("a", holder="me")
            await log.append(said("mine"))
            await late.aclose()

        run(take())
        say(running, "stale")
        assert line(running) == "lost"

    async def look() -> list[str]:
        store = SqliteStore(path)
        events = await store.read("a")
        await store.aclose()
        return texts(events)

    assert run(look()) == ["mine"]


def test_processes_that_want_one_log_take_turns(tmp_path: Path) -> None:
    path, turns, many = tmp_path / "evener.db", 8, 3

    async def make() -> None:
        store = SqliteStore(path)
        await store.create("a", said("first"), holder="me")
        await store.aclose()

    async def look() -> tuple[list[str], int]:
        store = SqliteStore(path)
        log, events = await store.open("a", holder="me")
        await store.aclose()
        return texts(events), log.lease.epoch

    run(make())
    with (
        child("share", path, "a", turns) as one,
        child("share", path, "a", turns) as two,
        child("share", path, "a", turns) as three,
    ):
        assert [running.wait(timeout=120) for running in (one, two, three)] == [0] * many
    found, epoch = run(look())
    assert epoch == 2 + turns * many
    starts = range(1, 1 + 2 * turns * many, 2)
    assert [text.split()[:2] for text in found[1:]] == [[str(start), half] for start in starts for half in "ab"]
    assert flaws(path) == []


def test_without_room_all_that_was_acknowledged_stays_and_room_is_all_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"
    full, others, read, again = finished("fill_up", path, 300_000)
    _, length, kind, retryable, *message = full.split()
    assert (kind, retryable) == ("StoreFull", "True")
    assert "Free some space" in " ".join(message)
    assert int(length) > 5
    assert others == "others StoreFull StoreFull StoreFull 1 1 1"
    assert read == f"read {length}"
    assert again == f"again {int(length) + 1}"
    assert flaws(path) == []


def test_a_process_that_ends_without_closing_writes_what_waits(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"
    assert finished("leave", path, 50) == ["leaving 50"]

    async def look() -> list[str]:
        store = SqliteStore(path)
        log, events = await store.open("a", holder="me")
        await store.aclose()
        assert log.lease.epoch == 2
        return texts(events)

    assert run(look()) == [str(number) for number in range(50)]
