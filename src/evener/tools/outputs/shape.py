"""The shape of a final answer: made from a type or a JSON Schema, sent to a model, used to validate its answer. Pure.

Made once and used by many runs. It does not depend on wires: encodings decide whether a value travels in an object (`value`)
or in a code fence, and pass on the bare JSON text.
"""

import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Union, get_args, get_origin

import msgspec

from evener.encodings.forms import FINAL_RESULT, is_object
from evener.errors import UsageError
from evener.tools.arguments import converter, decode_json, unchanged, unenforced_by_types
from evener.tools.schema import Convert, Problem, Schema, ValueRefused, close_schema, format_path, list_problems, root_schema
from evener.tools.validation import Validator
from evener.transcript.ask import OutputForm, OutputSchema
from evener.transcript.blocks import json_object, json_text

Step = str | int
Member = tuple[dict[str, object], str]


def _remove_nulls(value: object, problems: Sequence[Problem]) -> None:
    """Remove the nulls that are the problem, in place."""
    wrong = {problem.path for problem in problems}
    for holder, name in [member for member, path in _nulls(value) if path in wrong]:
        del holder[name]


def _nulls(value: object) -> Iterator[tuple[Member, str]]:
    """Yield each member of an object that is null, with its path."""
    left: list[tuple[object, tuple[Step, ...]]] = [(value, ())]
    while left:
        item, path = left.pop()
        match item:
            case dict():
                yield from (((item, name), format_path((*path, name))) for name, inner in item.items() if inner is None)
                left += [(inner, (*path, name)) for name, inner in item.items()]
            case list():
                left += [(inner, (*path, number)) for number, inner in enumerate(item)]


class Accepted(msgspec.Struct, frozen=True):
    """An answer that fits, as a value of the requested type."""

    value: object


NAME = "answer"
AGAIN: Mapping[OutputForm, str] = {
    "tool": f"Call {FINAL_RESULT} again, alone and once, with the whole corrected answer.",
    "": "Answer again with only the JSON: no code fence, no other words.",
}


class OutputShape(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The shape of a final answer. Make it with `OutputShape.of`.

    `schema` is the JSON text of its schema, `python` the type of the answer (None if a schema was given). `strict` asks the
    provider to enforce the schema; null then stands for an omitted field. `unenforced` names the parts of the schema that
    are not validated here, each with its place and the reason.
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
        """Make the shape that a user asks for: a type, or a JSON Schema as a mapping or as JSON text.

        A JSON Schema that leaves open whether an object takes unknown fields is closed; say `additionalProperties: true`
        to allow them. A type that has no JSON form is a UsageError.
        """
        if isinstance(given, OutputShape):
            return given
        where = f"The output {name!r}" if name else "The output"
        if isinstance(given, str) and not given.lstrip().startswith("{"):
            raise UsageError(
                f"{where}: the text {given[:80]!r} is no JSON Schema. Give a type itself, or the JSON of an object."
            )
        raw = given if isinstance(given, str | Mapping) else None
        schema = root_schema(given, where) if raw is None else _read_schema(raw, where)
        validator = Validator(schema, where=where)
        return cls(
            schema=json_text(schema, where),
            validator=validator,
            convert=_converter(given, where) if raw is None else unchanged,
            name=name or _name(given, schema),
            description=description,
            strict=strict,
            python=given if raw is None else None,
            unenforced=validator.unenforced if raw is not None else unenforced_by_types(validator),
        )

    @property
    def is_object(self) -> bool:
        """True if only objects fit. Any other value is wrapped in an object where a wire requires one."""
        return is_object(self.schema)

    def spec(self, form: OutputForm = "") -> OutputSchema:
        """Return the part of an ask for it; an empty form leaves the choice to the model's row."""
        return OutputSchema(self.schema, self.name, self.description, self.strict, form)

    def read(self, text: str) -> Accepted | tuple[Problem, ...]:
        """Return the answer in this JSON text, or everything that is wrong with it."""
        value = decode_json(text, expected="JSON")
        if isinstance(value, tuple):
            return value
        problems = self.validator.problems(value)
        if problems and self.strict:
            _remove_nulls(value, problems)
            problems = self.validator.problems(value)
        if problems:
            return problems
        try:
            return Accepted(self.convert(value))
        except ValueRefused as refused:
            return refused.problems

    def problems_text(self, problems: Sequence[Problem], *, form: OutputForm = "") -> str:
        """Return the correction for the model: what is wrong and where, what is expected, and what to do."""
        lines = list_problems(problems, "the answer")
        if form == "prompted":
            lines.append(f"Expected is JSON that fits this JSON Schema: {self.schema}")
        return "\n".join(["The answer was not accepted:", *lines, AGAIN.get(form, AGAIN[""])])


def _read_schema(schema: str | Mapping[str, object], where: str) -> Schema:
    text = schema if isinstance(schema, str) else json_text(schema, where)
    shape = json_object(text, where)
    if "properties" in shape and not shape.keys() & {"type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"}:
        shape = {"type": "object", **shape}
    return close_schema(shape)


def _name(given: object, schema: Schema) -> str:
    """Return the name of the user's own class, or the title of a schema; nothing is named after a builtin or a union."""
    if isinstance(given, type) and not isinstance(given, types.GenericAlias) and given.__module__ != "builtins":
        return given.__name__
    title = schema.get("title")
    return title if isinstance(title, str) and title else NAME


def _converter(kind: object, where: str) -> Convert:
    """Return a converter to the type. Where only trying tells the types of a union apart, the first that fits is taken."""
    try:
        return converter(kind, where)
    except UsageError:
        if get_origin(kind) not in (Union, types.UnionType):
            raise
    members = [(Validator(root_schema(one, where), where=where), converter(one, where)) for one in get_args(kind)]

    def convert(value: object) -> object:
        for validator, member in members:
            if not validator.problems(value):
                return member(value)
        raise ValueRefused((Problem("", "fits none of the allowed forms"),))

    return convert
