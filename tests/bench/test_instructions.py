"""Counting instructions: the runs are real, who counts them is a script."""

import asyncio
import json
from pathlib import Path

import pytest

from bench import __main__ as command
from bench import instruction_driver, instructions, revision
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


def _count(monkeypatch: pytest.MonkeyPatch, costs: dict[str, int], *, known: str) -> None:
    """Let valgrind count so much for each kind in this tree and 100 in an older one, whose driver knows these kinds."""

    def lay_out(_: str, tree: Path, *__: str) -> None:
        (tree / "bench").mkdir()
        (tree / "bench" / "instruction_driver.py").write_text(known)

    def count(_: str, kind: str, __: str, runs: int, tree: Path) -> int:
        assert tree == revision.ROOT or f'"{kind}"' in known
        return runs * 21_000 * (costs[kind] if tree == revision.ROOT else 100)

    monkeypatch.setattr("shutil.which", lambda _: "valgrind")
    monkeypatch.setattr(instructions, "compile_tree", lambda _: None)
    monkeypatch.setattr(revision, "lay_out", lay_out)
    monkeypatch.setattr(instructions, "_counted", count)


@pytest.mark.parametrize(("turn", "plain", "code"), [(105, 120, 1), (120, 105, 1), (105, 105, 0)])
def test_a_plain_turn_stands_beside_an_older_one(
    turn: int, plain: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _count(monkeypatch, {"request": 99, "turn": turn, "plain": plain}, known='{"request": request, "turn": turn}')
    assert command.main(["instructions", "--before", "abc", "--wires", "gemini"]) == code
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[3:] == ["request", "abc", "now", "ratio", "turn", "abc", "now", "ratio", "plain", "abc", "now", "ratio"]
    turns = [cell for now in (turn, plain) for cell in ("100", f"{now}", f"{now / 100:.2f}")]
    assert row.split() == ["gemini", "100", "99", "0.99", *turns]


@pytest.mark.parametrize(("turn", "code"), [(140, 1), (105, 0)])
def test_a_plain_turn_stands_beside_one_that_is_plain(
    turn: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    costs = {"request": 100, "turn": turn, "plain": 80, "durable": 100}
    _count(monkeypatch, costs, known=json.dumps(list(costs)))
    assert command.main(["instructions", "--before", "abc", "--wires", "gemini,openai_chat"]) == code
    _, *rows = capsys.readouterr().out.splitlines()
    turns = ["100", f"{turn}", f"{turn / 100:.2f}"]
    figures = ["100", "100", "1.00", *turns, "100", "80", "0.80", "100", "100", "1.00"]
    assert [row.split() for row in rows] == [["gemini", *figures], ["openai_chat", *figures]]


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
