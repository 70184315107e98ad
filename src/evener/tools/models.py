"""Types that belong to Pydantic: recognised without importing it, described and converted by it.

Pydantic is imported only if the user's own type is one of its own, and then it is loaded already.
"""

import dataclasses
import sys
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

from evener.errors import UsageError
from evener.tools.constraints import Schema
from evener.tools.problems import Problem, dotted

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["Refused", "is_foreign", "is_model_value", "mentions_models", "model_convert", "model_dump", "model_schema"]

Convert = Callable[[object], object]


class Refused(Exception):
    """A value that a type does not take."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


def is_foreign(kind: object) -> bool:
    """Whether a type is Pydantic's: a model, a dataclass of its kind, or anything with its constraints beside it."""
    if "pydantic" not in sys.modules:
        return False
    if get_origin(kind) is Annotated:
        return any(_is_pydantics(type(note)) for note in get_args(kind)[1:]) or is_foreign(get_args(kind)[0])
    return isinstance(kind, type) and (_is_pydantics(kind) or "__pydantic_core_schema__" in vars(kind))


def _is_pydantics(kind: type) -> bool:
    return any(parent.__module__.partition(".")[0] in ("pydantic", "pydantic_core") for parent in kind.__mro__)


def mentions_models(kind: object) -> bool:
    """Whether a type is Pydantic's, or holds one that is, however deep."""
    return "pydantic" in sys.modules and any(is_foreign(part) for part in _parts(kind))


def _parts(kind: object) -> Iterator[object]:
    left, seen = [kind], list[object]()
    while left:
        part = left.pop()
        if any(part is known for known in seen):
            continue
        seen.append(part)
        yield part
        left += get_args(part)
        if isinstance(part, type) and not isinstance(part, types.GenericAlias):
            fields = dataclasses.is_dataclass(part) or is_typeddict(part) or issubclass(part, msgspec.Struct)
            left += _hints(part) if fields else []


def _hints(kind: type) -> list[object]:
    try:
        return list(get_type_hints(kind, include_extras=True).values())
    except (NameError, TypeError):
        return []


def _adapter(kind: object) -> "TypeAdapter[object]":
    from pydantic import TypeAdapter

    return TypeAdapter(kind)  # type: ignore[arg-type]  # any annotation is taken


def model_schema(kind: object, definitions: dict[str, object], where: str) -> Schema:
    """The schema as Pydantic has it, closed and without its made-up titles; what it refers to joins our definitions."""
    from pydantic.errors import PydanticUserError

    try:
        adapter = _adapter(kind)
        schema = adapter.json_schema(ref_template="#/$defs/{model}")
        own = schema.pop("$defs", {})
        clash = [name for name in own if name in definitions and definitions[name] != _closed(own[name])]
        if clash:
            mark = f"_{len(definitions)}"
            schema = adapter.json_schema(ref_template=f"#/$defs/{{model}}{mark}")
            own = {f"{name}{mark}": part for name, part in schema.pop("$defs", {}).items()}
    except PydanticUserError as error:
        raise UsageError(f"{where}: Pydantic has no JSON Schema for this type ({error.message}).") from None
    definitions.update({name: _closed(part) for name, part in own.items()})
    return _closed(schema)


def _closed(schema: object) -> Schema:
    """Objects with known fields take no others unless the model says so."""
    node = dict(schema) if isinstance(schema, dict) else {}
    if isinstance(node.get("title"), str):
        del node["title"]
    for keyword in ("properties", "$defs"):
        parts = node.get(keyword)
        if isinstance(parts, dict):
            node[keyword] = {name: _closed(part) for name, part in parts.items()}
    for keyword in ("items", "additionalProperties", "not"):
        if isinstance(node.get(keyword), dict):
            node[keyword] = _closed(node[keyword])
    for keyword in ("anyOf", "oneOf", "allOf", "prefixItems"):
        parts = node.get(keyword)
        if isinstance(parts, list):
            node[keyword] = [_closed(part) for part in parts]
    if "properties" in node:
        node.setdefault("additionalProperties", False)
    return node


def model_convert(kind: object) -> Convert:
    """What turns a JSON value into the type; raises Refused."""
    from pydantic import ValidationError

    adapter = _adapter(kind)

    def convert(value: object) -> object:
        try:
            return adapter.validate_json(msgspec.json.encode(value))
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            raise Refused(tuple(Problem(dotted(problem["loc"]), problem["msg"]) for problem in found)) from None

    return convert


def is_model_value(value: object) -> bool:
    """Whether a value is an instance of a Pydantic model or dataclass."""
    return "pydantic" in sys.modules and is_foreign(type(value))


def model_dump(value: object) -> object:
    """Such a value as JSON values."""
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value)
