"""Chat Completions requests, case by case: what each value becomes, what each dialect changes, and what is said to be lost."""

import json
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from evener.errors import BadValue, WireError
from evener.transcript import (
    Ask,
    Block,
    Cache,
    Choice,
    DocumentBlock,
    Extra,
    HostedBlock,
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
    Stored,
    TextBlock,
    ToolCall,
    ToolResult,
    ToolSpec,
    Transcript,
    Uploaded,
)
from evener.wire import CODECS, Encoded, Quirks

WIRE = "openai_chat"
CODEC = CODECS[WIRE]
US = Origin(WIRE, "us", model="m")
OTHERS = Origin(WIRE, "others", model="m")
PLAIN = Quirks()
Json = dict[str, Any]


def blocks(given: Sequence[Block | str]) -> tuple[Block, ...]:
    return tuple(TextBlock(one) if isinstance(one, str) else one for one in given)


def user(*given: Block | str) -> Message:
    return Message("user", blocks(given))


def said(*given: Block | str, origin: Origin | None = US) -> Message:
    return Message("assistant", blocks(given), origin=origin)


def encode(*messages: Message, quirks: Quirks = PLAIN, system: str | list[TextBlock] | None = None, **more: Any) -> Encoded:
    more.setdefault("stream", False)
    return CODEC.encode(Ask(Transcript(messages, system), US, **more), quirks, None)


def body(*messages: Message, **more: Any) -> Json:
    found: Json = json.loads(encode(*messages, **more).body)
    return found


def messages(*given: Message, **more: Any) -> list[Json]:
    found: list[Json] = body(*given, **more)["messages"]
    return found


def losses(encoded: Encoded) -> list[str]:
    return [f"{loss.kind} {loss.what}" for loss in encoded.losses]


def called(*ids: str, text: str = "", origin: Origin | None = US) -> Message:
    return said(*([text] if text else []), *(ToolCall(id, "look") for id in ids), origin=origin)


def result(id: str, *given: TextBlock | ImageBlock, error: bool = False) -> ToolResult:
    return ToolResult(id, given, error)


def results(*ids: str) -> Message:
    return user(*(result(id, TextBlock("seen")) for id in ids))


def call(id: str, arguments: str = "{}") -> Json:
    return {"id": id, "type": "function", "function": {"name": "look", "arguments": arguments}}


HELLO = user("hello")
LOOK = ToolSpec("look", "Look.", {"type": "object", "properties": {"at": {"type": "string"}}})  # type: ignore[arg-type]


# The frame.


def test_a_small_request() -> None:
    encoded = encode(HELLO, system="Be brief.", tools=(LOOK,), stream=True)
    assert (encoded.path, encoded.headers) == ("/chat/completions", (("content-type", "application/json"),))
    assert json.loads(encoded.body) == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": {"name": "look", "description": "Look.", "parameters": LOOK.input_schema}}],
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}],
    }


@pytest.mark.parametrize(
    ("quirks", "expected"),
    [
        (PLAIN, [{"role": "system", "content": "one\ntwo"}]),
        (Quirks(system_role="developer"), [{"role": "developer", "content": "one\ntwo"}]),
        (
            Quirks(cache_style="control"),
            [{"role": "system", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}],
        ),
    ],
)
def test_the_system_prompt_is_the_first_message(quirks: Quirks, expected: list[Json]) -> None:
    assert messages(HELLO, system=[TextBlock("one"), TextBlock("two")], quirks=quirks)[:-1] == expected


def test_a_model_without_a_system_prompt_hears_it_from_the_user() -> None:
    encoded = encode(HELLO, system="Be brief.", quirks=Quirks(system_role="user"))
    first = json.loads(encoded.body)["messages"][0]
    assert first["role"] == "user"
    assert first["content"].endswith("Be brief.") > first["content"].startswith("Be brief.")
    assert losses(encoded) == ["degraded system prompt"]


def test_a_system_message_may_stand_between_others_or_not() -> None:
    history = (HELLO, said("hi"), Message.system_text("now in verse"), user("go on"))
    assert [one["role"] for one in messages(*history)] == ["user", "assistant", "system", "user"]
    encoded = encode(*history, quirks=Quirks(mid_system=False))
    assert [one["role"] for one in json.loads(encoded.body)["messages"]] == ["user", "assistant", "user", "user"]
    assert losses(encoded) == ["degraded system message"]
    merged = messages(*history, quirks=Quirks(mid_system=False, merge_turns=True))
    assert [one["role"] for one in merged] == ["user", "assistant", "user"]


