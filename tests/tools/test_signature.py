"""A tool from a signature: what the model is told, what the function gets, what is refused. (S1.19, S2.21, S2.23)"""

import asyncio
import enum
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import Annotated, Generic, Literal, NamedTuple, NewType, NotRequired, Optional, Required, TypedDict, TypeVar
from uuid import UUID

import annotated_types
import msgspec
import pydantic
import pytest

from evener.errors import UsageError
from evener.tools import Problem, Tool, ToolContext, tool
from evener.tools.arguments import ReadArguments
from tests.tools.calls import named

T = TypeVar("T")


class Unit(enum.Enum):
    CELSIUS = "c"
    FAHRENHEIT = "f"


@dataclass
class Stop:
    """A place on the way.

    Args:
        city: its name
    """

    city: str
    nights: Annotated[int, annotated_types.Ge(1)] = 1
    tags: list[str] = field(default_factory=list)


@dataclass
class Tree:
    name: str
    inner: list["Tree"] = field(default_factory=list)


@dataclass
class Box(Generic[T]):
    held: T


class Address(TypedDict):
    street: str
    zip: NotRequired[str]


class Postponed(TypedDict):
    """With texts as annotations, as all of them are after `from __future__ import annotations`."""

    street: "str"
    zip: "NotRequired[str]"


class Loose(TypedDict, total=False):
    a: int


class PostponedLoose(TypedDict, total=False):
    a: "Required[int]"
    b: "int"


class Point(NamedTuple):
    x: int
    y: int = 0


class Card(msgspec.Struct, rename="camel"):
    holder_name: str
    months: Annotated[int, msgspec.Meta(ge=1, le=12)] = 1


class Cat(msgspec.Struct, tag="cat"):
    lives: int


class Dog(msgspec.Struct, tag="dog"):
    tricks: int


class Person(pydantic.BaseModel):
    """Somebody."""

    name: str = pydantic.Field(min_length=1, description="the full name")
    born: date
    friend: "Person | None" = None


UserId = NewType("UserId", str)


def schema_of(kind: object) -> dict[str, object]:
    """What the model is told of a parameter of this type."""

    def probe(x: object) -> None: ...

    probe.__annotations__["x"] = kind
    properties = tool(probe).spec.input_schema["properties"]
    assert isinstance(properties, dict)
    found: dict[str, object] = properties["x"]
    return found


