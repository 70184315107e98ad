"""Structured answers: native, as a tool, or prompted; which one, what it looks like, and how it is read back."""

import json

import pytest

from evener.encodings import EncodingName, Prepared, output_text, prepare
from evener.errors import BadValue
from evener.testing import check_request
from evener.transcript import Block, Choice, OutputSchema, Reply, Stop, TextBlock, ToolCall, ToolSpec
from evener.transcript.ask import OutputForm
from evener.wire import CODECS, Quirks
from tests.encodings.talk import FLAT, SUM, TEXTUAL, TOOLS, WIRES, asked, read

CITY = '{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false}'
NAMES = '{"type":"array","items":{"type":"string"}}'
FORMS: tuple[OutputForm, ...] = ("native", "tool", "prompted")
CAN, NO_SCHEMA = Quirks(), Quirks(output_schema=False)
MUTE = Quirks(output_schema=False, json_mode=False, tools=False)
PREFERS = Quirks(output_form="tool")
CHOSEN: list[tuple[OutputForm, Quirks, bool, OutputForm, list[str]]] = [
    ("", CAN, False, "native", []),
    ("", CAN, True, "native", []),
    ("native", CAN, True, "native", []),
    ("tool", CAN, True, "tool", []),
    ("prompted", CAN, True, "prompted", []),
    ("", NO_SCHEMA, False, "tool", ["output schema"]),
    ("native", NO_SCHEMA, True, "tool", ["output schema"]),
    ("prompted", NO_SCHEMA, True, "prompted", []),
    ("", MUTE, False, "prompted", ["output schema"]),
    ("native", MUTE, False, "prompted", ["output schema"]),
    ("", PREFERS, True, "tool", []),
    ("native", PREFERS, True, "native", []),
    ("", Quirks(output_beside=False), True, "tool", ["output schema"]),
    ("", Quirks(output_beside=False), False, "native", []),
]


def reply(*blocks: Block) -> Reply:
    return Reply(blocks, Stop("done"))


def shaped(form: OutputForm, schema: str = CITY, *, quirks: Quirks = CAN, tools: tuple[ToolSpec, ...] = TOOLS) -> Prepared:
    return prepare(asked(output=OutputSchema(schema, form=form), tools=tools), quirks)


@pytest.mark.parametrize(("wanted", "quirks", "tooled", "form", "losses"), CHOSEN)
def test_which_form_is_chosen(wanted: OutputForm, quirks: Quirks, tooled: bool, form: OutputForm, losses: list[str]) -> None:
    prepared = shaped(wanted, quirks=quirks, tools=TOOLS if tooled else ())
    assert prepared.form == form
    assert [loss.what for loss in prepared.losses] == losses


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("schema", [CITY, NAMES, ""])
@pytest.mark.parametrize("tools", [(), TOOLS], ids=["alone", "with tools"])
def test_every_form_makes_a_legal_request(wire: str, form: OutputForm, schema: str, tools: tuple[ToolSpec, ...]) -> None:
    prepared = prepare(asked(wire, output=OutputSchema(schema, form=form), tools=tools), CAN)
    encoded = CODECS[wire].encode(prepared.ask, CAN, None)
    assert check_request(wire, encoded.body) == []
    assert [loss.what for loss in encoded.losses if loss.kind == "degraded"] == []


def test_the_tool_form_is_one_more_tool_that_must_be_called_unless_another_is() -> None:
    ask = shaped("tool").ask
    assert [tool.name for tool in ask.tools] == ["add", "look", "ping", "final_result"]
    assert ask.output is None
    assert ask.choice == Choice("required")
    assert ask.tools[-1].input_schema == json.loads(CITY)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("choice", "becomes"),
    [
        (Choice("auto", ("add",)), Choice("required", ("add", "final_result"))),
        (Choice("none"), Choice("required", ("final_result",))),
        (Choice("named", ("add",)), Choice("named", ("add",))),
    ],
)
def test_the_choice_still_holds_in_the_tool_form(choice: Choice, becomes: Choice) -> None:
    assert prepare(asked(choice=choice, output=OutputSchema(CITY, form="tool")), CAN).ask.choice == becomes


def test_the_name_of_the_final_tool_is_reserved() -> None:
    with pytest.raises(BadValue, match="final_result"):
        shaped("tool", tools=(ToolSpec("final_result"),))


