"""The arguments of a call with the defaults of what was left out: what rules about calls must see."""

import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated

import msgspec
import pytest
from pydantic import BaseModel, Field

from evener import Tool, tool
from evener.tools.call import with_defaults
from evener.tools.context import ToolContext


class Colour(Enum):
    RED = "red"


@dataclass
class Options:
    force: bool = True
    tags: list[str] = field(default_factory=lambda: ["a"])


class Place(msgspec.Struct, rename="camel"):
    zip_code: str = "1234"


class Model(BaseModel):
    level: int = Field(default=3, alias="the-level")


def plain(branch: str = "main", force: bool = True, count: int | None = None) -> str:
    """Push."""
    return f"{branch}{force}{count}"


def rich(options: Options, colour: Colour = Colour.RED, others: list[Options] = [], place: Place = Place()) -> str:  # noqa: B006, B008
    """Push."""
    return str((options, colour, others, place))


def with_context(context: ToolContext[object], model: Model, word: Annotated[str, "a word"] = "w") -> str:
    """Say."""
    return str((context, model, word))


FROM_SCHEMA = Tool.of(
    "raw",
    {
        "type": "object",
        "properties": {
            "mode": {"type": "string", "default": "fast"},
            "inner": {"$ref": "#/$defs/inner"},
            "rows": {"type": "array", "items": {"$ref": "#/$defs/inner"}},
        },
        "$defs": {"inner": {"type": "object", "properties": {"deep": {"type": "integer", "default": 9}}}},
    },
    function=lambda arguments: str(arguments),
)
FROM_TYPE = Tool.of("typed", Options, function=lambda options: str(options))

CASES: list[tuple[Tool, dict[str, object], dict[str, object]]] = [
    (tool(plain), {}, {"branch": "main", "force": True, "count": None}),
    (tool(plain), {"branch": "dev", "count": 1}, {"branch": "dev", "count": 1, "force": True}),
    (
        tool(rich),
        {"options": {"force": False}, "others": [{}, {"tags": []}]},
        {
            "options": {"force": False, "tags": ["a"]},
            "others": [{"force": True, "tags": ["a"]}, {"force": True, "tags": []}],
            "colour": "red",
            "place": {"zipCode": "1234"},
        },
    ),
    (tool(with_context), {"model": {}}, {"model": {"the-level": 3}, "word": "w"}),
    (
        FROM_SCHEMA,
        {"inner": {}, "rows": [{}, {"deep": 1}]},
        {"inner": {"deep": 9}, "rows": [{"deep": 9}, {"deep": 1}], "mode": "fast"},
    ),
    (FROM_SCHEMA, {}, {"mode": "fast"}),
    (FROM_TYPE, {}, {"force": True, "tags": ["a"]}),
]  # fmt: skip


@pytest.mark.parametrize(("one", "given", "full"), CASES, ids=range(len(CASES)))
def test_what_was_left_out_is_there_with_its_default(one: Tool, given: dict[str, object], full: dict[str, object]) -> None:
    found = with_defaults(one, json.dumps(given))
    assert found is not None
    assert json.loads(found) == full


def test_arguments_that_are_complete_stay_as_they_are_written() -> None:
    raw = '{ "branch":"x", "force": false , "count":null}'
    assert with_defaults(tool(plain), raw) == raw


@pytest.mark.parametrize(
    "raw", ["{bad", "[]", '{"branch":1}', '{"branch":"a","branch":"b"}', '{"unknown":1}', '{"branch":null}']
)
def test_arguments_that_do_not_fit_have_none(raw: str) -> None:
    assert with_defaults(tool(plain), raw) is None


def test_a_default_that_json_cannot_say_does_no_harm() -> None:
    sentinel = object()

    def odd(word: str = sentinel) -> str:  # type: ignore[assignment]
        """Odd."""
        return word

    assert with_defaults(tool(odd), "{}") is not None
