"""Requests as real clients send them: every tool reaches every wire, and an odd field never spoils the fields beside it."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from evener.errors import WireError
from evener.transcript import Ask, HostedTool, Origin, State, ToolCall, ToolResult, ToolSpec
from evener.translate import translate
from evener.wire import CODECS, Encoded, Quirks
from tests.corpus import needs_corpus
from tests.wire import request_swaps as swaps

Json = dict[str, Any]

ELSEWHERE = {"anthropic": "claude-sonnet-5", "google": "gemini-3-pro-preview", "groq": "m", "xai": "grok-4"}
"""Providers that have neither tools that take free text nor namespaces, with a model of each."""

OBJECT: Json = {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"], "additionalProperties": False}
RUN: Json = {"type": "function", "name": "run", "description": "Runs.", "strict": False, "parameters": OBJECT}
PATCH: Json = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Patches.",
    "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'},
}
ANY_TEXT: Json = {"type": "custom", "name": "say", "description": "Says.", "format": {"type": "text"}}
CRM: Json = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers.",
    "tools": [
        {**RUN, "name": "look_up", "defer_loading": True},
        {"type": "custom", "name": "note", "description": "Notes."},
    ],
}
SEARCH: Json = {"type": "tool_search"}
CLIENT_SEARCH: Json = {"type": "tool_search", "execution": "client", "description": "Searches.", "parameters": OBJECT}
SAID: Json = {"role": "assistant", "content": "Hm."}
USER: Json = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go."}]}


def responses(*items: Json, tools: list[Json] | None = None, **more: Any) -> Json:
    body: Json = {"model": "gpt-5.6-sol", "store": False, "stream": True, "input": list(items) or [USER], **more}
    return body if tools is None else {**body, "tools": tools}


def read(wire: str, body: Json, quirks: Quirks | None = None) -> Ask:
    return CODECS[wire].read_request(json.dumps(body).encode(), quirks or Quirks(), Origin(wire, "maker"))


def again(wire: str, body: Json) -> tuple[Json, Encoded]:
    """The request, read and written for whom it was."""
    ask = read(wire, body)
    encoded = CODECS[wire].encode(ask, Quirks(), None)
    return json.loads(encoded.body), encoded


def moved(body: Json, target: str, source: str = "openai") -> tuple[Json, Encoded]:
    encoded = translate(json.dumps(body).encode(), source=source, target=target, model=ELSEWHERE.get(target, "gpt-5.6-sol"))
    return json.loads(encoded.body), encoded


def functions(body: Json) -> dict[str, tuple[str, Json]]:
    """What a body of any wire offers: description and schema by name."""
    found: dict[str, tuple[str, Json]] = {}
    for tool in body.get("tools", []):
        for one in tool.get("functionDeclarations", [tool.get("function", tool)]):
            schema = one.get("parameters") or one.get("input_schema") or one.get("parametersJsonSchema") or {}
            found[one["name"]] = (one.get("description", ""), schema)
    return found


# Tools that the client runs.

WHERE: dict[str, Callable[..., Json]] = {
    "as a tool": lambda *tools: responses(tools=list(tools)),
    "added at the beginning": lambda *tools: responses(
        {"type": "additional_tools", "role": "developer", "tools": list(tools)}, USER, tools=[]
    ),
    "added later": lambda *tools: responses(
        USER,
        {"role": "assistant", "content": "Hm."},
        {"type": "additional_tools", "role": "developer", "tools": list(tools)},
        USER,
    ),
}

TOOLS: dict[str, tuple[Json, dict[str, set[str]]]] = {
    "function": (RUN, {"run": set()}),
    "deferred function": ({**RUN, "defer_loading": True}, {"run": {"tool.fields.dropped"}}),
    "grammar": (PATCH, {"apply_patch": {"tool.free.degraded", "tool.grammar.degraded"}}),
    "any text": (ANY_TEXT, {"say": {"tool.free.degraded"}}),
    "namespace": (
        CRM,
        {"crm__look_up": {"tool.namespace.degraded"}, "crm__note": {"tool.namespace.degraded", "tool.free.degraded"}},
    ),
    "search by the client": (CLIENT_SEARCH, {"tool_search": {"tool.hosted.dropped"}}),
}


@pytest.mark.parametrize("target", ELSEWHERE)
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("name", TOOLS)
def test_every_tool_of_the_client_reaches_wires_that_have_only_functions(name: str, where: str, target: str) -> None:
    tool, expected = TOOLS[name]
    body, encoded = moved(WHERE[where](tool), target)
    offered = functions(body)
    assert offered.keys() == expected.keys()
    told = {loss.code for loss in encoded.losses}
    assert set().union(*expected.values()) <= told
    assert all(loss.path for loss in encoded.losses)


@pytest.mark.parametrize("target", ELSEWHERE)
def test_a_tool_that_takes_free_text_is_a_function_of_one_string_and_its_grammar_is_described(target: str) -> None:
    description, schema = functions(moved(responses(tools=[PATCH]), target)[0])["apply_patch"]
    assert description.startswith("Patches.")
    assert 'start: "x"' in description
    assert schema["properties"].keys() == {"input"}
    assert schema["required"] == ["input"]


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("name", TOOLS)
def test_on_its_own_wire_a_tool_comes_back_as_it_was(name: str, where: str) -> None:
    request = WHERE[where](TOOLS[name][0])
    body, encoded = again("openai_responses", request)
    assert encoded.losses == ()
    assert body.get("tools") == request.get("tools")
    added = [item for item in body["input"] if item.get("type") == "additional_tools"]
    assert added == [item for item in request["input"] if item.get("type") == "additional_tools"]


def test_what_is_read_of_them_is_neutral() -> None:
    tools = {tool.name: tool for tool in read("openai_responses", responses(tools=[PATCH, CRM, SEARCH])).tools}
    assert isinstance(tools["tool_search"], HostedTool)
    patch, look_up = tools["apply_patch"], tools["crm__look_up"]
    assert isinstance(patch, ToolSpec)
    assert patch.free is not None
    assert (patch.free.syntax, patch.free.grammar) == ("lark", 'start: "x"')
    assert isinstance(look_up, ToolSpec)
    assert look_up.namespace is not None
    assert (look_up.namespace.name, look_up.bare_name, look_up.input_schema) == ("crm", "look_up", OBJECT)


def test_a_search_of_the_provider_stays_behind_and_the_tools_it_would_find_are_offered_whole() -> None:
    body, encoded = moved(responses(tools=[{**RUN, "defer_loading": True}, SEARCH]), "anthropic")
    assert functions(body) == {"run": ("Runs.", OBJECT)}
    assert "tool.hosted.dropped" in {loss.code for loss in encoded.losses}


def test_tools_that_a_search_has_found_are_offered_elsewhere_once() -> None:
    call = {"type": "tool_search_call", "call_id": "s1", "execution": "client", "arguments": {"q": "x"}, "status": "completed"}
    given = {"type": "tool_search_output", "call_id": "s1", "execution": "client", "status": "completed", "tools": [RUN, CRM]}
    request = responses(USER, call, given, call | {"call_id": "s2"}, given | {"call_id": "s2"}, USER, tools=[CLIENT_SEARCH])
    assert functions(moved(request, "anthropic")[0]).keys() == {"tool_search", "run", "crm__look_up", "crm__note"}
    body, encoded = again("openai_responses", request)
    assert (body["tools"], [one for one in body["input"] if "tools" in one]) == (
        request["tools"],
        [given, given | {"call_id": "s2"}],
    )
    assert encoded.losses == ()


def test_the_words_of_the_developer_after_added_tools_are_the_system_prompt_elsewhere() -> None:
    added = {"type": "additional_tools", "role": "developer", "tools": [RUN]}
    request = responses(added, {"role": "developer", "content": "Be brief."}, USER)
    assert moved(request, "anthropic")[0]["system"] == "Be brief."
    assert again("openai_responses", request)[0]["input"][:2] == request["input"][:2]


# Their calls and results.

HISTORY: list[Json] = [
    USER,
    {
        "type": "custom_tool_call",
        "call_id": "c1",
        "name": "apply_patch",
        "input": 'a "b"\n\u2028',
        "id": "ctc_1",
        "status": "completed",
    },
    {"type": "custom_tool_call_output", "call_id": "c1", "output": "Done."},
    {"type": "function_call", "call_id": "c2", "namespace": "crm", "name": "look_up", "arguments": '{"cmd":"x"}', "id": "fc_2"},
    {"type": "function_call_output", "call_id": "c2", "output": "Found."},
    {"type": "custom_tool_call", "call_id": "c3", "namespace": "crm", "name": "note", "input": ""},
    {"type": "custom_tool_call_output", "call_id": "c3", "output": [{"type": "input_text", "text": "Noted."}]},
]
CALLS: dict[str, Json] = {
    "apply_patch": {"input": 'a "b"\n\u2028'},
    "crm__look_up": {"cmd": "x"},
    "crm__note": {"input": ""},
}


def test_calls_with_a_text_and_in_a_namespace_are_read_as_calls() -> None:
    blocks = [block for message in read("openai_responses", responses(*HISTORY)).transcript for block in message.blocks]
    assert {block.name: block.args for block in blocks if isinstance(block, ToolCall)} == CALLS
    assert [block.text for block in blocks if isinstance(block, ToolResult)] == ["Done.", "Found.", "Noted."]


def test_on_their_own_wire_they_come_back_as_they_were() -> None:
    body, encoded = again("openai_responses", responses(*HISTORY, tools=[PATCH, CRM]))
    assert encoded.losses == ()
    assert [
        {**one, "output": "Noted."} if one.get("call_id") == "c3" and "output" in one else one for one in body["input"][1:]
    ] == [{**one, "output": "Noted."} if one.get("call_id") == "c3" and "output" in one else one for one in HISTORY[1:]]


def test_another_model_of_the_same_maker_gets_them_in_the_same_form() -> None:
    encoded = translate(
        json.dumps(responses(*HISTORY, tools=[PATCH, CRM])).encode(), source="openai", target="openai", model="gpt-5.4"
    )
    items = json.loads(encoded.body)["input"][1:]
    assert [(one["type"], one.get("name"), one.get("namespace")) for one in items] == [
        (one["type"], one.get("name"), one.get("namespace")) for one in HISTORY[1:]
    ]


@pytest.mark.parametrize("target", ELSEWHERE)
def test_elsewhere_they_are_calls_of_functions_and_come_back_as_they_were_declared(target: str) -> None:
    body, encoded = moved(responses(*HISTORY, tools=[PATCH, CRM]), target)
    wire = {"anthropic": "anthropic_messages", "google": "gemini", "groq": "openai_chat", "xai": "openai_responses"}[target]
    ask = CODECS[wire].read_request(encoded.body, Quirks(), Origin(wire, target, model="m"))
    calls = [call for message in ask.transcript for call in message.calls]
    assert {call.name: call.args for call in calls} == CALLS
    assert functions(body).keys() == CALLS.keys()
    home = read("openai_responses", responses(tools=[PATCH, CRM]))
    back = json.loads(CODECS["openai_responses"].encode(swaps.with_messages(home, ask), Quirks(), None).body)["input"]
    assert [(one["type"], one.get("name"), one.get("namespace")) for one in back if "call_id" in one] == [
        (one["type"], one.get("name"), one.get("namespace")) for one in HISTORY[1:]
    ]


CHAT_PATCH: Json = {
    "type": "custom",
    "custom": {
        "name": "apply_patch",
        "description": "Patches.",
        "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": 'start: "x"'}},
    },
}


def test_between_the_two_wires_that_have_them_free_text_stays_free_text() -> None:
    choice = {"type": "custom", "name": "apply_patch"}
    body, _ = moved(responses(*HISTORY[:3], USER, tools=[PATCH], tool_choice=choice), "openai-chat")
    assert body["tools"] == [CHAT_PATCH]
    assert body["tool_choice"] == {"type": "custom", "custom": {"name": "apply_patch"}}
    assert body["messages"][1]["tool_calls"] == [
        {"id": "c1", "type": "custom", "custom": {"name": "apply_patch", "input": HISTORY[1]["input"]}}
    ]
    back, _ = moved(body, "openai", source="openai-chat")
    assert (back["tools"], back["tool_choice"]) == ([PATCH], choice)
    calls = [item for item in back["input"] if "call_id" in item]
    assert [(one["type"], one.get("input")) for one in calls] == [(one["type"], one.get("input")) for one in HISTORY[1:3]]


def test_an_answer_with_a_text_for_a_tool_is_a_call_that_can_be_run() -> None:
    item = {
        "type": "custom_tool_call",
        "id": "ctc_1",
        "call_id": "c1",
        "name": "apply_patch",
        "input": "x",
        "status": "completed",
    }
    answer = {"id": "r", "object": "response", "status": "completed", "model": "m", "output": [item]}
    reply = CODECS["openai_responses"].decode(json.dumps(answer).encode(), Quirks())
    assert [(call.id, call.name, call.args) for call in reply.calls] == [("c1", "apply_patch", {"input": "x"})]


# A message of several parts.


@pytest.mark.parametrize("role", ["developer", "system"])
@pytest.mark.parametrize("place", ["first", "later"])
def test_a_message_of_two_parts_is_written_once(role: str, place: str) -> None:
    parts = [{"type": "input_text", "text": "One."}, {"type": "input_text", "text": "Two.", "odd": 1}]
    said = {"role": role, "id": "msg_1", "content": parts}
    other = {"role": role, "id": "msg_2", "content": "Three."}
    items = [said, other, USER] if place == "first" else [USER, said, other]
    body, encoded = again("openai_responses", responses(*items))
    assert [item for item in body["input"] if item["role"] == role] == [said, other]
    assert encoded.losses == ()
    if place == "first":
        blocks = moved(responses(*items), "anthropic")[0]["system"]
        assert [block["text"] for block in blocks] == ["One.", "Two.", "Three."]


@pytest.mark.parametrize("part", [{"type": "input_audio", "input_audio": {"data": "QQ==", "format": "wav"}}, {"type": "odd"}])
def test_a_part_that_nobody_knows_stays_in_its_message(part: Json) -> None:
    said = {"role": "user", "content": [{"type": "input_text", "text": "Listen."}, part]}
    result = {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "Heard."}, part]}
    call = {"type": "function_call", "call_id": "c1", "name": "run", "arguments": "{}"}
    body, encoded = again("openai_responses", responses(said, call, result))
    assert (body["input"], encoded.losses) == ([said, call, result], ())


def test_the_result_of_a_call_with_a_text_is_one_also_where_the_provider_holds_the_call() -> None:
    ask = read("openai_responses", responses(*HISTORY[:3], tools=[PATCH]))
    answer = list(ask.transcript)[1]
    held = replace(ask, state=State("chain", "resp_1", store=True, after=answer.id))
    encoded = CODECS["openai_responses"].encode(held, Quirks(), None)
    assert json.loads(encoded.body)["input"] == [HISTORY[2]]


# Odd fields beside known ones.

TURN: Json = {"messages": [{"role": "user", "content": "Hi"}]}
ASKED: Json = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
TOOL: Json = {"name": "look", "input_schema": {"type": "object", "properties": {}}}
NAMED: Json = {"type": "function", "name": "run"}
MARK: Json = {"type": "ephemeral", "ttl": "1h", "scope": "global"}

WORDS: Json = {"type": "input_text", "text": "Hi"}
IMAGE: Json = {"type": "input_image", "detail": "auto", "image_url": "https://x/y.png"}
UNKNOWN: Json = {"type": "input_odd", "x": 1}

ODD: list[tuple[str, Json, str, object]] = [
    ("anthropic_messages", {**TURN, "thinking": {"type": "adaptive", "display": "updates"}}, "reasoning.mode", "on"),
    ("anthropic_messages", {**TURN, "thinking": {"type": "enabled", "budget_tokens": 2000, "x": 1}}, "reasoning.budget", 2000),
    ("anthropic_messages", {**TURN, "thinking": {"type": "enabled", "budget_tokens": -1}}, "reasoning.mode", "on"),
    ("anthropic_messages", {**TURN, "thinking": {"type": "disabled", "x": 1}}, "reasoning.mode", "off"),
    ("anthropic_messages", {**TURN, "max_tokens": -1, "temperature": 0.5}, "settings.temperature", 0.5),
    ("anthropic_messages", {**TURN, "max_tokens": 9, "top_k": "x"}, "settings.max_output_tokens", 9),
    ("anthropic_messages", {**TURN, "output_config": {"effort": "high", "x": 1}}, "reasoning.effort", "high"),
    ("anthropic_messages", {**TURN, "tools": [TOOL], "tool_choice": {"type": "any", "x": 1}}, "choice.mode", "required"),
    (
        "anthropic_messages",
        {**TURN, "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}, "x": 1}}},
        "output.schema",
        '{"type": "object"}',
    ),
    ("anthropic_messages", {**TURN, "tools": [{**TOOL, "cache_control": MARK}]}, "tools.0.cache", "1h"),
    ("openai_responses", responses(reasoning={"effort": "low", "context": "x", "summary": 5}), "reasoning.effort", "low"),
    ("openai_responses", responses(reasoning={"effort": "odd", "summary": "auto"}), "reasoning.show", "summary"),
    (
        "openai_responses",
        responses(text={"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "x": 1}}),
        "output.name",
        "n",
    ),
    (
        "openai_responses",
        responses(tools=[RUN], tool_choice={"type": "function", "name": "run", "x": 1}),
        "choice.mode",
        "named",
    ),
    (
        "openai_responses",
        responses(
            tools=[RUN], tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [RUN | {"x": 1}, {"type": "mcp"}]}
        ),
        "choice.names",
        ("run",),
    ),
    ("openai_responses", responses(conversation={"id": "conv_1"}), "state.id", "conv_1"),
    ("openai_responses", responses(include=["reasoning.encrypted_content", 5], temperature=1), "settings.temperature", 1),
    (
        "openai_chat",
        {**TURN, "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "x": 1}}},
        "output.name",
        "n",
    ),
    ("openai_chat", {**TURN, "response_format": {"type": "json_object", "x": 1}}, "output.schema", ""),
    ("openai_chat", {**TURN, "stream": True, "stream_options": {"include_usage": True, "x": 1}}, "stream", True),
    ("openai_chat", {**TURN, "stream": True, "stream_options": 5, "seed": 1}, "settings.seed", 1),
    ("openai_chat", {**TURN, "max_tokens": "many", "stop": "x"}, "settings.stop", ("x",)),
    (
        "gemini",
        {**ASKED, "generationConfig": {"thinkingConfig": {"thinkingLevel": "HIGH", "x": 1}}},
        "reasoning.effort",
        "high",
    ),
    ("gemini", {**ASKED, "generation_config": {"thinking_config": {"thinking_level": "high"}}}, "reasoning.effort", "high"),
    ("gemini", {**ASKED, "generationConfig": {"temperature": "hot", "topK": 3}}, "settings.top_k", 3),
    ("gemini", {**ASKED, "system_instruction": {"parts": [{"text": "S", "x": 1}]}}, "transcript.system", "S"),
]


@pytest.mark.parametrize(("wire", "body", "path", "value"), ODD, ids=lambda value: str(value)[:70])
def test_an_odd_field_never_switches_off_the_known_ones_beside_it(wire: str, body: Json, path: str, value: object) -> None:
    found: Any = read(wire, {"model": "m", "max_tokens": 9000, **body} if wire == "anthropic_messages" else body)
    for step in path.split("."):
        found = found[int(step)] if step.isdigit() else getattr(found, step)
    assert found == value


KEPT: list[tuple[str, Json, str]] = [
    *((wire, body, "") for wire, body, _, _ in ODD if wire == "openai_responses"),
    ("anthropic_messages", {**TURN, "thinking": {"type": "adaptive", "display": "updates"}}, "thinking"),
    ("anthropic_messages", {**TURN, "thinking": {"type": "enabled", "budget_tokens": -1}}, "thinking"),
    ("anthropic_messages", {**TURN, "thinking": {"type": "enabled", "budget_tokens": None}}, "thinking"),
    ("anthropic_messages", {**TURN, "thinking": {"type": "enabled"}}, "thinking"),
    ("anthropic_messages", {**TURN, "thinking": {"type": "enabled", "display": "summarized"}}, "thinking"),
    ("anthropic_messages", {**TURN, "tools": [TOOL], "tool_choice": {"type": "any", "x": 1}}, "tool_choice"),
    ("anthropic_messages", {**TURN, "system": [{"type": "text", "text": "S", "cache_control": MARK}]}, "system"),
    ("anthropic_messages", {**TURN, "tools": [{**TOOL, "cache_control": MARK}]}, "tools"),
    ("anthropic_messages", {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}], "x": 1}]}, "messages"),
    (
        "anthropic_messages",
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://x", "x": 1}}]}]},
        "messages",
    ),
    *(
        ("openai_responses", {"input": [{"role": "user", "content": parts, "id": "msg_1", "x": {"a": 1}}]}, "input")
        for parts in ([IMAGE], [IMAGE, WORDS], [WORDS, IMAGE], [UNKNOWN], [UNKNOWN, IMAGE], [UNKNOWN, WORDS])
    ),
    *(
        ("openai_responses", {"input": [{"role": role, "content": parts, **more}, {"role": "user", "content": "Hi"}]}, "input")
        for role in ("developer", "system")
        for parts in ([UNKNOWN], [UNKNOWN, UNKNOWN], [UNKNOWN, WORDS])
        for more in ({}, {"id": "msg_1", "x": 1})
    ),
    ("gemini", {"contents": [{"role": "user", "parts": [{"text": "Hi"}], "x": 1}]}, "contents"),
    ("gemini", {**ASKED, "systemInstruction": {"parts": [{"text": "S", "x": 1}]}}, "systemInstruction"),
    ("openai_chat", {**TURN, "response_format": {"type": "json_object", "x": 1}}, "response_format"),
    (
        "openai_chat",
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png", "x": 1}}]}]},
        "messages",
    ),
]


@pytest.mark.parametrize(("wire", "body", "field"), KEPT, ids=lambda value: str(value)[:70])
def test_on_its_own_wire_an_odd_field_comes_back_as_it_was(wire: str, body: Json, field: str) -> None:
    body = {"model": "m", "max_tokens": 9000, **body} if wire == "anthropic_messages" else body
    written, encoded = again(wire, body)
    for name in (field,) if field else body.keys() - {"input", "tools"}:
        assert written.get(name) == body[name]
    assert encoded.losses == ()


def test_a_budget_that_a_model_needs_and_the_request_does_not_have_is_reported() -> None:
    body: Json = {**TURN, "thinking": {"type": "enabled"}}
    quirks = Quirks(thinking_modes=("enabled", "disabled"))
    encoded = CODECS["anthropic_messages"].encode(read("anthropic_messages", body), quirks, None)
    assert json.loads(encoded.body)["thinking"]["budget_tokens"] > 0
    assert [loss.code for loss in encoded.losses] == ["reasoning.budget.degraded"]


def test_elsewhere_the_loss_of_an_odd_field_names_it_and_not_the_field_around_it() -> None:
    request = {**TURN, "model": "m", "max_tokens": 9000, "thinking": {"type": "adaptive", "display": "updates"}}
    request["output_config"] = {"effort": "high"}
    body, encoded = moved(request, "xai", source="anthropic")
    assert body["reasoning"] == {"effort": "high"}
    assert [(loss.code, loss.path) for loss in encoded.losses if loss.code == "extra.dropped"] == [
        ("extra.dropped", "extra/thinking/display")
    ]


def test_thinking_of_another_display_goes_back_in_the_next_turn() -> None:
    request: Json = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 9000,
        "thinking": {"type": "enabled", "budget_tokens": 2000, "display": "updates"},
        "tools": [TOOL],
        "messages": [
            {"role": "user", "content": "Hi"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "S"},
                    {"type": "tool_use", "id": "t1", "name": "look", "input": {}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x"}]},
        ],
    }
    model = request["model"]
    encoded = translate(json.dumps(request).encode(), source="anthropic", target="anthropic", model=model)
    body = json.loads(encoded.body)
    assert body["thinking"] == request["thinking"]
    assert body["messages"][1] == request["messages"][1]
    assert "reasoning.dropped" not in {loss.code for loss in encoded.losses}


@pytest.mark.parametrize(
    ("wire", "body"),
    [
        ("anthropic_messages", {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}),
        ("openai_responses", {"input": [{"type": "custom_tool_call", "call_id": "c", "name": "n", "input": 5}]}),
        ("openai_responses", {"input": 5}),
        ("openai_chat", {"messages": [{"role": "assistant", "tool_calls": [{"id": 5, "function": {"name": "n"}}]}]}),
        ("gemini", {"contents": [{"role": "user", "parts": [{"functionCall": {"name": 5}}]}]}),
    ],
)
def test_what_carries_the_conversation_must_be_readable(wire: str, body: Json) -> None:
    with pytest.raises(WireError, match="Expected"):
        read(wire, body)


# The same for every field of every recorded request.


@needs_corpus
@pytest.mark.parametrize("wire", sorted(CODECS))
def test_whatever_field_of_a_recorded_request_is_odd_the_rest_is_read(wire: str) -> None:
    found = list(swaps.sample(wire))
    assert len(found) > 500 or not swaps.requests(wire)
    assert [problem for swap in found if (problem := swaps.problem(swap) or swaps.silence(swap))] == []
