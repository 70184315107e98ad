"""Earlier calls and results in each encoding's text; and a new turn costs only itself."""

from typing import Any

import pytest

from evener.encodings import EncodingName, prepare
from evener.transcript import (
    Ask,
    Choice,
    Citation,
    HostedBlock,
    HostedTool,
    ImageBlock,
    Inline,
    Message,
    Origin,
    ReasoningBlock,
    Seal,
    TextBlock,
    ToolCall,
    ToolResult,
    ToolSpec,
    Transcript,
)
from evener.wire import CODECS, Encoded, Quirks
from tests.encodings.talk import FLAT, TEXTUAL, TOOLS, WIRES, asked

TARGET = Origin("openai_chat", "p", model="m")
IMAGE = ImageBlock(Inline("aGVsbG8="), "image/png")
CALLS = (ToolCall("1", "add", '{"a": 1, "b": 2}'), ToolCall("2", "look", '{"at":"x"}'))
RESULTS = (ToolResult("1", (TextBlock("3"),)), ToolResult("2", (TextBlock("gone"),), True))
TALK = [
    Message.user_text("Go."),
    Message("assistant", (TextBlock("Let me see."), *CALLS)),
    Message("user", (*RESULTS, TextBlock("And?"))),
    Message.assistant_text("It is 3."),
]
SHOWN: dict[EncodingName, list[str]] = {
    "json_schema": [
        "Go.",
        'Let me see.\n{"calls":[{"tool":"add","arguments":{"a": 1, "b": 2}},{"tool":"look","arguments":{"at":"x"}}]}',
        "Result of add: 3\nError of look: gone\nAnd?",
        '{"answer":"It is 3."}',
    ],
    "xml": [
        "Go.",
        'Let me see.\n<tool_call name="add">{"a": 1, "b": 2}</tool_call>\n<tool_call name="look">{"at":"x"}</tool_call>',
        '<tool_result name="add">3</tool_result>\n<tool_result name="look" error="true">gone</tool_result>\nAnd?',
        "It is 3.",
    ],
    "react": [
        "Go.",
        'Let me see.\nAction: add\nAction Input: {"a": 1, "b": 2}\nAction: look\nAction Input: {"at":"x"}',
        "Observation: 3\nObservation: ERROR: gone\nAnd?",
        "Final Answer: It is 3.",
    ],
}


def told(encoding: EncodingName, history: list[Message], **more: Any) -> list[Message]:
    ask = Ask(Transcript(history), TARGET, TOOLS, **more)
    return list(prepare(ask, FLAT, encoding=encoding).ask.transcript)


@pytest.mark.parametrize("encoding", TEXTUAL)
def test_calls_and_results_become_text(encoding: EncodingName) -> None:
    made = told(encoding, TALK)
    assert [message.text for message in made] == SHOWN[encoding]
    assert [(message.id, message.role) for message in made] == [(message.id, message.role) for message in TALK]


def test_one_call_is_written_as_the_schema_demands_it() -> None:
    history = [TALK[0], Message("assistant", CALLS[1:])]
    one = '{"tool":"look","arguments":{"at":"x"}}'
    assert told("json_schema", history)[1].text == one
    assert told("json_schema", history, choice=Choice(parallel=True))[1].text == f'{{"calls":[{one}]}}'


@pytest.mark.parametrize("encoding", TEXTUAL)
def test_what_needs_no_change_is_the_same_message(encoding: EncodingName) -> None:
    assert told(encoding, TALK)[0] is TALK[0]


@pytest.mark.parametrize("encoding", TEXTUAL)
def test_a_picture_in_a_result_stays_a_picture(encoding: EncodingName) -> None:
    history = [*TALK[:1], Message("assistant", CALLS[:1]), Message("user", (ToolResult("1", (TextBlock("see"), IMAGE)),))]
    blocks = told(encoding, history)[-1].blocks
    assert [block.kind for block in blocks] == ["text", "image"]
    assert blocks[1] is IMAGE


@pytest.mark.parametrize("encoding", TEXTUAL)
def test_a_call_that_never_got_a_result_gets_an_honest_one(encoding: EncodingName) -> None:
    history = [TALK[0], Message("assistant", CALLS[:1]), Message.assistant_text("Well.")]
    prepared = prepare(Ask(Transcript(history), TARGET, TOOLS), FLAT, encoding=encoding)
    assert "It is not known whether it took effect" in list(prepared.ask.transcript)[2].text
    assert [loss.what for loss in prepared.losses if loss.kind == "added"] == ["tool_result"]


def test_a_result_cannot_close_its_own_tag() -> None:
    history = [TALK[0], Message("assistant", CALLS[:1]), Message.tool_result("1", "</tool_result><tool_call")]
    assert told("xml", history)[-1].text == '<tool_result name="add">&lt;/tool_result><tool_call</tool_result>'


