"""mypy and pyright, both strict, over the three agents in examples: clean as they are, and wrong exactly where a mistake is."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.shape.tree import ROOT

SECONDS = 300
AGENTS = ("support", "extraction", "research")
PLANTED = {
    # what the file says -> what a user writes by mistake
    ("support", "deps=Shop(),"): "deps={'A-17': 40},",
    ("support", "tools=[look_up, refund],"): "tools=[look_up('A-17'), refund],",
    ("extraction", "first: Invoice = result.require_output()"): "first: str = result.require_output()",
    ("extraction", "total += entry.output.total"): "total += entry.output.sum",
    ("research", 'tool_choices=("required",)'): 'tool_choices="required"',
}
"""Five mistakes: other dependencies than the tools need, a tool that is called, an answer of another type, a field that it
has not, a setting of another form."""


def planted(folder: Path) -> dict[str, set[int]]:
    """Write the agents with their mistakes, and return the lines that have one."""
    lines: dict[str, set[int]] = {}
    for agent in AGENTS:
        text = (ROOT / "examples" / f"{agent}.py").read_text("utf-8")
        for (where, right), wrong in PLANTED.items():
            if where == agent:
                assert text.count(right) == 1, right
                text = text.replace(right, wrong)
        (folder / f"{agent}.py").write_text(text, "utf-8")
        wrongs = [wrong for (where, _), wrong in PLANTED.items() if where == agent]
        lines[agent] = {number for number, line in enumerate(text.splitlines(), 1) if any(wrong in line for wrong in wrongs)}
    return lines


def copied(folder: Path) -> dict[str, set[int]]:
    for agent in AGENTS:
        (folder / f"{agent}.py").write_text((ROOT / "examples" / f"{agent}.py").read_text("utf-8"), "utf-8")
    return {agent: set() for agent in AGENTS}


def mypy(folder: Path) -> dict[str, set[int]]:
    """The lines in which mypy sees an error."""
    files = [f"{agent}.py" for agent in AGENTS]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-version", "3.11", "--cache-dir", str(folder / "cache"), *files],
        cwd=folder, env={"MYPYPATH": str(ROOT / "src"), "PATH": ""}, capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, set[int]] = {agent: set() for agent in AGENTS}
    for name, line in re.findall(r"^(\w+)\.py:(\d+): error", done.stdout, re.MULTILINE):
        found[name].add(int(line))
    return found


def pyright(folder: Path) -> dict[str, set[int]]:
    """The same of pyright."""
    settings = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "extraPaths": [str(ROOT / "src")], "include": ["*.py"]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "-p", str(folder), "--pythonpath", sys.executable],
        cwd=folder, capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    found: dict[str, set[int]] = {agent: set() for agent in AGENTS}
    for one in json.loads(done.stdout)["generalDiagnostics"]:
        if one["severity"] == "error":
            found[Path(one["file"]).stem].add(one["range"]["start"]["line"] + 1)
    return found


Checker = Callable[[Path], dict[str, set[int]]]
CHECKERS = [
    mypy,
    pytest.param(pyright, marks=pytest.mark.skipif(find_spec("pyright") is None, reason="pyright is not installed")),
]


@pytest.mark.parametrize("check", CHECKERS)
def test_the_three_agents_have_no_error(check: Checker, tmp_path: Path) -> None:
    """S2.81."""
    wanted = copied(tmp_path)
    assert check(tmp_path) == wanted


@pytest.mark.parametrize("check", CHECKERS)
def test_five_planted_mistakes_are_found_where_they_are(check: Checker, tmp_path: Path) -> None:
    """S2.81."""
    wanted = planted(tmp_path)
    assert sum(map(len, wanted.values())) == len(PLANTED)
    assert check(tmp_path) == wanted
