"""The schema of an envelope: flat, ordered, narrowed by the choice, and right about references."""

import json
from typing import Any

import pytest

from evener.encodings import prepare
from evener.encodings.forms import wrap_schema
from evener.errors import BadValue
from evener.testing import check_request
from evener.transcript import Choice, OutputSchema, ToolSpec
from evener.wire import CODECS, Quirks
from tests.encodings.talk import FLAT, TOOLS, WIRES, asked

NODE = {
    "type": "object",
    "properties": {"next": {"$ref": "#"}, "kind": {"$ref": "#/$defs/Kind"}, "same": {"$ref": "#/properties/kind"}},
    "$defs": {"Kind": {"type": "string", "enum": ["a", "b"]}},
}


def envelope(
    choice: Choice | None = None,
    *,
    output: OutputSchema | None = None,
    tools: tuple[ToolSpec, ...] = TOOLS[:2],
    quirks: Quirks = FLAT,
) -> Any:
    ask = prepare(asked(choice=choice, output=output, tools=tools), quirks, encoding="json_schema").ask
    assert ask.output is not None
    assert ask.tools == ()
    return json.loads(ask.output.schema)


def names(schema: Any) -> list[str]:
    """The calls and answers that a schema allows."""
    found = []
    for way in schema.get("anyOf", [schema]):
        tool = way["properties"].get("tool")
        found.append(tool["enum"][0] if tool else next(iter(way["properties"])))
    return found


def test_a_property_may_be_called_like_a_word_of_json_schema() -> None:
    kind = {"$ref": "#/$defs/Kind"}
    properties = {"default": kind, "enum": kind, "$ref": kind, "x": {"default": {"$ref": "#/$defs/Kind"}}}
    shape = {"type": "array", "items": {"properties": properties}, "$defs": {"Kind": {"type": "string"}}}
    found = json.loads(wrap_schema(json.dumps(shape)))
    moved = found["properties"]["value"]["items"]["properties"]
    assert list(found["$defs"]) == ["value_Kind"]
    assert moved == {**{name: {"$ref": "#/$defs/value_Kind"} for name in ("default", "enum", "$ref")}, "x": properties["x"]}


def test_a_schema_that_is_too_deep_to_be_moved_is_told() -> None:
    deep = '{"items":' * 600 + '{"$ref":"#/$defs/A"}' + "}" * 600
    with pytest.raises(BadValue, match="nested too deeply"):
        wrap_schema(f'{{"items":{deep},"$defs":{{"A":{{}}}}}}')


