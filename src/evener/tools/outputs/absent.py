"""Null where a field may be left out. Pure.

A provider that enforces a schema may demand every field of it, so that a model can only write null for what it leaves out.
"""

from collections.abc import Iterator, Sequence

from evener.tools.problems import Problem, dotted

__all__ = ["without_absent"]

Step = str | int
Member = tuple[dict[str, object], str]


def without_absent(value: object, problems: Sequence[Problem]) -> object:
    """The value without the nulls that are the problem. It is changed in place: it must be the caller's own."""
    wrong = {problem.path for problem in problems}
    for holder, name in [member for member, path in _nulls(value) if path in wrong]:
        del holder[name]
    return value


def _nulls(value: object) -> Iterator[tuple[Member, str]]:
    """Each member of an object that is null, with its path."""
    left: list[tuple[object, tuple[Step, ...]]] = [(value, ())]
    while left:
        item, path = left.pop()
        match item:
            case dict():
                yield from (((item, name), dotted((*path, name))) for name, inner in item.items() if inner is None)
                left += [(inner, (*path, name)) for name, inner in item.items()]
            case list():
                left += [(inner, (*path, number)) for number, inner in enumerate(item)]
