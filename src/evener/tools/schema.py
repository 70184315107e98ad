"""Types as JSON Schemas, docstrings as descriptions, and problems as text for the model. Pure: it reads types, not values.

Objects are closed and list what is required. A class with fields becomes an entry of `$defs`, so it may contain itself. A
type without a JSON form is a UsageError that names the parameter. Why `msgspec.json.schema` is not used: ADR 25.
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

Schema = dict[str, object]
Convert = Callable[[object], object]

# Docstrings.

ARGUMENTS = frozenset(("Args:", "Arguments:", "Parameters:", "Params:", "Keyword Args:", "Keyword Arguments:"))
UNSAID = frozenset(("Raises:", "Example:", "Examples:", "See Also:"))
"""Sections that are for programmers."""
GOOGLE = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
REST = re.compile(r"^:(\w+)\s*([^:]*):\s*(.*)$")
PARAMETERS = frozenset(("param", "parameter", "arg", "argument", "key", "keyword"))


def read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """Return the description, and the descriptions of the parameters by name."""
    said, parameters = _split_google(inspect.cleandoc(text or "").splitlines())
    said, fields = _split_rest(said)
    for kind, subject, words in fields:
        if kind in PARAMETERS and subject:
            parameters[subject.split()[-1].lstrip("*")] = words
        elif kind in ("return", "returns"):
            said.append(f"Returns: {words}")
    return "\n".join(said).strip(), parameters


def _split_google(lines: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return the lines without the sections that do not belong to the description, and the parameters."""
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
    depth = min((len(line) - len(line.lstrip()) for line in listed if line.strip()), default=0)
    found: dict[str, list[str]] = {}
    words: list[str] = []
    for line in listed:
        start = GOOGLE.match(line[depth:])
        if start is not None:
            words = found.setdefault(start[1], [])
        words.append(start[2] if start else line.strip())
    return said, {name: " ".join(filter(None, words)) for name, words in found.items()}


def _split_rest(lines: list[str]) -> tuple[list[str], list[list[str]]]:
    """Return the lines that are no reST fields, and the fields: kind, subject and words."""
    said: list[str] = []
    fields: list[list[str]] = []
    within = False
    for line in lines:
        start = REST.match(line)
        if start is not None:
            fields.append([part.strip() for part in start.groups()])
            within = True
        elif within and line[:1].isspace():
            fields[-1][2] = f"{fields[-1][2]} {line.strip()}".strip()
        else:
            within = within and not line.strip()
            said.append(line)
    return said, fields


# Problems.

MOST_TOLD = 20
MOST_SHOWN = 80


class Problem(msgspec.Struct, frozen=True):
    """One problem. `path` is the place, as in `stops[2].city`; empty for the arguments as a whole."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path or 'the arguments'}: {self.message}"


class ValueRefused(Exception):
    """A value that a type does not accept."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


def explain_refusal(name: str, problems: Sequence[Problem]) -> str:
    """Return the message for a model whose call was not run: all problems, one a line, and what to do."""
    lines = list_problems(problems, "the arguments")
    return "\n".join(
        [f"The tool {name!r} was not run, because its arguments are wrong:", *lines, "Correct them and call it again."]
    )


def list_problems(problems: Sequence[Problem], whole: str) -> list[str]:
    """Return one line for each problem, up to a bound. `whole` names the value for a problem without a path."""
    lines = [f"- {problem.path or whole}: {problem.message}" for problem in problems[:MOST_TOLD]]
    return [*lines, f"- and {len(problems) - MOST_TOLD} more"] if len(problems) > MOST_TOLD else lines


def format_path(steps: Sequence[str | int]) -> str:
    """Return a path as text. Long names are cut."""
    cut = (step if isinstance(step, int) or len(step) <= MOST_SHOWN else f"{step[:MOST_SHOWN]}..." for step in steps)
    parts = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in cut)
    return "".join(parts).removeprefix(".")


def format_value(value: object) -> str:
    """Return a JSON value as text that is short enough for a message."""
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


def format_values(values: Sequence[object]) -> str:
    """Return some values to choose from as text."""
    words = ", ".join(map(format_value, values[:MOST_TOLD]))
    return f"{words} and {len(values) - MOST_TOLD} more" if len(values) > MOST_TOLD else words


# Constraints and descriptions beside a type.

BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum", "multiple_of": "multipleOf"}
LENGTHS = {
    "min_length": {"string": "minLength", "array": "minItems", "object": "minProperties"},
    "max_length": {"string": "maxLength", "array": "maxItems", "object": "maxProperties"},
}
"""Names that `msgspec.Meta` and `annotated_types` share, and what they are in a JSON Schema."""
TEXTS = ("pattern", "title", "description", "examples")


def _add_note(schema: Schema, note: object, where: str) -> Schema:
    """Return a schema with what stands beside the type in `Annotated`."""
    if isinstance(note, str):
        return {**schema, "description": note}
    if type(note).__name__ == "Doc":
        return {**schema, "description": str(getattr(note, "documentation", ""))}
    if isinstance(note, msgspec.Meta):
        texts = {name: text for name in TEXTS if (text := getattr(note, name)) is not None}
        return {**schema, **_limits(note, schema, where), **texts, **(note.extra_json_schema or {})}
    if type(note).__module__.partition(".")[0] != "annotated_types":
        return schema
    if not any(hasattr(note, name) for name in (*BOUNDS, *LENGTHS)):
        raise UsageError(
            f"{where}: {type(note).__name__} cannot be written as a JSON Schema, so it would not be enforced. "
            "Check it inside the function and raise ModelRetry."
        )
    return {**schema, **_limits(note, schema, where)}


def _limits(note: object, schema: Schema, where: str) -> Schema:
    found: Schema = {}
    for name, keyword in BOUNDS.items():
        limit = getattr(note, name, None)
        if isinstance(limit, bool) or not isinstance(limit, int | float | None):
            raise UsageError(f"{where}: a bound must be a number, not {limit!r:.80}. Compare it inside the function instead.")
        if limit is not None:
            found[keyword] = limit
    for name, keywords in LENGTHS.items():
        limit = getattr(note, name, None)
        if limit is None:
            continue
        sized = [keywords[kind] for kind in _as_list(schema.get("type")) if kind in keywords]
        if not sized:
            raise UsageError(f"{where}: a length is set for a type that has none. Set it for a text, a list or a dict.")
        found |= dict.fromkeys(sized, limit) if limit else {}
    return found


# Closing objects.

SHARED = ("allOf", "if", "dependentSchemas", "unevaluatedProperties")
"""Keywords by which several schemas describe one object."""
INNER_NAMED = ("properties", "$defs", "definitions", "patternProperties")
INNER_SINGLE = ("items", "additionalProperties")
INNER_LISTS = ("prefixItems", "anyOf", "oneOf", "allOf")


def close_schema(schema: Schema) -> Schema:
    """Return a schema with `additionalProperties: false` wherever that is left open and safe to say."""
    return schema if any(map(_shares_object, _nodes(schema))) else _close(schema)


def _shares_object(node: Schema) -> bool:
    """True if several schemas describe the fields of one object here."""
    if any(keyword in node for keyword in SHARED):
        return True
    others = (part for keyword in ("anyOf", "oneOf", "not") for part in _nodes(node.get(keyword)))
    return "properties" in node and ("$ref" in node or any("properties" in other or "$ref" in other for other in others))


def _nodes(schema: object) -> Iterator[Schema]:
    left = [schema]
    while left:
        match left.pop():
            case dict() as node:
                yield node
                left += node.values()
            case list() as items:
                left += items


def _close(node: Schema, *, titles: bool = True) -> Schema:
    """Return a schema whose objects with known fields accept no others; without `titles`, drop those, too."""

    def inside(part: object) -> object:
        return _close(part, titles=titles) if isinstance(part, dict) else part

    whole = {keyword: said for keyword, said in node.items() if titles or keyword != "title" or not isinstance(said, str)}
    for keyword, said in whole.items():
        if keyword in INNER_NAMED and isinstance(said, dict):
            whole[keyword] = {name: inside(part) for name, part in said.items()}
        elif keyword in INNER_LISTS and isinstance(said, list):
            whole[keyword] = [inside(part) for part in said]
        elif keyword in INNER_SINGLE:
            whole[keyword] = inside(said)
    if "properties" in whole and not whole.keys() & {"additionalProperties", "patternProperties"}:
        whole["additionalProperties"] = False
    return whole


# Types of Pydantic. It is not a dependency: a program that has such types has loaded it.


