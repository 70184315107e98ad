"""Reads what a model wrote as the arguments of a call: parsed strictly, checked against the schema, converted to types. Pure.

Every reading decodes the text afresh, so that a tool may do with its arguments what it likes. Nothing is guessed: text that
is not JSON, a key that stands twice, a field that nobody knows is a Problem, and then the tool is not run.
"""

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import NotRequired, TypedDict

import msgspec
from msgspec import inspect as forms

from evener.errors import UsageError
from evener.tools.schema import Problem, Schema, ValueRefused, dotted, mentions_models, model_convert
from evener.tools.validation import Validator
from evener.transcript.scan import path_at, repeated_key

__all__ = [
    "ArgumentReader",
    "Convert",
    "ReadArguments",
    "Typed",
    "converter",
    "parsed",
    "typed",
]


EXACT = frozenset(("string", "integer", "boolean", "null", "array"))
"""Not a float, which tells -0 from 0 as an integer does not; nor an object, whose fields the schema looks at one by one."""
SAID = frozenset(("type", "items", "description", "default"))


class NamedParameters(msgspec.Struct):
    """Parameters by name. msgspec looks at a type each time it converts to it, but at a class of its own only once."""

    named: dict[str, object]


class Typed:
    """The parameters of one function. What follows from their types is found out when the first call needs it."""

    def __init__(self, kinds: Mapping[str, object], schema: Schema) -> None:
        self._kinds = kinds
        self._schema = schema

    @cached_property
    def plain(self) -> "msgspec.json.Decoder[dict[str, object]] | None":
        """What decodes them, if `str`, `list[int] | None` and the like are all that their schema says.

        Unknown fields are passed over, and of two with the same name the last one counts: that is left to be looked for.
        """
        parts = self._schema["properties"]
        is_plain = isinstance(parts, dict) and all(map(_says_its_type, parts.values()))
        is_plain = is_plain and all(map(_is_all_told, forms.multi_type_info(self._kinds.values())))
        return msgspec.json.Decoder(self._fields) if is_plain else None

    def converted(self, value: dict[str, object]) -> dict[str, object]:
        """All of them, converted; a ValidationError when one of them cannot be as it is."""
        return msgspec.convert({"named": value}, self._named, str_keys=True).named

    @cached_property
    def _named(self) -> type[NamedParameters]:
        return msgspec.defstruct("Named", [("named", self._fields)], bases=(NamedParameters,))  # type: ignore[return-value]  # see bases

    @cached_property
    def _fields(self) -> type:
        needed = self._schema["required"]
        required = needed if isinstance(needed, list) else []
        fields = {name: kind if name in required else NotRequired[kind] for name, kind in self._kinds.items()}
        return TypedDict("Arguments", fields)  # type: ignore[operator, no-any-return]  # its fields are known only now


def typed(kinds: Mapping[str, object], schema: Schema) -> Typed | None:
    """The parameters with these types and this schema; None when Pydantic converts one of them."""
    return None if any(map(mentions_models, kinds.values())) else Typed(kinds, schema)


def _says_its_type(schema: object) -> bool:
    """Whether a schema asks for a type, down to each item, and for nothing else."""
    if not isinstance(schema, dict) or not schema.keys() <= SAID:
        return False
    said = schema.get("type")
    kinds = set(said) if isinstance(said, list) else {said}
    return kinds <= EXACT and ("array" not in kinds or _says_its_type(schema.get("items")))


def _is_all_told(kind: forms.Type) -> bool:
    """Whether a decoder looks at all that a type says: `Iterable[int]` takes any text, and a schema may be written by hand."""
    match kind:
        case forms.StrType() | forms.IntType() | forms.BoolType() | forms.NoneType():
            return True
        case forms.CollectionType(item_type=item):
            return _is_all_told(item)
        case forms.UnionType(types=kinds):
            return all(map(_is_all_told, kinds))
        case forms.Metadata(type=inner, extra_json_schema=said):
            return set(said or ()) <= {"description"} and _is_all_told(inner)
    return False


MOST_BYTES = 16 << 20
DEEPEST_ARGUMENTS = 100
SPACED = re.compile(r"\s:")

Convert = Callable[[object], object]


class ReadArguments(msgspec.Struct, frozen=True):
    """Arguments that a function can be called with: by name, or, if it takes them as one value, that value."""

    named: dict[str, object]
    whole: tuple[object, ...] = ()


