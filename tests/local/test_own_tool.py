"""The embedded model calls a tool of the user's own from the command line: it is shown two calls, and that is reported."""

import os
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE

TOOLS = '''
import operator
import re

SIGNS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def calculator(expression: str) -> str:
    """Calculate an arithmetic expression."""
    found = re.fullmatch(r"(\\d+) ?([-+*]) ?(\\d+)", expression)
    return str(SIGNS[found[2]](int(found[1]), int(found[3]))) if found else "no expression"
'''


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


def test_it_greets(weights: Path, tmp_path: Path) -> None:
    assert weights.is_file()
    assert run(tmp_path, "Say hello").stdout.startswith("Hello")