def test_a_call_is_one_flat_object_with_the_tool_first() -> None:
    first = envelope()["anyOf"][0]
    assert list(first["properties"]) == ["tool", "arguments"]
    assert first == {
        "type": "object",
        "properties": {"tool": {"type": "string", "enum": ["add"]}, "arguments": json.loads(TOOLS[0].schema)},
        "required": ["tool", "arguments"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("choice", "ways"),
    [
        (Choice(), ["add", "look", "answer"]),
        (Choice("required"), ["add", "look"]),
        (Choice("none"), ["answer"]),
        (Choice("named", ("look",)), ["look"]),
        (Choice("auto", ("look",)), ["look", "answer"]),
        (Choice("required", ("look",)), ["look"]),
        (Choice("named", ("gone",)), ["add", "look", "answer"]),
        (Choice(parallel=False), ["add", "look", "answer"]),
        (Choice(parallel=True), ["calls", "answer"]),
        (Choice("required", parallel=True), ["calls"]),
    ],
)
def test_the_choice_is_in_the_schema(choice: Choice, ways: list[str]) -> None:
    """S4.12."""
    assert names(envelope(choice)) == ways


def test_several_calls_are_a_list() -> None:
    calls = envelope(Choice("required", parallel=True))["properties"]["calls"]
    assert (calls["type"], calls["minItems"]) == ("array", 1)
    assert names(calls["items"]) == ["add", "look"]


def test_the_answers_own_shape_takes_the_place_of_a_text() -> None:
    shape = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    assert envelope(output=OutputSchema(json.dumps(shape)))["anyOf"][-1] == shape
    listed = envelope(output=OutputSchema('{"type":"array"}'))["anyOf"][-1]
    assert listed["properties"] == {"answer": {"type": "array"}}


def test_it_is_wrapped_where_only_objects_can_be_asked_for() -> None:
    schema = envelope(quirks=Quirks())
    assert (schema["type"], list(schema["properties"])) == ("object", ["value"])
    assert names(schema["properties"]["value"]) == ["add", "look", "answer"]


def resolved(schema: Any, target: str) -> Any:
    found = schema
    for step in target.removeprefix("#/").split("/"):
        found = found[step]
    return found


def test_references_lead_to_the_same_things() -> None:
    tools = (ToolSpec("one", schema=json.dumps(NODE)), ToolSpec("two", schema=json.dumps(NODE)))
    for quirks in (FLAT, Quirks()):
        schema = envelope(tools=tools, quirks=quirks)
        ways = schema.get("anyOf") or schema["properties"]["value"]["anyOf"]
        for way in ways[:2]:
            given = way["properties"]["arguments"]["properties"]
            assert resolved(schema, given["kind"]["$ref"]) == NODE["$defs"]["Kind"]  # type: ignore[index]
            assert resolved(schema, given["next"]["$ref"]) == way["properties"]["arguments"]
            assert resolved(schema, given["same"]["$ref"]) == given["kind"]
        assert "definitions" not in schema


@pytest.mark.parametrize("wire", WIRES)
def test_references_are_legal_on_every_wire(wire: str) -> None:
    simple = {**NODE, "properties": {"kind": {"$ref": "#/$defs/Kind"}}}
    ask = asked(wire, tools=(ToolSpec("one", schema=json.dumps(simple)), ToolSpec("two", schema=json.dumps(simple))))
    prepared = prepare(ask, Quirks(), encoding="json_schema")
    assert check_request(wire, CODECS[wire].encode(prepared.ask, Quirks(), None).body) == []


def test_the_prompt_is_short_and_says_what_the_tools_take() -> None:
    """S4.8."""
    call, answer = '{"tool": "NAME", "arguments": {...}}', '{"answer": "TEXT"}'
    blocks = prepare(asked(tools=TOOLS[:1]), FLAT, encoding="json_schema").ask.transcript.system_blocks
    assert [block.text for block in blocks] == [
        "Be brief.",
        'You can call these tools:\n- add: Add two numbers.\n  arguments: {"a":{"type":"number"},"b":{"type":"number"}}',
        f"Write one JSON object and nothing else: {call} to call a tool, or {answer} to answer.",
    ]


def test_what_is_optional_is_said_and_an_odd_schema_is_shown_whole() -> None:
    odd = '{"type":"object","properties":{},"minProperties":1}'
    blocks = prepare(asked(tools=(TOOLS[1], ToolSpec("odd", schema=odd))), FLAT, encoding="xml").ask.transcript.system_blocks
    assert "(optional: deep)" in blocks[1].text
    assert odd in blocks[1].text


def test_react_stops_before_a_result_is_made_up_where_it_can() -> None:
    """S4.9."""
    stops = {wire: prepare(asked(wire), FLAT, encoding="react").ask.settings.stop for wire in WIRES}
    assert stops.pop("openai_responses") == ()
    assert set(stops.values()) == {("Observation:",)}


@pytest.mark.parametrize("further", [{"type": "integer"}, True])
def test_arguments_of_any_name_are_told(further: object) -> None:
    schema = json.dumps({"type": "object", "properties": {}, "additionalProperties": further}, separators=(",", ":"))
    blocks = prepare(asked(tools=(ToolSpec("count", schema=schema),)), FLAT, encoding="xml").ask.transcript.system_blocks
    assert schema in blocks[1].text
