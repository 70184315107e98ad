"""The embedded model calls a tool of the user's own from the command line: it is shown two calls, and that is reported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from evener.cli.commands.run import RunOptions, make_harness
from evener.local.server import LocalServer
from tests.patience import PATIENCE

TOOLS = '''
import operator
import re

SIGNS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def calculator(expression: str) -> str:
    """Calculate an arithmetic expression."""
    found = re.fullmatch(r"(\\d+) ?([-+*]) ?(\\d+)", expression)
    return str(SIGNS[found[2]](int(found[1]), int(found[3]))) if found else "no expression"


def solve(problem: str) -> str:
    """Do arithmetic."""
    return calculator(problem)


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def weather(city: str) -> str:
    """Tell the weather in a city."""
    return f"snow in {city}, -3 degrees"


pair = [weather, calculator]
'''
ASKED = [
    ("solve", "What is 144 + 377?", "521"),
    ("multiply", "What is 31 times 12?", "372"),
    ("pair", "What is 19 * 21?", "399"),
    ("pair", "What is the weather in Oslo?", "snow in Oslo, -3 degrees"),
]


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "mytools.py").write_text(TOOLS, "utf-8")
    command = [sys.executable, "-m", "evener", "run", "-m", "local:smollm2", "--store", "memory", *words]
    return subprocess.run(command, cwd=folder, env=dict(os.environ), capture_output=True, text=True, timeout=PATIENCE)


def test_s0_4_it_calls_the_users_calculator_and_says_391(weights: Path, tmp_path: Path) -> None:
    """S0.4."""
    assert weights.is_file()
    done = run(tmp_path, "--tools", "mytools:calculator", "What is 17 * 23?")
    assert (done.returncode, done.stdout.strip()) == (0, "391")
    assert "added example message: 2 worked examples of calculator" in done.stderr


def test_s0_4_tools_of_other_names_and_shapes_are_called(
    server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S0.4: also one of two tools. The process of the model is shared: starting it takes longer than all four answers."""
    assert server.borrowers
    (tmp_path / "mytools.py").write_text(TOOLS, "utf-8")
    monkeypatch.chdir(tmp_path)
    for name, question, answer in ASKED:
        harness = make_harness(RunOptions(model="local:smollm2", tools=(f"mytools:{name}",), store="memory"))
        result = harness.run_sync(question)
        assert (result.text, [record.ok for record in result.records]) == (answer, [True]), question
        assert "tool_choice.degraded" in [loss.code for loss in result.losses]
    sys.modules.pop("mytools")


def test_it_greets(weights: Path, tmp_path: Path) -> None:
    assert weights.is_file()
    said = run(tmp_path, "Say hello").stdout.strip()
    assert said.startswith("Hello!")
    assert len(said) < 80  # it greets, and stops