SCHEMAS: list[tuple[object, dict[str, object]]] = [
    (str, {"type": "string"}),
    (int, {"type": "integer"}),
    (float, {"type": "number"}),
    (bool, {"type": "boolean"}),
    (None, {"type": "null"}),
    (object, {}),
    (bytes, {"type": "string", "contentEncoding": "base64"}),
    (datetime, {"type": "string", "format": "date-time"}),
    (Decimal, {"type": "string", "format": "decimal"}),
    (UUID, {"type": "string", "format": "uuid"}),
    (list, {"type": "array"}),
    (list[int], {"type": "array", "items": {"type": "integer"}}),
    (set[str], {"type": "array", "items": {"type": "string"}}),
    (Sequence[str], {"type": "array", "items": {"type": "string"}}),
    (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
    (tuple[int, str], {
        "type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False, "minItems": 2, "maxItems": 2,
    }),
    (dict, {"type": "object", "additionalProperties": True}),
    (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
    (Mapping[Unit, int], {
        "type": "object", "additionalProperties": {"type": "integer"}, "propertyNames": {"type": "string", "enum": ["c", "f"]},
    }),
    (Optional[str], {"type": ["string", "null"]}),  # noqa: UP045 - both ways to write it
    (int | str, {"type": ["integer", "string"]}),
    (list[int] | None, {"type": ["array", "null"], "items": {"type": "integer"}}),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
    (Literal["a", None], {"type": ["string", "null"], "enum": ["a", None]}),
    (Literal[1, "a"], {"type": ["integer", "string"], "enum": [1, "a"]}),
    (Unit, {"type": "string", "enum": ["c", "f"]}),
    (Unit | None, {"anyOf": [{"type": "string", "enum": ["c", "f"]}, {"type": "null"}]}),
    (UserId, {"type": "string"}),
    (Annotated[int, msgspec.Meta(ge=1, lt=5)], {"type": "integer", "minimum": 1, "exclusiveMaximum": 5}),
    (Annotated[int, annotated_types.Interval(gt=0, le=9)], {"type": "integer", "exclusiveMinimum": 0, "maximum": 9}),
    (Annotated[str, annotated_types.Len(1, 3)], {"type": "string", "minLength": 1, "maxLength": 3}),
    (Annotated[list[int], annotated_types.MaxLen(3)], {"type": "array", "items": {"type": "integer"}, "maxItems": 3}),
    (Annotated[dict[str, int], msgspec.Meta(min_length=1)], {
        "type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1,
    }),
    (list[Annotated[int, annotated_types.Ge(2)]], {"type": "array", "items": {"type": "integer", "minimum": 2}}),
    (Annotated[str, msgspec.Meta(pattern="^a")], {"type": "string", "pattern": "^a"}),
    (Annotated[str, "a city"], {"type": "string", "description": "a city"}),
    (Annotated[int, pydantic.Field(ge=1, description="many")], {"type": "integer", "minimum": 1, "description": "many"}),
    (Point, {
        "type": "array", "prefixItems": [{"type": "integer", "title": "x"}, {"type": "integer", "title": "y"}],
        "items": False, "minItems": 1, "maxItems": 2,
    }),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "schema"), SCHEMAS, ids=named)
def test_a_type_has_a_schema(kind: object, schema: dict[str, object]) -> None:
    assert schema_of(kind) == schema


CLASSES: list[tuple[type, dict[str, object]]] = [
    (Stop, {
        "type": "object", "description": "A place on the way.",
        "properties": {
            "city": {"type": "string", "description": "its name"},
            "nights": {"type": "integer", "minimum": 1, "default": 1},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["city"], "additionalProperties": False,
    }),
    (Address, {
        "type": "object", "properties": {"street": {"type": "string"}, "zip": {"type": "string"}},
        "required": ["street"], "additionalProperties": False,
    }),
    (Postponed, {
        "type": "object",
        "description": "With texts as annotations, as all of them are after `from __future__ import annotations`.",
        "properties": {"street": {"type": "string"}, "zip": {"type": "string"}},
        "required": ["street"], "additionalProperties": False,
    }),
    (PostponedLoose, {
        "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a"], "additionalProperties": False,
    }),
    (Loose, {"type": "object", "properties": {"a": {"type": "integer"}}, "required": [], "additionalProperties": False}),
    (Card, {
        "type": "object",
        "properties": {
            "holderName": {"type": "string"},
            "months": {"type": "integer", "minimum": 1, "maximum": 12, "default": 1},
        },
        "required": ["holderName"], "additionalProperties": False,
    }),
    (Cat, {
        "type": "object", "properties": {"type": {"type": "string", "enum": ["cat"]}, "lives": {"type": "integer"}},
        "required": ["type", "lives"], "additionalProperties": False,
    }),
    (Person, {
        "type": "object", "description": "Somebody.",
        "properties": {
            "name": {"type": "string", "minLength": 1, "description": "the full name"},
            "born": {"type": "string", "format": "date"},
            "friend": {"anyOf": [{"$ref": "#/$defs/Person"}, {"type": "null"}], "default": None},
        },
        "required": ["name", "born"], "additionalProperties": False,
    }),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "schema"), CLASSES, ids=named)
def test_a_class_has_a_closed_definition(kind: type, schema: dict[str, object]) -> None:
    """S1.19: required is explicit, unknown fields are rejected."""

    def probe(x: object) -> None: ...

    probe.__annotations__["x"] = kind
    whole = tool(probe).spec.input_schema
    assert whole["$defs"] == {kind.__name__: schema}
    assert schema_of(kind) == {"$ref": f"#/$defs/{kind.__name__}"}


def read(function: Callable[..., object], raw: str) -> dict[str, object]:
    found = tool(function).read(raw)
    assert isinstance(found, ReadArguments), found
    return found.named


def problems(made: Tool, raw: str) -> list[str]:
    found = made.read(raw)
    assert not isinstance(found, ReadArguments)
    return [str(problem) for problem in found]


def plan(
    stops: list[Stop],
    unit: Unit = Unit.CELSIUS,
    *,
    day: date | None = None,
    budget: Decimal = Decimal(10),
    point: Point = Point(0),  # noqa: B008 - a named tuple does not change
    owner: Person | None = None,
    tree: Tree | None = None,
    pet: Cat | Dog | None = None,
    box: Box[int] | None = None,
    odds: frozenset[int] = frozenset(),
    by_number: dict[int, str] | None = None,
) -> str:
    """Plan a trip."""
    return f"{stops} {unit} {day} {budget} {point} {owner} {tree} {pet} {box} {odds} {by_number}"


