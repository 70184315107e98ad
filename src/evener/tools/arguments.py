"""Reads the arguments that a model wrote for a call: parsed strictly, validated, converted to types. Pure.

Each reading decodes the text again, so a tool may change its arguments. Nothing is guessed: text that is not JSON, a
repeated key or an unknown field is a Problem, and the tool is not run.
"""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import NotRequired, TypedDict, TypeVar

import msgspec
from msgspec import inspect as forms

from evener.errors import UsageError
from evener.tools.schema import Convert, Problem, Schema, ValueRefused, format_path, mentions_models, model_convert
from evener.tools.validation import Validator
from evener.transcript.scan import path_at, repeated_key

EXACT = frozenset(("string", "integer", "boolean", "null", "array"))
"""Not a float, which tells -0 from 0 as an integer does not; nor an object, whose fields the schema checks one by one."""
SAID = frozenset(("type", "items", "description", "default"))


class NamedParameters(msgspec.Struct):
    """Parameters by name. msgspec inspects a type each time it converts to it, but a class of its own only once."""

    named: dict[str, object]


class Typed:
    """The parameters of one function. What follows from their types is computed when the first call needs it."""

    def __init__(self, kinds: Mapping[str, object], schema: Schema) -> None:
        self._kinds = kinds
        self._schema = schema

    @cached_property
    def plain(self) -> "msgspec.json.Decoder[dict[str, object]] | None":
        """A decoder for them, if `str`, `list[int] | None` and the like are all that their schema says.

        It ignores unknown fields, and of two with the same name the last one counts: the caller must look for those.
        """
        parts = self._schema["properties"]
        is_plain = isinstance(parts, dict) and all(map(_says_its_type, parts.values()))
        is_plain = is_plain and all(map(_is_fully_checked, forms.multi_type_info(self._kinds.values())))
        return msgspec.json.Decoder(self._fields) if is_plain else None

    def convert(self, value: dict[str, object]) -> dict[str, object]:
        """Convert all of them; raise a ValidationError when one of them cannot be converted as it is."""
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


def typed_reader(kinds: Mapping[str, object], schema: Schema) -> Typed | None:
    """Return the parameters with these types and this schema; None when Pydantic converts one of them."""
    return None if any(map(mentions_models, kinds.values())) else Typed(kinds, schema)


def _says_its_type(schema: object) -> bool:
    """True if a schema asks for a type, down to each item, and for nothing else."""
    if not isinstance(schema, dict) or not schema.keys() <= SAID:
        return False
    said = schema.get("type")
    kinds = set(said) if isinstance(said, list) else {said}
    return kinds <= EXACT and ("array" not in kinds or _says_its_type(schema.get("items")))


def _is_fully_checked(kind: forms.Type) -> bool:
    """True if a decoder checks all that a type says: `Iterable[int]` takes any text, and a schema may be written by hand."""
    match kind:
        case forms.StrType() | forms.IntType() | forms.BoolType() | forms.NoneType():
            return True
        case forms.CollectionType(item_type=item):
            return _is_fully_checked(item)
        case forms.UnionType(types=kinds):
            return all(map(_is_fully_checked, kinds))
        case forms.Metadata(type=inner, extra_json_schema=said):
            return set(said or ()) <= {"description"} and _is_fully_checked(inner)
    return False


MOST_BYTES = 16 << 20
DEEPEST_ARGUMENTS = 100
TOO_DEEP = f"nested deeper than {DEEPEST_ARGUMENTS} levels"
SPACED = re.compile(r"\s:")

T = TypeVar("T")


class ReadArguments(msgspec.Struct, frozen=True):
    """Arguments that a function can be called with: by name, or, if it takes them as one value, that value."""

    named: dict[str, object]
    whole: tuple[object, ...] = ()