def test_the_prompted_form_says_the_schema_and_asks_for_json_where_it_can() -> None:
    alone = shaped("prompted", tools=()).ask
    assert alone.transcript.system_blocks[-1].text.endswith(CITY)
    assert alone.output == OutputSchema(form="native")
    assert shaped("prompted").ask.output is None
    assert shaped("prompted", tools=(), quirks=Quirks(json_mode=False)).ask.output is None
    assert shaped("prompted", NAMES, tools=()).ask.output is None


def test_only_an_object_goes_out_where_only_objects_can() -> None:
    held = {"value": json.loads(NAMES)}
    wrapped = {"type": "object", "properties": held, "required": ["value"], "additionalProperties": False}
    native = shaped("native", NAMES).ask.output
    assert native is not None
    assert json.loads(native.schema) == wrapped
    free = shaped("native", NAMES, quirks=FLAT).ask.output
    assert free is not None
    assert free.schema == NAMES
    assert shaped("tool", NAMES, quirks=FLAT).ask.tools[-1].input_schema == wrapped  # type: ignore[union-attr]


def test_the_answer_is_read_from_every_form() -> None:
    text = '{"city": "Ulm"}'
    assert output_text(reply(TextBlock(text)), shaped("native")) == text
    assert output_text(reply(TextBlock("so"), ToolCall("1", "final_result", text)), shaped("tool")) == text
    assert output_text(reply(TextBlock(f"```json\n{text}\n```")), shaped("prompted")) == text
    assert output_text(reply(TextBlock(f"<think>hm {{}}</think>\n{text}\n")), shaped("prompted")) == text
    assert output_text(reply(TextBlock(f"\n{text}")), shaped("tool")) == text


def test_what_was_wrapped_is_unwrapped() -> None:
    wrapped = '{"value": ["a", "]"]}'
    assert output_text(reply(TextBlock(wrapped)), shaped("native", NAMES)) == '["a", "]"]'
    assert output_text(reply(ToolCall("1", "final_result", wrapped)), shaped("tool", NAMES)) == '["a", "]"]'
    assert output_text(reply(TextBlock('["a"]')), shaped("native", NAMES)) == '["a"]'
    assert output_text(reply(TextBlock('{"value": 1}')), shaped("native")) == '{"value": 1}'


WRITTEN: dict[EncodingName, str] = {"json_schema": "{}", "xml": "```json\n{}\n```", "react": "Thought: hm\nFinal Answer: {}"}


@pytest.mark.parametrize("encoding", TEXTUAL)
@pytest.mark.parametrize("schema", [CITY, SUM])
@pytest.mark.parametrize("quirks", [FLAT, CAN], ids=["flat", "wrapped"])
def test_an_answer_beside_calls_in_the_text(encoding: EncodingName, schema: str, quirks: Quirks) -> None:
    prepared = prepare(asked(output=OutputSchema(schema)), quirks, encoding=encoding)
    answer = '{"city": "Ulm", "a": 1}'
    inner = f'{{"value": {answer}}}' if quirks is CAN and encoding == "json_schema" else answer
    assert output_text(read(prepared, WRITTEN[encoding].replace("{}", inner)), prepared) == answer
    assert prepared.form == ("native" if encoding == "json_schema" else "prompted")
    assert any(schema in block.text for block in prepared.ask.transcript.system_blocks)


def test_an_answer_that_could_be_taken_for_a_call_has_an_envelope() -> None:
    odd = '{"type":"object","properties":{"tool":{"type":"string"}}}'
    prepared = prepare(asked(output=OutputSchema(odd)), CAN, encoding="json_schema")
    assert output_text(read(prepared, '{"value":{"answer":{"tool":"saw"}}}'), prepared) == '{"tool":"saw"}'
    listed = prepare(asked(output=OutputSchema(NAMES)), CAN, encoding="json_schema")
    assert output_text(read(listed, '{"value":{"answer":["a"]}}'), listed) == '["a"]'


@pytest.mark.parametrize("encoding", TEXTUAL)
def test_the_tool_form_works_in_the_text_too(encoding: EncodingName) -> None:
    prepared = prepare(asked(output=OutputSchema(CITY, form="tool"), tools=()), FLAT, encoding=encoding)
    text = {
        "json_schema": '{"tool":"final_result","arguments":{"city":"Ulm"}}',
        "xml": '<tool_call name="final_result">{"city":"Ulm"}</tool_call>',
        "react": 'Action: final_result\nAction Input: {"city":"Ulm"}',
    }[encoding]
    assert output_text(read(prepared, text), prepared) == '{"city":"Ulm"}'
