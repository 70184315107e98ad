"""What a final answer must be: made from a type or a JSON Schema, told to a model, and held against what it wrote. Pure.

Made once and used by many runs. It knows nothing of wires: whether a value travels in an object of its own (`value`), or in a
code fence, is a matter of the encodings, which hand over the bare JSON text.
"""

import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Union, get_args, get_origin

import msgspec

from evener.encodings.forms import FINAL_RESULT, is_object
from evener.errors import UsageError
from evener.tools.arguments import DEEPEST_ARGUMENTS, MOST_BYTES, Convert, converter
from evener.tools.schema import MOST_TOLD, Problem, Schema, Shapes, ValueRefused, closed, dotted
from evener.tools.validation import Validator
from evener.transcript.ask import OutputForm, OutputSchema
from evener.transcript.blocks import json_object, json_text
from evener.transcript.scan import is_deeper, path_at, repeated_key

__all__ = [
    "Accepted",
    "OutputShape",
    "decoded",
    "without_absent",
]


Step = str | int
Member = tuple[dict[str, object], str]


def without_absent(value: object, problems: Sequence[Problem]) -> object:
    """The value without the nulls that are the problem. It is changed in place: it must be the caller's own."""
    wrong = {problem.path for problem in problems}
    for holder, name in [member for member, path in _nulls(value) if path in wrong]:
        del holder[name]
    return value


def _nulls(value: object) -> Iterator[tuple[Member, str]]:
    """Each member of an object that is null, with its path."""
    left: list[tuple[object, tuple[Step, ...]]] = [(value, ())]
    while left:
        item, path = left.pop()
        match item:
            case dict():
                yield from (((item, name), dotted((*path, name))) for name, inner in item.items() if inner is None)
                left += [(inner, (*path, name)) for name, inner in item.items()]
            case list():
                left += [(inner, (*path, number)) for number, inner in enumerate(item)]


TOO_DEEP = f"nested deeper than {DEEPEST_ARGUMENTS} levels"
FENCE = "```"


class Accepted(msgspec.Struct, frozen=True):
    """An answer that fits, as a value of the type that was asked for."""

    value: object


def decoded(text: str) -> Accepted | tuple[Problem, ...]:
    """The value that a JSON text is, or the problem that it is none."""
    if len(text) > MOST_BYTES:
        return (Problem("", f"it has {len(text):,} characters, of at most {MOST_BYTES:,}"),)
    if not text.strip():
        return (Problem("", "it is empty; expected JSON"),)
    try:
        value = msgspec.json.decode(text)
    except RecursionError:
        return (Problem("", TOO_DEEP),)
    except (msgspec.DecodeError, UnicodeError, ValueError) as error:
        return (_malformed(text, error),)
    if is_deeper(value, DEEPEST_ARGUMENTS):
        return (Problem("", TOO_DEEP),)
    twice = repeated_key(text)
    return Accepted(value) if twice is None else (Problem(twice, "this key stands twice in its object"),)


def _malformed(text: str, error: Exception) -> Problem:
    if text.lstrip().startswith(FENCE):
        return Problem("", "not JSON: it stands in a code fence")
    why = str(error).partition(" - at `")[0].removeprefix("JSON is malformed: ")
    place = why.rpartition("(byte ")[2].rstrip(")")
    body = text.encode(errors="replace")
    byte = int(place) if place.isdigit() else len(body)
    if body[byte : byte + 8].lstrip(b"-").startswith((b"NaN", b"Inf")):
        why = f"NaN and Infinity are not JSON (byte {byte})"
    return Problem(path_at(body, byte), f"not JSON: {why}")


NAME = "answer"
AGAIN: Mapping[OutputForm, str] = {
    "tool": f"Call {FINAL_RESULT} again, alone and once, with the whole corrected answer.",
    "": "Answer again with only the JSON: no code fence, no other words.",
}


