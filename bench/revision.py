"""An older revision of the tree in a temporary folder, to be measured beside this one."""

import compileall
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

__all__ = ["FIRST", "ROOT", "compile_tree", "lay_out", "read_file", "tree_of"]

FIRST = "5d48d87"
"""The tree before the layout of today, and before what was built on it."""
ROOT = Path(__file__).resolve().parents[1]


def lay_out(commit: str, tree: Path, *parts: str) -> None:
    """Write the files of a commit, or those below `parts`, into a folder."""
    archive = subprocess.run(["git", "archive", commit, *parts], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive, check=True)


def read_file(commit: str, path: str) -> str:
    """Return the text of one file of a commit."""
    return subprocess.run(["git", "show", f"{commit}:{path}"], cwd=ROOT, check=True, capture_output=True, text=True).stdout


@contextmanager
def tree_of(commit: str) -> Iterator[Path]:
    """Lay out the library and the benchmarks of a commit for as long as they are needed."""
    with TemporaryDirectory(prefix="evener-revision-") as folder:
        lay_out(commit, Path(folder), "src", "bench")
        yield Path(folder)


def compile_tree(tree: Path) -> None:
    """Compile the modules of a tree: else the first run of it does that, or every run, and it counts in one tree only."""
    for part in ("src", "bench"):
        compileall.compile_dir(tree / part, quiet=1)