def test_an_empty_conversation_is_never_sent() -> None:
    assert losses(encode()) == ["added user message"]
    assert [one["role"] for one in messages(system="Be.")] == ["system"]
    assert [one["role"] for one in messages(system="Be.", quirks=Quirks(first_user=True))] == ["system", "user"]
    assert messages(HELLO, said("hi"), quirks=Quirks(prefill=False))[-1]["role"] == "user"


# What a user may say.

PNG = ImageBlock(Inline("AAAA"), "image/png")
PDF = DocumentBlock(Inline("AAAA"), "application/pdf", "a.pdf")
MP3 = DocumentBlock(Inline("AAAA"), "audio/mpeg")
URL = "https://example.org/x"


@pytest.mark.parametrize(
    ("block", "quirks", "part"),
    [
        (PNG, PLAIN, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}),
        (
            ImageBlock(Remote(URL), detail="low"),
            PLAIN,
            {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
        ),
        (MP3, PLAIN, {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}}),
        (PDF, PLAIN, {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}}),
        (DocumentBlock(Uploaded("f-1", WIRE)), PLAIN, {"type": "file", "file": {"file_id": "f-1"}}),
        (
            DocumentBlock(Remote(URL), "application/pdf", "a.pdf"),
            Quirks(file_urls=True),
            {"type": "file", "file": {"filename": "a.pdf", "file_data": URL}},
        ),
        (
            DocumentBlock(Remote(URL), "application/pdf", "a.pdf"),
            Quirks(file_urls=True, file_part="document_url"),
            {"type": "document_url", "document_url": URL, "document_name": "a.pdf"},
        ),
        (
            DocumentBlock(Inline("AAAA"), "video/mp4"),
            Quirks(video=True),
            {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}},
        ),
        (HostedBlock('{"type":"new_part","x":1}', WIRE), PLAIN, {"type": "new_part", "x": 1}),
    ],
)
def test_media_become_parts(block: Block, quirks: Quirks, part: Json) -> None:
    encoded = encode(user("see", block), quirks=quirks)
    assert json.loads(encoded.body)["messages"][0]["content"] == [{"type": "text", "text": "see"}, part]
    assert losses(encoded) == []


@pytest.mark.parametrize(
    ("block", "quirks"),
    [
        (PNG, Quirks(images=False)),
        (ImageBlock(Remote(URL)), Quirks(image_urls=False)),
        (PDF, Quirks(documents=False)),
        (DocumentBlock(Remote(URL), "application/pdf"), PLAIN),
        (DocumentBlock(Inline("AAAA"), "application/zip"), PLAIN),
        (DocumentBlock(Inline("AAAA"), "audio/flac"), PLAIN),
        (DocumentBlock(Inline("AAAA"), "video/mp4"), PLAIN),
        (DocumentBlock(Uploaded("f-1", "gemini")), PLAIN),
        (HostedBlock('{"type":"x"}', "gemini", "searched"), PLAIN),
        (HostedBlock('{"type":"x"}', WIRE, "searched"), Quirks(hosted=False)),
    ],
)
def test_what_cannot_go_is_a_line_and_a_loss(block: Block, quirks: Quirks) -> None:
    encoded = encode(user("see", block), quirks=quirks)
    line = json.loads(encoded.body)["messages"][0]["content"][1]
    assert (line["type"], line["text"][0]) == ("text", "[")
    assert [loss.kind for loss in encoded.losses] == ["degraded"]


def test_a_text_file_still_goes_as_text() -> None:
    note = DocumentBlock(Inline(b64encode("grüß dich".encode()).decode()), "text/plain", "note.txt")
    assert messages(user(note))[0]["content"] == "[note.txt]\ngrüß dich"


def test_media_in_our_store_must_be_fetched_first() -> None:
    with pytest.raises(BadValue, match="not loaded"):
        encode(user(ImageBlock(Stored("sha"))))


# What the assistant said, and what came back.


