"""Counting instructions: the runs are real, who counts them is a script."""

import asyncio
import json
from pathlib import Path

import pytest

from bench import __main__ as command
from bench import instruction_driver, instructions
from evener.observe import recorder

COUNTS = """#!/bin/sh
shift 2
"$@" || exit 3
for runs; do :; done
echo "==1== Collected : $((1000000 + runs * 2100000))" >&2
"""


def test_what_comes_before_the_runs_is_taken_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "valgrind"
    script.write_text(COUNTS)
    script.chmod(0o700)
    monkeypatch.setattr("shutil.which", lambda _: str(script))
    assert instructions.main(("gemini",)) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["gemini", "100", "100", "100"]


def test_a_run_that_fails_is_no_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "valgrind"
    script.write_text(COUNTS)
    script.chmod(0o700)
    monkeypatch.setattr("shutil.which", lambda _: str(script))
    with pytest.raises(RuntimeError, match="ended with 3"):
        instructions.main(("no_wire",))


def test_without_valgrind_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert command.main(["instructions"]) == 1
    assert "Install the package valgrind" in capsys.readouterr().err


def test_a_comparison_marks_where_each_case_begins_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process for all cases: a run that is not counted, a mark, the runs, a mark."""
    marks: list[bool] = []
    monkeypatch.setattr(instruction_driver, "mark", lambda: marks.append(recorder.RECORDER.settings.is_on))
    monkeypatch.setattr(recorder, "RECORDER", recorder.TraceRecorder())
    monkeypatch.setenv("EVENER_TRACES", "")
    cases = [
        {"wire": "gemini", "env": {"EVENER_TRACES": "off"}},
        {"wire": "gemini", "env": {"EVENER_TRACES": str(tmp_path / "traces")}, "context": False},
    ]
    asyncio.run(instruction_driver.compare(1, [json.dumps(case) for case in cases]))
    assert marks == [False, False, True, True]
