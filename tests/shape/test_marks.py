"""The marks are true: what they name is there, and a test that does more than they say is found."""

import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator

import pytest

from tests.marks import MARKS, WATCH, marks_of
from tests.shape.tree import ROOT


def gone(places: Iterable[str]) -> Iterator[str]:
    """Places that no longer exist, or that another one of them holds already."""
    for place in (places := list(places)):
        file, _, test = place.partition("::")
        path = ROOT / "tests" / file
        there = path.is_dir() if place.endswith("/") else path.is_file()
        if not there or (test and f"def {test}(" not in path.read_text(encoding="utf-8")):
            yield f"{place} is not there"
        elif any(place != other and place.startswith(other) for other in places):
            yield f"{place} is listed twice"


@pytest.mark.parametrize("mark", MARKS)
def test_every_place_is_there_and_listed_once_in_order(mark: str) -> None:
    assert list(gone(MARKS[mark])) == []
    assert sorted(MARKS[mark]) == list(MARKS[mark])


@pytest.mark.parametrize("place", ["nowhere/", "shape/nowhere.py", "shape/test_marks.py::test_nothing", "shape/test_marks"])
def test_a_place_that_is_gone_is_caught(place: str) -> None:
    assert list(gone([place])) == [f"{place} is not there"]


def test_a_place_within_another_is_caught() -> None:
    assert list(gone(["shape/", "shape/test_marks.py"])) == ["shape/test_marks.py is listed twice"]


def test_pytest_knows_the_marks() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    assert [line.partition(":")[0] for line in options["markers"]] == list(MARKS)


def test_a_test_has_the_marks_of_its_folder_and_its_own() -> None:
    assert "process" in marks_of("tests/cli/test_run.py::test_x[a::b]")
    assert marks_of("tests/transcript/test_blocks.py::test_x") == []


def connect() -> None:
    with socket.socket() as here:
        here.connect_ex(("127.0.0.1", 9))


def start() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True, timeout=120)


@pytest.mark.parametrize(
    ("act", "marks", "told"),
    [
        (connect, (), "socket"),
        (start, (), "process"),
        (start, ("socket",), "process"),
        (connect, ("socket",), ""),
        (start, ("slow", "process"), ""),
        (lambda: None, (), ""),
    ],
)
def test_what_an_unmarked_test_opens_or_starts_is_found(act: Callable[[], None], marks: tuple[str, ...], told: str) -> None:
    assert WATCH.unmarked(()) == ""
    act()
    assert WATCH.unmarked(marks) == (f"It needs the mark {told}: list it in tests/marks.py." if told else "")
    assert WATCH.unmarked(()) == ""
