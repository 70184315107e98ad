"""CONTRIBUTING.md names files, code and commands that exist, and its map covers the ten kinds of change that it is for."""

import re
from collections.abc import Iterator

import pytest

from bench.__main__ import BESIDE, COMMANDS, FIGURES
from tests.shape.tree import ROOT

KINDS = "provider row, quirk, hook moment, CLI command, event, limit, tool option, fault, store backend, wire".split(", ")
PLACE = re.compile(r"(?<![\w.])(?:src|tests|docs|scripts|bench|\.ci)/[\w./-]+")
CODE = re.compile(r"`([^`]+)`")
MAKE = re.compile(r"`make ([a-z-]+)(?: ARGS='?([^'`]*)'?)?`")
OPTION = re.compile(r"(?<!\S)--[a-z]+")
BENCHMARKS = {*FIGURES, *COMMANDS, *BESIDE, "all"}


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def rows(text: str) -> dict[str, str]:
    """The rows of the map, by the kind of change."""
    section = text.partition("\n## Where do I put ...\n")[2].partition("\n## ")[0]
    lines = [line.strip("| ").partition(" | ") for line in section.splitlines() if line.startswith("| ")]
    return {kind: rest for kind, _, rest in lines[1:]}


def astray(text: str) -> Iterator[str]:
    """Places that a text names and that are not in the tree. A folder ends with a slash."""
    for place in PLACE.findall(text):
        path = ROOT / place.rstrip(".")
        if not (path.is_dir() if place.endswith("/") else path.exists()):
            yield place


def unknown_names(row: str) -> Iterator[str]:
    """Names of code that no file of a row has, where the row names a file beside them. A folder stands for its files."""
    files = [ROOT / place for place in PLACE.findall(row)]
    code = "\n".join(
        path.read_text(encoding="utf-8") for file in files for path in (file.rglob("*.py") if file.is_dir() else [file])
    )
    for span in CODE.findall(row):
        if not PLACE.search(span) and not span.startswith(("make ", ".venv/")):
            for name in re.findall(r"-*[A-Za-z_]\w*", span):
                if not re.search(rf"(?<![\w-]){name}\b", code):
                    yield name


def unknown_commands(text: str) -> Iterator[str]:
    """Commands of `make` that name a target, a benchmark or an option of a benchmark that does not exist."""
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    options = (ROOT / "bench" / "__main__.py").read_text(encoding="utf-8")
    for target, arguments in MAKE.findall(text):
        words = arguments.split()
        if target not in targets or (target == "bench" and words and not {*words[:1]} & BENCHMARKS and words[0][0] != "-"):
            yield f"{target} {arguments}".strip()
        elif target == "bench" and any(f'"{option}"' not in options for option in OPTION.findall(arguments)):
            yield f"{target} {arguments}"


def test_the_map_has_every_kind_of_change_with_files_and_tests() -> None:
    found = rows(page("CONTRIBUTING.md"))
    assert list(found) == KINDS
    for kind, row in found.items():
        assert "`src/evener/" in row, kind
        assert "`tests/" in row, kind
        assert "`make test ARGS=" in row, kind


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/release.md"])
def test_every_place_that_is_named_is_there(name: str) -> None:
    assert len(PLACE.findall(page(name))) > 5
    assert list(astray(page(name))) == []


@pytest.mark.parametrize("text", ["`src/evener/nowhere.py`", "see tests/nowhere/", "`src/evener/events.py/`"])
def test_a_place_that_is_not_there_is_caught(text: str) -> None:
    assert len(list(astray(text))) == 1


def test_a_row_that_is_missing_is_caught() -> None:
    text = page("CONTRIBUTING.md")
    row = next(line for line in text.splitlines() if line.startswith("| quirk |"))
    assert "quirk" not in rows(text.replace(f"{row}\n", ""))


def test_every_name_in_the_map_is_in_a_file_that_its_row_names() -> None:
    for kind, row in rows(page("CONTRIBUTING.md")).items():
        assert list(unknown_names(row)) == [], kind


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/release.md"])
def test_every_command_that_is_named_exists(name: str) -> None:
    assert len(MAKE.findall(page(name))) > 3
    assert list(unknown_commands(page(name))) == []


def test_names_that_are_not_there_are_caught() -> None:
    assert list(unknown_names("`Replied` and `NoSuchEvent` in `src/evener/events.py`, `stored=True` in `src/evener/cli/`")) == [
        "NoSuchEvent"
    ]


@pytest.mark.parametrize("text", ["`make nothing`", "`make bench ARGS=nothing`", "`make bench ARGS='kills --nothing 3'`"])
def test_a_command_that_is_not_there_is_caught(text: str) -> None:
    assert len(list(unknown_commands(text))) == 1
