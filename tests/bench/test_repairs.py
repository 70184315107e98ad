"""The list of repairs names tests that exist; that they fail without the repairs is shown by `python -m bench repairs`."""

import pytest

from bench.repairs import ROOT, read_repairs

LISTED = read_repairs()


@pytest.mark.parametrize("test", [LISTED.today(test) for test in LISTED.tests])
def test_a_listed_test_exists(test: str) -> None:
    path, _, name = test.partition("::")
    text = (ROOT / path).read_text(encoding="utf-8")
    assert not name or f"def {name.partition('[')[0]}(" in text


def test_every_number_has_tests() -> None:
    assert {repair.number for repair in LISTED.repair} == set(range(1, 19))