@pytest.mark.parametrize(("form", "expected"), [("null", {"content": None}), ("empty", {"content": ""}), ("absent", {})])
def test_a_message_that_only_calls(form: Any, expected: Json) -> None:
    turn = messages(HELLO, called("a", "b"), results("a", "b"), quirks=Quirks(empty_content=form))[1]
    assert turn == {"role": "assistant", **expected, "tool_calls": [call("a"), call("b")]}


def test_results_follow_their_calls_in_their_order() -> None:
    """S1.9, S4.26."""
    history = (HELLO, called("a", "b", text="looking"), results("b"), results("a"), user("well?"))
    assert messages(*history)[1:] == [
        {"role": "assistant", "content": "looking", "tool_calls": [call("a"), call("b")]},
        {"role": "tool", "tool_call_id": "a", "content": "seen"},
        {"role": "tool", "tool_call_id": "b", "content": "seen"},
        {"role": "user", "content": "well?"},
    ]


def test_a_missing_result_is_made_and_says_that_it_failed() -> None:
    encoded = encode(HELLO, called("a"), user("well?"))
    result = json.loads(encoded.body)["messages"][2]
    assert result["content"].startswith("ERROR: No result")
    assert losses(encoded) == ["added tool_result", "degraded tool_result error flag"]


def test_an_error_is_told_in_words() -> None:
    failed = user(result("a", TextBlock("no such file"), error=True))
    assert messages(HELLO, called("a"), failed)[2]["content"] == "ERROR: no such file"
    assert messages(HELLO, called("a"), user(result("a")))[2]["content"] == ""


def test_text_after_calls_moves_before_them() -> None:
    encoded = encode(HELLO, said(ToolCall("a", "look"), "so I look"), results("a"))
    assert json.loads(encoded.body)["messages"][1]["content"] == "so I look"
    assert losses(encoded) == ["degraded order of a turn"]


SHOT = user(result("a", TextBlock("taken"), PNG), result("b", TextBlock("seen")))


def test_media_of_results_follow_all_of_them_in_one_user_message() -> None:
    encoded = encode(HELLO, called("a", "b"), SHOT, user("well?"))
    roles = [one["role"] for one in json.loads(encoded.body)["messages"]]
    assert roles == ["user", "assistant", "tool", "tool", "user", "user"]
    shown = json.loads(encoded.body)["messages"][4]["content"]
    label = shown[0]["text"].strip("[]")
    assert [part["type"] for part in shown] == ["text", "image_url"]
    assert json.loads(encoded.body)["messages"][2]["content"][1]["text"].startswith(f"[{label}")
    assert losses(encoded) == ["degraded media in a tool_result"]


def test_dialects_of_turns() -> None:
    history = (HELLO, called("a", "b"), SHOT, user("well?"))
    filled = encode(*history, quirks=Quirks(tool_then_user=False))
    assert [one["role"] for one in json.loads(filled.body)["messages"]][2:] == ["tool", "tool", "assistant", "user", "user"]
    assert "added assistant message" in losses(filled)
    merged = messages(*history, quirks=Quirks(merge_turns=True))
    assert [one["role"] for one in merged] == ["user", "assistant", "tool", "tool", "user"]
    assert [part["type"] for part in merged[-1]["content"]] == ["text", "image_url", "text"]
    assert messages(*history, quirks=Quirks(result_name=True))[3]["name"] == "look"
    joined = encode(HELLO, said("one", "two"), user("three", "four"), quirks=Quirks(text_parts=False))
    assert [one["content"] for one in json.loads(joined.body)["messages"]] == ["hello", "one\ntwo", "three\nfour"]
    assert losses(joined) == ["degraded text"] * 2


LONG = "functions.look:" + "7" * 40


@pytest.mark.parametrize(
    ("quirks", "kept", "changed"),
    [
        (PLAIN, "functions.look:7", LONG),
        (Quirks(chat_id_length=64), LONG, "x" * 65),
        (Quirks(id_charset="word"), "call_7-x", "functions.look:7"),
        (Quirks(id_charset="nine"), "a1B2c3D4e", "call_7"),
    ],
)
def test_ids_keep_to_the_rule_and_depend_on_nothing_else(quirks: Quirks, kept: str, changed: str) -> None:
    history = (HELLO, called(kept, changed), results(kept, changed))
    _, turn, first, second = messages(*history, quirks=quirks)
    sent = [one["id"] for one in turn["tool_calls"]]
    assert sent == [first["tool_call_id"], second["tool_call_id"]]
    assert sent[0] == kept
    assert sent[1] != changed
    assert len(sent[1]) <= (9 if quirks.id_charset == "nine" else quirks.chat_id_length)
    again = messages(HELLO, said("well"), user("x"), called(changed), results(changed), quirks=quirks)
    assert again[3]["tool_calls"][0]["id"] == sent[1]


