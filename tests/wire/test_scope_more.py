"""What belongs to one provider, on Chat Completions and Gemini: it goes to that one, and a Loss says so where it does not."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from evener.transcript import (
    Ask,
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
    Remote,
    Seal,
    State,
    TextBlock,
    ToolCall,
    ToolResult,
    ToolSpec,
    Transcript,
    Uploaded,
)
from evener.transcript import delta as d
from evener.wire import CODECS, Encoded, Quirks, assemble

CHAT, GEMINI = "openai_chat", "gemini"
PLAIN = Quirks()
SIGN = "QUJD" * 40
"""What nobody can read: it must never stand in a line."""
both = pytest.mark.parametrize("wire", [CHAT, GEMINI])


def here(wire: str) -> Origin:
    return Origin(wire, "here", "", "m")


def there(wire: str) -> Origin:
    return Origin(wire, "there", "", "m")


def sent(target: Origin, *messages: Message, quirks: Quirks = PLAIN, **more: Any) -> Encoded:
    system = more.pop("system", None)
    return CODECS[target.wire].encode(Ask(Transcript(messages, system), target, **more), quirks, None)


def told(encoded: Encoded) -> list[str]:
    return [f"{loss.kind} {loss.what}" for loss in encoded.losses]


def read(wire: str, body: dict[str, Any], quirks: Quirks = PLAIN) -> Ask:
    return CODECS[wire].read_request(json.dumps(body).encode(), quirks, here(wire))


HELLO = Message.user_text("Hello.")
PARTS = {
    CHAT: {"type": "strange", "text": "words", "data": SIGN},
    GEMINI: {"executableCode": {"code": "words"}, "thoughtSignature": SIGN},
}


# Hosted blocks and files.


@both
def test_a_hosted_block_goes_to_its_provider_and_is_a_line_for_others(wire: str) -> None:
    block = HostedBlock(json.dumps(PARTS[wire]), wire, "words", provider="here")
    asked = Message("user", (block, TextBlock("?")))
    assert SIGN.encode() in sent(here(wire), asked).body
    moved = sent(there(wire), asked)
    assert SIGN.encode() not in moved.body
    assert b"[words]" in moved.body
    assert told(moved) == ["degraded hosted block"]


@both
def test_a_file_id_goes_to_its_provider_only(wire: str) -> None:
    asked = Message("user", (DocumentBlock(Uploaded("file-1", wire, "here"), "application/pdf"), TextBlock("?")))
    assert told(sent(here(wire), asked)) == []
    assert told(sent(there(wire), asked)) == ["degraded document"]


def test_readers_say_whose_things_are() -> None:
    chat = read(
        CHAT,
        {
            "model": "m",
            "messages": [
                {"role": "user", "content": [PARTS[CHAT], {"type": "file", "file": {"file_id": "f"}}]},
                {"role": "function", "name": "old", "content": "words"},
            ],
            "tools": [{"type": "function", "function": {"name": "look"}}, {"type": "search"}],
        },
    )
    gemini = read(
        GEMINI,
        {
            "contents": [{"role": "user", "parts": [{"strange": 1}, {"fileData": {"fileUri": "gs://a/b", "mimeType": "a/b"}}]}],
            "tools": [{"functionDeclarations": [{"name": "look"}]}, {"googleSearch": {}}],
        },
    )
    for ask in (chat, gemini):
        hosted = [block for message in ask.transcript for block in message.blocks if isinstance(block, HostedBlock)]
        files = [block.source for block in ask.transcript.messages[0].blocks if isinstance(block, DocumentBlock)]
        assert {block.provider for block in hosted} == {"here"}
        assert [file.provider for file in files if isinstance(file, Uploaded)] == ["here"]
        assert [type(tool) for tool in ask.tools] == [ToolSpec, HostedTool]
        assert {tool.provider for tool in ask.tools} == {"here"}


def test_a_part_for_files_goes_nowhere_where_files_are_refused() -> None:
    ask = read(CHAT, {"messages": [{"role": "user", "content": [{"type": "document_url", "document_url": "https://a/b.pdf"}]}]})
    assert b"document_url" in CODECS[CHAT].encode(ask, PLAIN, None).body
    refused = CODECS[CHAT].encode(ask, Quirks(documents=False), None)
    assert b'"document_url"' not in refused.body
    assert told(refused) == ["degraded hosted block"]


@both
def test_media_that_are_no_base64_are_a_line(wire: str) -> None:
    blocks = (ImageBlock(Inline("no base64!"), "image/png"), DocumentBlock(Inline("päd"), "application/pdf"), TextBlock("?"))
    assert told(sent(here(wire), Message("user", blocks))) == ["degraded image", "degraded document"]


def test_films_and_sounds_may_lie_behind_a_url() -> None:
    blocks = (DocumentBlock(Remote("https://a/b.mp4"), "video/mp4"), DocumentBlock(Remote("https://a/b.mp3"), "audio/mpeg"))
    encoded = sent(here(GEMINI), Message("user", (*blocks, TextBlock("?"))))
    assert (encoded.body.count(b"fileUri"), told(encoded)) == (2, [])


@both
def test_a_line_is_short_and_holds_nothing_secret(wire: str) -> None:
    strange: object = {
        CHAT: {"type": "seen", "title": "A title", "url": "data:image/png;base64,AAAA", "signature": "s3", "content": SIGN},
        GEMINI: {"toolResponse": {"toolType": "T", "response": {"title": "A title", "data": "s3", "x": SIGN}}},
    }[wire]
    long = {
        CHAT: {"type": "seen", "text": "long words " * 100},
        GEMINI: {"codeExecutionResult": {"output": "long words " * 100}},
    }[wire]
    asked: dict[str, Any] = {
        CHAT: {"messages": [{"role": "user", "content": [strange, long]}]},
        GEMINI: {"contents": [{"role": "user", "parts": [strange, long]}]},
    }[wire]
    lines = [block.line for block in read(wire, asked).transcript.messages[0].blocks if isinstance(block, HostedBlock)]
    assert "A title" in lines[0]
    assert not any(secret in lines[0] for secret in ("AAAA", "s3", SIGN))
    assert "long words" in lines[1]
    assert all(len(line) <= 300 for line in lines)


# Fields on blocks.

NAMED = {"role": "user", "name": "bob", "content": [{"type": "text", "text": "Hi.", "odd": 1}]}
ODD = {"role": "user", "parts": [{"text": "Hi.", "odd": 1}]}


@pytest.mark.parametrize(
    ("wire", "body", "names"), [(CHAT, {"messages": [NAMED]}, "odd, name"), (GEMINI, {"contents": [ODD]}, "odd")]
)
def test_fields_of_what_a_user_said_stay_with_their_provider(wire: str, body: dict[str, Any], names: str) -> None:
    ask = read(wire, body)
    assert told(CODECS[wire].encode(ask, PLAIN, None)) == []
    for other in (CHAT, GEMINI):
        encoded = CODECS[other].encode(replace(ask, target=there(other)), PLAIN, None)
        (loss,) = encoded.losses
        assert (loss.kind, loss.what, loss.why.split(":")[0]) == ("dropped", "fields of text", names)
        assert b"bob" not in encoded.body
        assert b"odd" not in encoded.body


@both
def test_fields_of_a_result_stay_with_their_provider(wire: str) -> None:
    data = {CHAT: '{"@message":{"odd":1}}', GEMINI: '{"odd":1}'}[wire]
    call = Message.assistant_tool_call(ToolCall("call_1", "look"))
    done = Message("user", (ToolResult("call_1", (TextBlock("r"),), seal=Seal(data, here(wire))),))
    assert b'"odd"' in sent(here(wire), HELLO, call, done).body
    moved = sent(there(wire), HELLO, call, done)
    assert b'"odd"' not in moved.body
    assert "dropped fields of tool_result" in told(moved)


def test_another_model_of_the_same_provider_knows_all_but_the_signature() -> None:
    clip = DocumentBlock(Remote("https://a/b.mp4"), "video/mp4", seal=Seal('{"videoMetadata":{"fps":1}}', here(GEMINI)))
    other = replace(here(GEMINI), model="other")
    encoded = sent(other, Message("user", (clip, TextBlock("?"))), quirks=Quirks(seal_scope="model"))
    assert (b"videoMetadata" in encoded.body, told(encoded)) == (True, [])


def test_annotations_of_a_request_are_citations_and_go_back_to_their_maker() -> None:
    noted = {"type": "url_citation", "url_citation": {"url": "https://a", "title": "A", "start_index": 0, "end_index": 2}}
    said = {"role": "assistant", "content": "Ho.", "annotations": [noted, {"type": "odd", "odd": {"url": 1}}]}
    ask = read(CHAT, {"messages": [{"role": "user", "content": "Hi."}, said, {"role": "user", "content": "Go."}]})
    block = ask.transcript.messages[1].blocks[0]
    assert isinstance(block, TextBlock)
    assert block.citations == (Citation("https://a", "A", "", 0, 2),)
    assert told(CODECS[CHAT].encode(ask, PLAIN, None)) == []
    for wire in CODECS:
        assert "dropped citations" in told(CODECS[wire].encode(replace(ask, target=there(wire)), PLAIN, None))


@both
def test_citations_on_what_a_user_or_a_tool_said_are_reported(wire: str) -> None:
    cited = TextBlock("Hi.", (Citation("https://a"),))
    call = Message.assistant_tool_call(ToolCall("call_1", "look"))
    encoded = sent(here(wire), Message("user", (cited,)), call, Message.tool_result("call_1", [cited]), system=[cited])
    assert told(encoded).count("dropped citations") == 3


# Settings that nobody here knows.


@both
def test_thinking_that_cannot_be_switched_on_is_reported(wire: str) -> None:
    on = Reasoning(mode="on")
    assert told(sent(here(wire), HELLO, reasoning=on)) == ["dropped reasoning on"]
    assert told(sent(here(wire), HELLO, reasoning=on, quirks=Quirks(thinks_unasked=True))) == []
    assert told(sent(here(wire), HELLO, reasoning=replace(on, effort="low"))) == []


@pytest.mark.parametrize("spelling", ["object", "thinking", "enable_thinking", "template"])
def test_thinking_is_switched_on_where_there_is_a_switch(spelling: Any) -> None:
    encoded = sent(here(CHAT), HELLO, reasoning=Reasoning(mode="on"), quirks=Quirks(reasoning_request=spelling))
    assert told(encoded) == []
    assert any(switch in encoded.body for switch in (b'"enabled"', b'"enable_thinking":true'))


@both
def test_state_that_nobody_keeps_is_reported_for_what_it_is(wire: str) -> None:
    quirks = Quirks(store=False, cache_key=False)
    encoded = sent(here(wire), HELLO, quirks=quirks, state=State("chain", "r", store=True), cache=Cache(key="k"))
    assert sorted(told(encoded)) == ["degraded state mode chain", "dropped cache key", "dropped store"]
    assert not any("conversation is sent" in loss.why for loss in encoded.losses)


@both
def test_an_empty_part_of_the_system_prompt_is_left_out(wire: str) -> None:
    encoded = sent(here(wire), HELLO, system=[TextBlock(""), TextBlock("Be kind."), TextBlock("")])
    whole = sent(here(wire), HELLO, system="Be kind.")
    assert (encoded.body, told(encoded)) == (whole.body, ["dropped system part"] * 2)
    user = Quirks(system_role="user")
    assert sent(here(wire), HELLO, system=[TextBlock(""), TextBlock("Be kind.")], quirks=user).body.count(b"operator") == (
        1 if wire == CHAT else 0
    )
    assert sent(here(wire), HELLO, system=[TextBlock("")]).body == sent(here(wire), HELLO).body


# Chat Completions: answers, and the note on JSON.


def chunks(*found: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps({"id": "c-1", "choices": [one]}).encode() + b"\n\n" for one in found)


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("id", [None, ""])
def test_calls_without_an_id_are_told_apart_however_the_stream_is_cut(size: int, id: str | None) -> None:
    calls = [{"index": number, "id": id, "function": {"name": "look", "arguments": "{}"}} for number in range(2)]
    data = chunks(*({"delta": {"tool_calls": [call]}} for call in calls), {"delta": {}, "finish_reason": "tool_calls"})
    decoder = CODECS[CHAT].decoder(PLAIN)
    found = [one for start in range(0, len(data), size) for one in decoder.feed(data[start : start + size])] + decoder.close()
    whole = {"id": "c-1", "choices": [{"message": {"tool_calls": calls}, "finish_reason": "tool_calls"}]}
    first, second = assemble(found).calls
    assert first.id
    assert first.id != second.id
    assert CODECS[CHAT].decode(json.dumps(whole).encode(), PLAIN).calls == (first, second)
    assert [one.id for one in found if isinstance(one, d.CallBegun)] == [first.id, second.id]


@pytest.mark.parametrize(
    ("reasons", "kept"),
    [(("length", "stop"), "length"), (("stop", "content_filter"), "content_filter"), (("odd", "stop"), "odd")],
)
def test_an_end_out_of_the_ordinary_is_not_forgotten(reasons: tuple[str, ...], kept: str) -> None:
    decoder = CODECS[CHAT].decoder(PLAIN)
    data = chunks({"delta": {"content": "Ho."}}, *({"delta": {}, "finish_reason": reason} for reason in reasons))
    assert assemble([*decoder.feed(data), *decoder.close()]).stop.raw == kept


def test_empty_arguments_in_a_request_are_an_empty_object() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": ""}}
    ask = read(CHAT, {"messages": [{"role": "assistant", "content": None, "tool_calls": [call]}]})
    assert ask.transcript.messages[0].calls[0].raw == "{}"


@pytest.mark.parametrize(("first", "noted"), [("Give me JSON.", False), ("Give me something.", True)])
def test_the_note_on_json_stays_as_it_was_when_the_conversation_grows(first: str, noted: bool) -> None:
    messages = [Message.user_text(first)]
    bodies = []
    for text in ("And JSON?", "Or not."):
        bodies.append(sent(here(CHAT), *messages, output=OutputSchema()).body)
        messages += [Message.user_text(text), Message.assistant_text("json"), Message.user_text("?")]
    assert {b"Answer with one JSON object" in body for body in bodies} == {noted}


# Gemini: names.


@pytest.mark.parametrize(
    ("name", "kept"), [("a.b:c-d_e", True), ("x" * 128, True), ("x" * 129, False), ("1a", False), ("a b", False), ("aé", False)]
)
def test_a_name_that_the_wire_takes_is_not_changed(name: str, kept: bool) -> None:
    call = Message.assistant_tool_call(ToolCall("call_1", name))
    encoded = sent(here(GEMINI), HELLO, call, Message.tool_result("call_1", "r"), tools=(ToolSpec(name),))
    assert (encoded.names == ()) is kept
    assert encoded.body.count(json.dumps(name, ensure_ascii=False).encode()) == (3 if kept else 0)


# JSON that cannot be had as a value.


@both
def test_a_hosted_part_may_hold_numbers_that_nobody_can_hold(wire: str) -> None:
    part = {CHAT: '{"type":"seen","text":1e999}', GEMINI: '{"toolResponse":{"response":{"x":1e999}}}'}[wire]
    body = {
        CHAT: '{"messages":[{"role":"user","content":[%s]}]}',
        GEMINI: '{"contents":[{"role":"user","parts":[%s]}]}',
    }[wire]
    (block,) = CODECS[wire].read_request((body % part).encode(), PLAIN, here(wire)).transcript.messages[0].blocks
    assert isinstance(block, HostedBlock)
    assert block.raw == part