def _is_foreign(kind: object) -> bool:
    """True if a type is Pydantic's: a model, a dataclass of its kind, or anything with its constraints beside it."""
    if get_origin(kind) is Annotated:
        return any(_is_pydantics(type(note)) for note in get_args(kind)[1:]) or _is_foreign(get_args(kind)[0])
    return isinstance(kind, type) and (_is_pydantics(kind) or "__pydantic_core_schema__" in vars(kind))


def _is_pydantics(kind: type) -> bool:
    return any(parent.__module__.partition(".")[0] in ("pydantic", "pydantic_core") for parent in kind.__mro__)


def mentions_models(kind: object) -> bool:
    """True if a type is Pydantic's, or holds one that is, however deep."""
    if "pydantic" not in sys.modules:
        return False
    left, seen = [kind], list[object]()
    while left:
        part = left.pop()
        if any(part is known for known in seen):
            continue
        if _is_foreign(part):
            return True
        seen.append(part)
        left += get_args(part)
        if isinstance(part, type) and not isinstance(part, types.GenericAlias) and _has_fields(part):
            try:
                left += get_type_hints(part, include_extras=True).values()
            except (NameError, TypeError):
                continue  # refused with its place when the schema is made
    return False


def _adapter(kind: object) -> "TypeAdapter[object]":
    from pydantic import TypeAdapter

    return TypeAdapter(kind)  # type: ignore[arg-type]  # any annotation is accepted


def _model_schema(kind: object, definitions: Schema, where: str) -> Schema:
    """Return the schema that Pydantic makes, closed and without its made-up titles; add what it refers to to `definitions`."""
    from pydantic.errors import PydanticUserError

    def make(mark: str) -> tuple[Schema, Schema]:
        schema = _close(adapter.json_schema(ref_template=f"#/$defs/{{model}}{mark}"), titles=False)
        own = schema.pop("$defs", {})
        return schema, {f"{name}{mark}": part for name, part in own.items()} if isinstance(own, dict) else {}

    try:
        adapter = _adapter(kind)
        schema, own = make("")
        if any(definitions.get(name, part) != part for name, part in own.items()):
            schema, own = make(f"_{len(definitions)}")
    except PydanticUserError as error:
        raise UsageError(f"{where}: Pydantic has no JSON Schema for this type ({error.message}).") from None
    definitions.update(own)
    return schema


def model_convert(kind: object) -> Convert:
    """Return a function that turns a JSON value into a type of Pydantic's, or raises ValueRefused."""
    from pydantic import ValidationError

    adapter = _adapter(kind)

    def convert(value: object) -> object:
        try:
            return adapter.validate_json(msgspec.json.encode(value))
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            raise ValueRefused(tuple(Problem(format_path(problem["loc"]), problem["msg"]) for problem in found)) from None

    return convert


def is_model_value(value: object) -> bool:
    """True if a value is an instance of a Pydantic model or dataclass."""
    return "pydantic" in sys.modules and _is_foreign(type(value))


def model_dump(value: object) -> object:
    """Return such a value as JSON values."""
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value)


# Types.

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
JSON_NAMES = {str: "string", int: "integer", bool: "boolean", type(None): "null"}


