"""The list of mutants fits the tree: each has one place, and tests. `python -m bench mutants` plants them."""

import pytest

from bench import mutants
from bench.mutants import ROOT, Mutant, read_mutants

LISTED = read_mutants()


def test_there_are_sixty() -> None:
    assert len(LISTED) >= 60


@pytest.mark.parametrize("mutant", LISTED, ids=lambda mutant: f"{mutant.number}-{mutant.file}")
def test_a_mutant_has_one_place(mutant: Mutant) -> None:
    text = (ROOT / "src" / "evener" / mutant.file).read_text("utf-8")
    assert text.count(mutant.old) == 1
    assert mutant.old != mutant.new


def test_every_number_has_tests() -> None:
    assert [number for number in sorted({mutant.number for mutant in LISTED}) if not mutants.tests_of(number)] == []


def test_the_test_that_catches_a_mutant_names_its_number() -> None:
    claimed = {(claim.number, f"tests/{claim.file}::{claim.test}") for claim in mutants.read_claims()}
    assert [one.test for one in LISTED if one.test and (one.number, one.test) not in claimed] == []
