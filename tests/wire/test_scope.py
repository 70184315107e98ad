"""What belongs to one provider stays with it, on its own wire, too; and whatever stays behind is a Loss."""

import json
from typing import Any

import pytest

from evener.testing import check_request
from evener.transcript import (
    Ask,
    Block,
    Cache,
    Citation,
    DocumentBlock,
    HostedBlock,
    HostedTool,
    ImageBlock,
    Inline,
    Message,
    Origin,
    OutputSchema,
    Reasoning,
    ReasoningBlock,
    Remote,
    Seal,
    Settings,
    State,
    TextBlock,
    ToolCall,
    ToolResult,
    ToolSpec,
    Transcript,
    Uploaded,
)
from evener.wire import CODECS, Encoded, Quirks, assemble

A, R = "anthropic_messages", "openai_responses"
MADE = (A, R)


def at(wire: str, provider: str = "maker") -> Origin:
    return Origin(wire, provider, "", "model-1")


def sent(wire: str, *messages: Message, provider: str = "maker", quirks: Quirks | None = None, **more: Any) -> Encoded:
    ask = Ask(Transcript(messages), at(wire, provider), **more)
    return CODECS[wire].encode(ask, quirks or Quirks(), None)


def user(*blocks: Block) -> Message:
    return Message("user", blocks, id="u")


def called(call: ToolCall, result: ToolResult | None = None) -> tuple[Message, ...]:
    return Message.user_text("Look."), Message("assistant", (call,)), user(result or ToolResult(call.id, (TextBlock("seen"),)))


def told(encoded: Encoded) -> list[str]:
    return [f"{loss.kind} {loss.what}" for loss in encoded.losses]


def why(encoded: Encoded) -> str:
    return "; ".join(loss.why for loss in encoded.losses)


# Hosted blocks and file ids.

HOSTED = {
    A: ("user", {"type": "search_result", "source": "SECRET", "title": "t", "content": []}),
    R: ("assistant", {"type": "web_search_call", "id": "ws_SECRET", "status": "completed"}),
}


@pytest.mark.parametrize("wire", MADE)
@pytest.mark.parametrize("stamp", ["", "maker"])
def test_a_hosted_block_goes_verbatim_to_its_maker_only(wire: str, stamp: str) -> None:
    """S1.16."""
    role, raw = HOSTED[wire]
    block = HostedBlock(json.dumps(raw), wire, "a search", provider=stamp)
    talk = (Message.user_text("Go."), Message("assistant" if role == "assistant" else "user", (block,), id="h"))
    own, other = sent(wire, *talk), sent(wire, *talk, provider="imitator")
    assert b"SECRET" in own.body
    assert "degraded hosted block" not in told(own)
    assert (b"SECRET" in other.body) == (not stamp)
    assert ("degraded hosted block" in told(other)) == bool(stamp)


@pytest.mark.parametrize("wire", CODECS)
def test_a_hosted_block_is_a_line_for_everyone_else(wire: str) -> None:
    for made in (at(wire, "another"), at("elsewhere")):
        block = HostedBlock('{"type":"own","own":"SECRET"}', made.wire, "a search", provider=made.provider)
        encoded = sent(wire, Message.user_text("Go."), Message("assistant", (block,)), Message.user_text("And?"))
        assert b"SECRET" not in encoded.body
        assert b"[a search]" in encoded.body
        assert "degraded hosted block" in told(encoded)


@pytest.mark.parametrize("wire", CODECS)
def test_a_file_id_of_another_provider_is_a_line(wire: str) -> None:
    encoded = sent(wire, user(DocumentBlock(Uploaded("file_1", wire, "another"), "application/pdf")))
    assert b"[document omitted: application/pdf, file_1]" in encoded.body
    assert told(encoded) == ["degraded document"]


@pytest.mark.parametrize("wire", MADE)
def test_a_file_id_goes_to_whom_it_was_minted_by_only(wire: str) -> None:
    talk = user(DocumentBlock(Uploaded("file_1", wire, "maker"), "application/pdf"))
    assert b'"file_id":"file_1"' in sent(wire, talk).body
    other = sent(wire, talk, provider="imitator")
    assert b'"file_id"' not in other.body
    assert told(other) == ["degraded document"]


