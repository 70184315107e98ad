"""References within a JSON Schema: where they lead, and that following them comes to an end. Pure."""

from collections.abc import Iterator, Mapping
from urllib.parse import unquote

from evener.errors import UsageError

__all__ = ["refuse_loops", "target"]

IN_PLACE = ("anyOf", "oneOf", "allOf")
"""Keywords whose schemas look at the same value."""
VALUES = ("enum", "const", "default", "examples")
"""Keywords that hold values, not schemas."""


def target(schema: Mapping[str, object], reference: str, where: str) -> object:
    """What a reference refers to."""
    if not reference.startswith("#"):
        raise UsageError(f"{where}: the reference {reference[:80]!r} leads outside. Put what it names into $defs.")
    found: object = schema
    for step in reference[1:].split("/")[1:]:
        found = _step(found, unquote(step).replace("~1", "/").replace("~0", "~"))
    if not isinstance(found, Mapping | bool):
        raise UsageError(f"{where}: the reference {reference[:80]!r} leads nowhere. Put what it names into $defs.")
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
        for onward in _same_value(target(schema, name, where)):
            if still_open.get(onward, False):
                raise UsageError(f"{where}: {onward[:80]} refers to itself without end. Correct the schema.")
            if onward not in still_open:
                stack.append(onward)


def _references(schema: object) -> Iterator[str]:
    left = [schema]
    while left:
        match left.pop():
            case dict() as node:
                if isinstance(node.get("$ref"), str):
                    yield node["$ref"]
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
