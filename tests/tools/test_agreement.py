"""The schema that a model is told, the validator, and the conversion to types agree. (S1.19, S1.20)

What the validator takes can be converted; what can be converted, the validator takes. The one difference is meant: unknown
fields, which msgspec ignores, are refused.
"""

import dataclasses
import enum
import json
from typing import Annotated, Literal, NotRequired, Optional, TypedDict, Union

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from evener.errors import UsageError
from evener.tools import Validator
from evener.tools.arguments import ReadArguments, converter
from evener.tools.schema import Shapes, ValueRefused
from evener.tools.tool import tool

law = settings(max_examples=150, deadline=None)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Pair:
    a: int
    b: str = ""


class Typed(TypedDict):
    a: int
    c: NotRequired[bool]


class Record(msgspec.Struct):
    a: Annotated[int, msgspec.Meta(ge=0, le=3)]
    d: list[str] = []


leaves = st.sampled_from(
    [
        int,
        str,
        bool,
        float,
        None,
        Color,
        Level,
        Pair,
        Typed,
        Record,
        Literal["a", "b"],
        Literal[1, 2],
        Annotated[int, msgspec.Meta(ge=0, lt=5)],
        Annotated[float, msgspec.Meta(gt=0)],
        Annotated[str, msgspec.Meta(min_length=1, max_length=2)],
        Annotated[str, msgspec.Meta(pattern="^[ab]+$")],
        Annotated[list[int], msgspec.Meta(max_length=2)],
    ]
)


def wider(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.one_of(
        inner.map(lambda kind: list[kind]),  # type: ignore[valid-type]
        inner.map(lambda kind: dict[str, kind]),  # type: ignore[valid-type]
        inner.map(lambda kind: tuple[kind, ...]),  # type: ignore[valid-type]
        st.tuples(inner, inner).map(lambda kinds: tuple[kinds]),  # type: ignore[valid-type]
        inner.map(lambda kind: Optional[kind]),  # noqa: UP045 - made at run time
        inner.map(lambda kind: Union[kind, bool]),  # noqa: UP007 - made at run time
    )


kinds = st.recursive(leaves, wider, max_leaves=4)
words = st.sampled_from(["", "a", "b", "ab", "abc", "red", "x"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 6) | st.sampled_from([0.5, -0.5, 1.0, 2.0]) | words,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3)
        | st.fixed_dictionaries({"a": st.integers(-1, 4)}, optional={"b": words, "c": st.booleans(), "d": st.lists(words)})
    ),
    max_leaves=6,
)  # fmt: skip


def supported(kind: object) -> bool:
    try:
        msgspec.json.Decoder(kind)
    except TypeError:
        return False
    return True


def validated(kind: object, value: object) -> bool:
    shapes = Shapes()
    schema = {**shapes.of(kind, "x"), "$defs": shapes.definitions}
    validator = Validator(schema)
    assert validator.unenforced == ()
    return validator.problems(value) == ()


def converted(kind: object, value: object) -> bool:
    try:
        converter(kind, "x")(value)
    except ValueRefused:
        return False
    return True


def unknown_fields(kind: object, value: object) -> bool:
    """Whether the only thing wrong with a value are fields that nobody knows."""
    shapes = Shapes()
    schema = {**shapes.of(kind, "x"), "$defs": shapes.definitions}
    open_ = json.loads(json.dumps(schema).replace('"additionalProperties": false', '"additionalProperties": true'))
    return Validator(open_).problems(value) == ()


@law
@given(kinds.filter(supported), values)
def test_validator_and_conversion_agree(kind: object, value: object) -> None:
    if validated(kind, value):
        assert converted(kind, value)
    elif converted(kind, value):
        assert unknown_fields(kind, value)


@law
@given(kinds.filter(supported), values)
def test_a_converted_value_written_again_is_taken_again(kind: object, value: object) -> None:
    if converted(kind, value):
        written = msgspec.json.decode(msgspec.json.encode(converter(kind, "x")(value)))
        assert validated(kind, written)


def test_a_validator_that_forgets_a_bound_would_be_caught() -> None:
    """The twin: without the bound the value is taken, but cannot be converted."""
    shapes = Shapes()
    schema = json.dumps({**shapes.of(Record, "x"), "$defs": shapes.definitions})
    value = {"a": 9}
    assert not converted(Record, value)
    assert Validator(json.loads(schema)).problems(value) != ()
    assert Validator(json.loads(schema.replace('"maximum": 3', '"description": ""'))).problems(value) == ()


def test_enough_values_are_taken_for_the_laws_to_mean_something() -> None:
    seen = {True: 0, False: 0}

    @settings(max_examples=200, deadline=None, database=None, derandomize=True)
    @given(kinds.filter(supported), values)
    def count(kind: object, value: object) -> None:
        seen[validated(kind, value)] += 1

    count()
    assert seen[True] >= 15
    assert seen[False] >= 15


@law
@given(st.dictionaries(st.sampled_from("abxyz"), values, max_size=4))
def test_reading_arguments_never_raises(arguments: dict[str, object]) -> None:
    @tool
    def probe(a: int, b: list[str] | None = None, x: Pair | None = None) -> None: ...

    found = probe.read(json.dumps(arguments))
    if isinstance(found, ReadArguments):
        assert set(found.named) == set(arguments)
    else:
        assert all(str(problem) for problem in found)


@law
@given(st.text(max_size=40) | st.text('{}[]",:01a\\ ', max_size=40))
def test_reading_any_text_never_raises(raw: str) -> None:
    @tool
    def probe(a: int = 0) -> None: ...

    probe.read(raw)


@law
@given(values, values)
def test_validating_against_any_schema_never_raises_anything_unexpected(schema: object, value: object) -> None:
    try:
        validator = Validator({"properties": schema, "anyOf": [schema]})
    except UsageError:
        return
    validator.problems(value)
