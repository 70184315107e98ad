"""Forked at any event, while it runs, is killed or is stopped: no effect and no approval is used twice.

Real processes on a real SQLite file. `python -m bench forks` does it 10,000 times.
"""

from pathlib import Path
from secrets import randbelow

import pytest

from bench.fork_faults import FAULTS
from bench.forks import KINDS, MODES
from bench.forks import run_apart as run_forks
from bench.kills import run_apart as run_kills

IN_MEMORY = Path("/dev/shm")
FORKS = 650
"""About a round for each tool and mode."""
FOUND = {
    "greedy": "effects under one key",
    "generous": "which was not allowed there",
    "trusting": "effects under one key",
}


def place(tmp_path: Path) -> Path:
    return IN_MEMORY if IN_MEMORY.is_dir() else tmp_path


def test_forked_at_every_event_no_effect_and_no_approval_is_used_twice(tmp_path: Path) -> None:
    seed = randbelow(1 << 30)
    tally = run_forks(FORKS, seed, place(tmp_path))
    assert tally.violations == [], f"seed {seed}"
    assert tally.forks >= FORKS
    assert len(tally.cases) >= len(KINDS) * len(MODES) - 3
    assert min(tally.asked, tally.effects, tally.unknown, tally.settled) > 0


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str, tmp_path: Path) -> None:
    """Whatever goes wrong with one tool and mode goes wrong within its four rounds."""
    tally = run_forks(110, 1, place(tmp_path), fault=fault)
    assert any(FOUND[fault] in text for text in tally.violations), tally


def test_stopped_beyond_the_lease_a_holder_that_wakes_up_does_nothing_twice(tmp_path: Path) -> None:
    seed = randbelow(1 << 30)
    tally = run_kills(0, seed, place(tmp_path), pauses=12)
    assert tally.violations == [], f"seed {seed}"
    assert tally.pauses >= 12