def test_arguments_are_an_object_in_any_case() -> None:
    encoded = encode(HELLO, said(ToolCall("a", "look", '{"at": ')), results("a"))
    sent = json.loads(encoded.body)["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(sent) == {"_unreadable_arguments": '{"at": '}
    assert losses(encoded) == ["degraded tool_call arguments"]


# Reasoning, in every spelling.

DETAILS = [{"type": "reasoning.text", "text": "hm", "signature": "S", "index": 0}]
SEALED = ReasoningBlock("hm", Seal(json.dumps({"reasoning_details": DETAILS}), US))
TURN = (HELLO, said(ReasoningBlock("hm"), "yes"), user("go on"))
CALLING = (HELLO, said(ReasoningBlock("hm"), ToolCall("a", "look")), results("a"))


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("reasoning_content", {"content": "yes", "reasoning_content": "hm"}),
        ("reasoning", {"content": "yes", "reasoning": "hm"}),
        ("reasoning_details", {"content": "yes", "reasoning": "hm"}),
        ("tags", {"content": "<think>hm</think>yes"}),
        (
            "chunks",
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                    {"type": "text", "text": "yes"},
                ]
            },
        ),
    ],
)
def test_own_reasoning_goes_back_in_the_rows_spelling(field: Any, expected: Json) -> None:
    encoded = encode(*TURN, quirks=Quirks(reasoning_field=field))
    assert json.loads(encoded.body)["messages"][1] == {"role": "assistant", **expected}
    assert losses(encoded) == []


def test_details_go_back_as_they_came() -> None:
    quirks = Quirks(reasoning_field="reasoning_details")
    assert messages(HELLO, said(SEALED, "yes"), user("go on"), quirks=quirks)[1]["reasoning_details"] == DETAILS
    foreign = ReasoningBlock("hm", Seal(json.dumps({"reasoning_details": DETAILS}), OTHERS))
    encoded = encode(HELLO, said(foreign, "yes", origin=OTHERS), user("go on"), quirks=quirks)
    assert b"signature" not in encoded.body
    assert losses(encoded) == ["dropped reasoning"]


@pytest.mark.parametrize("field", ["", "reasoning_content", "tags"])
def test_foreign_reasoning_is_dropped_or_said_as_text(field: Any) -> None:
    """S2.65."""
    history = (HELLO, said(ReasoningBlock("hm"), "yes", origin=OTHERS), user("go on"))
    dropped = encode(*history, quirks=Quirks(reasoning_field=field))
    assert json.loads(dropped.body)["messages"][1] == {"role": "assistant", "content": "yes"}
    assert losses(dropped) == ["dropped reasoning"]
    texted = encode(*history, quirks=Quirks(reasoning_field=field), foreign_reasoning="text")
    assert [part["text"] for part in json.loads(texted.body)["messages"][1]["content"]] == ["hm", "yes"]
    assert losses(texted) == ["degraded reasoning"]


@pytest.mark.parametrize(
    ("rule", "alone", "calling"), [("none", False, False), ("tools", False, True), ("latest", False, True), ("all", True, True)]
)
def test_the_row_says_when_reasoning_goes_back(rule: Any, alone: bool, calling: bool) -> None:
    """S3.20."""
    quirks = Quirks(reasoning_field="reasoning_content", thinking_replay=rule)
    assert ("reasoning_content" in messages(*TURN, quirks=quirks)[1]) is alone
    assert ("reasoning_content" in messages(*CALLING, quirks=quirks)[1]) is calling


def test_calls_owe_reasoning_where_the_row_says_so() -> None:
    quirks = Quirks(reasoning_field="reasoning_content", reasoning_owed=True)
    assert messages(HELLO, called("a"), results("a"), quirks=quirks)[1]["reasoning_content"] == ""
    assert "reasoning_content" not in messages(HELLO, said("yes"), user("x"), quirks=quirks)[1]
    assert messages(*CALLING, quirks=quirks)[1]["reasoning_content"] == "hm"


