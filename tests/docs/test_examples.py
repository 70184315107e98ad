"""Every example runs by itself, without warnings, and prints what its docstring says."""

import ast
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.shape.test_docs import matches
from tests.shape.tree import ROOT

SECONDS = 240
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def printed(text: str) -> list[str]:
    """What a docstring says that the program prints."""
    return textwrap.dedent(text.partition("\nPrints:\n")[2]).strip().splitlines()


def shown(path: Path) -> list[str]:
    return printed(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")


def run(path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program away from the tree, and from the keys and files of whoever runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    places = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "EVENER_HOME"), str(folder))
    return subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        cwd=folder, env={**kept, **places}, capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_it_says(path: Path, tmp_path: Path) -> None:
    done = run(path, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    wanted = [line for line in shown(path) if line]
    assert wanted
    assert matches(wanted, done.stdout.splitlines()), done.stdout


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5


def test_an_example_that_prints_something_else_is_caught(tmp_path: Path) -> None:
    path = tmp_path / "example.py"
    path.write_text('"""An example.\n\nPrints:\n    one\n"""\n\nprint("two")\n', encoding="utf-8")
    done = run(path, tmp_path)
    assert done.returncode == 0
    assert shown(path) == ["one"]
    assert not matches(shown(path), done.stdout.splitlines())


def test_an_example_that_fails_or_warns_is_caught(tmp_path: Path) -> None:
    path = tmp_path / "example.py"
    path.write_text("import warnings\n\nwarnings.warn('careful')\n", encoding="utf-8")
    assert run(path, tmp_path).returncode != 0
