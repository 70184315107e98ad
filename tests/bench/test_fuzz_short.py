"""The fuzzer for a few seconds, and its twins: what it must notice."""

import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

import pytest

from bench import cases, fuzz, worker
from bench.cases import Case, case_from, case_of
from bench.worker import Progress, Tally
from evener.errors import WireError
from evener.wire import CODECS
from tests.patience import at_some_pace

SEED = 7


def test_only_our_errors_come_out(tmp_path: Path) -> None:
    def attempt(pace: float) -> None:
        report = fuzz.fuzz(3.0 * pace, SEED, tmp_path)
        assert report.findings == [], fuzz.told(report)
        assert {name.split()[1] for name in report.tally.counts} == set(CODECS)
        assert {name.split()[0] for name in report.tally.counts} == set(cases.TARGETS)
        assert "inputs in" in fuzz.told(report)

    at_some_pace(attempt)


def test_a_number_always_gives_the_same_input() -> None:
    assert [case_of(SEED, number) for number in range(50)] == [case_of(SEED, number) for number in range(50)]
    assert len({case_of(SEED, number).data for number in range(50)}) > 40


def test_a_saved_input_runs_again(tmp_path: Path) -> None:
    case = case_of(SEED, 3)
    path = tmp_path / case.file_name
    path.write_bytes(case.data)
    assert case_from(path.name, case.data) == case
    assert fuzz.replay(path).findings == []
    assert fuzz.main(0.0, 0, path) == 0


def crash(_: Case, __: Random) -> None:
    raise KeyError("surprise")


def refuse(_: Case, __: Random) -> None:
    raise WireError("no")


def devour(_: Case, __: Random) -> None:
    bytearray(400 << 20)


def tallied(monkeypatch: pytest.MonkeyPatch, target: str) -> Tally:
    monkeypatch.setitem(cases.TARGETS, "stream", globals()[target])
    tally = Tally()
    for number in range(2):
        tally.run(number, Case("stream", "gemini", b"", 0))
    return tally


def test_a_foreign_error_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tally = tallied(monkeypatch, "crash")
    assert [finding.number for finding in tally.findings] == [0]
    assert "KeyError" in tally.findings[0].what
    assert tally.counts == {"stream gemini failed": 2}


def test_an_error_of_ours_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    tally = tallied(monkeypatch, "refuse")
    assert (tally.findings, tally.counts) == ([], {"stream gemini refused": 2})


def test_too_much_memory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "MemoryError" in tallied(monkeypatch, "devour").findings[0].what


def test_too_much_time_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "MOST_SECONDS", 0.0)
    assert "s of CPU" in tallied(monkeypatch, "refuse").findings[0].what


def die(_: int, __: float, progress: Progress, ___: Connection) -> None:
    progress.number += 5
    os.kill(os.getpid(), signal.SIGSEGV)


def test_a_child_that_dies_is_found_and_its_input_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fuzz, "work", die)
    monkeypatch.setattr(fuzz, "MOST_FINDINGS", 1)
    report = fuzz.fuzz(30.0, SEED, tmp_path)
    assert [(finding.number, finding.what) for finding in report.findings] == [(5, "the process died of SIGSEGV")]
    assert [path.read_bytes() for path in report.saved] == [case_of(SEED, 5).data]
    assert "--replay" in fuzz.told(report)
