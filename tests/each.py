"""Runs a test for each of many small cases as one test, which reports all that fail: hooks of pytest, for `tests/conftest.py`.

Each test that pytest collects costs a few milliseconds in every process of a run. That is more than most cases of a table or of
a recording take.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import pytest
from _pytest.mark import ParameterSet

Test = TypeVar("Test", bound=Callable[..., None])


class Cases(NamedTuple):
    """The names of a test's arguments, and what they are in each case."""

    names: tuple[str, ...]
    values: Sequence[tuple[str, tuple[Any, ...]]]


def each(names: str | tuple[str, ...], cases: Iterable[Any], ids: Callable[[Any], str] = str) -> Callable[[Test], Test]:
    """Decorate a test as `pytest.mark.parametrize` does. All its other arguments are the same for every case."""
    several = (names,) if isinstance(names, str) else names
    sets = [ParameterSet.extract_from(one, force_tuple=isinstance(names, str)) for one in cases]
    found = Cases(several, [(str(one.id) if one.id else " ".join(map(ids, one.values)), tuple(one.values)) for one in sets])

    def decorate(test: Test) -> Test:
        test.__dict__["each"] = found
        return test

    return decorate


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Stand in for the arguments that change from case to case."""
    if found := metafunc.function.__dict__.get("each"):
        metafunc.parametrize(found.names, [[None] * len(found.names)], ids=[f"{len(found.values)} cases"])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run the test for each case."""
    found = pyfuncitem.function.__dict__.get("each")
    if found is None:
        return None
    same = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames if name not in found.names}
    run_each(pyfuncitem.obj, found, same)
    return True


def run_each(test: Callable[..., None], cases: Cases, same: dict[str, Any]) -> None:
    """Call the test for each case; fail with all that failed."""
    failed: dict[str, Exception] = {}
    for name, values in cases.values:
        try:
            test(**same, **dict(zip(cases.names, values, strict=True)))
        except Exception as error:
            failed[name] = error
    if failed:
        shown = list(failed)[:20]
        raise ExceptionGroup(
            f"{len(failed)} of {len(cases.values)} cases failed: {', '.join(shown)}", [failed[name] for name in shown]
        )
