"""The list of repairs names tests that exist; that they fail without the repairs is shown by `python -m bench repairs`."""

import msgspec
import pytest

from bench.repairs import read_repairs
from bench.revision import ROOT

LISTED = read_repairs()


@pytest.mark.parametrize("test", [LISTED.today(test) for test in LISTED.tests])
def test_a_listed_test_exists(test: str) -> None:
    path, _, name = test.partition("::")
    text = (ROOT / path).read_text(encoding="utf-8")
    assert not name or f"def {name.partition('[')[0]}(" in text


def test_every_number_has_tests() -> None:
    assert {repair.number for repair in LISTED.repair} == set(range(1, 19))


def test_what_has_moved_is_found_under_its_name_of_today() -> None:
    listed = msgspec.structs.replace(LISTED, moved={"a.py": "b.py", "a.py::one": "c.py::two"})
    assert [listed.today(test) for test in ("a.py", "a.py::one", "a.py::more[1]", "d.py::one")] == [
        *("b.py", "c.py::two", "b.py::more[1]", "d.py::one")
    ]
    known = {*LISTED.tests, *(test.partition("::")[0] for test in LISTED.tests)}
    assert LISTED.moved.keys() <= known, "nothing has moved that was not listed"
