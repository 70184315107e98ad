"""Killed anywhere, on PostgreSQL: 100 clients, and the server three times. `bench pg-kills` has 5,000 and 200 kills."""

from pathlib import Path

import pytest

from bench.pg_kills import run_apart
from tests.store.stores import postgres

CHUNKS = 4


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_acknowledged_event_is_lost_and_no_write_starts_twice(tmp_path: Path, chunk: int) -> None:
    postgres()  # skips where there is none
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    tally = run_apart(25, int(chunk > 0), 31 + chunk, tmp_path, within=memory)
    assert tally.violations == []
    assert (tally.lost, tally.gaps, tally.twice, tally.stuck) == (0, 0, 0, 0)
    assert tally.kills >= 25
    assert tally.restarts >= (chunk > 0)
