"""Plain arguments are decoded in one go, and nobody can tell: the schema and the converters come to the same."""

from collections.abc import Callable, Iterable
from typing import Annotated, Literal, NewType

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evener.tools import tool
from evener.tools.arguments import ArgumentReader
from tests.tools.calls import named

Name = NewType("Name", str)


def look(
    word: str,
    number: int,
    flag: Annotated[bool, "whether"] = False,
    words: list[str] | None = None,
    rows: list[list[int | None]] | None = None,
    either: str | int = "",
    name: Name = Name(""),
    unique: frozenset[int] = frozenset(),
) -> None: ...


NAMES = ["word", "number", "flag", "words", "rows", "either", "name", "unique", "wrod"]
NUMBERS = ["3", "-0", "-0.0", "3.0", "3.5", "1e3", "1e300", "1E400", "9" * 25, "-" + "9" * 25, "9" * 400, "NaN", "01"]
ATOMS = st.sampled_from(
    [*NUMBERS, '"a"', '"a:b"', '"\\":"', '"\\u00e9"', '"\\ud800"', '"3"', "true", "null", "{}", '{"a":1}', "[[[1]]]", "[", ""]
)
VALUES = st.recursive(ATOMS, lambda inner: st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]"), max_leaves=5)
COLONS = st.sampled_from([":", ": ", " :", "\n: "])
PAIRS = st.tuples(st.sampled_from(NAMES), COLONS, VALUES).map(lambda pair: f'"{pair[0]}"{pair[1]}{pair[2]}')
TEXTS = st.lists(PAIRS, max_size=5).map(lambda pairs: "{" + ",".join(pairs) + "}")
RIGHT = '{"word":"x","number":1,"flag":true,"words":["http://x"],"rows":[[1,null]],"either":2,"name":"n","unique":[1,1]}'


def both(arguments: ArgumentReader, raw: str) -> tuple[object, object]:
    return arguments.read(raw), msgspec.structs.replace(arguments, typed=None).read(raw)


@given(TEXTS | TEXTS.map(lambda text: RIGHT[:-1] + "," + text[1:]) | TEXTS.map(lambda text: text[:-1] + "," + RIGHT[1:]))
def test_whatever_is_written_the_schema_and_the_converters_say_the_same(raw: str) -> None:
    found, general = both(tool(look).arguments, raw)
    assert repr(found) == repr(general)


@pytest.mark.parametrize(
    "raw",
    [
        RIGHT,
        RIGHT.replace(":", ": "),
        RIGHT.replace(":", " : "),
        RIGHT.replace('"word"', '"number":1,"word"'),
        RIGHT.replace('"word"', '"number" :1,"word"'),
        RIGHT.replace('"word"', '"more":1,"word"'),
        RIGHT.replace('"x"', '"\\":"'),
        '{"word":"x","number":1' + " " * (16 << 20) + "}",
        *(f'{{"word":"x","number":{number}}}' for number in NUMBERS),
        "[]",
        "",
    ],
    ids=lambda raw: raw[:100],
)
def test_ways_to_write_them(raw: str) -> None:
    found, general = both(tool(look).arguments, raw)
    assert repr(found) == repr(general)


def test_each_reading_is_afresh() -> None:
    arguments = tool(look).arguments
    one, other = arguments.read(RIGHT), arguments.read(RIGHT)
    assert one == other
    assert not isinstance(one, tuple)
    assert not isinstance(other, tuple)
    assert one.named is not other.named
    assert one.named["words"] is not other.named["words"]


class Model(pydantic.BaseModel):
    a: int


class Place(msgspec.Struct):
    city: str


def with_bound(a: Annotated[int, msgspec.Meta(ge=0)]) -> None: ...
def with_choice(a: Literal["x"]) -> None: ...
def with_float(a: float) -> None: ...
def with_any(a: object) -> None: ...
def with_anything_inside(a: list[object]) -> None: ...
def with_bytes(a: bytes) -> None: ...
def with_object(a: Place) -> None: ...
def with_dict(a: dict[str, int]) -> None: ...
def with_row(a: tuple[int, str]) -> None: ...
def with_iterable(a: Iterable[int]) -> None: ...
def with_own_schema(a: Annotated[str, msgspec.Meta(extra_json_schema={"type": "integer"})]) -> None: ...
def with_own_items(a: Annotated[list[int], msgspec.Meta(extra_json_schema={"items": {"type": "string"}})]) -> None: ...
def with_model(a: Model) -> None: ...
def with_words_of_pydantic(a: Annotated[str, pydantic.StringConstraints(strip_whitespace=True)]) -> None: ...


MORE: list[Callable[..., object]] = [
    with_bound, with_choice, with_float, with_any, with_anything_inside, with_bytes, with_object, with_dict, with_row,
    with_iterable, with_own_schema, with_own_items, with_model, with_words_of_pydantic,
]  # fmt: skip


def rich(
    count: Annotated[int, msgspec.Meta(ge=0)],
    share: float = 0.0,
    unit: Literal["x", "y"] = "x",
    place: Place | None = None,
    sizes: dict[str, int] | None = None,
    anything: object = None,
) -> None: ...


RICH = ["count", "share", "unit", "place", "sizes", "anything"]
PARTS = [*NUMBERS, '"x"', "null", "true", '{"city":"Rome"}', '{"city":1}', '{"a":1.0,"b":2}', '{"a":"b"}', "[1]", "{}"]
FIELDS = st.tuples(st.sampled_from(RICH), st.sampled_from(PARTS)).map(lambda pair: f'"{pair[0]}":{pair[1]}')


@given(st.lists(FIELDS, max_size=4))
def test_converted_in_one_go_or_one_by_one_they_are_the_same(fields: list[str]) -> None:
    for row in (fields, ['"count":1', *fields]):
        found, general = both(tool(rich).arguments, "{" + ",".join(row) + "}")
        assert repr(found) == repr(general)


@pytest.mark.parametrize("function", MORE, ids=named)
def test_a_schema_that_says_more_than_a_type_is_asked(function: Callable[..., object]) -> None:
    found = tool(function).arguments.typed
    assert found is None or found.plain is None


@pytest.mark.parametrize("function", [with_iterable, with_own_schema, with_own_items], ids=named)
@pytest.mark.parametrize("value", ['"x"', "1", "[1]", '["x"]', "{}"])
def test_what_only_the_schema_refuses_is_refused(function: Callable[..., object], value: str) -> None:
    found, general = both(tool(function).arguments, f'{{"a":{value}}}')
    assert repr(found) == repr(general)


def test_a_schema_that_says_no_more_is_not() -> None:
    found = tool(look).arguments.typed
    assert found is not None
    assert found.plain is not None
