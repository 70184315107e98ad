"""The JSON Schema of a Python type, as plain and as closed as the type itself. Pure: it looks at types, never at values.

Objects are closed and say what is required. A class with fields becomes an entry of `$defs`, so that it may contain itself.
A type that has no JSON form is a UsageError that names the parameter.
"""

import dataclasses
import types
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, MutableMapping, MutableSequence, Sequence, Set
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import (
    Annotated,
    Any,
    Literal,
    NewType,
    NotRequired,
    Required,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)
from uuid import UUID

import msgspec

from evener.errors import UsageError
from evener.tools.constraints import Schema, annotated
from evener.tools.docstring import read_docstring
from evener.tools.models import mentions_models, model_schema

__all__ = ["Shapes", "default_of", "hints_of"]

PLAIN: dict[object, Schema] = {
    None: {"type": "null"},
    type(None): {"type": "null"},
    Any: {},
    object: {},
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    bytearray: {"type": "string", "contentEncoding": "base64"},
    datetime: {"type": "string", "format": "date-time"},
    date: {"type": "string", "format": "date"},
    time: {"type": "string", "format": "time"},
    timedelta: {"type": "string", "format": "duration"},
    Decimal: {"type": "string", "format": "decimal"},
    UUID: {"type": "string", "format": "uuid"},
}
LISTS = (list, set, frozenset, Sequence, MutableSequence, Set, Collection, Iterable)
DICTS = (dict, Mapping, MutableMapping)
FIELD_MARKS = (Required, NotRequired)


class Shapes:
    """Makes schemas and collects the definitions they refer to."""

    def __init__(self) -> None:
        self.definitions: dict[str, object] = {}
        self._names: dict[object, str] = {}

    def whole(self, kind: object, where: str) -> Schema:
        """The schema of a type that is converted as a whole: by Pydantic if it mentions any type of Pydantic's."""
        return model_schema(kind, self.definitions, where) if mentions_models(kind) else self.of(kind, where)

    def of(self, kind: object, where: str) -> Schema:
        """The schema of a type. `where` names the place for errors."""
        if isinstance(kind, Hashable) and kind in PLAIN:
            return dict(PLAIN[kind])
        origin = get_origin(kind)
        if origin is not None:
            return self._generic(kind, origin, get_args(kind), where)
        if isinstance(kind, type):
            return self._class(kind, kind, where)
        if isinstance(kind, NewType):
            return self.of(kind.__supertype__, where)
        if type(kind).__name__ == "TypeAliasType":
            return self.of(getattr(kind, "__value__", None), where)
        raise _no_form(kind, where)

    def _generic(self, kind: object, origin: object, args: tuple[object, ...], where: str) -> Schema:
        if origin is Annotated:
            return annotated(self.of(args[0], where), get_args(kind)[1:], where)
        if origin in (Union, types.UnionType):
            return _either([self.of(arg, where) for arg in args])
        if origin is Literal:
            return _choice(list(args))
        if origin in FIELD_MARKS:
            return self.of(args[0], where)
        if isinstance(origin, type):
            return self._class(origin, kind, where, args)
        raise _no_form(kind, where)

    def _class(self, kind: type, whole: object, where: str, args: tuple[object, ...] = ()) -> Schema:
        if kind in LISTS:
            return {"type": "array", **({"items": self.of(args[0], where)} if args else {})}
        if kind is tuple:
            return self._tuple(args, where)
        if kind in DICTS:
            return self._dict(args, where)
        if issubclass(kind, Enum):
            return _choice([member.value for member in kind])
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return self._named_tuple(kind, where)
        if is_typeddict(kind) or dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct):
            return self._defined(kind, whole, where)
        raise _no_form(whole, where)

    def _tuple(self, args: tuple[object, ...], where: str) -> Schema:
        if len(args) == 2 and args[1] is Ellipsis:
            return {"type": "array", "items": self.of(args[0], where)}
        if not args:
            return {"type": "array"}
        return _row([self.of(arg, where) for arg in args], len(args))

    def _dict(self, args: tuple[object, ...], where: str) -> Schema:
        if not args:
            return {"type": "object", "additionalProperties": True}
        names = self.of(args[0], where)
        schema: Schema = {"type": "object", "additionalProperties": self.of(args[1], where) or True}
        if names.get("type") == "string" and len(names) > 1:
            schema["propertyNames"] = names
        return schema

    def _named_tuple(self, kind: type, where: str) -> Schema:
        hints = hints_of(kind, where)
        names: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]  # only named tuples come here
        defaults: dict[str, object] = kind._field_defaults  # type: ignore[attr-defined]  # see above
        row = [{**self.of(hints.get(name, object), f"{where}.{name}"), "title": name} for name in names]
        return _row(row, len(names) - len(defaults))

    def _defined(self, kind: type, whole: object, where: str) -> Schema:
        """A reference to the definition of a class, which is made when it is met first."""
        if whole not in self._names:
            name = unused(kind.__name__, self.definitions)
            self._names[whole] = name
            self.definitions[name] = {}
            self.definitions[name] = self._object(kind, whole, where)
        return {"$ref": f"#/$defs/{self._names[whole]}"}

    def _object(self, kind: type, whole: object, where: str) -> Schema:
        about, words = _documented(kind)
        properties: dict[str, object] = {}
        required: list[str] = []
        for name, hint, default in _fields(kind, whole, where):
            schema = self.of(hint, f"{where}.{name}")
            if name in words and "description" not in schema:
                schema["description"] = words[name]
            properties[name] = schema | default_of(default)
            if default is Ellipsis:
                required.append(name)
        schema = {"type": "object", **({"description": about} if about else {}), "properties": properties}
        return {**schema, "required": required, "additionalProperties": False}