class ArgumentReader(msgspec.Struct, frozen=True):
    """Reads the arguments of one tool. With `one`, the function takes them all as a single value.

    With `typed`, they are decoded or at least converted in one step, if they fit unchanged.
    """

    validator: Validator
    converters: Mapping[str, Convert] = {}
    one: Convert | None = None
    unenforced: tuple[str, ...] = ()
    typed: Typed | None = None

    def read(self, raw: str) -> ReadArguments | tuple[Problem, ...]:
        """Return the arguments in a call's JSON text, or what is wrong with them."""
        plain = self.typed.plain if self.typed else None
        if plain is not None and len(raw) <= MOST_BYTES:
            try:
                named = plain.decode(raw)
            except (msgspec.MsgspecError, RecursionError, ValueError):
                named = None  # it may fit nevertheless, and if not, there is more to say
            if named is not None and _has_only(raw, len(named)):
                return ReadArguments(named)
        value = decode_json(raw, expected="a JSON object, such as {}")
        if isinstance(value, tuple):
            return value
        if not isinstance(value, dict):
            text = raw.strip()
            return (Problem("", f"expected a JSON object, found {text if len(text) <= 40 else f'{text[:40]}...'}"),)
        return self.validator.problems(value) or self._convert(value)

    def _convert(self, value: dict[str, object]) -> ReadArguments | tuple[Problem, ...]:
        if self.one is not None:
            try:
                return ReadArguments({}, (self.one(value),))
            except ValueRefused as refused:
                return refused.problems
        if self.typed is not None:
            try:
                return ReadArguments(self.typed.convert(value))
            except msgspec.ValidationError:
                pass  # one by one instead: a whole number may be written as 3.0, and there may be several problems
        named: dict[str, object] = {}
        problems: list[Problem] = []
        for name, item in value.items():
            try:
                named[name] = self.converters[name](item)
            except ValueRefused as refused:
                outer = format_path((name,))
                for path, message in ((problem.path, problem.message) for problem in refused.problems):
                    problems.append(Problem(f"{outer}.{path}" if path and path[0] != "[" else outer + path, message))
        return tuple(problems) or ReadArguments(named)


def decode_json(text: str, *, expected: str) -> object | tuple[Problem, ...]:
    """Return the value of a JSON text, or a tuple with the problem: JSON values are never tuples.

    `expected` names what the text should have been, for one that is empty.
    """
    if len(text) > MOST_BYTES:
        return (Problem("", f"too long: {len(text):,} characters; at most {MOST_BYTES:,} are allowed"),)
    try:
        value = msgspec.json.decode(text)
    except RecursionError:
        return (Problem("", TOO_DEEP),)
    except (msgspec.DecodeError, UnicodeError, ValueError) as error:
        return (_explain_syntax(text, error, expected),)
    keys = _keys(value)
    if keys is None:
        return (Problem("", TOO_DEEP),)
    twice = None if _has_only(text, keys) else repeated_key(text)
    return value if twice is None else (Problem(twice, "this key stands twice in its object"),)


def _has_only(raw: str, keys: int) -> bool:
    """True if a JSON text can be seen to have no more than the keys that were read: none is repeated or was ignored.

    Each key brings a colon, and, if no space comes before it, one right after a quote.
    """
    return raw.count(":") == keys or (raw.count('":') == keys and SPACED.search(raw) is None)


def _explain_syntax(text: str, error: Exception, expected: str) -> Problem:
    if not text.strip():
        return Problem("", f"empty; expected {expected}")
    if text.lstrip().startswith("```"):
        return Problem("", "not JSON: it stands in a code fence")
    why = str(error).partition(" - at `")[0].removeprefix("JSON is malformed: ")
    place = why.rpartition("(byte ")[2].rstrip(")")
    body = text.encode(errors="replace")
    byte = int(place) if place.isdigit() else len(body)
    if body[byte : byte + 8].lstrip(b"-").startswith((b"NaN", b"Inf")):
        why = f"NaN and Infinity are not JSON (byte {byte})"
    return Problem(path_at(body, byte), f"not JSON: {why}")


def _keys(value: object) -> int | None:
    """Return how many keys a value has on all levels; None when it is nested deeper than DEEPEST_ARGUMENTS. Not recursive."""
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
    """Return a function from a JSON value that fits the schema of a type to a value of it. Refuse a type without one."""
    if mentions_models(kind):
        return model_convert(kind)
    known: type[object] = kind  # type: ignore[assignment]  # any annotation is accepted
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
    """Convert a value once more with 3.0 as 3: some models write whole numbers so, and JSON Schema accepts it."""
    try:
        return msgspec.convert(_whole(value), kind, str_keys=True)
    except msgspec.ValidationError:
        why, _, place = str(first).partition(" - at `")
        path = place.rpartition("$")[2].rstrip("`").removeprefix(".")  # msgspec's `$.stops[2]`, or `key` in one
        raise ValueRefused((Problem(path, f"{why[:1].lower()}{why[1:]}".replace("`", "")),)) from None


def _whole(value: object) -> object:
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {name: _whole(item) for name, item in value.items()}
        case list():
            return [_whole(item) for item in value]
    return value


def unenforced_by_types(validator: Validator) -> tuple[str, ...]:
    """Return what neither the validator enforces nor the conversion to types, which checks patterns and formats itself."""
    return tuple(text for text in validator.unenforced if not text.partition(":")[0].endswith((".pattern", ".format")))


def unchanged(value: T) -> T:
    """Return the value as it is: where a conversion or a scrubber may be given and none is needed."""
    return value
