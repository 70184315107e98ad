"""Sixteen processes that write to one file: none is refused, none waits for long, and nothing is lost."""

from pathlib import Path

from bench.store_writers import run_apart

PROCESSES = 16
APPENDS = 60
LONGEST = 5.0
"""Seconds; a store waits for twice as long before it says that the file is busy. Usually it is far less."""
LEAST_SHARE = 0.25
"""Of the slowest writer's appends, when the first is through. Without taking turns it is next to nothing on a slow disk."""


def test_no_writer_is_refused_or_waits_for_long(tmp_path: Path) -> None:
    report = run_apart(PROCESSES, APPENDS, tmp_path, seconds=60)
    assert (report.refused, report.lost, report.findings) == ([], 0, [])
    assert report.appends == PROCESSES * APPENDS
    assert report.longest < LONGEST
    assert report.slowest > LEAST_SHARE
