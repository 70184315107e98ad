"""Field tables for JSON objects, and the typed look at untrusted JSON. Never raises, never recurses, never copies.

A `Shape` lists what an object must and may hold. `null` counts as absent for optional fields: the recordings send
`null` there and get a 200. Values are shown in messages only when they are short strings, because the repr of deep JSON
would overflow the stack.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import cast

import msgspec

from evener.testing.check.violation import Violation


class Kind(msgspec.Struct, frozen=True):
    """A test on one value, and how to name what it expects."""

    expected: str
    accepts: Callable[[object], bool]
    closed: bool = False


def is_int(value: object) -> bool:
    """True if value is a JSON integer (Python counts booleans as integers, JSON does not)."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """True if value is a JSON number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


STR = Kind("a string", lambda value: isinstance(value, str))
INT = Kind("an integer", is_int)
NUMBER = Kind("a number", is_number)
BOOL = Kind("a boolean", lambda value: isinstance(value, bool))
OBJECT = Kind("an object", lambda value: isinstance(value, dict))
LIST = Kind("an array", lambda value: isinstance(value, list))
STR_OR_LIST = Kind("a string or an array", lambda value: isinstance(value, str | list))
STR_OR_OBJECT = Kind("a string or an object", lambda value: isinstance(value, str | dict))
OBJECT_OR_LIST = Kind("an object or an array", lambda value: isinstance(value, dict | list))
ANY = Kind("any value", lambda _value: True)


def one_of(*allowed: str) -> Kind:
    """Return the closed set of strings given."""
    names = frozenset(allowed)
    listed = ", ".join(f"'{name}'" for name in allowed)
    return Kind(f"one of {listed}", lambda value: isinstance(value, str) and value in names, closed=True)


class ObjectShape(msgspec.Struct, frozen=True):
    """What an object holds. An `open` shape tolerates fields it does not name."""

    required: Mapping[str, Kind] = {}
    optional: Mapping[str, Kind] = {}
    open: bool = False


def fields(value: object) -> dict[str, object]:
    """Return the value as an object, or an empty one when it is something else (which its own rule reports)."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def items(value: object) -> list[object]:
    """Return the value as an array, or an empty one when it is something else (which its own rule reports)."""
    return cast("list[object]", value) if isinstance(value, list) else []


def text(value: object) -> str:
    """Return the value as a string, or an empty one when it is something else; safe as a table key."""
    return value if isinstance(value, str) else ""


def shown(value: str) -> str:
    """Return a string cut to what fits in a message."""
    return f"'{value}'" if len(value) <= 80 else f"'{value[:77]}...'"


def join(path: str, name: object) -> str:
    """Return the path of a field, in the dotted form that both providers use."""
    return f"{path}.{name}" if path else f"{name}"


def check_shape(path: str, value: object, shape: ObjectShape) -> Iterator[Violation]:
    """Report missing, mistyped and unexpected fields of one object."""
    if not isinstance(value, dict):
        yield Violation(path, "type", "Input should be an object.")
        return
    held = fields(value)
    for name, kind in shape.required.items():
        if name not in held:
            yield Violation(join(path, name), "missing", f"Field required: {kind.expected}.")
        else:
            yield from _check_field(join(path, name), held[name], kind)
    for name, kind in shape.optional.items():
        if held.get(name) is not None:
            yield from _check_field(join(path, name), held[name], kind)
    if not shape.open:
        yield from _check_extra(path, held, shape)


def _check_field(path: str, value: object, kind: Kind) -> Iterator[Violation]:
    if kind.accepts(value):
        return
    if kind.closed and isinstance(value, str):
        yield Violation(path, "enum", f"{shown(value)} is not {kind.expected}.")
    else:
        yield Violation(path, "type", f"Input should be {kind.expected}.")


def _check_extra(path: str, held: Mapping[str, object], shape: ObjectShape) -> Iterator[Violation]:
    for name in held:
        if name not in shape.required and name not in shape.optional:
            yield Violation(join(path, name), "extra_field", "Extra inputs are not permitted (unknown parameter).")
