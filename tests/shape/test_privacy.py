"""The tree names no machine and no package registry: it works wherever it is, with whatever registry is set up."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shape.tree import ROOT, tree_files

HOSTS = re.compile(r"\b(?:pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|anaconda\.org|crates\.io)\b", re.IGNORECASE)
PATHS = re.compile(r"(?<![\w.\-/)}])(?:file://)?/(?:work|root)/")


def traces(where: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        for pattern in (HOSTS, PATHS):
            yield from (f"{where}:{number}: {hit[0]}" for hit in pattern.finditer(line))


def read(path: Path) -> str:
    """The text of a file, empty for a binary one."""
    content = path.read_bytes()
    return "" if b"\0" in content else content.decode("utf-8", errors="replace")


def test_no_file_names_a_machine_or_a_registry() -> None:
    found = [hit for path in tree_files() for hit in traces(path.relative_to(ROOT).as_posix(), read(path))]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "https://" + "pypi" + ".org/simple",
        "files." + "python" + "hosted.org",
        "cd /" + "work/main",
        '"/' + 'root/.cache"',
        "see file:///" + "root/x",
    ],
)
def test_a_trace_is_caught(line: str) -> None:
    assert len(list(traces("x.md", line))) == 1


@pytest.mark.parametrize("line", ["src/work/x.py", "a/root/b", "{root}/work/", "pypi", "a network/root"])
def test_an_everyday_path_passes(line: str) -> None:
    assert list(traces("x.md", line)) == []