READ = {
    A: {
        "model": "m",
        "tools": [{"type": "web_search_20250305", "name": "web_search"}, {"name": "look", "input_schema": {}, "own": 1}],
        "messages": [
            {"role": "user", "content": [{"type": "document", "source": {"type": "file", "file_id": "f"}}]},
            {"role": "assistant", "content": [{"type": "compaction", "content": "short"}]},
        ],
    },
    R: {
        "model": "m",
        "tools": [{"type": "web_search"}, {"type": "function", "name": "look", "parameters": {}, "own": 1}],
        "input": [
            {"role": "user", "content": [{"type": "input_file", "file_id": "f"}]},
            {"type": "web_search_call", "id": "ws_1"},
        ],
    },
}


@pytest.mark.parametrize("wire", MADE)
def test_a_reader_says_whose_everything_is(wire: str) -> None:
    ask = CODECS[wire].read_request(json.dumps(READ[wire]).encode(), Quirks(), at(wire))
    document, hosted = (block for message in ask.transcript for block in message.blocks)
    assert isinstance(document, DocumentBlock)
    assert isinstance(hosted, HostedBlock)
    assert document.source == Uploaded("f", wire, "maker")
    assert hosted.provider == "maker"
    assert [(type(tool), tool.provider) for tool in ask.tools] == [(HostedTool, "maker"), (ToolSpec, "maker")]


# Seals.

FIELDS = '{"own":"SECRET"}'


def sealed(wire: str, kind: str) -> tuple[Message, ...]:
    seal = Seal(FIELDS, at(wire))
    words = Seal('{"item":{"role":"user"},"part":' + FIELDS + "}", at(wire)) if wire == R else seal
    match kind:
        case "text":
            return (user(TextBlock("Hi.", seal=words)),)
        case "image":
            return (user(ImageBlock(Inline("aGkh"), "image/png", seal=seal)),)
        case "document":
            return (user(DocumentBlock(Inline("aGkh"), "application/pdf", "a.pdf", seal)),)
        case "tool_result":
            return called(ToolCall("c1", "look"), ToolResult("c1", (TextBlock("seen"),), seal=seal))
        case _:
            return called(ToolCall("c1", "look", seal=seal))


@pytest.mark.parametrize("wire", MADE)
@pytest.mark.parametrize("kind", ["text", "image", "document", "tool_result", "tool_call"])
def test_one_rule_decides_which_fields_go(wire: str, kind: str) -> None:
    own, other = sent(wire, *sealed(wire, kind)), sent(wire, *sealed(wire, kind), provider="imitator")
    assert b"SECRET" in own.body
    assert own.losses == ()
    assert b"SECRET" not in other.body
    assert told(other) == [f"dropped {'seal' if kind == 'tool_call' else 'fields'} of {kind}"]
    assert "own: it was made by another provider" in why(other)


@pytest.mark.parametrize("wire", MADE)
def test_a_changed_prefix_kills_thinking_not_the_fields_of_others(wire: str) -> None:
    call = ToolCall("c1", "look", seal=Seal(FIELDS, at(wire), binding="of another prefix"))
    assert b"SECRET" in sent(wire, *called(call), quirks=Quirks(prefix_bound=True)).body


@pytest.mark.parametrize("wire", MADE)
@pytest.mark.parametrize(
    "data", ['{"id":"fc_1","status":"completed"}', '{"item":{"id":"m","status":"done"},"part":{"annotations":[]}}']
)
def test_what_a_provider_keeps_for_its_books_is_not_missed(wire: str, data: str) -> None:
    call = ToolCall("c1", "look", seal=Seal(data, at("elsewhere")))
    assert sent(wire, *called(call)).losses == ()


@pytest.mark.parametrize("wire", MADE)
@pytest.mark.parametrize("data", ['{"caller":{"type":"direct"}}', '{"thoughtSignature":"c2ln"}'])
def test_a_seal_of_a_call_does_not_vanish_in_silence(wire: str, data: str) -> None:
    call = ToolCall("c1", "look", seal=Seal(data, at("elsewhere")))
    assert told(sent(wire, *called(call))) == ["dropped seal of tool_call"]