CONVERTED: list[tuple[str, str, object]] = [
    ("stops", '[{"city":"Rome","nights":2}]', [Stop("Rome", 2)]),
    ("stops", '[{"city":"Rome","nights":2.0}]', [Stop("Rome", 2)]),
    ("unit", '"f"', Unit.FAHRENHEIT),
    ("day", '"2026-01-31"', date(2026, 1, 31)),
    ("budget", '"12.50"', Decimal("12.50")),
    ("point", "[3]", Point(3, 0)),
    ("owner", '{"name":"A","born":"2000-01-01"}', Person(name="A", born=date(2000, 1, 1))),
    ("tree", '{"name":"a","inner":[{"name":"b"}]}', Tree("a", [Tree("b")])),
    ("pet", '{"type":"dog","tricks":3}', Dog(3)),
    ("box", '{"held":7}', Box(7)),
    ("odds", "[1,3,3]", frozenset({1, 3})),
    ("by_number", '{"1":"one"}', {1: "one"}),
]


@pytest.mark.parametrize(("name", "raw", "value"), CONVERTED, ids=named)
def test_arguments_arrive_as_the_types_they_are_annotated_with(name: str, raw: str, value: object) -> None:
    """S2.21, S2.23."""
    whole = f'{{"stops":[],"{name}":{raw}}}' if name != "stops" else f'{{"stops":{raw}}}'
    assert read(plan, whole)[name] == value


WRONG = [
    ('{"stops":[{"city":"Rome","nights":0}]}', "stops[0].nights: must be at least 1; found 0"),
    ('{"stops":[{"city":"Rome","stay":1}]}', "stops[0].stay: unknown field; the fields are city, nights, tags"),
    ('{"stops":[{}]}', "stops[0].city: required, but missing"),
    ('{"stops":[],"unit":"k"}', 'unit: must be one of "c", "f"; found "k"'),
    ('{"stops":[],"day":"tomorrow"}', 'day: must be a date such as "2026-01-31"; found "tomorrow"'),
    ('{"stops":[],"owner":{"name":"","born":"2000-01-01"}}', "owner.name: must have at least 1 characters; found 0"),
    (
        '{"stops":[],"owner":{"name":"A","born":"2000-01-01","x":1}}',
        "owner.x: unknown field; the fields are name, born, friend",
    ),
    ('{"stops":[],"pet":{"type":"cow","tricks":3}}', 'pet.type: must be one of "dog"; found "cow"'),
    ('{"stops":[],"point":[1,2,3]}', "point[2]: must not be given"),
    ('{"stops":[],"box":{"held":"x"}}', "box.held: expected a whole number, found a string"),
    ('{"stops":[],"by_number":{"x":"one"}}', "by_number: expected int, got str"),
]


@pytest.mark.parametrize(("raw", "said"), WRONG)
def test_wrong_arguments_are_named_by_their_place(raw: str, said: str) -> None:
    """S2.30."""
    assert said in problems(tool(plan), raw)


class Even(pydantic.BaseModel):
    number: int

    @pydantic.field_validator("number")
    @classmethod
    def _even(cls, number: int) -> int:
        if number % 2:
            raise ValueError("must be even")
        return number


def test_what_only_the_model_class_knows_is_a_problem_as_well() -> None:
    def halve(even: Even, more: list[Even]) -> None: ...

    raw = '{"even":{"number":3},"more":[{"number":2},{"number":5}]}'
    assert problems(tool(halve), raw) == [
        "even.number: Value error, must be even",
        "more[1].number: Value error, must be even",
    ]


def test_a_model_can_stand_for_all_arguments() -> None:
    """S2.21: JSON schema or Pydantic arguments."""

    def greet(person: Person) -> str:
        """Greet somebody."""
        return person.name

    made = Tool.of("greet", Person, function=greet)
    assert made.spec.input_schema["required"] == ["name", "born"]
    assert made.description == "Greet somebody."
    found = made.read('{"name":"A","born":"2000-01-01","friend":{"name":"B","born":"2000-01-02"}}')
    assert isinstance(found, ReadArguments)
    assert found.whole[0] == Person(name="A", born=date(2000, 1, 1), friend=Person(name="B", born=date(2000, 1, 2)))
    assert problems(made, '{"name":"A"}') == ["born: required, but missing"]


def test_a_dataclass_can_stand_for_all_arguments() -> None:
    def visit(stop: Stop) -> None: ...

    made = Tool.of("visit", Stop, function=visit)
    assert "$defs" not in made.spec.input_schema
    found = made.read('{"city":"Rome"}')
    assert isinstance(found, ReadArguments)
    assert found.whole == (Stop("Rome"),)


def test_two_classes_of_one_name_stay_apart() -> None:
    first, second = Stop, type("Stop", (msgspec.Struct,), {"__annotations__": {"other": int}})

    def probe(a: object, b: object) -> None: ...

    probe.__annotations__.update(a=first, b=second)
    definitions = tool(probe).spec.input_schema["$defs"]
    assert isinstance(definitions, dict)
    assert sorted(definitions) == ["Stop", "Stop_2"]


