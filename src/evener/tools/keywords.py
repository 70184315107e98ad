"""The keywords of JSON Schema that look at one value alone: types, choices, bounds, lengths, patterns, formats. Pure.

Each function takes what a schema says after a keyword and gives a check; a check tells what is wrong with a value, or None.
A keyword says nothing about values of another type, as in JSON Schema itself. What a schema says must make sense:
otherwise it is a UsageError, when the tool is made and not when it is called.
"""

from collections.abc import Callable, Collection
from datetime import date, datetime, time
from fractions import Fraction
from math import isfinite
from uuid import UUID

import msgspec

from evener.errors import UsageError
from evener.policy.patterns import Pattern, Unsupported, compile_pattern
from evener.tools.problems import listed, shown

__all__ = ["KINDS", "PLAIN", "Test", "Unenforced", "expected", "format_test", "key_of", "kind_of", "pattern_of", "types_of"]

Test = Callable[[object], str | None]

KINDS = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}


PLAIN_KINDS: dict[type, str] = {
    str: "string",
    int: "integer",
    bool: "boolean",
    type(None): "null",
    list: "array",
    dict: "object",
}
"""What JSON is decoded to; only a float has to be looked at to know its kind."""


class Unenforced(Exception):
    """A keyword that cannot be enforced, and why."""


def kind_of(value: object) -> str:
    """The JSON type of a value; a number without a fraction is an integer, however it is written."""
    kind = PLAIN_KINDS.get(type(value))
    if kind is not None:
        return kind
    match value:
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def expected(types: Collection[str], value: object) -> str:
    """That a value is of another type."""
    words = " or ".join(KINDS[kind] for kind in KINDS if kind in types)
    kind = kind_of(value)
    found = "a number" if kind == "integer" else "a boolean" if kind == "boolean" else KINDS[kind]
    if kind == "number" and "integer" in types:
        found = shown(value)
    return f"expected {words}, found {found}"


def types_of(said: object, where: str) -> frozenset[str]:
    """The types that `type` names; a number includes integers."""
    names = said if isinstance(said, list) else [said]
    wrong = [name for name in names if not isinstance(name, str) or name not in KINDS]
    if wrong or not names:
        raise _nonsense(where, "type", "one of " + ", ".join(KINDS), said)
    return frozenset(names) | ({"integer"} if "number" in names else frozenset())


def key_of(value: object) -> object:
    """A value that is equal to another one's exactly if the two JSON values are: true is not 1, but 1.0 is."""
    if type(value) is str:
        return value
    match value:
        case bool():
            return ("boolean", value)
        case list():
            return ("array", tuple(key_of(item) for item in value))
        case dict():
            return ("object", frozenset((name, key_of(item)) for name, item in value.items()))
    return value


def _enum(said: object, where: str) -> Test:
    if not isinstance(said, list) or not said:
        raise _nonsense(where, "enum", "a list of values", said)
    keys = {key_of(value) for value in said}
    choices = listed(said)
    return lambda value: None if key_of(value) in keys else f"must be one of {choices}; found {shown(value)}"


def _const(said: object, _where: str) -> Test:
    key = key_of(said)
    return lambda value: None if key_of(value) == key else f"must be {shown(said)}; found {shown(value)}"


def _bound(name: str, words: str, fits: Callable[[float, float], bool]) -> Callable[[object, str], Test]:
    def make(said: object, where: str) -> Test:
        limit = _number(said, where, name)

        def test(value: object) -> str | None:
            if isinstance(value, bool) or not isinstance(value, int | float) or fits(value, limit):
                return None
            return f"must be {words} {shown(limit)}; found {shown(value)}"

        return test

    return make


def _multiple_of(said: object, where: str) -> Test:
    step = _number(said, where, "multipleOf")
    if step <= 0:
        raise _nonsense(where, "multipleOf", "a number above 0", said)
    exact = Fraction(repr(step))

    def test(value: object) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        whole = Fraction(value if isinstance(value, int) else repr(value)) / exact
        return None if whole.denominator == 1 else f"must be a multiple of {shown(step)}; found {shown(value)}"

    return test