def test_an_assistants_seal_is_never_written_onto_another_item() -> None:
    seal = Seal('{"item":{"id":"msg_1","phase":"commentary","status":"completed"}}', at(R))
    for role in ("user", "system"):
        encoded = sent(R, Message.user_text("Go."), Message(role, (TextBlock("Hi.", seal=seal),)))
        assert json.loads(encoded.body)["input"][1] == {"role": role, "content": "Hi."}
        assert told(encoded) == ["dropped fields of text"]
        assert "phase" in why(encoded)


def test_a_users_seal_is_never_written_onto_what_the_assistant_said() -> None:
    seal = Seal('{"item":{"role":"user","id":"msg_1"},"part":{"own":1}}', at(R))
    encoded = sent(R, Message.user_text("Go."), Message("assistant", (TextBlock("Hi.", seal=seal),)))
    assert json.loads(encoded.body)["input"][1] == {"role": "assistant", "content": "Hi."}
    assert told(encoded) == ["dropped fields of text"]


# Citations.

CITED = {
    A: {
        "messages": [
            {"role": "user", "content": "Go."},
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "So.", "citations": [{"url": "u", "title": "t", "cited_text": "q"}]}],
            },
        ]
    },
    R: {
        "input": [
            {"role": "user", "content": "Go."},
            {
                "role": "assistant",
                "content": [{"type": "output_text", "text": "So.", "annotations": [{"url": "u", "title": "t"}]}],
            },
        ]
    },
}


@pytest.mark.parametrize("wire", MADE)
@pytest.mark.parametrize("target", MADE)
def test_citations_in_a_request_are_read_and_missed_where_they_cannot_go(wire: str, target: str) -> None:
    ask = CODECS[wire].read_request(json.dumps({"model": "m", **CITED[wire]}).encode(), Quirks(), at(wire))
    block = list(ask.transcript)[1].blocks[0]
    assert isinstance(block, TextBlock)
    assert block.citations == (Citation("u", "t", "q" if wire == A else ""),)
    encoded = CODECS[target].encode(Ask(ask.transcript, at(target)), Quirks(), None)
    assert told(encoded) == ([] if wire == target else ["dropped citations"])


# Lines.

OPAQUE = "Ab+/" * 40
ITEMS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "search": (
        A,
        {
            "type": "web_search_tool_result",
            "tool_use_id": "s",
            "content": [{"type": "web_search_result", "url": "http://u", "title": "News", "encrypted_content": "SECRET"}],
        },
        ["http://u", "News"],
    ),
    "use": (
        A,
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "rain"}},
        ["web_search", "rain"],
    ),
    "failed": (A, {"type": "x_tool_result", "tool_use_id": "s", "content": {"error_code": "too_many"}}, ["too_many"]),
    "ran": (A, {"type": "x_tool_result", "tool_use_id": "s", "content": {"stdout": "4", "encrypted_stdout": "SECRET"}}, ["4"]),
    "redacted": (A, {"type": "other", "data": "SECRET", "content": [{"source": {"data": "SECRET"}}]}, ["other"]),
    "mcp": (R, {"type": "mcp_call", "server_label": "l", "name": "ask", "arguments": "{}", "output": "42"}, ["l", "ask", "42"]),
    "code": (
        R,
        {"type": "code_interpreter_call", "code": "1+1", "outputs": [{"type": "logs", "logs": "2"}]},
        ["1+1", "2"],
    ),
    "image": (R, {"type": "image_generation_call", "result": OPAQUE}, ["image_generation_call"]),
    "compacted": (R, {"type": "compaction", "encrypted_content": "SECRET"}, ["compaction"]),
    "long": (R, {"type": "mcp_call", "name": "ask", "output": "word " * 200}, ["word"]),
}