Field = tuple[str, object, object]
"""Name, type, and default: `...` where there is none, None where it cannot be said."""


def _fields(kind: type, whole: object, where: str) -> list[Field]:
    if is_typeddict(kind):
        needed: frozenset[str] = kind.__required_keys__  # type: ignore[attr-defined]  # only typed dicts have it
        return [(name, hint, ... if name in needed else None) for name, hint in hints_of(kind, where).items()]
    if issubclass(kind, msgspec.Struct):
        return _struct_fields(kind, whole, where)
    hints = hints_of(kind, where)
    known = _substitutes(kind, whole)
    return [
        (field.name, _substituted(hints[field.name], known), _default(field, dataclasses.MISSING))
        for field in dataclasses.fields(kind)  # type: ignore[arg-type]  # nothing but dataclasses comes here
        if field.init
    ]


def _struct_fields(kind: type[msgspec.Struct], whole: object, where: str) -> list[Field]:
    config = kind.__struct_config__
    if config.array_like:
        raise UsageError(f"{where}: {kind.__name__} is array_like, so its fields have no names. Use one that is not.")
    fields: list[Field] = []
    if config.tag_field is not None:
        fields.append((config.tag_field, Literal[config.tag], ...))
    struct: type[msgspec.Struct] = whole  # type: ignore[assignment]  # or a generic alias of one, which is taken as well
    found = msgspec.structs.fields(struct)
    return fields + [(field.encode_name, field.type, _default(field, msgspec.NODEFAULT)) for field in found]


def _default(field: "dataclasses.Field[object] | msgspec.structs.FieldInfo", missing: object) -> object:
    if field.default is not missing:
        return field.default
    return ... if field.default_factory is missing else None


def default_of(value: object) -> Schema:
    """The keyword for a default that is worth saying: a plain value."""
    if isinstance(value, Enum):
        value = value.value
    return {"default": value} if isinstance(value, str | int | float) else {}


def _substitutes(kind: type, whole: object) -> dict[object, object]:
    names: tuple[object, ...] = getattr(kind, "__parameters__", ())
    return dict(zip(names, get_args(whole), strict=False))


def _substituted(hint: object, known: dict[object, object]) -> object:
    if isinstance(hint, TypeVar):
        return known.get(hint, hint)
    inner: tuple[object, ...] = getattr(hint, "__parameters__", ())
    subscript: Callable[[tuple[object, ...]], object] | None = getattr(hint, "__getitem__", None)
    if not inner or subscript is None or isinstance(hint, type):
        return hint
    return subscript(tuple(known.get(name, name) for name in inner))


def hints_of(kind: object, where: str) -> dict[str, object]:
    """The annotations of a class or function, with names resolved."""
    try:
        return dict(get_type_hints(kind, include_extras=True))
    except (NameError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{where}: its annotations cannot be read ({error}). Types must be importable where they are named: "
            "define them at the top of a module."
        ) from None


def _documented(kind: type) -> tuple[str, dict[str, str]]:
    """The docstring of a class, unless it is one that Python has made up."""
    text = kind.__dict__.get("__doc__")
    if not isinstance(text, str) or text.startswith(f"{kind.__name__}("):
        return "", {}
    return read_docstring(text)


def _either(schemas: list[Schema]) -> Schema:
    """One schema for several: a list of types if nothing else is said."""
    if any(not schema for schema in schemas):
        return {}
    if all(schema.keys() == {"type"} for schema in schemas):
        kinds = [kind for schema in schemas for kind in _listed(schema["type"])]
        return {"type": list(dict.fromkeys(kinds))}
    rest = [schema for schema in schemas if schema != {"type": "null"}]
    only = rest[0] if len(rest) == 1 else {}
    if isinstance(only.get("type"), str) and not only.keys() & {"enum", "const"}:
        return {**only, "type": [only["type"], "null"]}
    return {"anyOf": schemas}


def _listed(value: object) -> list[object]:
    return list(value) if isinstance(value, list) else [value]


def _choice(values: list[object]) -> Schema:
    names = {str: "string", int: "integer", bool: "boolean", type(None): "null"}
    kinds = list(dict.fromkeys(names.get(type(value), "") for value in values))
    if "" in kinds:
        return {"enum": values}
    return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": values}


def _row(row: list[Schema], least: int) -> Schema:
    return {"type": "array", "prefixItems": row, "items": False, "minItems": least, "maxItems": len(row)}


def unused(name: str, taken: Mapping[str, object]) -> str:
    """A name for a definition that is not taken yet."""
    number = 2
    free = name
    while free in taken:
        free = f"{name}_{number}"
        number += 1
    return free


def _no_form(kind: object, where: str) -> UsageError:
    name = getattr(kind, "__name__", None) or repr(kind)
    return UsageError(
        f"{where}: {name} has no JSON form. Use builtin types, Literal, Enum, dataclasses, TypedDict, NamedTuple, "
        "msgspec.Struct or Pydantic models; what is not an argument of the model belongs into ToolContext.deps."
    )