class OutputShape(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The shape of a final answer. Make it with `OutputShape.of`.

    `schema` is the JSON text of its schema, `python` the type that an answer becomes (None for a schema that was given).
    `strict` asks the provider to enforce the schema; then null stands for a field that may be left out. `unenforced` tells
    what the schema says that is not checked here, place and reason each.
    """

    schema: str
    validator: Validator
    convert: Convert
    name: str = NAME
    description: str = ""
    strict: bool | None = None
    python: object = None
    unenforced: tuple[str, ...] = ()

    @classmethod
    def of(cls, given: object, *, name: str = "", description: str = "", strict: bool | None = None) -> "OutputShape":
        """The shape that a user asks for: a type, or a JSON Schema as a mapping or as JSON text.

        A JSON Schema that leaves open whether an object takes unknown fields is closed; say `additionalProperties: true`
        where they are welcome. A type that has no JSON form is a UsageError.
        """
        if isinstance(given, OutputShape):
            return given
        where = f"The output {name!r}" if name else "The output"
        raw = given if isinstance(given, str | Mapping) else None
        schema = root_schema(given, where) if raw is None else _given(raw, where)
        validator = Validator(schema, where=where)
        return cls(
            schema=json_text(schema, where),
            validator=validator,
            convert=_converter(given, where) if raw is None else _same,
            name=name or _named(given, schema),
            description=description,
            strict=strict,
            python=given if raw is None else None,
            unenforced=validator.unenforced if raw is not None else _unconverted(validator),
        )

    @property
    def is_object(self) -> bool:
        """Whether only objects fit. Anything else travels under a name of its own where only objects can."""
        return is_object(self.schema)

    def spec(self, form: OutputForm = "") -> OutputSchema:
        """What an ask says of it; an empty form leaves the choice to the model's row."""
        return OutputSchema(self.schema, self.name, self.description, self.strict, form)

    def read(self, text: str) -> Accepted | tuple[Problem, ...]:
        """The answer in this JSON text, or everything that is wrong with it."""
        found = decoded(text)
        if not isinstance(found, Accepted):
            return found
        value = found.value
        problems = self.validator.problems(value)
        if problems and self.strict:
            value = without_absent(value, problems)
            problems = self.validator.problems(value)
        if problems:
            return problems
        try:
            return Accepted(self.convert(value))
        except ValueRefused as refused:
            return refused.problems

    def problems_text(self, problems: Sequence[Problem], *, form: OutputForm = "") -> str:
        """The correction for the model: what is wrong and where, what is expected, and what to do."""
        lines = [f"- {problem.path or 'the answer'}: {problem.message}" for problem in problems[:MOST_TOLD]]
        if len(problems) > MOST_TOLD:
            lines.append(f"- and {len(problems) - MOST_TOLD} more")
        if form == "prompted":
            lines.append(f"Expected is JSON that fits this JSON Schema: {self.schema}")
        return "\n".join(["The answer was not accepted:", *lines, AGAIN.get(form, AGAIN[""])])


def root_schema(kind: object, where: str) -> Schema:
    """The schema of a type with the type itself at its root, not a reference to it; what else it refers to is kept."""
    shapes = Shapes()
    schema = shapes.whole(kind, where)
    definitions = shapes.definitions
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if name in definitions:
        root = definitions[name]
        if f'"#/$defs/{name}"'.encode() not in msgspec.json.encode(definitions):
            definitions = {other: part for other, part in definitions.items() if other != name}
        schema = dict(root) if isinstance(root, dict) else {}
    return {**schema, "$defs": definitions} if definitions else schema


def _given(schema: str | Mapping[str, object], where: str) -> Schema:
    text = schema if isinstance(schema, str) else json_text(schema, where)
    shape = json_object(text, where)
    if "properties" in shape and not shape.keys() & {"type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"}:
        shape = {"type": "object", **shape}
    return closed(shape)


def _named(given: object, schema: Schema) -> str:
    """The name of the user's own class, or the title of a schema; nothing is named after a builtin or a union."""
    if isinstance(given, type) and not isinstance(given, types.GenericAlias) and given.__module__ != "builtins":
        return given.__name__
    title = schema.get("title")
    return title if isinstance(title, str) and title else NAME


def _unconverted(validator: Validator) -> tuple[str, ...]:
    """What neither the validator enforces nor the conversion to types, which knows patterns and formats of its own."""
    return tuple(text for text in validator.unenforced if not text.partition(":")[0].endswith((".pattern", ".format")))


def _converter(kind: object, where: str) -> Convert:
    """What makes a value of the type. Where types can be told apart only by trying, the first that fits is taken."""
    try:
        return converter(kind, where)
    except UsageError:
        if get_origin(kind) not in (Union, types.UnionType):
            raise
    members = [(Validator(root_schema(one, where), where=where), converter(one, where)) for one in get_args(kind)]
    return _first_of(members)


def _first_of(members: list[tuple[Validator, Convert]]) -> Callable[[object], object]:
    def convert(value: object) -> object:
        for validator, member in members:
            if not validator.problems(value):
                return member(value)
        raise ValueRefused((Problem("", "fits none of the allowed forms"),))

    return convert


def _same(value: object) -> object:
    return value
