"""The oracle itself: it takes right bodies, and reports what is wrong wherever it is."""

from typing import Any

import pytest

from tests.corpus import exchanges, needs_corpus, usual_recordings
from tests.oracle import FALSE_ALARMS, oracle_errors

Json = dict[str, Any]

WIRES = ("anthropic_messages", "openai_responses", "openai_chat", "gemini")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def messages(*content: Json, **fields: object) -> Json:
    return {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": list(content)}], **fields}


def responses(*items: Json, **fields: object) -> Json:
    return {"model": "m", "input": list(items), **fields}


def chat(*turns: Json, **fields: object) -> Json:
    return {"model": "m", "messages": list(turns), **fields}


def gemini(*parts: Json, **fields: object) -> Json:
    return {"contents": [{"role": "user", "parts": list(parts)}], **fields}


RIGHT: list[tuple[str, Json]] = [
    ("anthropic_messages", messages({"type": "text", "text": "hi"})),
    ("anthropic_messages", messages({"type": "text", "text": "hi"}, stream=True)),
    ("anthropic_messages", {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}),
    (
        "anthropic_messages",
        messages(
            {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "4"}], "is_error": False},
            tools=[{"name": "weather", "description": "d", "input_schema": SCHEMA}],
            temperature=0.5,
        ),
    ),
    ("openai_responses", {"model": "m", "input": "hi"}),
    ("openai_responses", responses({"role": "user", "content": [{"type": "input_text", "text": "hi"}]}, stream=True)),
    (
        "openai_responses",
        responses(
            {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "sunny"},
            tools=[{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}],
        ),
    ),
    ("openai_chat", chat({"role": "user", "content": [{"type": "text", "text": "hi"}]}, stream=True)),
    ("gemini", gemini({"text": "hi"}, generationConfig={"temperature": 0.5}, systemInstruction={"parts": []})),
    ("gemini", gemini({"functionResponse": {"name": "f", "response": {"a": 1}}})),
    ("gemini", gemini({"inline_data": {"mime_type": "image/png", "data": "aGk="}}, generation_config={})),
]


@pytest.mark.parametrize(("wire", "body"), RIGHT)
def test_right_bodies_pass(wire: str, body: Json) -> None:
    assert oracle_errors(wire, body) == []


WRONG: list[tuple[str, Json, str]] = [
    (
        "anthropic_messages",
        messages({"type": "text", "text": 5}),
        "messages.0.content.0.text: Input should be a valid string, got 5",
    ),
    ("anthropic_messages", messages({"type": "text"}), "messages.0.content.0.text: missing"),
    (
        "anthropic_messages",
        messages({"type": "text", "text": "hi", "txet": "hi"}),
        "messages.0.content.0.txet: unknown key",
    ),
    (
        "anthropic_messages",
        messages({"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": None}]}),
        "messages.0.content.0.content.0.text: Input should be a valid string, got null",
    ),
    ("anthropic_messages", {"max_tokens": 9, "messages": []}, "model: missing"),
    (
        "anthropic_messages",
        messages(max_tokens="9"),
        'max_tokens: Input should be a valid integer, got "9"',
    ),
    (
        "openai_responses",
        responses({"role": "user", "content": [{"type": "input_text", "text": 5}]}),
        "input.0.content.0.text: Input should be a valid string, got 5",
    ),
    (
        "openai_responses",
        responses({"type": "function_call", "call_id": "c", "name": "weather", "arguments": {}}),
        "input.0.arguments: Input should be a valid string, got {}",
    ),
    (
        "openai_responses",
        responses({"type": "function_call_output", "call_id": "c"}),
        "input.0.output: missing",
    ),
    (
        "openai_chat",
        chat({"role": "user", "content": [{"type": "text", "text": 5}]}),
        "messages.0.content.0.text: Input should be a valid string, got 5",
    ),
    ("gemini", gemini({"text": 5}), "contents.0.parts.0.text: Input should be a valid string, got 5"),
    ("gemini", gemini({"txet": "hi"}), "contents.0.parts.0.txet: unknown key"),
    ("gemini", gemini({"text": "hi"}, generation={}), "generation: unknown key"),
]


@pytest.mark.parametrize(("wire", "body", "complaint"), WRONG)
def test_what_is_wrong_deep_inside_is_reported_at_its_place(wire: str, body: Json, complaint: str) -> None:
    assert complaint in oracle_errors(wire, body)


def test_a_block_of_no_known_type_is_reported() -> None:
    (complaint,) = oracle_errors("anthropic_messages", messages({"type": "nonsense"}))
    assert complaint.startswith("messages.0.content.0.type: ")
    assert complaint.endswith(', got "nonsense"')


def test_an_unknown_enum_value_is_reported_though_the_sdk_only_warns() -> None:
    body = gemini({"text": "hi"}, toolConfig={"functionCallingConfig": {"mode": "SOMETIMES"}})
    assert "SOMETIMES" in " ".join(oracle_errors("gemini", body))


def test_a_false_alarm_covers_only_its_own_case() -> None:
    nameless: Json = {"max_tokens": 9, "messages": []}
    assert oracle_errors("anthropic_messages", nameless | {"anthropic_version": "v"}) == []
    assert oracle_errors("anthropic_messages", nameless) == ["model: missing"]


@needs_corpus
@pytest.mark.parametrize("wire", WIRES)
def test_every_recorded_request_that_was_answered_passes(wire: str) -> None:
    # Servers that imitate Chat Completions take more than OpenAI's types say; those types speak for OpenAI only.
    speaks_for = {"openai", "azure"} if wire == "openai_chat" else None
    rejected = {
        exchange.id: errors
        for exchange in exchanges(wire)
        if exchange.status == 200 and exchange.request is not None
        if speaks_for is None or exchange.provider in speaks_for
        if (errors := oracle_errors(wire, exchange.request))
    }
    assert rejected == {}


@usual_recordings
@pytest.mark.parametrize("alarm", FALSE_ALARMS, ids=lambda alarm: f"{alarm.wire}:{alarm.path}")
def test_every_false_alarm_is_still_needed(alarm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.oracle.FALSE_ALARMS", tuple(a for a in FALSE_ALARMS if a is not alarm))
    bodies = (exchange.request for exchange in exchanges(alarm.wire) if exchange.status == 200)
    assert any(body is not None and oracle_errors(alarm.wire, body) for body in bodies)
