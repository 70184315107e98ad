"""Losses that were silent or wrong: each thing either goes out, or is named with its code and place."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from evener.encodings import prepare
from evener.providers.rows import load_rows
from evener.testing import check_request
from evener.transcript.ask import Ask, Cache, OutputSchema, Reasoning, State, ToolSpec
from evener.transcript.blocks import ImageBlock, Inline, TextBlock
from evener.transcript.message import Message
from evener.transcript.transcript import Transcript
from evener.translate import origin, read, translate
from evener.wire import CODECS, Encoded

ROWS = load_rows()
LOOSE = '{"type":"object","additionalProperties":{"type":"string"}}'


def sent(row: str, model: str, *messages: Message, **more: Any) -> Encoded:
    provider = ROWS.provider(row)
    told = messages or (Message("user", (TextBlock("Hi."),), id="m1"),)
    ask = Ask(Transcript(list(told)), origin(provider, model), **{"stream": False, **more})
    return CODECS[provider.wire].encode(ask, ROWS.quirks(row, model), None)


def told(encoded: Encoded) -> list[tuple[str, str]]:
    return [(loss.code, loss.path) for loss in encoded.losses]


def again(row: str, body: dict[str, object], model: str = "") -> Any:
    """The body, read and written for the same row."""
    return json.loads(translate(json.dumps(body).encode(), source=row, target=row, model=model).body)


# The shape of the answer.


@pytest.mark.parametrize(
    ("row", "model", "loss"),
    [
        ("anthropic", "claude-sonnet-4-5", ("output.schema.dropped", "output/schema")),
        ("openai", "gpt-5.5", ("output.strict.dropped", "output/strict")),
        ("openai-chat", "gpt-4.1", ("output.strict.dropped", "output/strict")),
        ("deepseek", "deepseek-chat", ("output.schema.degraded", "output/schema")),
    ],
)
def test_an_output_schema_that_cannot_be_enforced_says_so(row: str, model: str, loss: tuple[str, str]) -> None:
    assert loss in told(sent(row, model, output=OutputSchema(LOOSE, strict=True)))


def test_an_output_schema_that_a_wire_refuses_is_asked_for_as_a_tool() -> None:
    row = ROWS.provider("anthropic")
    ask = Ask(Transcript([Message.user_text("Hi.")]), origin(row, "claude-sonnet-4-5"), output=OutputSchema(LOOSE, strict=True))
    quirks = ROWS.quirks("anthropic", "claude-sonnet-4-5")
    prepared = prepare(ask, quirks)
    assert (prepared.form, [loss.code for loss in prepared.losses]) == ("tool", ["output.schema.degraded"])
    body = json.loads(CODECS[row.wire].encode(prepared.ask, quirks, None).body)
    assert body["tools"][0]["input_schema"]["additionalProperties"] == {"type": "string"}
    assert prepare(replace(ask, output=OutputSchema('{"type":"object","properties":{}}')), quirks).form == "native"


def test_what_an_output_schema_says_of_itself_is_sent_or_named() -> None:
    shape = OutputSchema('{"type":"object","properties":{}}', description="What it is for.")
    assert b"What it is for." in sent("openai", "gpt-5.5", output=shape).body
    for row, model in (("anthropic", "claude-sonnet-4-5"), ("google", "gemini-2.5-flash")):
        assert ("output.description.dropped", "output/description") in told(sent(row, model, output=shape))
    named = told(sent("openai", "gpt-5.5", output=replace(shape, name="a name")))
    assert ("output.name.renamed", "output/name") in named


# Strict.


@pytest.mark.parametrize("strict", [None, True, False])
@pytest.mark.parametrize("row", ["openai", "openai-chat", "anthropic"])
def test_whether_a_tool_is_strict_is_said_only_if_it_was(row: str, strict: bool | None) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"], "additionalProperties": False}
    flag = {} if strict is None else {"strict": strict}
    tools: dict[str, dict[str, object]] = {
        "openai": {"type": "function", "name": "look", "parameters": schema, **flag},
        "openai-chat": {"type": "function", "function": {"name": "look", "parameters": schema, **flag}},
        "anthropic": {"name": "look", "input_schema": schema, **flag},
    }
    said = {"input": "Hi."} if row == "openai" else {"messages": [{"role": "user", "content": "Hi."}]}
    body = {"model": "m", **said, "tools": [tools[row]], **({"max_tokens": 99} if row == "anthropic" else {})}
    assert again(row, body)["tools"] == [tools[row]]


def test_a_tool_of_another_wire_is_not_tried_as_strict() -> None:
    """Left out, this API tries strict mode and may change the schema, which nobody asked for: sheet 4."""
    body = json.loads(sent("openai", "gpt-5.5", tools=(ToolSpec("look"),)).body)
    assert body["tools"][0]["strict"] is False


@pytest.mark.parametrize(("row", "model"), [("openai", "gpt-5.5"), ("openai-chat", "gpt-4.1")])
def test_a_default_in_a_strict_schema_stays_where_it_is(row: str, model: str) -> None:
    node = {"type": "string", "default": "x"}
    schema = {"type": "object", "properties": {"a": node}, "required": ["a"], "additionalProperties": False}
    encoded = sent(row, model, tools=(ToolSpec("look", "Looks.", json.dumps(schema), strict=True),))
    tool = json.loads(encoded.body)["tools"][0]
    assert (tool.get("function", tool)["parameters"], encoded.losses) == (schema, ())
    assert list(check_request(ROWS.provider(row).wire, json.loads(encoded.body))) == []


@pytest.mark.parametrize("keyword", ["not", "oneOf"])
def test_a_schema_names_the_subfield_that_was_lost(keyword: str) -> None:
    node = {"type": "string", keyword: [{"const": "b"}] if keyword == "oneOf" else {"const": "b"}}
    schema = {"type": "object", "properties": {"a/b": node}, "required": ["a/b"], "additionalProperties": False}
    encoded = sent("openai", "gpt-5.5", tools=(ToolSpec("look", "", json.dumps(schema), strict=True),))
    assert told(encoded) == [("tool.schema.degraded", f"tools/look/schema/properties/a~1b/{keyword}")]


def test_a_schema_behind_a_reference_is_named_where_it_stands() -> None:
    schema = {
        "type": "object", "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "#/$defs/A"}},
        "$defs": {"A": {"type": "object", "properties": {"n": {"type": "integer", "enum": [1]}}}},
    }  # fmt: skip
    row = ROWS.provider("google")
    quirks = replace(ROWS.quirks("google", "gemini-2.5-flash"), json_schemas=False)
    ask = Ask(
        Transcript([Message.user_text("Hi.")]), origin(row, "gemini-2.5-flash"), (ToolSpec("look", "", json.dumps(schema)),)
    )
    places = {path for _, path in told(CODECS["gemini"].encode(ask, quirks, None))}
    assert places == {"tools/look/schema/$defs/A/properties/n/enum"}


# Thoughts.


@pytest.mark.parametrize("show", ["summary", "concise", "detailed"])
def test_a_wish_to_see_thoughts_that_cannot_be_met_is_named(show: Any) -> None:
    for row, model in (("anthropic", "claude-sonnet-4-5"), ("google", "gemini-2.0-flash"), ("groq", "llama-3.3-70b")):
        losses = told(sent(row, model, reasoning=Reasoning(show=show)))
        if row != "groq":
            assert ("reasoning.show.dropped", "reasoning/show") in losses
        elif show != "summary":
            assert ("reasoning.show.degraded", "reasoning/show") in losses


@pytest.mark.parametrize("level", ["low", "LOW", "Low", "high"])
def test_a_level_in_any_case_is_an_effort(level: str) -> None:
    body = {
        "contents": [{"role": "user", "parts": [{"text": "Hi."}]}],
        "generationConfig": {"thinkingConfig": {"thinkingLevel": level}},
    }
    row = ROWS.provider("google")
    ask = read(json.dumps(body).encode(), row, ROWS, "gemini-3-pro-preview")
    assert (ask.reasoning.effort, ask.extra) == (level.lower(), ())
    there = translate(json.dumps(body).encode(), source="google", target="openai", model="gpt-5.5")
    assert (json.loads(there.body)["reasoning"], there.losses) == ({"effort": level.lower()}, ())


def test_encrypted_reasoning_is_asked_for_where_it_can_be_had_and_named_where_not() -> None:
    body = {"model": "m", "input": "Hi.", "include": ["reasoning.encrypted_content"], "store": False}
    assert again("openai", body)["include"] == ["reasoning.encrypted_content"]
    lost = ("state.sealed.dropped", "state/sealed")
    for target in ("ollama-responses", "vllm-responses", "openrouter-responses", "openai-chat", "mistral"):
        encoded = translate(json.dumps(body).encode(), source="openai", target=target, model="m")
        assert "include" not in json.loads(encoded.body)
        assert lost in told(encoded)
        unasked = translate(json.dumps({**body, "include": []}).encode(), source="openai", target=target, model="m")
        assert lost not in told(unasked)
    assert lost not in told(sent("ollama-responses", "m"))
    assert lost in told(sent("ollama-responses", "m", state=State(sealed=True)))


# The conversation.


@pytest.mark.parametrize("row", ["openai", "azure", "ollama-responses"])
def test_a_cache_mark_on_what_the_assistant_said_is_named(row: str) -> None:
    talk = [
        Message("user", (TextBlock("Hi."),), id="m1"),
        Message("assistant", (TextBlock("Hello."), TextBlock("There.", cache="5m")), id="m2"),
        Message("user", (TextBlock("And?"),), id="m3"),
    ]
    assert ("cache.mark.dropped", "messages/m2/blocks/1/cache") in told(sent(row, "gpt-5.5", *talk, cache=Cache("marks")))


RESULT = [
    {
        "type": "search_result",
        "source": "https://a.example",
        "title": "Okapi",
        "content": [{"type": "text", "text": "Striped."}],
    },
    {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "Shy."}]}, "title": "Notes"},
    {"type": "document", "source": {"type": "content", "content": "Long."}},
    {"type": "tool_reference", "tool_name": "look_closer"},
]


@pytest.mark.parametrize("part", RESULT, ids=lambda part: part["type"])
def test_what_stands_in_a_result_goes_back_to_its_own_wire_and_as_words_elsewhere(part: dict[str, Any]) -> None:
    body = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 99,
        "stream": False,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hi."}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [part]}]},
        ],
    }
    data = json.dumps(body).encode()
    home = translate(data, source="anthropic", target="anthropic")
    assert (json.loads(home.body)["messages"][2], home.losses) == (body["messages"][2], ())  # type: ignore[index]
    words = [
        word
        for word in ("Okapi", "Striped.", "https://a.example", "Shy.", "Notes", "Long.", "look_closer")
        if word in json.dumps(part)
    ]
    for target, model in (("openai", "gpt-5.5"), ("openai-chat", "gpt-4.1"), ("google", "gemini-2.5-flash")):
        there = translate(data, source="anthropic", target=target, model=model)
        assert [word for word in words if word not in there.body.decode()] == []
        codes = [loss for loss in there.losses if loss.code == "hosted.degraded"]
        assert [loss.path.partition("/blocks/")[2] for loss in codes] == ["0/content/0"]


def test_a_long_document_of_the_user_reaches_other_wires_whole() -> None:
    text = "Okapi. " * 4000
    part = {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": text}]}}
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": [part]}]}
    there = translate(json.dumps(body).encode(), source="anthropic", target="openai", model="gpt-5.5")
    assert text in json.loads(there.body)["input"][0]["content"]


def test_the_detail_of_an_image_is_named_where_there_is_none() -> None:
    picture = ImageBlock(Inline("aW1hZ2V6"), "image/png", detail="low")
    encoded = sent("anthropic", "claude-sonnet-4-5", Message("user", (TextBlock("Look."), picture), id="m1"))
    assert told(encoded) == [("image.detail.dropped", "messages/m1/blocks/1/detail")]