HIGH, OFF, BUDGET = Reasoning("high"), Reasoning("off"), Reasoning(budget=3000)


@pytest.mark.parametrize(
    ("style", "wanted", "expected", "lost"),
    [
        ("effort", HIGH, {"reasoning_effort": "high"}, []),
        ("effort", OFF, {"reasoning_effort": "none"}, []),
        ("effort", Reasoning(mode="off"), {"reasoning_effort": "none"}, []),
        ("effort", BUDGET, {"reasoning_effort": "medium"}, ["degraded reasoning budget"]),
        ("effort", Reasoning(), {}, []),
        ("object", HIGH, {"reasoning": {"effort": "high"}}, []),
        ("object", Reasoning("high", mode="on"), {"reasoning": {"enabled": True, "effort": "high"}}, []),
        ("object", OFF, {"reasoning": {"effort": "none"}}, []),
        ("object", Reasoning(mode="off"), {"reasoning": {"enabled": False}}, []),
        ("object", BUDGET, {"reasoning": {"max_tokens": 3000}}, []),
        ("thinking", HIGH, {"thinking": {"type": "enabled"}, "reasoning_effort": "high"}, []),
        ("thinking", OFF, {"thinking": {"type": "disabled"}}, []),
        ("thinking", Reasoning("high", mode="default"), {"reasoning_effort": "high"}, []),
        ("enable_thinking", OFF, {"enable_thinking": False}, []),
        ("enable_thinking", HIGH, {"enable_thinking": True}, ["degraded reasoning effort"]),
        ("template", Reasoning(mode="on"), {"chat_template_kwargs": {"enable_thinking": True}}, []),
        ("template", Reasoning(), {}, []),
    ],
)
def test_how_reasoning_is_asked_for(style: Any, wanted: Reasoning, expected: Json, lost: list[str]) -> None:
    encoded = encode(HELLO, quirks=Quirks(reasoning_request=style), reasoning=wanted)
    sent = json.loads(encoded.body)
    assert {name: value for name, value in sent.items() if name not in ("model", "stream", "messages")} == expected
    assert losses(encoded) == lost


@pytest.mark.parametrize(
    ("quirks", "wanted", "expected", "lost"),
    [
        (Quirks(efforts=("low", "high")), Reasoning("xhigh"), {"reasoning_effort": "high"}, ["degraded reasoning effort"]),
        (Quirks(efforts=("off",)), HIGH, {}, ["dropped reasoning effort"]),
        (Quirks(efforts=("off",)), OFF, {"reasoning_effort": "none"}, []),
        (Quirks(effort=False), HIGH, {}, ["dropped reasoning effort"]),
        (Quirks(reasoning_display="format"), Reasoning(show="summary"), {"reasoning_format": "parsed"}, []),
        (Quirks(reasoning_display="format"), Reasoning(show="omitted"), {"reasoning_format": "hidden"}, []),
        (
            Quirks(reasoning_display="exclude", reasoning_request="object"),
            Reasoning("low", show="omitted"),
            {"reasoning": {"effort": "low", "exclude": True}},
            [],
        ),
        (PLAIN, Reasoning(show="summary"), {}, ["dropped reasoning display"]),
        (PLAIN, Reasoning(mode="between_tools"), {}, ["dropped reasoning between_tools"]),
        (
            Quirks(reasoning_request="thinking", thinking_modes=("enabled",), efforts=("low", "max")),
            OFF,
            {"reasoning_effort": "low"},
            ["degraded reasoning off", "degraded reasoning effort"],
        ),
    ],
)
def test_what_a_model_cannot_do_about_reasoning(quirks: Quirks, wanted: Reasoning, expected: Json, lost: list[str]) -> None:
    encoded = encode(HELLO, quirks=quirks, reasoning=wanted)
    sent = json.loads(encoded.body)
    assert {name: value for name, value in sent.items() if name not in ("model", "stream", "messages")} == expected
    assert losses(encoded) == lost


def test_tools_come_before_effort_where_there_is_not_both() -> None:
    encoded = encode(HELLO, quirks=Quirks(effort_with_tools=False), tools=(LOOK,), reasoning=HIGH)
    assert json.loads(encoded.body)["reasoning_effort"] == "none"
    assert losses(encoded) == ["dropped reasoning effort"]


