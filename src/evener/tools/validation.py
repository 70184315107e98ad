"""Validates JSON values against a JSON Schema with `jsonschema-rs`, and describes problems so that a model can correct them.
Pure.

A schema is compiled once, when its tool is made: Draft 2020-12; older spellings are converted. No reference is fetched, and
patterns run on an engine with linear time. `Validator.unenforced` names the parts of a schema that are not validated.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from difflib import get_close_matches
from functools import partial
from itertools import islice
from re import compile as compile_own_pattern
from typing import TYPE_CHECKING
from urllib.parse import quote
from uuid import UUID

import msgspec

from evener.errors import UsageError
from evener.tools.references import ONE, SEVERAL, References, Schema, compile_pattern
from evener.tools.schema import Problem, format_path, format_value, format_values
from evener.transcript.scan import NAMED
from evener.wire.schema import modernize

if TYPE_CHECKING:
    import jsonschema_rs

IN_URIS = "%/#:?@!$&'()*+,;=~-._"
"""Characters besides letters and digits that stand in a reference as they are."""
MOST_PROBLEMS = 100
MOST_DEEP = 200
MOST_VISITS = 10_000
"""Upper bound for explaining a problem in nested alternatives: `jsonschema-rs` tries every way to fit first (ADR 22)."""
MOST_WAYS = 100_000
"""Upper bound for a verdict. Only schemas that refer to their own parts again and again exceed it."""

MISSING = "required, but missing"
UNKNOWN = "unknown field"

Place = tuple[str | int, ...]
Found = tuple[Place, str]

OTHER = frozenset(
    "type enum const minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength minItems maxItems "
    "minProperties maxProperties minContains maxContains uniqueItems required dependentRequired pattern format "
    "$ref $id $anchor $dynamicRef $dynamicAnchor $schema $vocabulary $comment title description default examples example "
    "deprecated readOnly writeOnly contentEncoding contentMediaType discriminator propertyOrdering nullable".split()
)
KINDS = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}
FORMATS: dict[str, tuple[type, str]] = {
    "date-time": (datetime, '"2026-01-31T12:00:00Z"'),
    "date": (date, '"2026-01-31"'),
    "time": (time, '"12:00:00"'),
    "uuid": (UUID, '"12345678-1234-5678-1234-567812345678"'),
}
"""Formats of Python types: checked as the decoder of arguments reads them. With an example each."""
STANDARD = frozenset(
    "duration email hostname idn-email idn-hostname ipv4 ipv6 iri iri-reference json-pointer regex relative-json-pointer uri "
    "uri-reference uri-template".split()
)
DECIMAL = compile_own_pattern(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")


class Validator:
    """A compiled schema. `unenforced` names the keywords that are not validated here, each with its place."""

    def __init__(self, schema: Schema, *, where: str = "The schema") -> None:
        self._schema, self.unenforced = _prepare(schema, where)
        self._references = References(self._schema)
        self._references.refuse_loops(where)
        self._compiled = _compile(self._schema, where)
        self._branches = self._references.count_ways(most=MOST_WAYS) > MOST_WAYS

    def problems(self, value: object) -> tuple[Problem, ...]:
        """Return everything that is wrong with a value."""
        references = self._references
        if self._branches and references.meets_often(value, most=MOST_WAYS, tried=("not", "if", "contains")):
            return (Problem("", "is nested too deeply to be checked: the schema applies its parts to it too often"),)
        try:
            if self._compiled.is_valid(value):
                return ()
        except UnicodeEncodeError:
            return (Problem("", "holds a lone surrogate (half of a character), which is no text"),)
        if references.meets_often(value, most=MOST_VISITS):
            return (Problem("", "fits none of the allowed forms, and is nested too deeply to say why"),)
        errors = islice(self._compiled.iter_errors(value), MOST_PROBLEMS)
        found = sorted((one for error in errors for one in _explain(error, references)), key=_rank)
        return tuple(Problem(format_path(place), message) for place, message in found[:MOST_PROBLEMS])


def _compile(schema: Schema, where: str) -> "jsonschema_rs.Validator":
    import jsonschema_rs

    try:
        return jsonschema_rs.Draft202012Validator(
            dict(schema), formats=_formats(), validate_formats=True, pattern_options=jsonschema_rs.RegexOptions(), offline=True
        )
    except jsonschema_rs.ValidationError as error:
        place = f" at {format_path(error.instance_path)}" if error.instance_path else ""
        raise UsageError(f"{where}{place} is not a valid JSON Schema: {error.message[:200]}. Correct the schema.") from None
    except ValueError as error:  # half of a character, as a tool of an MCP server may have it, or a value such as bytes
        raise UsageError(f"{where} cannot be written as JSON: {str(error)[:200]}. Correct the schema.") from None


def _formats() -> dict[str, Callable[[str], bool]]:
    known: dict[str, Callable[[str], bool]] = {name: partial(_reads_as, kind) for name, (kind, _) in FORMATS.items()}
    return {**known, "decimal": lambda text: DECIMAL.fullmatch(text) is not None}


def _reads_as(kind: type, text: str) -> bool:
    try:
        msgspec.convert(text, kind)
    except msgspec.ValidationError:
        return False
    return True


def _rank(found: Found) -> int:
    """Put what is missing first, then what is unknown: such a field is often the missing one under another name."""
    return 0 if found[1] == MISSING else 1 if found[1].startswith(UNKNOWN) else 2


# Preparing a schema.


def _prepare(schema: Schema, where: str) -> tuple[Schema, tuple[str, ...]]:
    """Return the schema as Draft 2020-12 without what cannot be enforced, and a list of that."""
    unenforced: dict[str, None] = {}

    def walk(node: object, place: Place) -> object:
        if not isinstance(node, Mapping):
            return node  # the compiler says what is wrong with it
        if len(place) > MOST_DEEP:
            raise UsageError(f"{where} is nested too deeply. Simplify the schema.")
        made: dict[str, object] = {}
        for keyword, said in node.items():
            why = _refusal(keyword, said, node)
            if why:
                unenforced[f"{format_path((*place, keyword))}: {why}"] = None
            else:
                made[keyword] = inside(keyword, said, (*place, keyword))
        if made.get("enum") == []:
            raise UsageError(f"{where} at {format_path((*place, 'enum'))} is empty. Name at least one value.")
        return _modernise(made)

    def inside(keyword: str, said: object, place: Place) -> object:
        if keyword in NAMED and isinstance(said, Mapping):
            return {name: walk(part, (*place, name)) for name, part in said.items()}
        if isinstance(said, list) and (keyword in SEVERAL or keyword == "items"):
            return [walk(part, (*place, number)) for number, part in enumerate(said)]
        return walk(said, place) if keyword in ONE else said

    prepared = walk(schema, ())
    assert isinstance(prepared, Mapping)
    return prepared, tuple(unenforced)


def _refusal(keyword: str, said: object, node: Schema) -> str:
    """Return why a keyword cannot be enforced; empty when it can."""
    if keyword == "pattern" and isinstance(said, str):
        return _pattern_refusal(said)
    if keyword in ("patternProperties", "additionalProperties", "unevaluatedProperties"):
        patterns = node.get("patternProperties")
        return next(filter(None, map(_pattern_refusal, patterns)), "") if isinstance(patterns, Mapping) else ""
    if keyword == "format":
        return "" if said in STANDARD or said in FORMATS or said == "decimal" else "the format is not known"
    known = keyword in ONE or keyword in SEVERAL or keyword in NAMED or keyword in OTHER
    return "" if known else "the keyword is not known"


def _pattern_refusal(pattern: str) -> str:
    try:
        compile_pattern(pattern)
    except ValueError:  # of `jsonschema-rs`, or half of a character
        return "the pattern is no regular expression, or needs more than linear time"
    return ""


def _modernise(node: dict[str, object]) -> dict[str, object]:
    """Bring older spellings forward: `nullable` of OpenAPI, those of older drafts, names in references that are no URI."""
    kinds = node.get("type")
    if node.pop("nullable", None) is True and kinds is not None:
        node["type"] = [*(kinds if isinstance(kinds, list) else [kinds]), "null"]
    required = node.get("required")
    node = dict(modernize(node, capitals=False))
    if isinstance(required, list) and not all(isinstance(name, str) for name in required):
        node["required"] = required  # the compiler says what is wrong with it
    node.pop("additionalItems", None)
    node.pop("$schema", None)
    if isinstance(ref := node.get("$ref"), str):
        node["$ref"] = quote(ref, safe=IN_URIS, errors="surrogatepass")
    return node


# Explaining a problem.


def _explain(error: "jsonschema_rs.ValidationError", references: References) -> Iterable[Found]:
    """Yield what is wrong, each with its place in the value."""
    import jsonschema_rs

    kinds, place, value = jsonschema_rs.ValidationErrorKind, tuple(error.instance_path), error.instance
    match error.kind:
        case kinds.Required(name):
            yield (*place, name), MISSING
        case kinds.AdditionalProperties(names) | kinds.UnevaluatedProperties(names):
            fields = _fields(error, references)
            yield from (((*place, name), _explain_unknown(name, fields)) for name in names[:MOST_PROBLEMS])
        case kinds.UnevaluatedItems(numbers):
            yield place, f"must not have more items; found {len(numbers):,} too many"
        case kinds.PropertyNames(inner):
            name = str(inner.instance)
            yield from (((*place, name), f"as a name, it {message}") for _, message in _explain(inner, references))
        case kinds.AnyOf(ways) | kinds.OneOfNotValid(ways):
            yield from _explain_nearest(ways, place, value, references)
        case kinds.OneOfMultipleValid(ways):
            fitting = sum(not way for way in ways)
            yield place, f"must fit exactly one of {len(ways)} forms, but fits {fitting}"
        case _:
            yield place, _sentence(error)


def _sentence(error: "jsonschema_rs.ValidationError") -> str:
    """Return what is wrong with one value by itself."""
    import jsonschema_rs

    kinds, value = jsonschema_rs.ValidationErrorKind, error.instance
    match error.kind:
        case kinds.Type(types):
            return _explain_type(types, value)
        case kinds.Enum(options):
            return f"must be one of {format_values(options)}; found {format_value(value)}"
        case kinds.Constant(wanted):
            return f"must be {format_value(wanted)}; found {format_value(value)}"
        case kinds.Pattern(pattern):
            return f"must match the pattern {pattern}; found {format_value(value)}"
        case kinds.Format(name):
            return f"must be {_name_format(name)}; found {format_value(value)}"
        case kinds.FalseSchema():
            return "must not be given"
        case kinds.Not():
            return "has a form that is not allowed"
        case kinds.Contains():
            return _explain_contains(error)
        case kinds.UniqueItems() if isinstance(value, list):
            first, second = _find_repeated(value)
            return f"must not repeat items, but items {first} and {second} are equal"
    return _explain_bound(error.kind, value) or error.message[:200]


def _name_format(name: str) -> str:
    """Return a format in words, with an example where one helps."""
    if name == "decimal":
        return 'a decimal number such as "12.50"'
    article = "an" if name[0] in "aeiou" else "a"
    return f"{article} {name} such as {FORMATS[name][1]}" if name in FORMATS else f"{article} {name}"


BOUNDS = {
    "minimum": "at least",
    "maximum": "at most",
    "exclusiveMinimum": "above",
    "exclusiveMaximum": "below",
    "multipleOf": "a multiple of",
}
SIZES = {
    "minLength": "at least {:,} characters",
    "maxLength": "at most {:,} characters",
    "minItems": "at least {:,} items",
    "maxItems": "at most {:,} items",
    "minProperties": "at least {:,} fields",
    "maxProperties": "at most {:,} fields",
}


def _explain_bound(kind: "jsonschema_rs.ValidationErrorKind", value: object) -> str:
    """Return the sentence for a bound; empty when the problem is another one."""
    if kind.name in BOUNDS:
        return f"must be {BOUNDS[kind.name]} {format_value(kind.value)}; found {format_value(value)}"
    if kind.name in SIZES and isinstance(value, str | list | dict):
        return f"must have {SIZES[kind.name].format(int(kind.value))}; found {len(value):,}"
    return ""


CONTAINED = {"minContains": "more", "maxContains": "fewer"}


def _explain_contains(error: "jsonschema_rs.ValidationError") -> str:
    how = CONTAINED.get(str(error.schema_path[-1]))
    return f"must have {how} items of a required form" if how else "must have an item of a required form, but has none"


def _explain_nearest(
    ways: "Sequence[Sequence[jsonschema_rs.ValidationError]]", place: Place, value: object, references: References
) -> Iterator[Found]:
    """Yield what keeps a value from the form that it comes nearest to."""
    import jsonschema_rs

    kinds = jsonschema_rs.ValidationErrorKind
    types: list[str] = []
    near: list[Sequence[jsonschema_rs.ValidationError]] = []
    for way in ways:
        match way:
            case [one] if tuple(one.instance_path) == place and isinstance(one.kind, kinds.Type):
                types += one.kind.types
            case _:
                near.append(way)
    if types and not near:
        yield place, _explain_type(types, value)
        return
    explained = [[found for error in way[:MOST_PROBLEMS] for found in _explain(error, references)] for way in near]
    yield from min(explained, key=len, default=[(place, "fits none of the allowed forms")])


def _explain_type(types: Sequence[str], value: object) -> str:
    words = " or ".join(KINDS[kind] for kind in KINDS if kind in types)
    match value:
        case bool():
            found = "a boolean"
        case None:
            found = "null"
        case float() if "integer" in types and "number" not in types:
            found = format_value(value)
        case int() | float():
            found = "a number"
        case str() | list() | dict():
            found = KINDS[{str: "string", list: "array", dict: "object"}[type(value)]]
    return f"expected {words}, found {found}"


def _fields(error: "jsonschema_rs.ValidationError", references: References) -> tuple[list[str], list[str]]:
    """Return the fields that a schema describes, and the patterns of their names."""
    steps = (quote(str(step).replace("~", "~0").replace("/", "~1"), safe="~") for step in error.schema_path)
    place = error.absolute_keyword_location or "/".join(("#", *steps))
    node = references.find(place.rpartition("/")[0])
    left = [node] if isinstance(node, Mapping) else []
    names: dict[str, None] = {}
    patterns: dict[str, None] = {}
    seen: set[int] = set()
    while left:
        node = left.pop()
        if id(node) not in seen:
            seen.add(id(node))
            names |= dict.fromkeys(_keys(node, "properties"))
            patterns |= dict.fromkeys(_keys(node, "patternProperties"))
            left += reversed(references.applied(node)) if place.endswith("/unevaluatedProperties") else ()
    return list(names), list(patterns)


def _keys(node: Schema, keyword: str) -> Iterable[str]:
    found = node.get(keyword)
    return found if isinstance(found, Mapping) else ()


def _explain_unknown(name: str, fields: tuple[Sequence[str], Sequence[str]]) -> str:
    names, patterns = fields
    if name in names:
        return f"{UNKNOWN} here: the form that describes it does not fit"
    near = get_close_matches(name[:100], names, n=1)
    if near:
        return f"{UNKNOWN}; did you mean {near[0]}?"
    if patterns:
        more = f"the fields are {', '.join(names[:50])}, and those" if names else "the fields are those"
        return f"{UNKNOWN}; {more} whose names match {' or '.join(patterns[:5])}"
    return f"{UNKNOWN}; the fields are {', '.join(names[:50])}" if names else f"{UNKNOWN}; there are no fields"


def _find_repeated(items: Sequence[object]) -> tuple[int, int]:
    """Return the numbers of the first two equal items."""
    seen: dict[object, int] = {}
    for number, item in enumerate(items):
        before = seen.setdefault(_key(item), number)
        if before != number:
            return before, number
    return 0, 0


def _key(value: object) -> object:
    """Return a value that is equal to another one's exactly if the two JSON values are: true is not 1, but 1.0 is."""
    match value:
        case bool():
            return ("boolean", value)
        case list():
            return ("array", tuple(_key(item) for item in value))
        case dict():
            return ("object", frozenset((name, _key(item)) for name, item in value.items()))
    return value
