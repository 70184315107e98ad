"""Usage: exact, additive token counts."""

import pytest

from evener.errors import BadValue
from evener.transcript import Usage

ONE = Usage(input_total=10, uncached=7, cache_read=2, cache_write=1, output_total=5, reasoning=3)


def test_usage_adds_up_field_by_field() -> None:
    assert Usage(20, 14, 4, 2, 10, 6) == ONE + ONE
    assert sum([ONE, ONE, ONE], Usage()) == Usage(30, 21, 6, 3, 15, 9)
    assert ONE + Usage() == ONE


def test_reasoning_is_part_of_the_output_and_not_counted_twice() -> None:  # S0.21, S0.29
    assert ONE.total == 15


def test_what_is_not_known_is_zero() -> None:  # S0.32
    assert Usage().total == 0


@pytest.mark.parametrize("field", "input_total uncached cache_read cache_write output_total reasoning".split())
@pytest.mark.parametrize("value", ["1", 1.0, True, None])
def test_only_whole_numbers_count(field: str, value: object) -> None:
    with pytest.raises(BadValue, match=f"Usage.{field}"):
        Usage(**{field: value})  # type: ignore[arg-type]


def test_usage_adds_to_usage_only() -> None:
    with pytest.raises(TypeError):
        ONE + 1  # type: ignore[operator]