# Tool choice.

FUNCTION = {"type": "function", "function": {"name": "look"}}
WALK = ToolSpec("walk")


@pytest.mark.parametrize(
    ("choice", "quirks", "expected", "lost"),
    [
        (Choice(), PLAIN, {}, []),
        (Choice(stated=True), PLAIN, {"tool_choice": "auto"}, []),
        (Choice("none"), PLAIN, {"tool_choice": "none"}, []),
        (Choice("required"), PLAIN, {"tool_choice": "required"}, []),
        (Choice("required"), Quirks(required_word="any"), {"tool_choice": "any"}, []),
        (Choice("named", ("look",)), PLAIN, {"tool_choice": FUNCTION}, []),
        (Choice("named", ("look",)), Quirks(named_choice=False), {"tool_choice": "required"}, ["degraded tool choice"]),
        (Choice("named", ("fly",)), PLAIN, {}, ["degraded tool choice"]),
        (Choice("required"), Quirks(forced_choice=False), {}, ["degraded tool choice"]),
        (
            Choice("required"),
            Quirks(forced_choice_thinking=False, thinks_unasked=True),
            {},
            ["degraded tool choice"],
        ),
        (
            Choice("auto", ("look",)),
            PLAIN,
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [FUNCTION]}}},
            [],
        ),
        (Choice("required", ("look",)), Quirks(tool_subsets=False), {"tool_choice": "required"}, ["degraded tool choice"]),
        (Choice(parallel=False), PLAIN, {"parallel_tool_calls": False}, []),
        (Choice(parallel=False), Quirks(parallel_switch=False), {}, ["dropped parallel switch"]),
    ],
)
def test_which_tools_may_be_called(choice: Choice, quirks: Quirks, expected: Json, lost: list[str]) -> None:
    """S4.12."""
    encoded = encode(HELLO, quirks=quirks, tools=(LOOK, WALK), choice=choice)
    sent = json.loads(encoded.body)
    assert {name: sent[name] for name in ("tool_choice", "parallel_tool_calls") if name in sent} == expected
    assert losses(encoded) == lost


def test_no_choice_is_sent_without_tools() -> None:
    encoded = encode(HELLO, choice=Choice("required", parallel=True))
    assert json.loads(encoded.body).keys() == {"model", "stream", "messages"}
    assert losses(encoded) == ["dropped tool choice", "dropped parallel switch"]


def test_strict_is_said_where_it_is_known() -> None:
    strict = replace(LOOK, strict=True)
    assert body(HELLO, tools=(strict,))["tools"][0]["function"]["strict"] is True
    assert losses(encode(HELLO, tools=(strict,), quirks=Quirks(strict=False))) == ["dropped strict on tool look"]


# Settings.


@pytest.mark.parametrize(
    ("given", "quirks", "expected", "lost"),
    [
        (Settings(100, 0.5, 0.9), PLAIN, {"max_completion_tokens": 100, "temperature": 0.5, "top_p": 0.9}, []),
        (Settings(100), Quirks(output_field="max_tokens"), {"max_tokens": 100}, []),
        (Settings(100), Quirks(max_output=50), {"max_completion_tokens": 50}, ["degraded setting max_output_tokens"]),
        (Settings(temperature=3.0), PLAIN, {"temperature": 2}, ["degraded setting temperature"]),
        (Settings(temperature=-1.0), PLAIN, {"temperature": 0}, ["degraded setting temperature"]),
        (Settings(temperature=1.0), Quirks(sampling="none"), {}, ["dropped setting temperature"]),
        (Settings(top_k=5), PLAIN, {}, ["dropped setting top_k"]),
        (Settings(top_k=5), Quirks(top_k=True), {"top_k": 5}, []),
        (Settings(seed=7), PLAIN, {"seed": 7}, []),
        (Settings(seed=7), Quirks(seed_field="random_seed"), {"random_seed": 7}, []),
        (Settings(seed=7), Quirks(seed_field=""), {}, ["dropped setting seed"]),
        (Settings(stop=("a", "b")), PLAIN, {"stop": ["a", "b"]}, []),
        (Settings(stop=("a", "b")), Quirks(stops=1), {"stop": ["a"]}, ["dropped setting stop"]),
        (Settings(stop=("a",)), Quirks(stops=0), {}, ["dropped setting stop"]),
    ],
)
def test_settings(given: Settings, quirks: Quirks, expected: Json, lost: list[str]) -> None:
    encoded = encode(HELLO, quirks=quirks, settings=given)
    sent = json.loads(encoded.body)
    assert {name: value for name, value in sent.items() if name not in ("model", "stream", "messages")} == expected
    assert losses(encoded) == lost


