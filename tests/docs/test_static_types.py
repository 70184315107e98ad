"""mypy and pyright, both strict, over the three agents in examples: clean as they are, and wrong exactly where a mistake is."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
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


Lines = dict[str, set[int]]


def plant(folder: Path) -> Lines:
    """Write the agents as they are and, with `_wrong` after their names, with their mistakes; return the wrong lines."""
    lines: Lines = {}
    for agent in AGENTS:
        text = (ROOT / "examples" / f"{agent}.py").read_text("utf-8")
        (folder / f"{agent}.py").write_text(text, "utf-8")
        wrongs = []
        for (where, right), wrong in PLANTED.items():
            if where == agent:
                assert text.count(right) == 1, right
                text = text.replace(right, wrong)
                wrongs.append(wrong)
        (folder / f"{agent}_wrong.py").write_text(text, "utf-8")
        lines[agent] = set()
        numbered = enumerate(text.splitlines(), 1)
        lines[f"{agent}_wrong"] = {number for number, line in numbered if any(wrong in line for wrong in wrongs)}
    return lines


def mypy(folder: Path, names: Iterable[str]) -> Lines:
    """The lines in which mypy sees an error."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-version", "3.11", "--cache-dir", str(folder / "cache"),
         *(f"{name}.py" for name in names)],
        cwd=folder, env={"MYPYPATH": str(ROOT / "src"), "PATH": ""}, capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    found: Lines = {name: set() for name in names}
    for name, line in re.findall(r"^(\w+)\.py:(\d+): error", done.stdout, re.MULTILINE):
        found[name].add(int(line))
    return found


def pyright(folder: Path, names: Iterable[str]) -> Lines:
    """The same of pyright."""
    settings = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "extraPaths": [str(ROOT / "src")], "include": ["*.py"]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "-p", str(folder), "--pythonpath", sys.executable],
        cwd=folder, capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    found: Lines = {name: set() for name in names}
    for one in json.loads(done.stdout)["generalDiagnostics"]:
        if one["severity"] == "error":
            found[Path(one["file"]).stem].add(one["range"]["start"]["line"] + 1)
    return found


@pytest.mark.parametrize(
    "check",
    [mypy, pytest.param(pyright, marks=pytest.mark.skipif(find_spec("pyright") is None, reason="pyright is not installed"))],
)
def test_five_planted_mistakes_are_found_where_they_are_and_nothing_else(
    check: Callable[[Path, Iterable[str]], Lines], tmp_path: Path
) -> None:
    """S2.81."""
    wanted = plant(tmp_path)
    assert sum(map(len, wanted.values())) == len(PLANTED)
    assert check(tmp_path, wanted) == wanted