def google(city: str, days: int = 3) -> str:
    """Look up the weather.

    For the next days only.

    Args:
        city (str): the city's name,
            in English
        days: how many: at most ten

    Returns:
        A short text.

    Raises:
        ValueError: never told
    """
    return f"{city} {days}"


def rest(city: str, days: int = 3) -> str:
    """Look up the weather.

    For the next days only.

    :param city: the city's name,
        in English
    :param int days: how many: at most ten
    :raises ValueError: never told
    :returns: A short text.
    """
    return f"{city} {days}"


@pytest.mark.parametrize("function", [google, rest])
def test_docstrings_describe_the_tool_and_its_parameters(function: Callable[..., object]) -> None:
    made = tool(function)
    properties = made.spec.input_schema["properties"]
    assert properties == {
        "city": {"type": "string", "description": "the city's name, in English"},
        "days": {"type": "integer", "description": "how many: at most ten", "default": 3},
    }
    assert made.description.startswith("Look up the weather.\n\nFor the next days only.")
    assert "A short text." in made.description
    assert "never told" not in made.description


class Shelf:
    """Files."""

    def read(self, name: str) -> str:
        """Read a file."""
        return name

    def __call__(self, name: str) -> str:
        """Call it."""
        return name


async def later(name: str) -> str:
    """Wait."""
    await asyncio.sleep(0)
    return name


@pytest.mark.parametrize(
    ("function", "name", "description", "awaits"),
    [
        (google, "google", "Look up", False),
        (later, "later", "Wait.", True),
        (Shelf().read, "read", "Read a file.", False),
        (Shelf(), "Shelf", "Files.", False),
        (partial(later), "later", "Wait.", True),
        (partial(google, days=1), "google", "Look up", False),
    ],
    ids=named,
)
def test_any_callable_becomes_a_tool(function: Callable[..., object], name: str, description: str, awaits: bool) -> None:
    """S2.23, S2.25."""
    made = tool(function)
    assert (made.name, made.awaits) == (name, awaits)
    assert made.description.startswith(description)
    assert list(made.spec.input_schema["properties"]) in (["city", "days"], ["name"], ["city"])  # type: ignore[call-overload]


def test_the_context_is_given_and_never_told() -> None:
    def look(city: str, context: ToolContext[int], other: ToolContext[int] | None = None) -> None: ...

    assert tool(look).spec.input_schema["properties"] == {"city": {"type": "string"}}
    assert problems(tool(look), '{"city":"a","context":{}}') == ["context: unknown field; the fields are city"]


def bare(x) -> None: ...  # type: ignore[no-untyped-def]
def stars(*x: int) -> None: ...
def double_stars(**x: int) -> None: ...
def slash(x: int, /) -> None: ...
def thing(x: "NotThere") -> None: ...  # type: ignore[name-defined]  # noqa: F821 - a name that is not there
def custom(x: Shelf) -> None: ...
def ambiguous(x: Stop | Tree) -> None: ...
def mixed(x: str | date) -> None: ...
def unsized(x: Annotated[int, annotated_types.Len(1)]) -> None: ...
def predicate(x: Annotated[int, annotated_types.Predicate(lambda x: x > 1)]) -> None: ...
def typevar(x: Box) -> None: ...  # type: ignore[type-arg]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (bare, "'x' has no type"),
        (stars, "any number of arguments"),
        (double_stars, "arguments of any name"),
        (slash, "positional only"),
        (thing, "annotations cannot be read"),
        (custom, "has no JSON form"),
        (ambiguous, "told apart"),
        (mixed, "told apart"),
        (unsized, "a length is set for a type"),
        (predicate, "would not be enforced"),
        (typevar, "has no JSON form"),
        (Shelf.read, r"tool\(thing.method\)"),
        (Stop, "is a class"),
        (5, "not from int"),
    ],
)
def test_a_signature_that_cannot_be_told_is_refused_at_once(function: Callable[..., object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        tool(function)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the statement `type` is new in Python 3.12")
def test_an_alias_that_contains_itself_is_refused_and_one_that_is_used_twice_is_not() -> None:
    made: dict[str, Callable[..., object]] = {}
    exec("type Json = dict[str, Json] | str\ndef read(x: Json) -> None: ...", made)
    with pytest.raises(UsageError, match="the type alias Json contains itself"):
        tool(made["read"])
    exec("type Row = list[int]\ndef read(x: Row, y: dict[str, list[Row]]) -> None: ...", made)
    assert "y" in str(tool(made["read"]).spec.input_schema)


def test_a_problem_is_a_value() -> None:
    assert Problem("a", "b") == Problem("a", "b")