def _size(
    name: str, kind: type[str] | type[list[object]] | type[dict[str, object]], unit: str
) -> Callable[[object, str], Test]:
    least = name.startswith("min")

    def make(said: object, where: str) -> Test:
        limit = _count(said, where, name)

        def test(value: object) -> str | None:
            if not isinstance(value, kind) or (len(value) >= limit if least else len(value) <= limit):
                return None
            return f"must have {'at least' if least else 'at most'} {limit:,} {unit}; found {len(value):,}"

        return test

    return make


def _unique(said: object, where: str) -> Test:
    if not isinstance(said, bool):
        raise _nonsense(where, "uniqueItems", "true or false", said)

    def test(value: object) -> str | None:
        if not said or not isinstance(value, list):
            return None
        seen: dict[object, int] = {}
        for number, item in enumerate(value):
            before = seen.setdefault(key_of(item), number)
            if before != number:
                return f"must not repeat items, but items {before} and {number} are equal"
        return None

    return test


def pattern_of(said: object, where: str) -> Pattern:
    """A pattern, if it can be had in linear time."""
    if not isinstance(said, str):
        raise _nonsense(where, "pattern", "a regular expression", said)
    try:
        return compile_pattern(said)
    except Unsupported as error:
        raise Unenforced(str(error)) from None


def _pattern(said: object, where: str) -> Test:
    pattern = pattern_of(said, where)

    def test(value: object) -> str | None:
        if not isinstance(value, str):
            return None
        occurs = pattern.occurs_in(value)
        if occurs is None:
            return f"is too long to be checked against the pattern {pattern.text}"
        return None if occurs else f"must match the pattern {pattern.text}; found {shown(value)}"

    return test


FORMATS: dict[str, tuple[type, str]] = {
    "date-time": (datetime, '"2026-01-31T12:00:00Z"'),
    "date": (date, '"2026-01-31"'),
    "time": (time, '"12:00:00"'),
    "uuid": (UUID, '"12345678-1234-5678-1234-567812345678"'),
}
DECIMAL = compile_pattern(r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?$")


def format_test(said: object, _where: str) -> Test:
    """The formats that are enforced; any other one is only a hint."""
    if said == "decimal":
        return lambda value: (
            None
            if not isinstance(value, str) or DECIMAL.occurs_in(value)
            else f'must be a decimal number such as "12.50"; found {shown(value)}'
        )
    if not isinstance(said, str) or said not in FORMATS:
        raise Unenforced("the format is not known")
    kind, example = FORMATS[said]

    def test(value: object) -> str | None:
        if isinstance(value, str):
            try:
                msgspec.convert(value, kind)
            except msgspec.ValidationError:
                return f"must be a {said} such as {example}; found {shown(value)}"
        return None

    return test


PLAIN: dict[str, Callable[[object, str], Test]] = {
    "enum": _enum,
    "const": _const,
    "minimum": _bound("minimum", "at least", lambda value, limit: value >= limit),
    "maximum": _bound("maximum", "at most", lambda value, limit: value <= limit),
    "exclusiveMinimum": _bound("exclusiveMinimum", "above", lambda value, limit: value > limit),
    "exclusiveMaximum": _bound("exclusiveMaximum", "below", lambda value, limit: value < limit),
    "multipleOf": _multiple_of,
    "minLength": _size("minLength", str, "characters"),
    "maxLength": _size("maxLength", str, "characters"),
    "minItems": _size("minItems", list, "items"),
    "maxItems": _size("maxItems", list, "items"),
    "minProperties": _size("minProperties", dict, "fields"),
    "maxProperties": _size("maxProperties", dict, "fields"),
    "uniqueItems": _unique,
    "pattern": _pattern,
    "format": format_test,
}
"""Keyword -> what makes a check of what the schema says after it."""


def _number(said: object, where: str, keyword: str) -> float:
    if isinstance(said, bool) or not isinstance(said, int | float) or not isfinite(said):
        raise _nonsense(where, keyword, "a number", said)
    return said


def _count(said: object, where: str, keyword: str) -> int:
    if isinstance(said, bool) or not isinstance(said, int | float) or said < 0 or int(said) != said:
        raise _nonsense(where, keyword, "a whole number from 0 on", said)
    return int(said)


def _nonsense(where: str, keyword: str, right: str, said: object) -> UsageError:
    return UsageError(f"{where}: {keyword} must be {right}, not {repr(said)[:80]}. Correct the schema.")
