"""A run of tests that leaves a file in the repository fails, and names the file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tests.shape.tree import ROOT

TEST = (
    "from pathlib import Path\ndef test_it(tmp_path): (Path('litter') if {inside} else tmp_path / 'litter').write_text('x')\n"
)

ENVIRON = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PATH": os.environ["PATH"]}


@pytest.mark.parametrize("inside", [True, False])
def test_a_run_that_leaves_a_file_fails_and_names_it(tmp_path: Path, inside: bool) -> None:
    (tmp_path / ".gitignore").write_text("__pycache__/\n", encoding="utf-8")
    (tmp_path / "test_litter.py").write_text(TEST.format(inside=inside), encoding="utf-8")
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT}\n", encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True, timeout=PATIENCE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.leftovers", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRON, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == (1 if inside else 0), done.stdout + done.stderr
    assert ("left 1 new files in the repository: litter." in done.stdout) is inside, done.stdout