def test_what_is_kept_by_the_provider() -> None:
    kept = body(HELLO, state=State(store=True), cache=Cache(key="k"))
    assert (kept["store"], kept["prompt_cache_key"]) == (True, "k")
    refused = encode(
        HELLO, state=State("chain", "r-1", True), cache=Cache(key="k"), quirks=Quirks(store=False, cache_key=False)
    )
    assert losses(refused) == ["degraded state mode chain", "dropped store", "dropped cache key"]


SCHEMA = '{"type":"object","properties":{},"additionalProperties":false}'


def test_the_shape_of_the_answer() -> None:
    shaped = body(HELLO, output=OutputSchema(SCHEMA, "answer", "An answer.", True))["response_format"]
    inner = {"name": "answer", "description": "An answer.", "schema": json.loads(SCHEMA), "strict": True}
    assert shaped == {"type": "json_schema", "json_schema": inner}
    loose = encode(user("as JSON, please"), output=OutputSchema(SCHEMA), quirks=Quirks(output_schema=False))
    assert json.loads(loose.body)["response_format"] == {"type": "json_object"}
    assert losses(loose) == ["degraded output schema"]
    assert losses(encode(HELLO, output=OutputSchema(), quirks=Quirks(json_mode=False))) == ["degraded output schema"]


def test_json_mode_always_comes_with_the_word() -> None:
    encoded = encode(HELLO, output=OutputSchema())
    assert "JSON" in json.loads(encoded.body)["messages"][0]["content"]
    assert losses(encoded) == ["added system prompt"]
    assert len(messages(user("some json"), output=OutputSchema())) == 1


def test_fields_of_the_callers_own_are_added() -> None:
    extra = (Extra(WIRE, '{"n":1,"stream_options":{"include_obfuscation":false}}', (("x-a", "b"),)), Extra("gemini", '{"y":1}'))
    encoded = encode(HELLO, stream=True, extra=extra)
    sent = json.loads(encoded.body)
    assert (sent["n"], sent["stream_options"]) == (1, {"include_usage": True, "include_obfuscation": False})
    assert ("x-a", "b") in encoded.headers
    assert losses(encoded) == ["dropped field y"]
    assert "stream_options" not in body(HELLO, stream=True, quirks=Quirks(stream_usage=False))


# Cache marks.


def test_marks_of_the_breakpoint_style_stand_where_they_were_asked_for() -> None:
    encoded = encode(user(TextBlock("long", cache="30m"), "short"), tools=(replace(LOOK, cache="30m"),), cache=Cache())
    part, plain = json.loads(encoded.body)["messages"][0]["content"]
    assert part["prompt_cache_breakpoint"] == {"mode": "explicit"}
    assert plain.keys() == {"type", "text"}
    assert losses(encoded) == ["dropped cache marks"]


CONTROL = Quirks(cache_style="control")


def test_moving_marks_move_and_nothing_else_does() -> None:
    """S3.5."""
    history = [HELLO, called("a"), results("a"), said("so"), user("and?"), said("well"), user("go on")]
    prior, before = None, b""
    for end in (1, 3, 5, 7):
        ask = Ask(Transcript(history[:end], "Be brief."), US, (LOOK,), cache=Cache("moving"))
        encoded = CODEC.encode(ask, CONTROL, prior)
        assert encoded.body == CODEC.encode(ask, CONTROL, None).body
        assert encoded.body.count(b'"cache_control":{"type":"ephemeral"}') == min(end + 1, 3)
        plain = encoded.body.replace(b',"cache_control":{"type":"ephemeral"}', b"")
        assert plain.startswith(before)
        prior, before = encoded, plain[:-2]


