"""A set that only grows is shared, and yet nobody sees what others added."""

from threading import Thread

from hypothesis import given
from hypothesis import strategies as some

from evener.transcript.transcript import Growing, Grown


@given(some.lists(some.tuples(some.integers(0, 9), some.dictionaries(some.integers(0, 30), some.integers())), max_size=12))
def test_grown_from_any_point_each_holds_what_it_was_given(steps: list[tuple[int, dict[int, int]]]) -> None:
    made: list[tuple[Grown, dict[int, int]]] = [(Grown(), {})]
    for at, names in steps:
        base, held = made[at % len(made)]
        made.append((base.plus({**names}), {**names, **held}))
    for grown, held in made:
        assert {name: grown.get(name) for name in held} == held
        assert set(grown) == set(held)
        assert [name for name in range(31) if name in grown] == sorted(held)


def test_growing_the_newest_shares_and_growing_an_older_one_copies() -> None:
    first = Grown().plus({"a": 1})
    second = first.plus({"b": 2})
    other = first.plus({"b": 3})
    assert (second.get("b"), other.get("b"), first.get("b")) == (2, 3, None)
    assert first == Grown().plus({"a": 1})
    assert second != other


def test_an_empty_one_is_shared_by_all_and_keeps_nothing() -> None:
    nothing = Grown()
    assert nothing.plus({"a": 1}).get("a") == 1
    assert not nothing._shared


def test_threads_that_grow_from_one_point_do_not_see_each_other() -> None:
    base = Grown().plus({"a": 0})
    made: list[Grown] = []
    threads = [Thread(target=lambda number=number: made.append(base.plus({f"n{number}": number}))) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(len(list(one)) for one in made) == [2] * 16


def test_a_growing_one_is_seen_at_once_and_leaves_its_base_alone() -> None:
    base = Grown().plus({"a": 1})
    growing = Growing(base)
    growing.add("b", 2)
    assert ("a" in growing, "b" in growing, growing.get("b"), "b" in base) == (True, True, 2, False)
    assert growing.done().get("b") == 2
