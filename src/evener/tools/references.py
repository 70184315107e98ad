"""References within a JSON Schema: where they lead, that following them ends, and how much there is to follow. Pure."""

from collections.abc import Iterator, Mapping
from urllib.parse import unquote

from evener.errors import UsageError

__all__ = ["refuse_loops", "visits"]

IN_PLACE = ("anyOf", "oneOf", "allOf")
"""Keywords whose schemas look at the same value."""
VALUES = ("enum", "const", "default", "examples")
"""Keywords that hold values, not schemas."""


def target(schema: Mapping[str, object], reference: str) -> object:
    """Return what a JSON pointer within a schema refers to; None for any other reference."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    found: object = schema
    for step in reference[1:].split("/")[1:]:
        found = _step(found, unquote(step).replace("~1", "/").replace("~0", "~"))
    return found


def _step(value: object, name: str) -> object:
    match value:
        case dict():
            return value.get(name)
        case list() if name.isdigit() and int(name) < len(value):
            return value[int(name)]
    return None


def refuse_loops(schema: Mapping[str, object], where: str) -> None:
    """Refuse a schema that refers to itself without going deeper into the value: such a check would never end."""
    still_open: dict[str, bool] = {}
    stack = list(_references(schema))
    while stack:
        name = stack[-1]
        if name in still_open:
            still_open[stack.pop()] = False
            continue
        still_open[name] = True
        for onward in _same_value(target(schema, name)):
            if still_open.get(onward, False):
                raise UsageError(f"{where}: {onward[:80]} refers to itself without end. Correct the schema.")
            if onward not in still_open:
                stack.append(onward)


def _references(schema: object) -> Iterator[str]:
    left = [schema]
    while left:
        match left.pop():
            case dict() as node:
                yield from (node[name] for name in ("$ref", "$dynamicRef") if isinstance(node.get(name), str))
                left += [part for keyword, part in node.items() if keyword not in VALUES]
            case list() as items:
                left += items


def _same_value(schema: object) -> Iterator[str]:
    """The references that a schema applies to the very value it is applied to."""
    left = [schema]
    while left:
        node = left.pop()
        if not isinstance(node, dict):
            continue
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for keyword in IN_PLACE:
            parts = node.get(keyword)
            left += parts if isinstance(parts, list) else []
        left += [node[keyword] for keyword in ("not", "if", "then", "else") if keyword in node]


def visits(schema: Mapping[str, object], value: object, *, most: int) -> int:
    """Return how many parts of a schema meet parts of a value inside nested alternatives; stops counting above `most`.

    A schema that branches at each level meets the innermost part of a value once for every way to get there.
    """
    known: dict[tuple[int, int, int], int] = {}
    if "$id" in schema or any(target(schema, reference) is None for reference in _references(schema)):
        return most + 1  # names of other kinds are not followed here

    def count(node: object, part: object, branches: int) -> int:
        if not isinstance(node, Mapping):
            return 0
        key = (id(node), id(part), branches)
        if key not in known:
            known[key] = 0
            known[key] = min(most + 1, (branches > 1) + sum(count(*met) for met in _meetings(schema, node, part, branches)))
        return known[key]

    try:
        return count(schema, value, 0)
    except RecursionError:
        return most + 1


def _meetings(
    root: Mapping[str, object], node: Mapping[str, object], part: object, branches: int
) -> Iterator[tuple[object, object, int]]:
    """Yield each schema that a schema applies, and the part of the value that it is applied to."""
    if isinstance(reference := node.get("$ref"), str):
        yield target(root, reference), part, branches
    for keyword in IN_PLACE:
        listed = node.get(keyword)
        deeper = branches if keyword == "allOf" else min(branches + 1, 2)
        yield from ((one, part, deeper) for one in (listed if isinstance(listed, list) else ()))
    yield from ((node[keyword], part, branches) for keyword in ("not", "if", "then", "else") if keyword in node)
    match part:
        case dict():
            named = node.get("properties")
            fields = named if isinstance(named, dict) else {}
            for name, inner in part.items():
                yield fields.get(name, node.get("additionalProperties")), inner, branches
        case list():
            yield from ((node.get("items"), inner, branches) for inner in part)
