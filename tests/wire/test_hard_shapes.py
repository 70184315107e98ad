"""Asks that a real API refuses as they are: every built-in row gets a request that it takes, or the caller a UsageError.

What becomes of each shape is a table in docs/requests.md, which is held against what happens here.
"""

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from evener.errors import UsageError
from evener.testing import Call, FakeServer, Thinking, turn
from evener.tools import Tool
from evener.transcript import (
    Ask,
    DocumentBlock,
    ImageBlock,
    Inline,
    Message,
    Origin,
    Remote,
    TextBlock,
    ToolResult,
    ToolSpec,
    Transcript,
    Uploaded,
)
from evener.transcript.ask import Extra, Reasoning, Settings
from evener.wire import CODECS, Encoded, Quirks
from tests.testing.raw import ask as post
from tests.wire.hard_shapes import (
    LOOK,
    PNG,
    SCHEMAS,
    SVG,
    Json,
    image,
    looped,
    refusals,
    result,
    rows_and_models,
    said,
    sent,
    shapes,
)

DOCS = Path(__file__).parents[2] / "docs" / "requests.md"
WIRES = ("anthropic_messages", "openai_responses", "openai_chat", "gemini")
TARGETS = list(rows_and_models())
PLAIN = Quirks()
Tools = tuple[ToolSpec, ...]
NO_OBJECTS = ("another type", "only other types", "a root that is an external reference", "a root that refers to itself")


@pytest.mark.parametrize("row", dict.fromkeys(row for row, _ in TARGETS))
def test_every_hard_shape_is_a_request_that_its_row_takes_or_a_usage_error(row: str) -> None:
    found = {}
    for model in (model for name, model in TARGETS if name == row):
        for shape, make in shapes():
            try:
                refused = refusals(row, model, sent(row, model, make))
            except UsageError:
                continue
            if refused:
                found[model, shape] = refused
    assert found == {}


# What becomes of single shapes.


def encoded_for(wire: str, *messages: Message, tools: Tools = (), quirks: Quirks = PLAIN, **more: object) -> Encoded:
    ask = Ask(Transcript(messages), Origin(wire, "x", "", "m"), tools, **more)  # type: ignore[arg-type]
    return CODECS[wire].encode(ask, quirks, None)


def body_of(wire: str, *messages: Message, tools: Tools = (), quirks: Quirks = PLAIN, **more: object) -> Any:
    return json.loads(encoded_for(wire, *messages, tools=tools, quirks=quirks, **more).body)


def losses_of(wire: str, *messages: Message, tools: Tools = (), quirks: Quirks = PLAIN, **more: object) -> set[str]:
    return {loss.code for loss in encoded_for(wire, *messages, tools=tools, quirks=quirks, **more).losses}


def declared(wire: str, schema: Json, strict: bool | None = None) -> Any:
    """The schema that a wire declares for a tool; an object without properties where it declares none."""
    text = json.dumps(body_of(wire, said("Go."), tools=(ToolSpec("look", "", json.dumps(schema), strict),))["tools"])
    tool = json.loads(text)[0]
    tool = tool.get("function", tool)
    tool = tool.get("functionDeclarations", [tool])[0]
    fields = ("input_schema", "parameters", "parametersJsonSchema")
    return next((tool[name] for name in fields if name in tool), {"type": "object", "properties": {}})


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", [name for name in SCHEMAS if name not in NO_OBJECTS])
def test_the_root_of_a_declared_schema_is_a_plain_object_that_has_the_properties_of_every_choice(wire: str, name: str) -> None:
    schema = declared(wire, SCHEMAS[name])
    assert schema["type"] == "object"
    assert not schema.keys() & {"$ref", "anyOf", "oneOf", "allOf", "not", "enum"}
    for word in ("word", "number", "kind", "left", "child"):
        if f'"{word}": {{' in json.dumps(SCHEMAS[name]):
            assert word in schema["properties"], name


