"""A test that stands for many cases fails with every case that fails, and passes only if all do."""

import pytest

from tests.each import each, run_each


@each("number", [1, 2, 3, 4])
@pytest.mark.parametrize("more", [0, 10])
def test_every_case_is_run(number: int, more: int, seen: list[int]) -> None:
    seen.append(number + more)
    assert len(seen) == number


@each(("left", "right"), [pytest.param(1, 1, id="same"), (2, 2)])
def test_a_case_may_have_several_values_and_a_name(left: int, right: int) -> None:
    assert left == right


@pytest.fixture
def seen() -> list[int]:
    return []


def test_all_cases_that_fail_are_named() -> None:
    @each("number", [1, 2, 3, 4])
    def odd(number: int) -> None:
        assert number % 2

    with pytest.raises(ExceptionGroup, match="2 of 4 cases failed: 2, 4"):
        run_each(odd, odd.__dict__["each"], {})