class ArgumentReader(msgspec.Struct, frozen=True):
    """How the arguments of one tool are read. With `one`, the function takes them all as a single value.

    With `typed`, they are read or at least converted in one go, if they fit as they are.
    """

    validator: Validator
    converters: Mapping[str, Convert] = {}
    one: Convert | None = None
    unenforced: tuple[str, ...] = ()
    typed: Typed | None = None

    def read(self, raw: str) -> ReadArguments | tuple[Problem, ...]:
        """The arguments in a call's JSON text, or what is wrong with them."""
        plain = self.typed.plain if self.typed else None
        if plain is not None and len(raw) <= MOST_BYTES:
            try:
                named = plain.decode(raw)
            except (msgspec.MsgspecError, RecursionError, ValueError):
                named = None  # it may fit nevertheless, and if not, there is more to say
            if named is not None and _has_only(raw, len(named)):
                return ReadArguments(named)
        value = parsed(raw)
        if isinstance(value, tuple):
            return value
        problems = self.validator.problems(value)
        if problems:
            return problems
        return self._converted(value)

    def _converted(self, value: dict[str, object]) -> ReadArguments | tuple[Problem, ...]:
        if self.one is not None:
            try:
                return ReadArguments({}, (self.one(value),))
            except ValueRefused as refused:
                return refused.problems
        if self.typed is not None:
            try:
                return ReadArguments(self.typed.converted(value))
            except msgspec.ValidationError:
                pass  # one by one, then: a whole number may be written as 3.0, and there may be several problems
        named: dict[str, object] = {}
        problems: list[Problem] = []
        for name, item in value.items():
            try:
                named[name] = self.converters[name](item)
            except ValueRefused as refused:
                problems += [Problem(_under(name, problem.path), problem.message) for problem in refused.problems]
        return tuple(problems) or ReadArguments(named)


def parsed(raw: str) -> dict[str, object] | tuple[Problem, ...]:
    """The object that a JSON text is, or the problem that it is none."""
    if len(raw) > MOST_BYTES:
        return (Problem("", f"they have {len(raw):,} characters, of at most {MOST_BYTES:,}"),)
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeError, ValueError) as error:
        return (_malformed(raw, error),)
    if not isinstance(value, dict):
        return (Problem("", f"expected a JSON object, found {_start(raw)}"),)
    keys = _keys(value)
    if keys is None:
        return (Problem("", f"they are nested deeper than {DEEPEST_ARGUMENTS} levels"),)
    twice = None if _has_only(raw, keys) else repeated_key(raw)
    return value if twice is None else (Problem(twice, "this key stands twice in its object"),)


def _has_only(raw: str, keys: int) -> bool:
    """Whether a JSON text can be seen to have no more than the keys that were read: none stands twice, none was passed over.

    Each key brings a colon, and, if no space comes before it, one right after a quote.
    """
    return raw.count(":") == keys or (raw.count('":') == keys and SPACED.search(raw) is None)


def _malformed(raw: str, error: Exception) -> Problem:
    if isinstance(error, RecursionError):
        return Problem("", f"they are nested deeper than {DEEPEST_ARGUMENTS} levels")
    if not raw.strip():
        return Problem("", "they are empty; expected a JSON object, such as {}")
    why = str(error).partition(" - at `")[0]
    place = why.rpartition("(byte ")[2].rstrip(")")
    body = raw.encode(errors="replace")
    byte = int(place) if place.isdigit() else len(body)
    if body[byte : byte + 8].lstrip(b"-").startswith((b"NaN", b"Inf")):
        why = f"NaN and Infinity are not JSON (byte {byte})"
    return Problem(path_at(body, byte), f"not JSON: {why.removeprefix('JSON is malformed: ')}")


def _start(raw: str) -> str:
    text = raw.strip()
    return text if len(text) <= 40 else f"{text[:40]}..."


def _keys(value: object) -> int | None:
    """How many keys a value has, all levels together; None when it is nested deeper than anyone means. Never recursive."""
    level: list[object] = [value]
    keys = 0
    for _ in range(DEEPEST_ARGUMENTS):
        onward: list[object] = []
        for item in level:
            if isinstance(item, dict):
                keys += len(item)
                onward += item.values()
            elif isinstance(item, list):
                onward += item
        if not onward:
            return keys
        level = onward
    return None


def converter(kind: object, where: str) -> Convert:
    """What turns a JSON value that fits the schema of a type into a value of it. A type that cannot be told is refused."""
    if mentions_models(kind):
        return model_convert(kind)
    known: type[object] = kind  # type: ignore[assignment]  # any annotation is taken
    try:
        msgspec.json.Decoder(known)
    except TypeError as error:
        raise UsageError(f"{where}: {error}. Use a type whose values can be told apart in JSON.") from None

    def convert(value: object) -> object:
        try:
            return msgspec.convert(value, known, str_keys=True)
        except msgspec.ValidationError as error:
            return _second_try(value, known, error)

    return convert


def _second_try(value: object, kind: type[object], first: msgspec.ValidationError) -> object:
    """Some models write whole numbers as 3.0, which JSON Schema takes as an integer."""
    try:
        return msgspec.convert(_whole(value), kind, str_keys=True)
    except msgspec.ValidationError:
        why, _, place = str(first).partition(" - at `")
        raise ValueRefused((Problem(_path(place), f"{why[:1].lower()}{why[1:]}".replace("`", "")),)) from None


def _path(place: str) -> str:
    """msgspec's `$.stops[2]`, or `key` in one, as ours."""
    return place.rpartition("$")[2].rstrip("`").removeprefix(".")


def _whole(value: object) -> object:
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {name: _whole(item) for name, item in value.items()}
        case list():
            return [_whole(item) for item in value]
    return value


def _under(name: str, path: str) -> str:
    return dotted((name,)) + (path if path.startswith("[") or not path else f".{path}")