ARGUMENTS: dict[str, tuple[str, str]] = {
    "anyOf": ('{"number": 3}', '{"other": 3}'),
    "anyOf of an object and other types": ('{"word": "oak"}', "{}"),
    "allOf": ('{"word": "oak", "number": 3}', '{"word": "oak"}'),
    "a reference": ('{"word": "oak"}', '{"word": 3}'),
    "a reference to a reference": ('{"number": 3}', "{}"),
    "an object or null": ('{"word": "oak"}', "{}"),
    "oneOf with a kind": ('{"kind": "a", "a": 1}', '{"kind": "c"}'),
    "a tree": ('{"left": {"left": {}}}', '{"left": {"left": 3}}'),
    "an object of itself, or null": ('{"child": {"child": null}}', '{"child": 3}'),
    "a tuple": ('{"at": [1, "a"]}', '{"at": ["a", 1]}'),
    "nothing": ('{"anything": [1]}', "3"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_are_held_against_the_schema_as_the_user_wrote_it(name: str) -> None:
    tool = Tool.of("look", SCHEMAS[name], function=lambda value: value, description="")
    right, wrong = ARGUMENTS[name]
    assert not isinstance(tool.read(right), tuple), tool.read(right)
    assert isinstance(tool.read(wrong), tuple)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", ["anyOf", "oneOf beside properties", "not"])
def test_what_a_root_cannot_say_is_described_and_lost_by_its_code(wire: str, name: str) -> None:
    tool = ToolSpec("look", "", json.dumps(SCHEMAS[name]), True)
    assert "tool.schema.degraded" in losses_of(wire, said("Go."), tools=(tool,))
    assert "must also fit" in str(declared(wire, SCHEMAS[name])["description"])


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", ["a reference", "allOf", "an object or null", "anyOf of an object and other types", "no type"])
def test_what_is_only_written_otherwise_is_not_lost(wire: str, name: str) -> None:
    assert losses_of(wire, said("Go."), tools=(ToolSpec("look", "", json.dumps(SCHEMAS[name])),)) == set()


@pytest.mark.parametrize("name", NO_OBJECTS)
@pytest.mark.parametrize("wire", WIRES)
def test_a_schema_that_takes_no_object_is_a_usage_error_that_names_the_tool(wire: str, name: str) -> None:
    with pytest.raises(UsageError, match="look"):
        declared(wire, SCHEMAS[name])


def test_too_many_tools_are_a_usage_error_that_says_how_many_may_be() -> None:
    tools = tuple(ToolSpec(f"t{number}") for number in range(129))
    with pytest.raises(UsageError, match=r"129 tools .* at most 128"):
        sent("openai-chat", "gpt-4o", lambda target: Ask(Transcript((said("Go."),)), target, tools))
    sent("openai-chat", "gpt-4o", lambda target: Ask(Transcript((said("Go."),)), target, tools[1:]))


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_of_no_tokens_is_a_usage_error(limit: int) -> None:
    with pytest.raises(UsageError, match="max_output_tokens must be at least 1"):
        Settings(limit)


# Media.


@pytest.mark.parametrize("kind", ["image/jpg", "IMAGE/PNG", "image/png; charset=binary", " image/PNG ", "image/x-png", ""])
@pytest.mark.parametrize("wire", WIRES)
def test_an_image_goes_whatever_its_type_is_called(wire: str, kind: str) -> None:
    body = json.dumps(body_of(wire, said("See:", image(kind))))
    assert PNG in body
    assert "image/png" in body
    assert losses_of(wire, said("See:", image(kind))) <= {"image.repaired"}


@pytest.mark.parametrize("kind", ["image/heic", "image/svg+xml", "image/bmp", "image/tiff", "image/avif"])
@pytest.mark.parametrize("wire", WIRES)
def test_an_image_of_a_type_that_the_wire_does_not_take_is_a_line(wire: str, kind: str) -> None:
    taken = wire == "gemini" and kind == "image/heic"
    for source in (Inline(SVG), Remote("https://x.example/a")):
        block = ImageBlock(source, kind)
        assert losses_of(wire, said("See:", block)) == (set() if taken else {"image.degraded"})
        assert losses_of(wire, *looped(result(block)), tools=(LOOK,)) >= (set() if taken else {"image.degraded"})


@pytest.mark.parametrize("wire", WIRES)
def test_an_image_is_sent_as_what_its_bytes_are(wire: str) -> None:
    assert "image/png" in json.dumps(body_of(wire, said(image("image/jpeg"))))
    assert losses_of(wire, said(image("image/jpeg"))) == {"image.repaired"}


@pytest.mark.parametrize("wire", WIRES)
def test_a_data_url_is_what_it_holds(wire: str) -> None:
    url = f"data:image/png;charset=x;base64,{PNG}"
    assert body_of(wire, said(ImageBlock(Remote(url)))) == body_of(wire, said(ImageBlock(Inline(PNG), "image/png")))


def test_a_text_file_of_any_name_goes_as_text() -> None:
    file = DocumentBlock(Inline("e30="), "application/json; charset=utf-8")
    for wire in WIRES:
        assert not {code for code in losses_of(wire, said(file)) if code != "document.degraded"}
    (message,) = body_of("anthropic_messages", said(file))["messages"]
    assert message["content"][0]["source"] == {"type": "text", "media_type": "text/plain", "data": "{}"}


# Anthropic Messages.


def test_an_error_with_an_image_keeps_both_and_says_so_in_words() -> None:
    messages = looped(result("Broken:", image("image/png"), is_error=True))
    *_, last = body_of("anthropic_messages", *messages, tools=(LOOK,))["messages"]
    (block,) = last["content"]
    assert "is_error" not in block
    assert [part["type"] for part in block["content"]] == ["text", "text", "image"]
    assert block["content"][0]["text"] == "ERROR:"
    assert losses_of("anthropic_messages", *messages, tools=(LOOK,)) == {"tool_result.error.degraded"}


def test_an_error_of_words_keeps_its_flag() -> None:
    for content in (("Broken.",), ("Broken:", "really."), (image("image/svg+xml", SVG),)):
        *_, last = body_of("anthropic_messages", *looped(result(*content, is_error=True)), tools=(LOOK,))["messages"]
        assert last["content"][0]["is_error"] is True


@pytest.mark.parametrize("given", [(), (("anthropic-beta", "a-1,b-2"),), (("Anthropic-Beta", "files-api-2025-04-14"),)])
def test_the_beta_of_uploaded_files_is_named_beside_them(given: tuple[tuple[str, str], ...]) -> None:
    for messages in ((said(ImageBlock(Uploaded("f"))),), looped(result(DocumentBlock(Uploaded("f"))))):
        target = Origin("anthropic_messages", "anthropic", "", "claude-sonnet-4-5")
        file = Uploaded("f", "anthropic_messages", "anthropic")
        ask = Ask(
            Transcript(_with(messages, file)),
            target,
            (LOOK,),
            extra=(Extra("anthropic_messages", headers=given),) if given else (),
        )
        encoded = CODECS["anthropic_messages"].encode(ask, Quirks(), None)
        (betas,) = [value for name, value in encoded.headers if name.lower() == "anthropic-beta"]
        assert betas.split(",").count("files-api-2025-04-14") == 1
        assert set(betas.split(",")) >= {beta for _, value in given for beta in value.split(",")}
        again = Ask(Transcript((*_with(messages, file), Message.assistant_text("Seen."), said("And?"))), target, (LOOK,))
        assert ("anthropic-beta", "files-api-2025-04-14") in CODECS["anthropic_messages"].encode(
            again, Quirks(), encoded
        ).headers


def _with(messages: tuple[Message, ...], file: Uploaded) -> tuple[Message, ...]:
    def owned(block: object) -> object:
        if isinstance(block, ToolResult):
            return replace(block, content=tuple(owned(one) for one in block.content))
        return replace(block, source=file) if isinstance(block, ImageBlock | DocumentBlock) else block

    return tuple(replace(message, blocks=tuple(owned(block) for block in message.blocks)) for message in messages)


def test_no_beta_is_named_without_uploaded_files() -> None:
    ask = Ask(Transcript((said("Hi."),)), Origin("anthropic_messages", "anthropic", "", "m"))
    assert "anthropic-beta" not in dict(CODECS["anthropic_messages"].encode(ask, Quirks(), None).headers)


@pytest.mark.parametrize("blocks", [("An oak is ",), ("An oak is\n\n",), ("An oak is ", "  ")])
def test_a_beginning_is_sent_without_the_blank_at_its_end_and_the_answer_keeps_it(blocks: tuple[str, ...]) -> None:
    begun = Message("assistant", tuple(map(TextBlock, blocks)))
    *_, last = body_of("anthropic_messages", said("Go."), begun)["messages"]
    assert [part["text"] for part in last["content"]] == ["An oak is"]
    assert "text.repaired" in losses_of("anthropic_messages", said("Go."), begun)
    _, middle, _ = body_of("anthropic_messages", said("Go."), begun, said("So?"))["messages"]
    assert middle["content"][0]["text"] == blocks[0]


@pytest.mark.parametrize(
    ("limit", "reasoning", "budget"),
    [
        (1025, Reasoning(budget=1024), None),
        (1100, Reasoning("high"), None),
        (1280, Reasoning("high"), 1024),
        (2000, Reasoning("high"), 1500),
        (2000, Reasoning(budget=1999), 1500),
        (4096, Reasoning(budget=3000), 3000),
        (100_000, Reasoning("high"), 16384),
    ],
)
def test_thinking_leaves_room_for_an_answer(limit: int, reasoning: Reasoning, budget: int | None) -> None:
    quirks = Quirks(thinking_modes=("enabled", "disabled"), effort=False)
    body = body_of("anthropic_messages", said("Go."), quirks=quirks, settings=Settings(limit), reasoning=reasoning)
    assert body.get("thinking") == ({"type": "enabled", "budget_tokens": budget} if budget else None)
    wanted = reasoning.budget or 16384
    lost = losses_of("anthropic_messages", said("Go."), quirks=quirks, settings=Settings(limit), reasoning=reasoning)
    assert bool(lost) == (budget != wanted)


# Responses: items and the reasoning that they were made with.


def test_a_hosted_item_goes_only_with_its_reasoning() -> None:
    alone = dict(shapes())["a search whose reasoning is of another model"]
    encoded = sent("openai", "gpt-5", alone)
    items = json.loads(encoded.body)["input"]
    assert [item.get("type", item.get("role")) for item in items] == ["user", "assistant", "assistant", "user"]
    assert not any("id" in item for item in items)
    assert {loss.code for loss in encoded.losses} >= {"reasoning.dropped", "hosted.degraded"}
    encoded = sent("openai", "gpt-5", dict(shapes())["a search with its reasoning"])
    kinds = [item.get("type", item.get("role")) for item in json.loads(encoded.body)["input"]]
    assert kinds == ["user", "reasoning", "web_search_call", "message", "user"]
    assert encoded.losses == ()


def test_the_fake_refuses_an_item_without_the_reasoning_that_it_was_made_with() -> None:
    with FakeServer("openai_responses", [turn(Thinking("Hm."), Call("f", id="call_1")), "Done."]) as server:
        body: dict[str, Any] = {"model": "gpt-5.5", "input": [{"role": "user", "content": "Hi"}], "store": False}
        output = post(server, "openai_responses", body).json["output"]
        answer = {"type": "function_call_output", "call_id": "call_1", "output": "1"}
        heard = post(server, "openai_responses", {**body, "input": [*body["input"], output[1], answer]})
        assert heard.status == 400
        assert "without its required 'reasoning' item" in heard.json["error"]["message"]


# The table in the docs.


@cache
def outcomes() -> dict[str, str]:
    """What becomes of each shape over all rows: `sent`, `sent, with a loss`, `UsageError`, or both."""
    found: dict[str, set[str]] = {}
    for row, model in TARGETS:
        for shape, make in shapes():
            found.setdefault(shape, set()).add(_outcome(row, model, make))
    return {shape: ", or ".join(sorted(kinds)) for shape, kinds in found.items()}


def _outcome(row: str, model: str, make: Callable[[Origin], Ask]) -> str:
    try:
        encoded = sent(row, model, make)
    except UsageError:
        return "UsageError"
    return "sent with a loss" if encoded.losses else "sent"


def table() -> Iterator[str]:
    yield "| shape | what becomes of it |"
    yield "|---|---|"
    for shape, outcome in outcomes().items():
        yield f"| {shape} | {outcome} |"


def test_the_docs_say_what_becomes_of_each_shape() -> None:
    page = DOCS.read_text(encoding="utf-8")
    found = re.search(r"<!-- shapes -->\n(.*?)\n<!-- end -->", page, re.DOTALL)
    assert found is not None
    assert found[1] == "\n".join(table()), "put tests.wire.test_hard_shapes.table() there"


def test_what_patterns_allow_is_not_forbidden_where_patterns_are_not_taken() -> None:
    schema: Json = {"type": "object", "patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": False}
    within: Json = {"type": "object", "properties": {"headers": schema}}
    for one in (schema, within):
        tools = (ToolSpec("send", "", json.dumps(one)),)
        assert '"additionalProperties"' not in json.dumps(body_of("gemini", said("Go."), tools=tools))
        paths = [loss.path for loss in encoded_for("gemini", said("Go."), tools=tools).losses]
        assert any("patternProperties" in path for path in paths)
        assert any("additionalProperties" in path for path in paths)


@pytest.mark.parametrize("url", ["gs://bucket/a.png", "s3://bucket/a.png", "file:///srv/a.png", "FTP://example.com/a.png"])
@pytest.mark.parametrize("wire", ["anthropic_messages", "openai_responses", "openai_chat"])
def test_an_address_that_only_some_providers_can_follow_is_a_line_and_a_loss(wire: str, url: str) -> None:
    for block in (ImageBlock(Remote(url), "image/png"), DocumentBlock(Remote(url), "application/pdf")):
        told = json.dumps(body_of(wire, said("Look.", block)))
        assert f"omitted: {block.media_type}, {url}]" in told
        assert told.count(url) == 1
        assert f"{block.kind}.degraded" in losses_of(wire, said("Look.", block))
    assert url in json.dumps(body_of("gemini", said("Look.", ImageBlock(Remote(url), "image/png"))))
