"""The map in CONTRIBUTING.md leads to files that are there, for the ten kinds of change that it is for."""

import re
from collections.abc import Iterator

import pytest

from tests.shape.tree import ROOT

KINDS = "provider row, quirk, hook moment, CLI command, event, limit, tool option, fault, store backend, wire".split(", ")
PLACE = re.compile(r"\b(?:src|tests|docs|scripts|bench)/[\w./-]+")


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
