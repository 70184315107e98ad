"""Field tables for JSON objects, and typed access to untrusted JSON. Never raises, never recurses, never copies.

A shape lists the required and the optional fields of an object, one line each:
`"id name: str, input: str|list, mode: 'auto'|'any'"`. `null` counts as absent for optional fields: the recordings send `null`
there and get a 200. Messages show values only if they are short strings, because the repr of deep JSON would overflow the
stack.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import cast

import msgspec


class Violation(msgspec.Struct, frozen=True):
    """One reason why a provider would answer 400. A plain value: it never raises and decides nothing.

    `path` is written the way the provider writes it (`messages.0.content.1.id`, `input[3].call_id`; empty for the whole
    body), `rule` is a stable name to branch on, `message` is the API's message or says what was expected.
    """

    path: str
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class Kind(msgspec.Struct, frozen=True):
    """A test on the type of a value, and the name of that type.

    A value of that type that is not `legal` is reported with `broken`, at its path; `{value}` in the message is the value.
    """

    expected: str
    accepts: Callable[[object], bool]
    legal: Callable[[object], bool] | None = None
    broken: Violation | None = None


def is_int(value: object) -> bool:
    """True if value is a JSON integer (Python counts booleans as integers, JSON does not)."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """True if value is a JSON number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_text(value: object) -> bool:
    """True if value is a JSON string."""
    return isinstance(value, str)


def is_json(value: object) -> bool:
    """True if a text is JSON. A text that is nested too deeply to be parsed counts as JSON."""
    try:
        json.loads(text(value))
    except ValueError:
        return False
    except RecursionError:
        return True
    return True


KINDS: Mapping[str, Kind] = {
    "str": Kind("a string", is_text),
    "int": Kind("an integer", is_int),
    "number": Kind("a number", is_number),
    "bool": Kind("a boolean", lambda value: isinstance(value, bool)),
    "object": Kind("an object", lambda value: isinstance(value, dict)),
    "list": Kind("an array", lambda value: isinstance(value, list)),
    "any": Kind("any value", lambda _value: True),
}


def limited(word: str, legal: Callable[[object], bool], broken: Violation) -> Kind:
    """Return the kind with only these legal values."""
    kind = read_kind(word)
    return Kind(kind.expected, kind.accepts, legal, broken)


def text_like(pattern: str, broken: Violation) -> Kind:
    """Return the kind of texts that match a pattern as a whole."""
    compiled = re.compile(pattern)
    return limited("str", lambda value: compiled.fullmatch(text(value)) is not None, broken)


def one_of(*allowed: str) -> Kind:
    """Return the kind of these strings."""
    expected = "one of " + ", ".join(f"'{name}'" for name in allowed)
    return Kind(expected, is_text, frozenset(allowed).__contains__, Violation("", "enum", f"{{value}} is not {expected}."))


def read_kinds(line: str, own: Mapping[str, Kind]) -> dict[str, Kind]:
    """Return the fields of a line, each with its kind. `own` are further kinds by name."""
    groups = (group.partition(":") for group in line.split(",") if group.strip())
    return {name: read_kind(word.strip(), own) for names, _, word in groups for name in names.split()}


def read_kind(word: str, own: Mapping[str, Kind] = MappingProxyType({})) -> Kind:
    """Return the kind that a line names: one, one of two, or one of some quoted texts."""
    if word.startswith("'"):
        return one_of(*(name.strip("'") for name in word.split("|")))
    first, *others = ({**KINDS, **own}[name] for name in word.split("|"))
    if not others:
        return first
    (other,) = others
    return Kind(f"{first.expected} or {other.expected}", lambda value: first.accepts(value) or other.accepts(value))


class ObjectShape(msgspec.Struct, frozen=True):
    """The fields of an object. An `open` shape allows other fields."""

    required: Mapping[str, Kind]
    optional: Mapping[str, Kind]
    open: bool


def shape(required: str = "", optional: str = "", *, open: bool = False, **own: Kind) -> ObjectShape:
    """Return the shape that these lines describe. `own` are further kinds by name."""
    return ObjectShape(read_kinds(required, own), read_kinds(optional, own), open)


def fields(value: object) -> dict[str, object]:
    """Return the value if it is an object, else an empty one (another rule reports that)."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def items(value: object) -> list[object]:
    """Return the value if it is an array, else an empty one (another rule reports that)."""
    return cast("list[object]", value) if isinstance(value, list) else []


def text(value: object) -> str:
    """Return the value if it is a string, else an empty one; safe as a table key."""
    return value if isinstance(value, str) else ""


def shown(value: str) -> str:
    """Return a string, cut to a length that fits in a message."""
    return f"'{value}'" if len(value) <= 80 else f"'{value[:77]}...'"


def join(path: str, name: object) -> str:
    """Return the path of a field, in the dotted form that both providers use."""
    return f"{path}.{name}" if path else f"{name}"


def check_shape(path: str, value: object, shape: ObjectShape, *, loose: bool = False) -> Iterator[Violation]:
    """Report missing, mistyped, illegal and unexpected fields of one object; if `loose`, unexpected fields are allowed."""
    if not isinstance(value, dict):
        yield Violation(path, "type", "Input should be an object.")
        return
    held = fields(value)
    for name, kind in shape.required.items():
        if name not in held:
            yield Violation(join(path, name), "missing", f"Field required: {kind.expected}.")
        else:
            yield from check_kind(join(path, name), held[name], kind)
    for name, kind in shape.optional.items():
        if held.get(name) is not None:
            yield from check_kind(join(path, name), held[name], kind)
    for name in held if not (shape.open or loose) else ():
        if name not in shape.required and name not in shape.optional:
            yield Violation(join(path, name), "extra_field", "Extra inputs are not permitted (unknown parameter).")


def check_kind(path: str, value: object, kind: Kind) -> Iterator[Violation]:
    """Report a value of another type, or one that is not legal."""
    if not kind.accepts(value):
        yield Violation(path, "type", f"Input should be {kind.expected}.")
    elif kind.legal is not None and kind.broken is not None and not kind.legal(value):
        message = kind.broken.message.replace("{value}", shown(text(value)))
        yield msgspec.structs.replace(kind.broken, path=path, message=message)
