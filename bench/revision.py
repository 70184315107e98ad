"""An older revision of the tree in a temporary folder, to be measured beside this one."""

import compileall
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

__all__ = ["BEFORE", "FIRST", "NOW", "ROOT", "Side", "compile_tree", "lay_out", "read_file", "sides_of", "tree_of"]

FIRST = "5d48d87"
"""The tree before the layout of today, and before what was built on it."""
ROOT = Path(__file__).resolve().parents[1]
BEFORE, NOW = "the older tree", "this tree"


class Side(msgspec.Struct, frozen=True):
    """A tree, and the variables of the processes that measure it."""

    tree: Path
    variables: dict[str, str]


def lay_out(commit: str, tree: Path, *parts: str) -> None:
    """Write the files of a commit, or those below `parts`, into a folder."""
    subprocess.run(["tar", "-x", "-C", str(tree)], input=_git(commit, "archive", commit, *parts), check=True)


def read_file(commit: str, path: str) -> str:
    """Return the text of one file of a commit."""
    return _git(commit, "show", f"{commit}:{path}").decode()


def _git(commit: str, *words: str) -> bytes:
    """Return what git prints about a commit; end with one line if there is no such commit here, or no git."""
    try:
        return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True).stdout
    except OSError as error:
        raise SystemExit(f"bench: git is needed to read the revision {commit!r} and failed: {error}") from None
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise SystemExit(
            f"bench: git cannot read the revision {commit!r} ({said}). If this is a shallow clone: git fetch --unshallow"
        ) from None


@contextmanager
def tree_of(commit: str) -> Iterator[Path]:
    """Lay out the library and the benchmarks of a commit for as long as they are needed."""
    with TemporaryDirectory(prefix="evener-revision-") as folder:
        lay_out(commit, Path(folder), "src", "bench")
        yield Path(folder)


@contextmanager
def sides_of(commit: str) -> Iterator[dict[str, Side]]:
    """Lay out a commit beside this tree: both are compiled, and each has a home of its own, so that only the code differs."""
    with tree_of(commit) as old, TemporaryDirectory(prefix="evener-home-") as home:
        sides = {}
        for name, tree in ((BEFORE, old), (NOW, ROOT)):
            compile_tree(tree)
            told = {"PYTHONPATH": str(tree / "src"), "PYTHONHASHSEED": "0", "EVENER_HOME": str(Path(home, name))}
            sides[name] = Side(tree, os.environ | told)
        yield sides


def compile_tree(tree: Path) -> None:
    """Compile the modules of a tree: else the first run of it does that, or every run, and it counts in one tree only."""
    for part in ("src", "bench"):
        compileall.compile_dir(tree / part, quiet=1)
