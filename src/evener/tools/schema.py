"""The JSON Schema of a Python type, as plain and as closed as the type itself. Pure: it looks at types, never at values.

Objects are closed and say what is required. A class with fields becomes an entry of `$defs`, so that it may contain itself.
A type that has no JSON form is a UsageError that names the parameter.
"""

import dataclasses
import inspect
import re
import sys
import types
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    MutableSequence,
    Sequence,
    Set,
)
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import (
    TYPE_CHECKING,
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

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = [
    "Problem",
    "Shapes",
    "ValueRefused",
    "annotated",
    "closed",
    "default_of",
    "dotted",
    "hints_of",
    "is_foreign",
    "is_model_value",
    "listed",
    "mentions_models",
    "model_convert",
    "model_dump",
    "model_schema",
    "read_docstring",
    "shown",
    "told",
]


ARGUMENTS = frozenset(("Args:", "Arguments:", "Parameters:", "Params:", "Keyword Args:", "Keyword Arguments:"))
UNSAID = frozenset(("Raises:", "Example:", "Examples:", "See Also:"))
"""Sections that are for programmers."""
GOOGLE = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
REST = re.compile(r"^:(\w+)\s*([^:]*):\s*(.*)$")
PARAMETERS = frozenset(("param", "parameter", "arg", "argument", "key", "keyword"))


def read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """The description, and the descriptions of the parameters by name."""
    lines = inspect.cleandoc(text or "").splitlines()
    said, listed = _cut_docstring(lines)
    parameters = _google(listed)
    said, fields = _docstring_fields(said)
    for field in fields:
        kind, subject, words = field
        if kind in PARAMETERS and subject:
            parameters[subject.split()[-1].lstrip("*")] = words
        elif kind in ("return", "returns"):
            said.append(f"Returns: {words}")
    return "\n".join(said).strip(), parameters


def _cut_docstring(lines: list[str]) -> tuple[list[str], list[str]]:
    """The lines without the sections that do not belong to the description, and the lines of the parameters."""
    said: list[str] = []
    listed: list[str] = []
    sink = said
    for line in lines:
        if line in ARGUMENTS:
            sink = listed
        elif line in UNSAID:
            sink = []
        else:
            if line and not line[0].isspace():
                sink = said
            sink.append(line)
    return said, listed


def _google(lines: list[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    depth = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    words: list[str] = []
    for line in lines:
        start = GOOGLE.match(line[depth:])
        if start is not None:
            words = found.setdefault(start[1], [])
            words.append(start[2])
        else:
            words.append(line.strip())
    return {name: " ".join(filter(None, words)) for name, words in found.items()}


def _docstring_fields(lines: list[str]) -> tuple[list[str], list[tuple[str, str, str]]]:
    """The lines that are no reST fields, and the fields: kind, subject and words."""
    said: list[str] = []
    fields: list[tuple[str, str, str]] = []
    within = False
    for line in lines:
        start = REST.match(line)
        if start is not None:
            fields.append((start[1], start[2].strip(), start[3].strip()))
            within = True
        elif within and line[:1].isspace():
            kind, subject, words = fields[-1]
            fields[-1] = (kind, subject, f"{words} {line.strip()}".strip())
        else:
            within = within and not line.strip()
            said.append(line)
    return said, fields


MOST_TOLD = 20
MOST_SHOWN = 80


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong. `path` is the place, as in `stops[2].city`; empty for the arguments as a whole."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path or 'the arguments'}: {self.message}"


def told(name: str, problems: Sequence[Problem]) -> str:
    """All problems of a call, one a line, and what to do."""
    lines = [f"- {problem}" for problem in problems[:MOST_TOLD]]
    if len(problems) > MOST_TOLD:
        lines.append(f"- and {len(problems) - MOST_TOLD} more")
    return "\n".join(
        [f"The tool {name!r} was not run, because its arguments are wrong:", *lines, "Correct them and call it again."]
    )


def dotted(steps: Sequence[str | int]) -> str:
    """A path as text."""
    parts = (f"[{step}]" if isinstance(step, int) else f".{_cut(step)}" for step in steps)
    return "".join(parts).removeprefix(".")


def shown(value: object) -> str:
    """A JSON value, short enough for a message."""
    match value:
        case dict():
            return "an object"
        case list():
            return "an array"
        case str() if len(value) > MOST_SHOWN:
            return msgspec.json.encode(value[:MOST_SHOWN]).decode() + f"... ({len(value):,} characters)"
        case int() if not isinstance(value, bool) and value.bit_length() > 200:
            return "a very large number"
    return msgspec.json.encode(value).decode()


def listed(values: Sequence[object]) -> str:
    """Some values to choose from."""
    words = ", ".join(shown(value) for value in values[:MOST_TOLD])
    return f"{words} and {len(values) - MOST_TOLD} more" if len(values) > MOST_TOLD else words


def _cut(step: str) -> str:
    return step if len(step) <= MOST_SHOWN else f"{step[:MOST_SHOWN]}..."


Schema = dict[str, object]

BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum", "multiple_of": "multipleOf"}
SIZES = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}


def annotated(schema: Schema, notes: tuple[object, ...], where: str) -> Schema:
    """A type's schema with its constraints and its description."""
    for note in notes:
        schema = {**schema, **_keywords(note, schema, where)}
    return schema


def _keywords(note: object, schema: Schema, where: str) -> Schema:
    if isinstance(note, str):
        return {"description": note}
    if isinstance(note, msgspec.Meta):
        return _meta(note, schema, where)
    if type(note).__name__ == "Doc":
        return {"description": str(getattr(note, "documentation", ""))}
    if type(note).__module__.partition(".")[0] == "annotated_types":
        return _constraint(note, schema, where)
    return {}


def _meta(meta: msgspec.Meta, schema: Schema, where: str) -> Schema:
    found: Schema = {BOUNDS[name]: limit for name in BOUNDS if (limit := getattr(meta, name)) is not None}
    found |= _sizes(meta.min_length, meta.max_length, schema, where)
    if meta.pattern is not None:
        found["pattern"] = meta.pattern
    for name in ("title", "description", "examples"):
        if getattr(meta, name) is not None:
            found[name] = getattr(meta, name)
    return {**found, **(meta.extra_json_schema or {})}


def _constraint(note: object, schema: Schema, where: str) -> Schema:
    kinds = sys.modules["annotated_types"]
    if isinstance(note, kinds.GroupedMetadata):
        return annotated(schema, tuple(note), where)
    if isinstance(note, kinds.MinLen):
        return _sizes(note.min_length, None, schema, where)
    if isinstance(note, kinds.MaxLen):
        return _sizes(None, note.max_length, schema, where)
    for name, keyword in BOUNDS.items():
        limit = getattr(note, name, None)
        if limit is not None:
            return {keyword: _json_number(limit, where)}
    raise UsageError(
        f"{where}: {type(note).__name__} cannot be written as a JSON Schema, so it would not be enforced. "
        "Check it inside the function and raise ModelRetry."
    )


def _sizes(least: int | None, most: int | None, schema: Schema, where: str) -> Schema:
    if least is None and most is None:
        return {}
    types = schema.get("type")
    sized = [kind for kind in (types if isinstance(types, list) else [types]) if kind in SIZES]
    if not sized:
        raise UsageError(f"{where}: a length is asked of something that has none. Put it beside a text, a list or a dict.")
    found: Schema = {}
    for kind in sized:
        for keyword, limit in zip(SIZES[str(kind)], (least, most), strict=True):
            if limit:
                found[keyword] = limit
    return found


def _json_number(limit: object, where: str) -> object:
    if isinstance(limit, bool) or not isinstance(limit, int | float):
        raise UsageError(f"{where}: a bound must be a number, not {limit!r:.80}. Compare it inside the function instead.")
    return limit


SHARED = ("allOf", "if", "dependentSchemas", "unevaluatedProperties")
"""Keywords by which several schemas speak of one object."""


def closed(schema: Schema) -> Schema:
    """The schema with `additionalProperties: false` wherever that is left open and safe to say."""
    return schema if _mixes(schema) else _closed(schema)


def _mixes(schema: object) -> bool:
    """Whether anywhere in it several schemas speak of the fields of one object."""
    return any(
        any(keyword in node for keyword in SHARED)
        or (
            "properties" in node
            and ("$ref" in node or any(_names_fields(node.get(keyword)) for keyword in ("anyOf", "oneOf", "not")))
        )
        for node in _nodes(schema)
    )


def _names_fields(schema: object) -> bool:
    return any("properties" in node or "$ref" in node for node in _nodes(schema))


def _nodes(schema: object) -> Iterator[Schema]:
    left = [schema]
    while left:
        match left.pop():
            case dict() as node:
                yield node
                left += node.values()
            case list() as items:
                left += items


def _closed(node: Schema) -> Schema:
    whole = dict(node)
    for keyword in ("properties", "$defs", "definitions", "patternProperties"):
        parts = whole.get(keyword)
        if isinstance(parts, dict):
            whole[keyword] = {name: _part(part) for name, part in parts.items()}
    for keyword in ("items", "additionalProperties"):
        if keyword in whole:
            whole[keyword] = _part(whole[keyword])
    for keyword in ("prefixItems", "anyOf", "oneOf"):
        parts = whole.get(keyword)
        if isinstance(parts, list):
            whole[keyword] = [_part(part) for part in parts]
    if "properties" in whole and not whole.keys() & {"additionalProperties", "patternProperties"}:
        whole["additionalProperties"] = False
    return whole


def _part(part: object) -> object:
    return _closed(part) if isinstance(part, dict) else part


Convert = Callable[[object], object]


class ValueRefused(Exception):
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
        clash = [name for name in own if name in definitions and definitions[name] != _closed_model(own[name])]
        if clash:
            mark = f"_{len(definitions)}"
            schema = adapter.json_schema(ref_template=f"#/$defs/{{model}}{mark}")
            own = {f"{name}{mark}": part for name, part in schema.pop("$defs", {}).items()}
    except PydanticUserError as error:
        raise UsageError(f"{where}: Pydantic has no JSON Schema for this type ({error.message}).") from None
    definitions.update({name: _closed_model(part) for name, part in own.items()})
    return _closed_model(schema)


def _closed_model(schema: object) -> Schema:
    """Objects with known fields take no others unless the model says so."""
    node = dict(schema) if isinstance(schema, dict) else {}
    if isinstance(node.get("title"), str):
        del node["title"]
    for keyword in ("properties", "$defs"):
        parts = node.get(keyword)
        if isinstance(parts, dict):
            node[keyword] = {name: _closed_model(part) for name, part in parts.items()}
    for keyword in ("items", "additionalProperties", "not"):
        if isinstance(node.get(keyword), dict):
            node[keyword] = _closed_model(node[keyword])
    for keyword in ("anyOf", "oneOf", "allOf", "prefixItems"):
        parts = node.get(keyword)
        if isinstance(parts, list):
            node[keyword] = [_closed_model(part) for part in parts]
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
            raise ValueRefused(tuple(Problem(dotted(problem["loc"]), problem["msg"]) for problem in found)) from None

    return convert


def is_model_value(value: object) -> bool:
    """Whether a value is an instance of a Pydantic model or dataclass."""
    return "pydantic" in sys.modules and is_foreign(type(value))


def model_dump(value: object) -> object:
    """Such a value as JSON values."""
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value)


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