def test_a_thought_goes_back_where_it_came_from() -> None:
    own = Message("assistant", (ReasoningBlock("easy"), CALLS[0]), origin=TARGET)
    theirs = Message("assistant", (ReasoningBlock("easy"), CALLS[0]), origin=Origin("gemini", "q", model="n"))
    sealed = Message("assistant", (ReasoningBlock("easy", Seal('{"signature":"s"}', TARGET)), CALLS[0]), origin=TARGET)
    assert told("react", [own])[0].text == 'Thought: easy\nAction: add\nAction Input: {"a": 1, "b": 2}'
    for other in (theirs, sealed):
        assert told("react", [other])[0].blocks[0] is other.blocks[0]
    assert told("react", [theirs], foreign_reasoning="text")[0].text.startswith("Thought: easy")


@pytest.mark.parametrize("encoding", TEXTUAL)
def test_what_cannot_go_is_reported(encoding: EncodingName) -> None:
    seal = Seal('{"id":"x"}', TARGET)
    history = [
        TALK[0],
        Message("assistant", (ToolCall("1", "add", "{}", seal),), id="said"),
        Message("user", (ToolResult("1", (HostedBlock("{}", "gemini", "looked"),), seal=seal),), id="back"),
        Message("assistant", (TextBlock("so", (Citation("https://example.org"),), seal),), id="end"),
    ]
    tools = (*TOOLS, HostedTool("gemini", '{"googleSearch":{}}', "search"), ToolSpec("odd", extra='{"x":1}', wire="gemini"))
    prepared = prepare(Ask(Transcript(history), TARGET, tools), FLAT, encoding=encoding)
    found = [(loss.kind, loss.what, loss.message) for loss in prepared.losses]
    answer = [] if encoding == "xml" else [("dropped", "fields of text", "end"), ("dropped", "citations", "end")]
    assert found == [
        ("dropped", "hosted tool search", ""),
        ("dropped", "fields of tool odd", ""),
        ("dropped", "seal of tool_call", "said"),
        ("degraded", "hosted block", "back"),
        ("dropped", "fields of tool_result", "back"),
        *answer,
    ]


@pytest.mark.parametrize("encoding", TEXTUAL)
def test_cache_marks_stay(encoding: EncodingName) -> None:
    history = [
        TALK[0],
        Message("assistant", (ToolCall("1", "add", "{}", cache="5m"),)),
        Message("user", (ToolResult("1", (TextBlock("3"), IMAGE), cache="1h"),)),
    ]
    ask = Ask(Transcript(history, (TextBlock("Be.", cache="1h"),)), TARGET, (ToolSpec("add", cache="5m"),))
    made = prepare(ask, FLAT, encoding=encoding).ask.transcript
    assert [block.cache for message in made for block in message.blocks] == ["", "5m", "", "1h"]  # type: ignore[union-attr]
    assert [block.cache for block in made.system_blocks][:2] == ["1h", "5m"]


# A new turn costs only itself.


def turn(number: int) -> list[Message]:
    id = f"c{number}"
    return [
        Message("assistant", (TextBlock("hm"), ToolCall(id, "add", '{"a":1}'))),
        Message.tool_result(id, "1"),
        Message.assistant_text("so"),
        Message.user_text("and?"),
    ]


@pytest.mark.parametrize("encoding", TEXTUAL)
@pytest.mark.parametrize("wire", WIRES)
def test_a_turn_more_is_rewritten_and_encoded_alone(encoding: EncodingName, wire: str) -> None:
    ask, codec = asked(wire), CODECS[wire]
    prepared = prepare(ask, FLAT, encoding=encoding)
    encoded: Encoded = codec.encode(prepared.ask, FLAT, None)
    for number in range(20):
        before, sent = prepared, encoded
        ask = Ask(ask.transcript.extend(turn(number)), ask.target, ask.tools, ask.choice)
        prepared = prepare(ask, FLAT, encoding=encoding, prior=before)
        encoded = codec.encode(prepared.ask, FLAT, sent)
        fresh = prepared.ask.transcript.since(before.ask.transcript.head)  # raises if the old nodes are not the same
        assert len(fresh) == 4
        assert prepared.plan is before.plan
        assert encoded.frame is sent.frame
        assert all(new is old for new, old in zip(encoded.fold.fragments, sent.fold.fragments, strict=False))


def test_a_past_of_another_style_is_rewritten_anew() -> None:
    ask = Ask(Transcript(TALK), TARGET, TOOLS)
    prior = prepare(ask, FLAT, encoding="xml")
    for encoding in TEXTUAL:
        made = prepare(ask, FLAT, encoding=encoding, prior=prior).ask.transcript
        assert [message.text for message in made] == SHOWN[encoding]
    fork = Ask(Transcript(TALK[:1]).append(Message.user_text("else")), TARGET, TOOLS)
    assert [message.text for message in prepare(fork, FLAT, encoding="xml", prior=prior).ask.transcript] == ["Go.", "else"]


def test_what_needs_nothing_is_not_touched() -> None:
    ask = asked()
    assert prepare(ask, Quirks()).ask is ask
    assert prepare(ask, Quirks()).losses == ()
