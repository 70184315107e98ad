"""Sixteen processes that write to one file: none is refused, and nothing is lost."""

from pathlib import Path

from bench.store_writers import run_apart

PROCESSES = 16
APPENDS = 60
LEAST_SHARE = 0.1
"""Of the slowest writer's appends, when the first is through: 0.23 and more with other work beside it, and next to nothing
without taking turns on a slow disk."""


def test_no_writer_is_refused(tmp_path: Path) -> None:
    report = run_apart(PROCESSES, APPENDS, tmp_path, seconds=240)
    assert (report.refused, report.lost, report.findings) == ([], 0, [])
    assert report.appends == PROCESSES * APPENDS
    assert report.slowest > LEAST_SHARE
