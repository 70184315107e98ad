"""Killed at any moment, a run goes on to the same end, and no `write` tool starts twice (S0.48, S1.30, S4.26).

Real processes on a real SQLite file, 60 of them killed. `python -m bench kills` does it 10,000 times.
"""

import asyncio
from collections import Counter
from pathlib import Path
from secrets import randbelow

import pytest
from msgspec.structs import replace

from bench.kill_check import DOUBLE, violations
from bench.kill_world import Mark, World
from bench.kills import Tally, run_apart
from evener import events as ev
from evener.store.sqlite.store import SqliteStore
from evener.transcript.blocks import TextBlock, ToolCall
from evener.transcript.message import Message
from evener.transcript.reply import Stop

KILLS = 60
CHUNKS = 2
PAGE = 4096
KINDS = ("acknowledged", "begun", "acted", "moved", "unknown", "checked", "repeated")
IN_MEMORY = Path("/dev/shm")
"""A killed process leaves its files as it wrote them, on a disk and in memory alike; only a power cut tells them apart."""


def place(tmp_path: Path) -> Path:
    return IN_MEMORY if IN_MEMORY.is_dir() else tmp_path


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_killed_anywhere_it_resumes_to_the_same_end(chunk: int, tmp_path: Path) -> None:
    """S0.48, S1.24, S4.26."""
    seed = randbelow(1 << 30) * CHUNKS + chunk
    tally = run_apart(KILLS // CHUNKS, seed, place(tmp_path), seconds=240)
    assert tally.violations == [], f"seed {seed}"
    assert tally.kills >= KILLS // CHUNKS
    assert (tally.lost, tally.gaps, tally.twice, tally.stuck) == (0, 0, 0, 0)
    assert tally.branches > tally.conversations
    assert tally.acknowledged > 10 * tally.conversations


def found(kills: int, fault: str, sign: str, tmp_path: Path) -> Tally:
    """The tally of a campaign that shows the fault. Which moments the kills strike is up to the machine, so there are ten."""
    tallies = (run_apart(kills, seed, place(tmp_path), fault=fault, seconds=240) for seed in range(7, 17))
    return next(tally for tally in tallies if getattr(tally, sign))


def test_without_the_started_check_a_write_starts_twice(tmp_path: Path) -> None:
    tally = found(40, "forgetful", "twice", tmp_path)
    assert any(DOUBLE in text for text in tally.violations)


def test_an_event_that_was_told_too_soon_is_found_to_be_lost(tmp_path: Path) -> None:
    assert found(20, "hasty", "lost", tmp_path).lost > 0


def test_a_conversation_that_hangs_is_found_to_be_stuck(tmp_path: Path) -> None:
    assert found(1, "hanging", "stuck", tmp_path).stuck > 0


def test_the_moments_are_of_every_kind(tmp_path: Path) -> None:
    """Between any two things that are told: after an append, in a tool before its effect, and after it.

    Which of them a kill strikes is up to the machine, so there are more kills until each was struck.
    """
    struck = Counter[str]()
    for seed in range(11, 31):
        tally = run_apart(25, seed, place(tmp_path), seconds=240)
        struck.update(tally.moments)
        struck.update(unknown=tally.unknown, checked=tally.checked, repeated=tally.repeated)
        if all(struck[kind] for kind in KINDS):
            return
    pytest.fail(f"The kills never struck each kind of moment: {struck}.")


def test_killed_in_the_midst_of_a_checkpoint_the_store_is_whole(tmp_path: Path) -> None:
    """Of the pages that move from SQLite's log into the file only the first has arrived: it names more pages than there are."""
    path, copy = tmp_path / "whole" / "store.db", tmp_path / "cut" / "store.db"
    copy.parent.mkdir()

    async def write() -> None:
        store = SqliteStore(path)
        log = await store.create("a", ev.Opened(at=1.0, thread="a"), holder="h")
        for _ in range(100):
            await log.append(ev.Cancelled(at=1.0, why="x" * 1000))
        for name in ("store.db", "store.db-wal"):
            copy.with_name(name).write_bytes(path.with_name(name).read_bytes())
        await log.aclose()
        await store.aclose()

    async def read() -> int:
        store = SqliteStore(copy)
        events = await store.read("a")
        await store.aclose()
        return len(events)

    asyncio.run(write())
    copy.write_bytes(path.read_bytes()[:PAGE] + copy.read_bytes()[PAGE:])
    assert asyncio.run(read()) == 101


# The check itself: a sound log passes, and each kind of damage is found.

WORLD = World("tiny", ((("pay", "c0-0"), ("book", "c0-1")), (("post", "c1-0"),)))
MARKS = [Mark("pay", "c0-0", "k0"), Mark("book", "c0-1", "k1"), Mark("post", "c1-0", "k2")]


def started(name: str, call: str, key: str) -> ev.CallStarted:
    return ev.CallStarted(at=1.0, call=call, tool=name, key=key)


def finished(name: str, call: str) -> ev.CallFinished:
    return ev.CallFinished(at=1.0, call=call, ok=True, content=(TextBlock(f"{name} {call}"),))


def replied(*blocks: TextBlock | ToolCall) -> ev.Replied:
    return ev.Replied(at=1.0, message=Message("assistant", blocks), stop=Stop("tools"))


def sound() -> list[ev.Event]:
    return [
        ev.Opened(at=1.0, thread="t"),
        ev.Prompted(at=1.0, run="r", message=Message.user_text(WORLD.prompt)),
        ev.ModelCalled(at=1.0, model="m"),
        replied(TextBlock("turn 0"), ToolCall.of("c0-0", "pay", {}), ToolCall.of("c0-1", "book", {})),
        started("pay", "c0-0", "k0"),
        started("book", "c0-1", "k1"),
        finished("book", "c0-1"),
        finished("pay", "c0-0"),
        ev.ModelCalled(at=1.0, model="m", id="m1"),
        replied(TextBlock("turn 1"), ToolCall.of("c1-0", "post", {})),
        started("post", "c1-0", "k2"),
        finished("post", "c1-0"),
        ev.ModelCalled(at=1.0, model="m", id="m2"),
        replied(TextBlock(WORLD.ending)),
        ev.Finished(at=1.0, run="r", cause="done"),
    ]


def test_a_sound_log_passes() -> None:
    assert violations(sound(), MARKS, WORLD) == []


@pytest.mark.parametrize(
    ("said", "at", "put"),
    [
        ("has 2 results", 7, [finished("pay", "c0-0"), finished("pay", "c0-0")]),
        (DOUBLE, 4, [started("pay", "c0-0", "k0"), started("pay", "c0-0", "k0")]),
        ("had two keys", 5, [started("book", "c0-1", "k1"), started("book", "c0-1", "other")]),
        ("unknown are ['c0-0']", 7, [replace(finished("pay", "c0-0"), outcome="unknown")]),
        ("in flight were ['c0-0']", 6, [ev.Resumed(at=1.0, epoch=1), started("book", "c0-1", "k1"), finished("book", "c0-1")]),
        ("the conversation is", 6, [replace(finished("book", "c0-1"), content=(TextBlock("another"),))]),
        ("the run ended as", 14, []),
    ],
)
def test_a_damaged_log_is_found(said: str, at: int, put: list[ev.Event]) -> None:
    events = sound()
    events[at : at + 1] = put
    assert any(said in text for text in violations(events, MARKS, WORLD))


@pytest.mark.parametrize("tool", ["pay", "post"])
def test_an_effect_that_happened_twice_or_never_is_found(tool: str) -> None:
    mark = next(mark for mark in MARKS if mark.tool == tool)
    for effects in ([*MARKS, mark], [other for other in MARKS if other is not mark]):
        assert any("took effect" in text for text in violations(sound(), effects, WORLD))


def test_worlds_differ_and_the_same_number_gives_the_same_one() -> None:
    assert World.of(5) == World.of(5)
    tools = Counter(name for seed in range(50) for turn in World.of(seed).turns for name, _ in turn)
    assert len(tools) == 8