def test_the_provider_may_place_marks_itself() -> None:
    assert body(HELLO, quirks=CONTROL, cache=Cache("provider", "1h"))["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert b"cache" not in encode(HELLO, cache=Cache("provider")).body
    marked = body(HELLO, quirks=CONTROL, tools=(replace(LOOK, cache="5m"),))
    assert marked["tools"][0]["cache_control"] == {"type": "ephemeral"}


# The other direction.

ODD: list[Json] = [
    {"role": "user", "content": "hi", "name": "ann"},
    {"role": "user", "content": [{"type": "text", "text": "hi", "x": None}, {"type": "later", "y": 1}]},
    {"role": "assistant", "content": "", "tool_calls": [call("a")]},
    {"role": "assistant", "content": [], "prefix": False, "tool_calls": [{**call("a"), "index": 0, "z": {}}]},
    {"role": "assistant", "content": "yes", "tool_calls": []},
    {"role": "assistant", "content": None, "refusal": "no"},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    {"role": "assistant", "audio": {"id": "au-1"}},
    {"role": "assistant", "content": None, "function_call": {"name": "old", "arguments": "{}"}},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "w", "input": "x"}}],
    },
    {"role": "assistant", "content": "yes", "reasoning_content": "hm"},
    {"role": "developer", "content": "now in verse"},
]


@pytest.mark.parametrize("message", ODD, ids=lambda one: str(one)[:60])
def test_odd_messages_go_out_again_as_they_came(message: Json) -> None:
    """Whatever a request held: fields nobody knows, parts nobody knows, contents that are nothing."""
    after = [{"role": "tool", "tool_call_id": "a", "content": "seen"}] if "a" in str(message.get("tool_calls")) else []
    request = {"model": "m", "messages": [{"role": "user", "content": "hello"}, message, *after]}
    quirks = Quirks(reasoning_field="reasoning")
    ask = CODEC.read_request(json.dumps(request).encode(), quirks, US)
    encoded = CODEC.encode(ask, quirks, None)
    assert json.loads(encoded.body)["messages"] == request["messages"]
    assert losses(encoded) == []


def test_what_another_provider_put_on_a_message_stays_behind() -> None:
    request = {"model": "m", "messages": [{"role": "user", "content": "hi", "name": "ann"}, ODD[3], {"role": "tool"}]}
    ask = CODEC.read_request(json.dumps(request).encode(), PLAIN, OTHERS)
    sent = CODEC.encode(replace(ask, target=US), PLAIN, None).body
    assert not any(word in sent for word in (b"ann", b"prefix", b'"index"', b'"z"'))


def test_a_request_is_read_into_neutral_words() -> None:
    request = {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
            {"role": "assistant", "content": "so", "tool_calls": [call("a"), call("b")]},
            {"role": "tool", "tool_call_id": "a", "content": "seen"},
            {"role": "tool", "tool_call_id": "b", "content": ""},
        ],
        "tools": [{"type": "function", "function": {"name": "look", "parameters": {}, "strict": True}}, {"type": "hosted"}],
        "tool_choice": FUNCTION,
        "parallel_tool_calls": False,
        "max_tokens": 5,
        "stop": "x",
        "reasoning_effort": "none",
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
        "prompt_cache_key": "k",
        "logit_bias": {"1": 2},
    }
    ask = CODEC.read_request(json.dumps(request).encode(), PLAIN, US)
    assert ask.transcript.system == "Be brief."
    assert [message.role for message in ask.transcript] == ["user", "assistant", "user"]
    assert ask.transcript.messages[0].blocks == (PNG,)
    assert ask.transcript.messages[2].blocks == (result("a", TextBlock("seen")), result("b"))
    assert [tool.name for tool in ask.tools] == ["look", "hosted"]
    assert ask.choice == Choice("named", ("look",), False, True)
    assert (ask.settings.max_output_tokens, ask.settings.stop) == (5, ("x",))
    assert (ask.reasoning.effort, ask.cache.key, ask.stream) == ("off", "k", False)
    assert ask.output == OutputSchema("{}", "n")
    assert ask.extra == (Extra(WIRE, '{"logit_bias":{"1": 2},"max_tokens":5}', provider=US.provider),)


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b'{"messages":[{"role":"ghost"}]}', b'{"messages":[1]}', b'{"messages":3}'])
def test_what_is_no_request_says_so(raw: bytes) -> None:
    with pytest.raises(WireError):
        CODEC.read_request(raw, PLAIN, US)