class Shapes:
    """Makes schemas and collects the definitions they refer to."""

    def __init__(self) -> None:
        self.definitions: Schema = {}
        self._names: dict[object, str] = {}
        self._aliases: set[object] = set()  # those that are being read

    def whole(self, kind: object, where: str) -> Schema:
        """Return the schema of a type that is converted as a whole: by Pydantic if it mentions any type of Pydantic's."""
        return _model_schema(kind, self.definitions, where) if mentions_models(kind) else self.of(kind, where)

    def of(self, kind: object, where: str) -> Schema:
        """Return the schema of a type. `where` names the place for errors."""
        if isinstance(kind, Hashable) and kind in PLAIN:
            return dict(PLAIN[kind])
        origin, args = get_origin(kind), get_args(kind)
        if origin is Annotated:
            schema = self.of(args[0], where)
            for note in args[1:]:
                schema = _add_note(schema, note, where)
            return schema
        if origin in (Union, types.UnionType):
            return _either([self.of(arg, where) for arg in args])
        if origin is Literal:
            return _choice(list(args))
        if origin in (Required, NotRequired):
            return self.of(args[0], where)
        if isinstance(kind, NewType):
            return self.of(kind.__supertype__, where)
        if type(kind).__name__ == "TypeAliasType":
            return self._alias(kind, where)
        plain = origin or kind
        if isinstance(plain, type):
            return self._class(plain, kind, where)
        raise _no_form(kind, where)

    def _alias(self, kind: object, where: str) -> Schema:
        if kind in self._aliases:
            raise UsageError(
                f"{where}: the type alias {kind} contains itself. Use a class with fields, or `object` for any JSON."
            )
        self._aliases.add(kind)
        schema = self.of(getattr(kind, "__value__", None), where)
        self._aliases.remove(kind)
        return schema

    def _class(self, kind: type, whole: object, where: str) -> Schema:
        args = get_args(whole)
        if kind in LISTS or (kind is tuple and (not args or args[1:] == (...,))):
            return {"type": "array", **({"items": self.of(args[0], where)} if args else {})}
        if kind is tuple:
            return _row([self.of(arg, where) for arg in args], len(args))
        if kind in DICTS:
            return self._dict(args, where)
        if issubclass(kind, Enum):
            return _choice([member.value for member in kind])
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            hints = hints_of(kind, where)
            row = [{**self.of(hints.get(name, object), f"{where}.{name}"), "title": name} for name in kind._fields]
            return _row(row, len(row) - len(kind._field_defaults))  # type: ignore[attr-defined]  # a named tuple has it
        if _has_fields(kind):
            return self._define(kind, whole, where)
        raise _no_form(whole, where)

    def _dict(self, args: tuple[object, ...], where: str) -> Schema:
        if not args:
            return {"type": "object", "additionalProperties": True}
        names = self.of(args[0], where)
        if "$ref" in names or names.get("type") in ("array", "object", "boolean", "null"):
            raise UsageError(f"{where}: the keys of a JSON object are texts, not {_show(args[0])}. Use a list of pairs.")
        schema: Schema = {"type": "object", "additionalProperties": self.of(args[1], where) or True}
        if names.get("type") == "string" and len(names) > 1:
            schema["propertyNames"] = names
        return schema

    def _define(self, kind: type, whole: object, where: str) -> Schema:
        """Return a reference to the definition of a class, which is made when it is met first."""
        if whole not in self._names:
            name, number = kind.__name__, 2
            while name in self.definitions:
                name, number = f"{kind.__name__}_{number}", number + 1
            self._names[whole] = name
            self.definitions[name] = {}
            self.definitions[name] = self._object(kind, whole, where)
        return {"$ref": f"#/$defs/{self._names[whole]}"}

    def _object(self, kind: type, whole: object, where: str) -> Schema:
        text = kind.__dict__.get("__doc__")
        is_made_up = not isinstance(text, str) or text.startswith(f"{kind.__name__}(")  # by @dataclass
        about, words = read_docstring("" if is_made_up else text)
        properties: Schema = {}
        required: list[str] = []
        for name, hint, default in _fields(kind, whole, where):
            schema = self.of(hint, f"{where}.{name}")
            if name in words:
                schema.setdefault("description", words[name])
            properties[name] = schema | default_of(default)
            if default is Ellipsis:
                required.append(name)
        return closed_object(properties, required, about=about)


def closed_object(properties: Schema, required: list[str], *, about: str = "") -> Schema:
    """Return the schema of an object with these properties and no others."""
    described = {"description": about} if about else {}
    return {"type": "object", **described, "properties": properties, "required": required, "additionalProperties": False}


def root_schema(kind: object, where: str) -> Schema:
    """Return the schema of a type with the type itself at its root, not a reference to it; keep what else it refers to."""
    shapes = Shapes()
    schema = shapes.whole(kind, where)
    definitions = shapes.definitions
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if name in definitions:
        root = definitions[name]
        if f'"#/$defs/{name}"'.encode() not in msgspec.json.encode(definitions):
            del definitions[name]
        schema = dict(root) if isinstance(root, dict) else {}
    return {**schema, "$defs": definitions} if definitions else schema


Field = tuple[str, object, object]
"""Name, type, and default: `...` where there is none, None where it cannot be said."""


def _has_fields(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) or is_typeddict(kind) or issubclass(kind, msgspec.Struct)