@pytest.mark.parametrize("name", ITEMS)
def test_a_line_says_what_can_be_read_and_nothing_else(name: str) -> None:
    wire, item, words = ITEMS[name]
    turn = {"messages": [{"role": "assistant", "content": [item]}]} if wire == A else {"input": [item]}
    ask = CODECS[wire].read_request(json.dumps({"model": "m", **turn}).encode(), Quirks(), at(wire))
    block = next(iter(ask.transcript)).blocks[0]
    assert isinstance(block, HostedBlock)
    assert [word for word in words if word not in block.text] == []
    assert "SECRET" not in block.text
    assert OPAQUE[:20] not in block.text
    assert len(block.text) <= 300


# Controls.


def test_thinking_that_cannot_be_switched_on_is_reported_unless_the_model_thinks_anyway() -> None:
    on = Reasoning(mode="on")
    assert told(sent(R, Message.user_text("Hi."), reasoning=on)) == ["degraded reasoning"]
    for quirks in (Quirks(thinks_unasked=True), Quirks(default_effort="medium")):
        assert told(sent(R, Message.user_text("Hi."), reasoning=on, quirks=quirks)) == []


def test_what_no_one_keeps_is_reported() -> None:
    kept: dict[str, Any] = {"state": State(store=True), "cache": Cache(key="k")}
    assert told(sent(A, Message.user_text("Hi."), **kept)) == ["dropped cache key", "dropped store"]
    assert told(sent(R, Message.user_text("Hi."), **kept)) == []
    without = Quirks(store=False, cache_key=False)
    assert told(sent(R, Message.user_text("Hi."), **kept, quirks=without)) == ["dropped store", "dropped cache key"]


@pytest.mark.parametrize("wire", MADE)
def test_a_chain_that_cannot_be_followed_says_what_is_missing(wire: str) -> None:
    encoded = sent(wire, Message.user_text("Hi."), state=State("chain", "resp_1"), quirks=Quirks(store=False))
    assert told(encoded) == ["degraded state mode chain"]
    assert "what the provider holds is not sent" in why(encoded)


def test_a_temperature_goes_where_thinking_does_not() -> None:
    hot = {"reasoning": Reasoning(budget=2048), "quirks": Quirks(thinking_modes=("enabled",))}
    tight: dict[str, Any] = {**hot, "settings": Settings(max_output_tokens=500, temperature=0.5)}
    encoded = sent(A, Message.user_text("Hi."), **tight)
    assert json.loads(encoded.body)["temperature"] == 0.5
    assert told(encoded) == ["dropped reasoning"]
    wide: dict[str, Any] = {**hot, "settings": Settings(max_output_tokens=5000, temperature=0.5)}
    assert told(sent(A, Message.user_text("Hi."), **wide)) == ["dropped setting temperature"]


def test_a_budget_is_spoken_of_only_where_there_is_one() -> None:
    encoded = sent(R, Message.user_text("Hi."), reasoning=Reasoning(budget=2048), quirks=Quirks(effort=False))
    assert told(encoded) == ["dropped reasoning budget"]
    asked = Reasoning(effort="max")
    tight = sent(
        A,
        Message.user_text("Hi."),
        reasoning=asked,
        settings=Settings(max_output_tokens=2000),
        quirks=Quirks(thinking_modes=("enabled",), effort=False),
    )
    assert told(tight) == ["degraded reasoning effort"]


def test_a_schema_that_is_enforced_here_is_enforced_there() -> None:
    shape = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
    body = {"model": "m", "messages": [], "output_config": {"format": {"type": "json_schema", "schema": shape}}}
    ask = CODECS[A].read_request(json.dumps(body).encode(), Quirks(), at(A))
    assert ask.output == OutputSchema(json.dumps(shape), strict=True)
    there = CODECS[R].encode(Ask(ask.transcript, at(R), output=ask.output), Quirks(), None)
    assert json.loads(there.body)["text"]["format"]["strict"] is True
    again = sent(A, Message.user_text("Hi."), output=OutputSchema(json.dumps(shape), strict=False))
    assert json.loads(again.body)["output_config"]["format"]["schema"] == shape


# Media and empty things.


