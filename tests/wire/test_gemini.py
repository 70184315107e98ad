"""The gemini codec on small cases of our own: what it writes, what it reads, what it reports. No recordings needed."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from evener import errors as e
from evener.transcript import (
    Ask,
    Cache,
    Choice,
    DocumentBlock,
    Extra,
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
    Stored,
    TextBlock,
    ToolCall,
    ToolResult,
    ToolSpec,
    Transcript,
    Uploaded,
)
from evener.wire import CODECS, Encoded, Quirks

CODEC = CODECS["gemini"]
HERE = Origin("gemini", "here", "", "m")
ELSEWHERE = Origin("gemini", "here", "", "other")
FOREIGN = Origin("anthropic_messages", "there", "", "x")
SCOPED = Quirks(seal_scope="model")
OLDER = Quirks(
    seal_scope="model",
    thinking_control="budget",
    call_signature="",
    result_parts=(),
    hosted_beside="no",
    output_beside=False,
)
STAND_IN = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
LOOK = ToolSpec("look", "Looks.", '{"type":"object","properties":{"at":{"type":"string"}},"required":["at"]}')
Json = dict[str, Any]


def ask_of(*messages: Message, system: str | None = None, **more: Any) -> Ask:
    return Ask(Transcript(messages, system), HERE, **more)


def encode(ask: Ask, quirks: Quirks = SCOPED) -> Encoded:
    return CODEC.encode(ask, quirks, None)


def body_of(ask: Ask, quirks: Quirks = SCOPED) -> Json:
    found: Json = json.loads(encode(ask, quirks).body)
    return found


def losses_of(encoded: Encoded) -> list[tuple[str, str]]:
    return [(loss.kind, loss.what) for loss in encoded.losses]


def said(*blocks: Any, origin: Origin | None = HERE) -> Message:
    return Message("assistant", blocks, origin=origin)


def sealed(origin: Origin = HERE, **own: object) -> Seal:
    return Seal(json.dumps(own), origin)


HI = Message.user_text("Hi.")


# Requests: the conversation.


def test_a_plain_request_is_contents_and_a_path() -> None:
    encoded = encode(ask_of(HI))
    assert encoded.path == "/v1beta/models/m:streamGenerateContent?alt=sse"
    assert json.loads(encoded.body) == {"contents": [{"role": "user", "parts": [{"text": "Hi."}]}]}
    assert encoded.losses == ()
    assert encode(ask_of(HI, stream=False)).path == "/v1beta/models/m:generateContent"
    mine = Quirks(path="/models/{model}:generateContent", stream_path="/models/{model}:streamGenerateContent")
    assert encode(ask_of(HI), mine).path == "/models/m:streamGenerateContent?alt=sse"


def test_the_system_prompt_stands_apart_and_its_parts_stay_parts() -> None:
    ask = Ask(Transcript([HI], [TextBlock("Be kind."), TextBlock("Be brief.")]), HERE)
    assert body_of(ask)["systemInstruction"] == {"parts": [{"text": "Be kind."}, {"text": "Be brief."}]}


@pytest.mark.parametrize("messages", [(), (said(TextBlock("Ho.")),)], ids=["nothing", "the model first"])
def test_a_conversation_begins_with_the_user(messages: tuple[Message, ...]) -> None:
    encoded = encode(ask_of(*messages))
    assert json.loads(encoded.body)["contents"][0] == {"role": "user", "parts": [{"text": ""}]}
    assert losses_of(encoded) == [("added", "user message")]


def test_an_instruction_in_mid_conversation_is_marked_text_of_the_user() -> None:
    encoded = encode(ask_of(HI, said(TextBlock("Ho.")), Message.system_text("Hurry."), Message.user_text("Go.")))
    *_, told, asked = json.loads(encoded.body)["contents"]
    assert told["role"] == asked["role"] == "user"
    assert told["parts"][0]["text"].startswith("[instruction from the operator")
    assert losses_of(encoded) == [("degraded", "system message")]


def test_where_turns_must_alternate_they_are_merged() -> None:
    ask = ask_of(HI, Message.system_text("Hurry."), Message.user_text("Go."))
    assert len(body_of(ask)["contents"]) == 3
    (only,) = body_of(ask, Quirks(merge_turns=True))["contents"]
    assert [part["text"][-6:] for part in only["parts"]] == ["Hi.", "Hurry.", "Go."]


# Requests: calls and results.


def loop(*calls: ToolCall, results: Iterable[ToolResult] = (), origin: Origin | None = HERE) -> Ask:
    return ask_of(HI, said(*calls, origin=origin), Message("user", tuple(results)), tools=(LOOK,))


def test_all_results_stand_in_one_content_in_call_order_and_each_is_an_object() -> None:
    calls = [ToolCall(f"k{n}", "look", f'{{"at":"{n}"}}', sealed(thoughtSignature="U0lH") if not n else None) for n in range(3)]
    results = [
        Message.tool_result("k2", "two"),
        Message.tool_result("k0", "none", is_error=True),
        Message.tool_result("k1", ""),
    ]
    encoded = encode(ask_of(HI, said(*calls), *results, tools=(LOOK,)))
    _, model, user = json.loads(encoded.body)["contents"]
    assert model == {
        "role": "model",
        "parts": [
            {"functionCall": {"id": "k0", "name": "look", "args": {"at": "0"}}, "thoughtSignature": "U0lH"},
            {"functionCall": {"id": "k1", "name": "look", "args": {"at": "1"}}},
            {"functionCall": {"id": "k2", "name": "look", "args": {"at": "2"}}},
        ],
    }
    assert user["parts"] == [
        {"functionResponse": {"id": "k0", "name": "look", "response": {"error": "none"}}},
        {"functionResponse": {"id": "k1", "name": "look", "response": {}}},
        {"functionResponse": {"id": "k2", "name": "look", "response": {"output": "two"}}},
    ]
    assert {what for _, what in losses_of(encoded)} == {"tool_result"}


def test_an_id_that_the_provider_did_not_give_does_not_go_out() -> None:
    call = ToolCall("call_made", "look", "{}", sealed(functionCall={"id": None}, thoughtSignature="U0lH"))
    ask = loop(call, results=[ToolResult("call_made", (TextBlock("x"),))])
    for target in (HERE, ELSEWHERE):
        _, model, user = body_of(replace(ask, target=target))["contents"]
        assert "id" not in model["parts"][0]["functionCall"]
        assert "id" not in user["parts"][0]["functionResponse"]


def test_a_call_of_another_model_loses_its_signature_and_gets_a_stand_in() -> None:
    ask = loop(ToolCall("k", "look", "{}", sealed(ELSEWHERE, thoughtSignature="U0lH")), origin=ELSEWHERE)
    encoded = encode(ask)
    assert json.loads(encoded.body)["contents"][1]["parts"][0]["thoughtSignature"] == STAND_IN
    assert losses_of(encoded)[-2:] == [("dropped", "thought signature"), ("added", "thought signature")]
    older = encode(ask, OLDER)
    assert b"ignature" not in older.body


def test_only_the_first_call_of_a_turn_gets_a_stand_in_and_none_where_a_real_one_stands() -> None:
    bare = loop(ToolCall("a", "look"), ToolCall("b", "look"), origin=FOREIGN)
    assert encode(bare).body.count(STAND_IN.encode()) == 1
    real = loop(ToolCall("a", "look", "{}", sealed(thoughtSignature="U0lH")), ToolCall("b", "look"))
    assert STAND_IN.encode() not in encode(real).body


def test_a_call_without_a_result_gets_an_honest_one_and_arguments_are_always_an_object() -> None:
    encoded = encode(ask_of(HI, said(ToolCall("k", "look", "not json", sealed(thoughtSignature="U0lH"))), tools=(LOOK,)))
    _, model, user = json.loads(encoded.body)["contents"]
    assert model["parts"][0]["functionCall"]["args"] == {"_unreadable_arguments": "not json"}
    assert "not known whether it took effect" in user["parts"][0]["functionResponse"]["response"]["error"]
    assert {("added", "tool_result"), ("degraded", "tool_call arguments")} == set(losses_of(encoded))


def test_a_name_that_the_wire_does_not_take_is_renamed_everywhere_and_mapped_back() -> None:
    odd = replace(LOOK, name="1 look")
    encoded = encode(ask_of(HI, said(ToolCall("k", "1 look")), Message.tool_result("k", "x"), tools=(odd,)))
    body = json.loads(encoded.body)
    ((name, ours),) = encoded.names
    assert losses_of(encoded)[:2] == [("renamed", "tool 1 look"), ("renamed", "tool_call name")]
    assert ours == "1 look"
    assert name[0] == "_"
    assert body["tools"][0]["functionDeclarations"][0]["name"] == name
    assert body["contents"][1]["parts"][0]["functionCall"]["name"] == name
    assert body["contents"][2]["parts"][0]["functionResponse"]["name"] == name


PICTURE = ImageBlock(Inline("QUJD"), "image/png")
SONG = DocumentBlock(Inline("QUJD"), "audio/mpeg")


def test_media_in_a_result_stand_within_it_or_after_all_results() -> None:
    calls = (ToolCall("a", "look", "{}", sealed(thoughtSignature="U0lH")), ToolCall("b", "look"))
    results = [ToolResult("a", (TextBlock("see"), PICTURE, SONG)), ToolResult("b", (TextBlock("x"),))]
    new, old = encode(loop(*calls, results=results)), encode(loop(*calls, results=results), OLDER)
    parts = json.loads(new.body)["contents"][2]["parts"]
    inline = {"inlineData": {"mimeType": "image/png", "data": "QUJD"}}
    song = {"inlineData": {"mimeType": "audio/mpeg", "data": "QUJD"}}
    assert parts[0]["functionResponse"]["parts"] == [inline]
    assert [next(iter(part)) for part in parts] == ["functionResponse", "functionResponse", "text", "inlineData"]
    assert losses_of(new) == [("degraded", "media in a tool_result")]
    parts = json.loads(old.body)["contents"][2]["parts"]
    assert [next(iter(part)) for part in parts] == ["functionResponse"] * 2 + ["text", "inlineData"] * 2
    assert [part for part in parts if "inlineData" in part] == [inline, song]
    assert losses_of(old) == [("degraded", "media in a tool_result")] * 2


# Requests: what a model said.


def test_a_signature_on_an_empty_text_goes_back_and_a_foreign_one_does_not() -> None:
    blocks = (TextBlock("Ho."), TextBlock("", seal=sealed(thoughtSignature="U0lH")))
    ask = ask_of(HI, said(*blocks), Message.user_text("Go."))
    assert body_of(ask)["contents"][1]["parts"] == [{"text": "Ho."}, {"text": "", "thoughtSignature": "U0lH"}]
    moved = encode(replace(ask, target=ELSEWHERE))
    assert json.loads(moved.body)["contents"][1]["parts"] == [{"text": "Ho."}]
    assert losses_of(moved) == [("dropped", "thought signature"), ("dropped", "text")]


THOUGHT = ReasoningBlock("Hm.", sealed(thought=True))


@pytest.mark.parametrize(
    ("block", "mode", "quirks", "parts", "loss"),
    [
        (THOUGHT, "drop", SCOPED, [{"text": "Hm.", "thought": True}, {"text": "Ho."}], []),
        (THOUGHT, "drop", Quirks(thinking_replay="none"), [{"text": "Ho."}], [("dropped", "reasoning")]),
        (ReasoningBlock("Hm."), "drop", SCOPED, [{"text": "Ho."}], [("dropped", "reasoning")]),
        (ReasoningBlock("Hm."), "text", SCOPED, [{"text": "Hm."}, {"text": "Ho."}], [("degraded", "reasoning")]),
        (
            ReasoningBlock("Hm.", Seal('{"signature":"s3cret"}', FOREIGN)),
            *("text", SCOPED, [{"text": "Hm."}, {"text": "Ho."}], [("degraded", "reasoning")]),
        ),
    ],
)
def test_thoughts_go_back_to_their_maker_only(block: Any, mode: Any, quirks: Quirks, parts: Any, loss: Any) -> None:
    encoded = encode(ask_of(HI, said(block, TextBlock("Ho.")), Message.user_text("Go."), foreign_reasoning=mode), quirks)
    assert json.loads(encoded.body)["contents"][1]["parts"] == parts
    assert losses_of(encoded) == loss


RAN = HostedBlock('{"executableCode":{"language":"PYTHON","code":"1"},"thoughtSignature":"U0lH"}', "gemini", "ran", "assistant")
ASKED = HostedBlock('{"toolCall":{"id":"t","toolType":"X"},"thoughtSignature":"U0lH"}', "gemini", "asked", "assistant", "t")
GAVE = HostedBlock('{"toolResponse":{"id":"t","toolType":"X"}}', "gemini", "gave", "assistant", "", "t")


def test_what_hosted_tools_did_goes_back_verbatim_to_their_own_model() -> None:
    ask = ask_of(HI, said(RAN, ASKED, GAVE, TextBlock("Ho.")), Message.user_text("Go."))
    body = body_of(ask)
    assert body["contents"][1]["parts"][:3] == [json.loads(block.raw) for block in (RAN, ASKED, GAVE)]
    assert body["toolConfig"] == {"includeServerSideToolInvocations": True}
    moved = encode(replace(ask, target=ELSEWHERE))
    assert b"U0lH" not in moved.body
    assert losses_of(moved) == [("dropped", "thought signature")] * 2
    cloud = encode(ask, Quirks(hosted_beside="free"))
    assert b"toolCall" not in cloud.body
    assert losses_of(cloud) == [("degraded", "hosted block")] * 2


def test_what_another_wire_hosts_is_a_line() -> None:
    encoded = encode(ask_of(HI, said(HostedBlock('{"type":"x"}', "openai_responses", "searched"), TextBlock("Ho."))))
    assert json.loads(encoded.body)["contents"][1]["parts"][0] == {"text": "[searched]"}
    assert losses_of(encoded) == [("degraded", "hosted block")]


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (PICTURE, {"inlineData": {"mimeType": "image/png", "data": "QUJD"}}),
        (SONG, {"inlineData": {"mimeType": "audio/mpeg", "data": "QUJD"}}),
        (ImageBlock(Remote("https://x.example/a.png")), {"fileData": {"fileUri": "https://x.example/a.png"}}),
        (
            DocumentBlock(Uploaded("gs://b/a.pdf", "gemini"), "application/pdf"),
            {"fileData": {"fileUri": "gs://b/a.pdf", "mimeType": "application/pdf"}},
        ),
    ],
)
def test_media_go_inline_or_by_reference(block: Any, part: Json) -> None:
    encoded = encode(ask_of(Message("user", (TextBlock("See."), block))))
    assert json.loads(encoded.body)["contents"][0]["parts"][1] == part
    assert encoded.losses == ()


def test_media_that_cannot_go_are_reported_and_media_in_our_store_must_be_fetched() -> None:
    lost = encode(ask_of(Message("user", (TextBlock("See."), ImageBlock(Uploaded("file_1", "openai_responses"))))))
    assert losses_of(lost) == [("degraded", "image")]
    blind = encode(ask_of(Message("user", (TextBlock("See."), PICTURE))), Quirks(images=False))
    assert losses_of(blind) == [("degraded", "image")]
    named = ask_of(Message("user", (replace(SONG, name="a.mp3"), replace(PICTURE, detail="low"))))
    assert losses_of(encode(named)) == [("dropped", "document name"), ("dropped", "image detail")]
    cloud = body_of(named, Quirks(media_names=True))
    assert cloud["contents"][0]["parts"][0]["inlineData"]["displayName"] == "a.mp3"
    with pytest.raises(e.BadValue):
        encode(ask_of(Message("user", (ImageBlock(Stored("abc")),))))


# Requests: tools and controls.

SEARCH = HostedTool("gemini", '{"googleSearch":{}}', "googleSearch")


def test_functions_stand_in_one_entry_and_hosted_tools_beside_them() -> None:
    idle = ToolSpec("idle")
    body = body_of(ask_of(HI, tools=(SEARCH, LOOK, idle)))
    assert body["tools"] == [
        {"googleSearch": {}},
        {
            "functionDeclarations": [
                {"name": "look", "description": "Looks.", "parametersJsonSchema": json.loads(LOOK.schema)},
                {"name": "idle", "description": ""},
            ]
        },
    ]
    assert body["toolConfig"] == {"includeServerSideToolInvocations": True}
    assert "toolConfig" not in body_of(ask_of(HI, tools=(SEARCH, LOOK)), Quirks(hosted_beside="free"))
    older = encode(ask_of(HI, tools=(SEARCH, LOOK)), OLDER)
    assert [list(entry) for entry in json.loads(older.body)["tools"]] == [["functionDeclarations"]]
    assert losses_of(older) == [("dropped", "hosted tool googleSearch")]


def test_schemas_are_fitted_to_what_the_endpoint_takes() -> None:
    schema = '{"type":"object","properties":{"n":{"type":["integer","null"],"exclusiveMinimum":0}}}'
    tool = ToolSpec("count", schema=schema)
    (entry,) = body_of(ask_of(HI, tools=(tool,)))["tools"]
    assert entry["functionDeclarations"][0]["parametersJsonSchema"]["properties"]["n"]["type"] == ["integer", "null"]
    encoded = encode(ask_of(HI, tools=(tool,)), Quirks(json_schemas=False))
    (entry,) = json.loads(encoded.body)["tools"]
    assert entry["functionDeclarations"][0]["parameters"]["properties"]["n"]["nullable"] is True
    assert losses_of(encoded) == [("degraded", "schema of tool count")]


STRICT = replace(LOOK, strict=True)


@pytest.mark.parametrize(
    ("choice", "tools", "config", "loss"),
    [
        (Choice(), (LOOK,), None, []),
        (Choice(stated=True), (LOOK,), {"mode": "AUTO"}, []),
        (Choice("required"), (LOOK,), {"mode": "ANY"}, []),
        (Choice("none"), (LOOK,), {"mode": "NONE"}, []),
        (Choice("named", ("look",)), (LOOK,), {"mode": "ANY", "allowedFunctionNames": ["look"]}, []),
        (Choice("required", ("look",)), (LOOK,), {"mode": "ANY", "allowedFunctionNames": ["look"]}, []),
        (Choice(), (STRICT,), {"mode": "VALIDATED"}, []),
        (Choice("auto", ("look",)), (STRICT,), {"mode": "VALIDATED", "allowedFunctionNames": ["look"]}, []),
        (Choice(), (STRICT, ToolSpec("idle")), {"mode": "VALIDATED"}, [("degraded", "strict on tool idle")]),
        (Choice("named", ("gone",)), (LOOK,), None, [("degraded", "tool choice")]),
        (Choice("required"), (), None, [("dropped", "tool choice")]),
        (Choice("required"), (SEARCH,), None, [("dropped", "tool choice")]),
        (Choice(parallel=False), (LOOK,), None, [("dropped", "parallel switch")]),
        (Choice(parallel=True), (LOOK,), None, []),
    ],
)
def test_tool_choice_is_a_mode(choice: Choice, tools: Any, config: Any, loss: Any) -> None:
    """S4.12."""
    encoded = encode(ask_of(HI, choice=choice, tools=tools))
    assert json.loads(encoded.body).get("toolConfig", {}).get("functionCallingConfig") == config
    assert losses_of(encoded) == loss


def test_a_model_that_cannot_be_forced_or_held_to_a_schema_may_choose() -> None:
    forced = encode(ask_of(HI, choice=Choice("required"), tools=(LOOK,)), Quirks(forced_choice=False))
    assert losses_of(forced) == [("degraded", "tool choice")]
    loose = encode(ask_of(HI, choice=Choice("auto", ("look",)), tools=(STRICT,)), Quirks(strict=False))
    assert losses_of(loose) == [("dropped", "strict on tool look"), ("degraded", "tool choice")]
    assert b"toolConfig" not in loose.body


BUDGET = Quirks(thinking_control="budget", least_budget=128, most_budget=32_768)


@pytest.mark.parametrize(
    ("reasoning", "quirks", "config", "loss"),
    [
        (Reasoning(), SCOPED, None, []),
        (Reasoning(effort="low"), SCOPED, {"thinkingLevel": "LOW"}, []),
        (Reasoning(effort="max"), SCOPED, {"thinkingLevel": "HIGH"}, [("degraded", "reasoning effort")]),
        (Reasoning(mode="off"), SCOPED, {"thinkingLevel": "MINIMAL"}, [("degraded", "reasoning effort")]),
        (Reasoning(mode="on"), SCOPED, None, [("dropped", "reasoning on")]),
        (Reasoning(mode="on"), Quirks(thinks_unasked=True), None, []),
        (Reasoning(mode="on"), Quirks(thinking_control="none"), None, [("dropped", "reasoning")]),
        (Reasoning(budget=5000), SCOPED, {"thinkingLevel": "MEDIUM"}, [("degraded", "reasoning budget")]),
        (Reasoning(show="summary"), SCOPED, {"includeThoughts": True}, []),
        (Reasoning(effort="low", show="omitted"), SCOPED, {"thinkingLevel": "LOW", "includeThoughts": False}, []),
        (Reasoning(effort="high"), BUDGET, {"thinkingBudget": 24_576}, []),
        (Reasoning(effort="max"), BUDGET, {"thinkingBudget": 32_768}, []),
        (Reasoning(mode="on"), BUDGET, {"thinkingBudget": -1}, []),
        (Reasoning(mode="on", budget=900), BUDGET, {"thinkingBudget": 900}, []),
        (Reasoning(mode="off"), BUDGET, {"thinkingBudget": 128}, [("degraded", "reasoning budget")]),
        (Reasoning(mode="off"), OLDER, {"thinkingBudget": 0}, []),
        (Reasoning(effort="low"), Quirks(thinking_control="none"), None, [("dropped", "reasoning")]),
        (Reasoning(mode="off"), Quirks(thinking_control="none"), None, []),
        (Reasoning(show="summary"), Quirks(show=False), None, [("dropped", "reasoning display")]),
        (Reasoning(mode="between_tools"), SCOPED, None, [("dropped", "reasoning between_tools")]),
        (Reasoning(effort="low"), Quirks(effort=False), None, [("dropped", "reasoning effort")]),
    ],
)
def test_thinking_is_a_level_or_a_budget(reasoning: Reasoning, quirks: Quirks, config: Any, loss: Any) -> None:
    encoded = encode(ask_of(HI, reasoning=reasoning), quirks)
    assert json.loads(encoded.body).get("generationConfig", {}).get("thinkingConfig") == config
    assert losses_of(encoded) == loss


SHAPE = '{"type":"object","properties":{"x":{"type":"string"}}}'


@pytest.mark.parametrize(
    ("output", "quirks", "config", "loss"),
    [
        (OutputSchema(), SCOPED, {"responseMimeType": "application/json"}, []),
        (OutputSchema(SHAPE), SCOPED, {"responseMimeType": "application/json", "responseJsonSchema": json.loads(SHAPE)}, []),
        (
            OutputSchema(SHAPE),
            Quirks(json_schemas=False),
            {"responseMimeType": "application/json", "responseSchema": json.loads(SHAPE)},
            [],
        ),
        (
            OutputSchema(SHAPE),
            Quirks(output_schema=False),
            {"responseMimeType": "application/json"},
            [("degraded", "output schema")],
        ),
        (OutputSchema(SHAPE), Quirks(output_schema=False, json_mode=False), None, [("degraded", "output schema")]),
        (OutputSchema(SHAPE), OLDER, None, [("degraded", "output schema")]),
    ],
)
def test_the_shape_of_the_answer(output: OutputSchema, quirks: Quirks, config: Any, loss: Any) -> None:
    encoded = encode(ask_of(HI, output=output, tools=(LOOK,)), quirks)
    assert json.loads(encoded.body).get("generationConfig") == config
    assert losses_of(encoded) == loss


def test_settings_have_their_own_names_and_what_the_wire_lacks_is_reported() -> None:
    settings = Settings(100, 0.5, 0.9, 40, ("a", "b", "c", "d", "e", "f"), 7)
    ask = ask_of(HI, settings=settings, cache=Cache("marks", key="k"), state=State("chain", "r1"))
    encoded = encode(ask, Quirks(max_output=50))
    assert json.loads(encoded.body)["generationConfig"] == {
        "maxOutputTokens": 50,
        "temperature": 0.5,
        "topP": 0.9,
        "topK": 40,
        "seed": 7,
        "stopSequences": ["a", "b", "c", "d", "e"],
    }
    assert [what for _, what in losses_of(encoded)] == [
        "setting max_output_tokens",
        "setting stop",
        "cache key",
        "state mode chain",
    ]
    dull = encode(ask_of(HI, settings=Settings(temperature=0.5)), Quirks(sampling="none"))
    assert losses_of(dull) == [("dropped", "setting temperature")]
    marked = encode(ask_of(Message("user", (TextBlock("Hi.", cache="5m"),))))
    assert losses_of(marked) == [("dropped", "cache marks")]


def test_the_callers_own_fields_are_added_to_ours_and_win() -> None:
    extra = Extra(
        "gemini",
        '{"labels":{"a":"b"},"generationConfig":{"topK":3,"thinkingConfig":{"x":1},"responseSchema":{"type":"OBJECT"}},'
        '"systemInstruction":{"role":"user"},"toolConfig":{"functionCallingConfig":{"allowedFunctionNames":[]}}}',
        (("x-a", "b"),),
    )
    other = Extra("openai_chat", '{"n":2}')
    ask = ask_of(
        HI,
        system="Be kind.",
        tools=(LOOK,),
        choice=Choice("required"),
        output=OutputSchema(SHAPE),
        settings=Settings(temperature=1),
        reasoning=Reasoning(effort="low"),
        extra=(extra, other),
    )
    encoded = encode(ask)
    body = json.loads(encoded.body)
    assert body["labels"] == {"a": "b"}
    assert body["systemInstruction"] == {"parts": [{"text": "Be kind."}], "role": "user"}
    assert body["toolConfig"]["functionCallingConfig"] == {"mode": "ANY", "allowedFunctionNames": []}
    assert body["generationConfig"] == {
        "temperature": 1,
        "topK": 3,
        "responseMimeType": "application/json",
        "responseSchema": {"type": "OBJECT"},
        "thinkingConfig": {"thinkingLevel": "LOW", "x": 1},
    }
    assert ("x-a", "b") in encoded.headers
    assert losses_of(encoded) == [("dropped", "field n")]


def test_each_turn_costs_only_itself_and_the_old_bytes_never_change() -> None:
    ask = ask_of(HI, system="Be kind.", tools=(LOOK,))
    prior = encode(ask)
    for number in range(6):
        call = ToolCall(f"k{number}", "look", "{}", sealed(thoughtSignature="U0lH"))
        turn = [said(call), Message.tool_result(call.id, str(number)), Message.user_text("And?")]
        ask = replace(ask, transcript=ask.transcript.extend(turn))
        longer = CODEC.encode(ask, SCOPED, prior)
        assert longer.body == encode(ask).body
        assert longer.body.startswith(prior.body[: -len(b"]}")])
        assert all(old is new for old, new in zip(prior.fold.fragments, longer.fold.fragments, strict=False))
        prior = longer


# Requests, read.


def test_both_spellings_are_read_and_camel_case_goes_out() -> None:
    snake = {
        "contents": [
            {"role": "user", "parts": [{"text": "Hi."}, {"inline_data": {"mime_type": "image/png", "data": "-_8="}}]},
            {"role": "model", "parts": [{"function_call": {"name": "look", "args": {"at_x": 1}}, "thought_signature": "U0lH"}]},
            {"parts": [{"function_response": {"name": "look", "response": {"return_value": [1, 2]}}}]},
        ],
        "tools": {
            "function_declarations": [{"name": "look", "description": "", "parameters": {"type": "OBJECT", "properties": {}}}]
        },
        "tool_config": {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["look"]}},
        "generation_config": {"max_output_tokens": 9, "top_k": 4.0, "response_modalities": ["TEXT"]},
    }
    ask = CODEC.read_request(json.dumps(snake).encode(), SCOPED, HERE)
    assert [message.role for message in ask.transcript] == ["user", "assistant", "user"]
    assert ask.transcript.messages[0].blocks[1] == ImageBlock(Inline("+/8="), "image/png")
    assert ask.choice == Choice("named", ("look",), stated=True)
    assert ask.settings == Settings(9, top_k=4)
    (tool,) = ask.tools
    assert isinstance(tool, ToolSpec)
    assert tool.schema == '{"type":"object","properties":{}}'
    result = ask.transcript.messages[2].blocks[0]
    assert isinstance(result, ToolResult)
    assert result.text == "[1, 2]"
    again = body_of(ask)
    assert again["contents"][1]["parts"] == [
        {"functionCall": {"name": "look", "args": {"at_x": 1}}, "thoughtSignature": "U0lH"}
    ]
    assert again["contents"][2]["parts"] == [{"functionResponse": {"name": "look", "response": {"return_value": [1, 2]}}}]
    assert again["tools"] == [{"functionDeclarations": snake["tools"]["function_declarations"]}]  # type: ignore[index]
    assert again["generationConfig"] == {"maxOutputTokens": 9, "topK": 4, "responseModalities": ["TEXT"]}


RESPONSES: list[tuple[Json, str, bool]] = [
    ({"output": "x"}, "x", False),
    ({"error": "x"}, "x", True),
    ({"output": ""}, "", False),
    ({"error": {"code": 1}}, '{"code":1}', True),
    ({"return_value": "x"}, "x", False),
    ({"return_value": None}, "null", False),
    ({"a": 1, "b": 2}, '{"a":1,"b":2}', False),
    ({}, "", False),
]


@pytest.mark.parametrize(("response", "text", "failed"), RESPONSES)
def test_a_result_is_read_as_text_and_written_as_it_stood(response: Json, text: str, failed: bool) -> None:
    call = {"functionCall": {"id": "k", "name": "look", "args": {}}, "thoughtSignature": "U0lH"}
    result = {"functionResponse": {"id": "k", "name": "look", "response": response, "scheduling": "IDLE"}}
    body = {
        "contents": [
            {"role": "user", "parts": [{"text": "Hi."}]},
            {"role": "model", "parts": [call]},
            {"role": "user", "parts": [result]},
        ]
    }
    ask = CODEC.read_request(json.dumps(body, separators=(",", ":")).encode(), SCOPED, HERE)
    read = ask.transcript.messages[2].blocks[0]
    assert isinstance(read, ToolResult)
    assert (read.text, read.is_error) == (text, failed)
    assert body_of(ask) == body
    edited = Message("user", (replace(read, content=(TextBlock("cleared"),)),))
    shorter = replace(ask, transcript=Transcript([*ask.transcript.messages[:2], edited]))
    assert "cleared" in json.dumps(body_of(shorter)["contents"][2])


def test_what_has_no_neutral_word_is_kept() -> None:
    body = {
        "contents": [
            {"role": "user", "parts": [{"text": "Hi.", "partMetadata": {"a": 1}}, {"videoMetadata": {"fps": 1}}]},
            {
                "role": "model",
                "parts": [{"text": "Hm.", "thought": True}, {"executableCode": {"code": "1", "language": "PYTHON"}}],
            },
            {"role": "user", "parts": [{"text": ""}]},
        ],
        "systemInstruction": {"parts": [{"text": "Be kind."}], "role": "user"},
        "tools": [{"googleSearch": {"x": 1}}],
        "toolConfig": {"retrievalConfig": {}},
        "generationConfig": {},
        "cachedContent": "c",
    }
    ask = CODEC.read_request(json.dumps(body).encode(), SCOPED, HERE)
    assert body_of(ask) == body
    assert encode(ask).losses == ()
    assert ask.tools == (HostedTool("gemini", '{"googleSearch":{"x": 1}}', "googleSearch", "here"),)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"contents":1}',
        b'{"contents":[{"role":"system","parts":[]}]}',
        b'{"contents":[{"parts":[{"functionCall":{"name":1}}]}]}',
        b'{"contents":[{"parts":[{"text":"a"}]}],"tools":[1]}',
    ],
)
def test_what_is_no_request_is_refused_clearly(body: bytes) -> None:
    with pytest.raises(e.WireError, match="Expected"):
        CODEC.read_request(body, SCOPED, HERE)