def _fields(kind: type, whole: object, where: str) -> list[Field]:
    if issubclass(kind, msgspec.Struct):
        return _struct_fields(kind, whole, where)
    hints = hints_of(kind, where)
    if is_typeddict(kind):
        needed: frozenset[str] = kind.__required_keys__  # type: ignore[attr-defined]  # only typed dicts have it
        return [(name, hint, ... if _is_needed(hint, name in needed) else None) for name, hint in hints.items()]
    known = dict(zip(getattr(kind, "__parameters__", ()), get_args(whole), strict=False))
    return [
        (field.name, _substitute(hints[field.name], known), _default(field, dataclasses.MISSING))
        for field in dataclasses.fields(kind)  # type: ignore[arg-type]  # nothing but dataclasses comes here
        if field.init
    ]


def _is_needed(hint: object, otherwise: bool) -> bool:
    """True if a key of a typed dict is required. Python misses these words where annotations are texts (PEP 563)."""
    origin = get_origin(hint)
    return origin is Required or (otherwise and origin is not NotRequired)


def _struct_fields(kind: type[msgspec.Struct], whole: object, where: str) -> list[Field]:
    config = kind.__struct_config__
    if config.array_like:
        raise UsageError(f"{where}: {kind.__name__} is array_like, so its fields have no names. Use one that is not.")
    tag: list[Field] = [] if config.tag_field is None else [(config.tag_field, Literal[config.tag], ...)]
    struct: type[msgspec.Struct] = whole  # type: ignore[assignment]  # or a generic alias of one, which is accepted as well
    found = msgspec.structs.fields(struct)
    return tag + [(field.encode_name, field.type, _default(field, msgspec.NODEFAULT)) for field in found]


def _default(field: "dataclasses.Field[object] | msgspec.structs.FieldInfo", missing: object) -> object:
    if field.default is not missing:
        return field.default
    return ... if field.default_factory is missing else None


def default_of(value: object) -> Schema:
    """Return the keyword for a default that a schema can say: a plain value."""
    if isinstance(value, Enum):
        value = value.value
    return {"default": value} if isinstance(value, str | int | float) else {}


def _substitute(hint: object, known: Mapping[object, object]) -> object:
    """Return a field's type with the type variables of its generic class filled in."""
    if isinstance(hint, TypeVar):
        return known.get(hint, hint)
    inner: tuple[object, ...] = getattr(hint, "__parameters__", ())
    subscript: Callable[[tuple[object, ...]], object] | None = getattr(hint, "__getitem__", None)
    if not inner or subscript is None or isinstance(hint, type):
        return hint
    return subscript(tuple(known.get(name, name) for name in inner))


def hints_of(kind: object, where: str) -> dict[str, object]:
    """Return the annotations of a class or function, with names resolved."""
    try:
        return dict(get_type_hints(kind, include_extras=True))
    except (NameError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{where}: its annotations cannot be read ({error}). Types must be importable where they are named: "
            "define them at the top of a module."
        ) from None


def _either(schemas: list[Schema]) -> Schema:
    """Return one schema for several: a list of types if nothing else is said."""
    if any(not schema for schema in schemas):
        return {}
    if all(schema.keys() == {"type"} for schema in schemas):
        kinds = [kind for schema in schemas for kind in _as_list(schema["type"])]
        return {"type": list(dict.fromkeys(kinds))}
    rest = [schema for schema in schemas if schema != {"type": "null"}]
    only = rest[0] if len(rest) == 1 else {}
    if isinstance(only.get("type"), str) and not only.keys() & {"enum", "const"}:
        return {**only, "type": [only["type"], "null"]}
    return {"anyOf": schemas}


def _as_list(value: object) -> list[object]:
    return list(value) if isinstance(value, list) else [value]


def _choice(values: list[object]) -> Schema:
    kinds = list(dict.fromkeys(JSON_NAMES.get(type(value), "") for value in values))
    if "" in kinds:
        return {"enum": values}
    return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": values}


def _row(row: list[Schema], least: int) -> Schema:
    return {"type": "array", "prefixItems": row, "items": False, "minItems": least, "maxItems": len(row)}


def _show(kind: object) -> str:
    return str(getattr(kind, "__name__", None) or repr(kind))


def _no_form(kind: object, where: str) -> UsageError:
    return UsageError(
        f"{where}: {_show(kind)} has no JSON form. Use builtin types, Literal, Enum, dataclasses, TypedDict, NamedTuple, "
        "msgspec.Struct or Pydantic models; put values that the model does not supply into ToolContext.deps."
    )