@pytest.mark.parametrize("wire", MADE)
@pytest.mark.parametrize("media", ["video/mp4", "audio/mpeg"])
def test_a_recording_behind_a_url_is_no_document(wire: str, media: str) -> None:
    encoded = sent(wire, user(DocumentBlock(Remote("http://u/x"), media)))
    assert told(encoded) == ["degraded document"]
    assert b'"url"' not in encoded.body
    assert b'"file_url"' not in encoded.body


@pytest.mark.parametrize("media", ["", "application/pdf", "text/plain"])
def test_an_address_may_leave_open_what_it_holds(media: str) -> None:
    assert sent(A, user(DocumentBlock(Remote("http://u/x"), media))).losses == ()


@pytest.mark.parametrize("data", ["not base64!", "a", "YW Jj=", ""])
def test_bytes_that_are_not_base64_are_a_line(data: str) -> None:
    for block in (ImageBlock(Inline(data), "image/png"), DocumentBlock(Inline(data), "application/pdf")):
        assert told(sent(A, user(block))) == [f"degraded {block.kind}"]


def test_an_empty_part_of_the_system_prompt_is_left_out() -> None:
    for parts, expected in (((TextBlock(""), TextBlock("Be kind.")), "Be kind."), ((TextBlock(""),), None)):
        ask = Ask(Transcript([Message.user_text("Hi.")], parts), at(A))
        assert json.loads(CODECS[A].encode(ask, Quirks(), None).body).get("system") == expected


def test_a_failed_tool_always_says_something() -> None:
    encoded = sent(A, *called(ToolCall("c1", "look"), ToolResult("c1", (), is_error=True)))
    assert json.loads(encoded.body)["messages"][2]["content"][0]["content"] == "error"
    assert told(encoded) == ["added tool_result text"]


# Streams of Responses.


def streamed(*events: dict[str, Any]) -> Any:
    decoder = CODECS[R].decoder(Quirks())
    body = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    return assemble([*decoder.feed(body), *decoder.close()])


def summary(text: str, place: int) -> dict[str, Any]:
    return {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": place, "delta": text}


def announced(place: int) -> dict[str, Any]:
    return {"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": place}


def finished(*summaries: str) -> list[dict[str, Any]]:
    parts = [{"type": "summary_text", "text": text} for text in summaries]
    item = {"type": "reasoning", "id": "rs_1", "summary": parts}
    response = {"object": "response", "id": "resp_1", "model": "m", "status": "completed", "output": [item]}
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    return [done, {"type": "response.completed", "response": response}]


@pytest.mark.parametrize("told_of", [False, True])
def test_parts_of_a_summary_are_set_apart_once(told_of: bool) -> None:
    starts = [[announced(place)] if told_of else [] for place in range(2)]
    reply = streamed(*starts[0], summary("one", 0), *starts[1], summary("t", 1), summary("wo", 1), *finished("one", "two"))
    assert reply.blocks[0].text == "one\n\ntwo"


def test_what_was_shown_is_not_mended_by_a_final_text_that_differs() -> None:
    assert streamed(summary("one", 0), *finished("another text")).blocks[0].text == "one"
    assert streamed(summary("on", 0), *finished("one")).blocks[0].text == "one"


def test_a_stream_without_a_beginning_still_has_a_name() -> None:
    reply = streamed(summary("one", 0), *finished("one"))
    assert (reply.id, reply.model) == ("resp_1", "m")


# Thinking that is taken back only in the latest turn.


def test_a_call_whose_thinking_stays_behind_is_not_sent_beside_a_budget() -> None:
    made = at(A)
    thought = ReasoningBlock("I look.", Seal('{"signature":"c2ln"}', made))
    said = Message("assistant", (thought, ToolCall("c1", "look")), origin=made)
    talk = (Message.user_text("Look."), said, user(ToolResult("c1", (TextBlock("seen"),)), TextBlock("And?")))
    encoded = sent(A, *talk, reasoning=Reasoning(budget=2048), quirks=Quirks(thinking_replay="latest"))
    assert check_request(A, encoded.body) == []
    assert "thinking" not in json.loads(encoded.body)
