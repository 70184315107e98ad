"""A shape from whatever a user gives, what it tells a model, and what it takes (S2.49, S2.55)."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Literal, NamedTuple, NotRequired, TypedDict

import msgspec
import pytest
from pydantic import BaseModel, Field, RootModel, field_validator

from evener.errors import EvenerError, UsageError
from evener.tools import Problem
from evener.tools.outputs import Accepted, OutputShape
from evener.transcript import OutputSchema
from evener.transcript.ask import OutputForm
from tests.outputs.cases import FORMS, NAMES, NUMBER, PET, TRIP, Cat, Dog


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Point(NamedTuple):
    x: float
    y: float


class Place(TypedDict):
    city: str
    zip: NotRequired[str]


class Node(msgspec.Struct):
    """A tree."""

    name: str
    children: "list[Node]" = []


class Square(msgspec.Struct, tag="square"):
    side: float


class Circle(msgspec.Struct, tag="circle"):
    radius: float


class Address(BaseModel):
    street: str


class Person(BaseModel):
    """Somebody."""

    name: str = Field(description="as in the passport", min_length=1)
    age: int = Field(ge=0)
    home: Address | None = None
    title: str = ""

    @field_validator("name")
    @classmethod
    def known(cls, name: str) -> str:
        if name == "Nobody":
            raise ValueError("Nobody is nobody")
        return name


class Tree(BaseModel):
    children: "list[Tree]" = []


class Tags(RootModel[list[str]]):
    pass


CODE = {"type": "string", "pattern": "^[A-Z]{3}$"}
RAW: Mapping[str, object] = {"type": "object", "properties": {"code": CODE}, "required": ["code"]}

TAKEN: list[tuple[object, str, object]] = [
    (str, '"hi"', "hi"),
    (bool, "true", True),
    (float, "1.5", 1.5),
    (int, "3.0", 3),
    (int, "123456789012345678901234567890", 123456789012345678901234567890),
    (dict[str, int], '{"a": 1}', {"a": 1}),
    (list[Cat], '[{"lives": 9}]', [Cat(9)]),
    (Colour, '"red"', Colour.RED),
    (Literal["a", 2], "2", 2),
    (int | str | None, "null", None),
    (Point, "[1, 2.5]", Point(1, 2.5)),
    (Place, '{"city": "Ulm"}', {"city": "Ulm"}),
    (Node, '{"name": "a", "children": [{"name": "b"}]}', Node("a", [Node("b")])),
    (Square | Circle, '{"type": "circle", "radius": 1}', Circle(1)),
    (Cat | Dog | None, '{"tricks": []}', Dog([])),
    (Cat | Dog | None, "null", None),
    (Person, '{"name": "Ann", "age": 7, "home": {"street": "Main"}}', Person(name="Ann", age=7, home=Address(street="Main"))),
    (list[Person], '[{"name": "Ann", "age": 7}]', [Person(name="Ann", age=7)]),
    (Person | Address, '{"street": "Main"}', Address(street="Main")),
    (Tags, '["a"]', Tags(["a"])),
    (Tree, '{"children": [{"children": []}]}', Tree(children=[Tree()])),
    (Annotated[int, Field(gt=3)], "4", 4),
    (RAW, '{"code": "ABC"}', {"code": "ABC"}),
    ('{"enum": [1, "a"]}', '"a"', "a"),
]
REFUSED: list[tuple[object, str, str, str]] = [
    (Colour, '"green"', "", "red"),
    (Literal["a", 2], '"b"', "", "a"),
    (Point, "[1]", "", "at least 2"),
    (Place, '{"city": "Ulm", "town": ""}', "town", "unknown field"),
    (Node, '{"name": "a", "children": [{"nam": "b"}]}', "children[0].name", "missing"),
    (Square | Circle, '{"type": "circle", "radius": "1"}', "radius", "found a string"),
    (Person, '{"name": "", "age": 7}', "name", "at least 1"),
    (Person, '{"name": "Ann", "age": "7"}', "age", "expected a whole number"),
    (Person, '{"name": "Ann", "age": 7, "home": {"street": "Main", "nr": 1}}', "home.nr", "unknown field"),
    (Person, '{"name": "Nobody", "age": 7}', "name", "Nobody is nobody"),
    (Annotated[int, Field(gt=3)], "3", "", "above 3"),
    (RAW, '{"code": "abc"}', "code", "[A-Z]{3}"),
    (RAW, '{"code": "ABC", "more": 1}', "more", "unknown field"),
    (dict, "[" * 5000 + "]" * 5000, "", "nested deeper"),
    (dict, '{"a":' * 101 + "1" + "}" * 101, "", "nested deeper"),
    (dict, '{"a": {"b": 1, "b": 2}}', "a.b", "stands twice"),
    (float, "Infinity", "", "NaN and Infinity are not JSON"),
    (float, "-Infinity", "", "NaN and Infinity are not JSON"),
    (float, "1e999", "", "not JSON"),
    (str, '"\\ud800"', "", "not JSON"),
    (str, '"\ud800"', "", "not JSON"),
    (int, "4 2", "", "not JSON"),
    (int, "```\n4\n```", "", "code fence"),
    (int, " \n", "", "empty"),
    (str, '"' + "x" * (16 << 20) + '"', "", "are allowed"),
]


@pytest.mark.parametrize(("given", "text", "value"), TAKEN, ids=lambda part: str(part)[:40])
def test_s2_55_every_kind_of_type_is_taken_and_read(given: object, text: str, value: object) -> None:
    shape = OutputShape.of(given)
    assert shape.read(text) == Accepted(value)
    assert shape.python is (None if isinstance(given, str | Mapping) else given)
    assert shape.unenforced == ()


@pytest.mark.parametrize(("given", "text", "path", "words"), REFUSED, ids=lambda part: str(part)[:40])
def test_what_does_not_fit_is_refused_with_its_place(given: object, text: str, path: str, words: str) -> None:
    problems = OutputShape.of(given).read(text)
    assert isinstance(problems, tuple)
    assert words in problems[0].message
    assert problems[0].path == path


def test_all_that_is_wrong_is_told_at_once() -> None:
    problems = TRIP.read('{"days": 0, "town": "Ulm"}')
    assert isinstance(problems, tuple)
    assert {problem.path for problem in problems} == {"city", "days", "town"}


# What a model is told.


def schema_of(given: object) -> dict[str, object]:
    return msgspec.json.decode(OutputShape.of(given).schema, type=dict[str, object])


def test_s2_55_a_pydantic_schema_is_cleaned_up() -> None:
    schema = schema_of(Person)
    text = OutputShape.of(Person).schema
    assert schema["description"] == "Somebody."
    assert schema["additionalProperties"] is False
    assert '"title":"Person"' not in text
    assert '"title":"Age"' not in text
    assert schema["properties"]["title"] == {"default": "", "type": "string"}  # type: ignore[index]  # a field of that name
    assert schema["$defs"]["Address"]["additionalProperties"] is False  # type: ignore[index]
    assert schema["required"] == ["name", "age"]


@pytest.mark.parametrize("given", [Node, Tree])
def test_a_type_that_holds_itself_stands_at_the_root_and_among_its_definitions(given: type) -> None:
    schema = schema_of(given)
    assert schema["type"] == "object"
    assert list(schema["$defs"]) == [given.__name__]  # type: ignore[call-overload]
    assert OutputShape.of(given).is_object


def test_a_type_that_does_not_hold_itself_needs_no_definition() -> None:
    assert "$defs" not in schema_of(Cat)


@pytest.mark.parametrize(
    ("given", "is_object", "name"),
    [
        (TRIP, True, "Trip"),
        (NUMBER, False, "answer"),
        (NAMES, False, "answer"),
        (PET, False, "answer"),
        (OutputShape.of(Colour), False, "Colour"),
        (OutputShape.of(Tags), False, "Tags"),
        (OutputShape.of({"title": "Bill", "properties": {"sum": {"type": "number"}}}), True, "Bill"),
        (OutputShape.of(Cat, name="pet"), True, "pet"),
        (OutputShape.of(dict), True, "answer"),
    ],
)
def test_s2_54_only_objects_need_no_wrapping(given: OutputShape, is_object: bool, name: str) -> None:
    assert (given.is_object, given.name) == (is_object, name)


@pytest.mark.parametrize("form", ["", *FORMS])
def test_s2_49_the_spec_says_the_form_that_is_wanted(form: OutputForm) -> None:
    shape = OutputShape.of(Cat, description="A cat.", strict=True)
    assert shape.spec(form) == OutputSchema(shape.schema, "Cat", "A cat.", True, form)
    assert OutputShape.of(shape) is shape


def test_a_schema_that_was_given_is_closed_unless_it_says_otherwise() -> None:
    assert schema_of(RAW)["additionalProperties"] is False
    free = {**RAW, "additionalProperties": True}
    assert OutputShape.of(free).read('{"code": "ABC", "more": 1}') == Accepted({"code": "ABC", "more": 1})


def test_each_reading_gives_a_value_of_its_own() -> None:
    shape = OutputShape.of(RAW)
    first = shape.read('{"code": "ABC"}')
    assert isinstance(first, Accepted)
    assert isinstance(first.value, dict)
    first.value.clear()
    assert shape.read('{"code": "ABC"}') == Accepted({"code": "ABC"})


@pytest.mark.parametrize(
    "given",
    [object(), subprocess.Popen, list[subprocess.Popen[bytes]], list[Cat | Dog], '{"type"', {"type": "text"}, [1], len],
    ids=("object", "class", "list of a class", "list of a union", "broken JSON", "unknown type", "list", "function"),
)
def test_what_has_no_json_form_is_refused_when_the_shape_is_made(given: object) -> None:
    with pytest.raises(EvenerError, match="The output"):
        OutputShape.of(given)


def test_an_ambiguous_list_says_what_to_do() -> None:
    with pytest.raises(UsageError, match="told apart"):
        OutputShape.of(list[Cat | Dog])


# Null for what may be left out.


@dataclass
class Inner:
    note: str = ""


@dataclass
class Outer:
    inner: list[Inner]
    count: int = 3
    maybe: int | None = 7


ABSENT = '{"inner": [{"note": null}, {"note": "a"}], "count": null, "maybe": null}'


def test_where_the_provider_enforces_the_schema_null_stands_for_absent() -> None:
    assert OutputShape.of(Outer, strict=True).read(ABSENT) == Accepted(Outer([Inner(""), Inner("a")], 3, None))
    refused = OutputShape.of(Outer).read(ABSENT)
    assert isinstance(refused, tuple)
    assert {problem.path for problem in refused} == {"inner[0].note", "count"}


def test_null_never_stands_for_what_is_required_or_for_an_item() -> None:
    shape = OutputShape.of(Outer, strict=True)
    for text, path in [('{"inner": null}', "inner"), ('{"inner": [null]}', "inner[0]"), ("null", "")]:
        problems = shape.read(text)
        assert isinstance(problems, tuple)
        assert [problem.path for problem in problems] == [path]


# The correction.


def test_the_correction_says_what_where_and_what_to_do() -> None:
    problems = TRIP.read('{"days": 0}')
    assert isinstance(problems, tuple)
    assert TRIP.problems_text(problems, form="native").splitlines() == [
        "The answer was not accepted:",
        *[f"- {problem.path}: {problem.message}" for problem in problems],
        "Answer again with only the JSON: no code fence, no other words.",
    ]
    assert TRIP.problems_text(problems, form="tool").endswith(
        "Call final_result again, alone and once, with the whole corrected answer."
    )
    assert TRIP.schema in TRIP.problems_text(problems, form="prompted")
    assert "- the answer: empty" in TRIP.problems_text([Problem("", "empty; expected JSON")])


def test_a_correction_stays_short() -> None:
    problems = NAMES.read("[" + ",".join("1" * 90) + "]")
    assert isinstance(problems, tuple)
    text = NAMES.problems_text(problems)
    assert len(text.splitlines()) == 23
    assert "- and 70 more" in text


# What it costs others.


def test_pydantic_stays_unloaded_unless_a_type_is_its_own() -> None:
    code = (
        "import sys, dataclasses\nfrom evener.tools.outputs import OutputShape, PartialReader, judge\n"
        "class A: n: int\nA = dataclasses.dataclass(A)\nassert OutputShape.of(list[A]).read('[{\"n\": 1}]').value == [A(1)]\n"
        "assert 'pydantic' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
