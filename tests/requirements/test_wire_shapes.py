"""One small conversation on each wire, field by field: what the neutral values become there, and what stays one value here."""

import ast
import json
from typing import Any

import pytest

from evener.providers import load_rows
from evener.testing import check_request
from evener.transcript import (
    Ask,
    Cache,
    HostedTool,
    Message,
    Origin,
    Reasoning,
    ReasoningBlock,
    Seal,
    Settings,
    State,
    TextBlock,
    ToolCall,
    ToolResult,
    ToolSpec,
    Transcript,
)
from evener.wire import CODECS, Quirks
from tests.shape.tree import SRC

SCHEMA: dict[str, object] = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
LOOK = ToolSpec("look", "Looks.", json.dumps(SCHEMA))
OSLO, ROME = '{"at":"Oslo"}', '{"at":"Rome"}'
TALK = Transcript(
    [
        Message.user_text("Oslo and Rome?"),
        Message("assistant", (TextBlock("Let me see."), ToolCall("c1", "look", OSLO), ToolCall("c2", "look", ROME))),
        Message("user", (ToolResult("c1", "wet"), ToolResult("c2", "broken", is_error=True))),  # type: ignore[arg-type] # takes a str
    ],
    system="Be brief.",
)


def origin(wire: str, provider: str = "maker") -> Origin:
    return Origin(wire=wire, provider=provider, model="m")


def body(wire: str, talk: Transcript = TALK, **more: Any) -> Any:
    more.setdefault("tools", (LOOK,))
    encoded = CODECS[wire].encode(Ask(talk, origin(wire), stream=False, **more), Quirks(), None)
    assert check_request(wire, encoded.body) == []
    return json.loads(encoded.body)


def test_on_anthropics_wire() -> None:
    """S0.15, S0.19, S0.35, S0.36, S1.11, S1.25, S2.40, S3.14, S3.15, S4.3, S4.26-S4.28."""
    assert body("anthropic_messages") == {
        "model": "m",
        "max_tokens": 4096,
        "stream": False,
        "tools": [{"name": "look", "description": "Looks.", "input_schema": SCHEMA}],
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Oslo and Rome?"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Let me see."},
                    {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "Oslo"}},
                    {"type": "tool_use", "id": "c2", "name": "look", "input": {"at": "Rome"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "wet"},
                    {"type": "tool_result", "tool_use_id": "c2", "is_error": True, "content": "broken"},
                ],
            },
        ],
    }


def test_on_the_responses_wire() -> None:
    """S0.19, S0.27, S0.41, S0.43, S1.25, S2.40, S4.26-S4.28: one message of ours is several items there."""
    assert body("openai_responses") == {
        "model": "m",
        "stream": False,
        "instructions": "Be brief.",
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "tools": [{"type": "function", "name": "look", "description": "Looks.", "parameters": SCHEMA, "strict": False}],
        "input": [
            {"role": "user", "content": "Oslo and Rome?"},
            {"role": "assistant", "content": "Let me see."},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": OSLO},
            {"type": "function_call", "call_id": "c2", "name": "look", "arguments": ROME},
            {"type": "function_call_output", "call_id": "c1", "output": "wet"},
            {"type": "function_call_output", "call_id": "c2", "output": "ERROR: broken"},
        ],
    }


def test_on_the_chat_wire() -> None:
    """S0.19, S1.9, S1.25, S2.40, S4.2, S4.26-S4.28."""

    def call(id: str, arguments: str) -> dict[str, object]:
        return {"id": id, "type": "function", "function": {"name": "look", "arguments": arguments}}

    assert body("openai_chat") == {
        "model": "m",
        "stream": False,
        "tools": [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": SCHEMA}}],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Oslo and Rome?"},
            {"role": "assistant", "tool_calls": [call("c1", OSLO), call("c2", ROME)], "content": "Let me see."},
            {"role": "tool", "tool_call_id": "c1", "content": "wet"},
            {"role": "tool", "tool_call_id": "c2", "content": "ERROR: broken"},
        ],
    }


def test_on_geminis_wire() -> None:
    """S0.19, S1.25, S2.40, S4.4, S4.26-S4.28."""
    found = body("gemini")
    assert found["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    (declared,) = found["tools"]
    assert declared["functionDeclarations"] == [{"name": "look", "description": "Looks.", "parametersJsonSchema": SCHEMA}]
    assert [content["role"] for content in found["contents"]] == ["user", "model", "user"]
    _, *calls = found["contents"][1]["parts"]
    assert [part["functionCall"] for part in calls] == [
        {"id": "c1", "name": "look", "args": {"at": "Oslo"}},
        {"id": "c2", "name": "look", "args": {"at": "Rome"}},
    ]
    assert [part["functionResponse"]["response"] for part in found["contents"][2]["parts"]] == [
        {"output": "wet"},
        {"error": "broken"},
    ]


# Reasoning that goes back.


def thought(wire: str, sealed: dict[str, object], provider: str = "maker") -> Transcript:
    made_by = origin(wire, provider)
    block = ReasoningBlock("hm", Seal(json.dumps(sealed), made_by, id=str(sealed.get("id", ""))))
    said = Message("assistant", (block, ToolCall("c1", "look", OSLO)), origin=made_by)
    return Transcript([Message.user_text("Oslo?"), said, Message.tool_result("c1", "wet")])


THINKING: dict[str, Any] = {"reasoning": Reasoning(budget=2000), "settings": Settings(max_output_tokens=8000)}


def test_signed_thinking_goes_back_beside_its_call_while_thinking_is_on() -> None:
    """S0.22, S0.23, S0.25."""
    talk = thought("anthropic_messages", {"signature": "c2ln"})
    first, second = body("anthropic_messages", talk, **THINKING)["messages"][1]["content"]
    assert first == {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    assert second["type"] == "tool_use"


def test_thinking_that_is_switched_off_stays_behind_and_that_is_told() -> None:
    """S0.24, S2.66."""
    talk, wire = thought("anthropic_messages", {"signature": "c2ln"}), "anthropic_messages"
    encoded = CODECS[wire].encode(Ask(talk, origin(wire), (LOOK,), reasoning=Reasoning(mode="off")), Quirks(), None)
    assert [block["type"] for block in json.loads(encoded.body)["messages"][1]["content"]] == ["tool_use"]
    assert [(loss.kind, loss.what) for loss in encoded.losses] == [("dropped", "reasoning")]


def test_cache_marks_are_set_where_they_are_explicit_and_never_on_thinking() -> None:
    """S3.5, S3.21."""
    made_by = origin("anthropic_messages")
    block = ReasoningBlock("hm", Seal('{"signature":"c2ln"}', made_by))
    answer = Message("assistant", (block, TextBlock("wet")), origin=made_by)
    talk = Transcript([Message.user_text("Oslo?"), answer, Message.user_text("So?")])
    sent = body("anthropic_messages", talk, cache=Cache("moving"), **THINKING)["messages"]
    marked = [part["type"] for message in sent for part in message["content"] if "cache_control" in part]
    assert marked == ["text", "text"]
    assert "thinking" in [part["type"] for message in sent for part in message["content"]]


ITEM: dict[str, object] = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VjcmV0"}


def test_a_reasoning_item_goes_back_with_its_id_and_its_encrypted_content_only_to_its_maker() -> None:
    """S0.22, S0.26, S0.28."""
    own = body("openai_responses", thought("openai_responses", ITEM))["input"]
    (kept,) = [item for item in own if item.get("type") == "reasoning"]
    assert (kept["id"], kept["encrypted_content"]) == ("rs_1", "c2VjcmV0")
    foreign = body("openai_responses", thought("anthropic_messages", {"signature": "c2ln"}, "other"))["input"]
    assert [item.get("type") for item in foreign] == [None, "function_call", "function_call_output"]
    assert "hm" not in json.dumps(foreign)


SUMMARY = [{"type": "summary_text", "text": "Think."}, {"type": "summary_text", "text": "Look."}]
READABLE = [{"type": "reasoning_text", "text": "Think."}]
TEXT = {"type": "output_text", "text": "Hm.", "annotations": []}
ITEMS: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "encrypted": ({**ITEM, "summary": SUMMARY}, ITEM),
    "encrypted, nothing to show": (ITEM, ITEM),
    "not encrypted": (
        {"type": "reasoning", "id": "rs_1", "summary": SUMMARY},
        {"type": "reasoning", "id": "rs_1", "summary": SUMMARY},
    ),
    "encrypted, and readable": (
        {**ITEM, "summary": SUMMARY, "content": READABLE},
        {**ITEM, "summary": SUMMARY, "content": READABLE},
    ),
    "no seal but null": (
        {"type": "reasoning", "id": "rs_1", "summary": SUMMARY, "encrypted_content": None},
        {"type": "reasoning", "id": "rs_1", "summary": SUMMARY},
    ),
}


@pytest.mark.parametrize("case", ITEMS)
def test_the_summary_of_encrypted_reasoning_is_for_people_and_does_not_go_back(case: str) -> None:
    """S0.26: where the item can be read, it goes back whole."""
    given, returned = ITEMS[case]
    said = {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": [TEXT]}
    answer = {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": [given, said]}
    reply = CODECS["openai_responses"].decode(json.dumps(answer).encode(), Quirks())
    assert reply.reasoning_text.startswith("Think.\n\nLook." if given["summary"] else "")
    asked = Message.user_text("Hi")
    past = Transcript([asked, Message.from_assistant_response(reply, origin=origin("openai_responses")), asked])
    sent = body("openai_responses", past, state=State(store=True))["input"]
    assert [item for item in sent if item.get("type") == "reasoning"] == [returned]


@pytest.mark.parametrize("case", ITEMS)
def test_a_request_that_is_read_keeps_its_summaries(case: str) -> None:
    """S0.26: what another client sent goes on as it was."""
    item = {name: value for name, value in ITEMS[case][0].items() if value is not None}
    said = {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": "Hm."}
    sent = {"model": "gpt-5.5", "input": [{"role": "user", "content": "Hi"}, item, said, {"role": "user", "content": "And?"}]}
    ask = CODECS["openai_responses"].read_request(json.dumps(sent).encode(), Quirks(), origin("openai_responses"))
    encoded = CODECS["openai_responses"].encode(ask, Quirks(), None)
    assert encoded.losses == ()
    assert json.loads(encoded.body)["input"][1] == item


# Who holds the past.


def test_a_chain_names_the_answer_before_and_sends_only_what_is_new() -> None:
    """S1.7, S1.22."""
    news = Transcript([Message.tool_result("c1", "wet")])
    sent = body("openai_responses", news, state=State("chain", "resp_1", store=True))
    assert (sent["previous_response_id"], sent["store"]) == ("resp_1", True)
    assert sent["input"] == [{"type": "function_call_output", "call_id": "c1", "output": "wet"}]


def test_a_conversation_object_is_named() -> None:
    """S1.23."""
    sent = body("openai_responses", Transcript([Message.user_text("Hi")]), state=State("conversation", "conv_1", store=True))
    assert sent["conversation"] == "conv_1"
    assert "previous_response_id" not in sent


@pytest.mark.parametrize("wire", CODECS)
def test_by_default_the_whole_past_is_sent(wire: str) -> None:
    """S1.21, S4.27."""
    sent = json.dumps(body(wire))
    assert all(words in sent for words in ("Oslo and Rome?", "Let me see.", "wet", "broken"))
    assert "previous_response_id" not in sent


# Servers of one's own.


@pytest.mark.parametrize("name", ["llamacpp", "vllm", "ollama", "lmstudio"])
def test_a_server_of_ones_own_is_a_row_on_this_machine_without_a_key(name: str) -> None:
    """S0.45: on the Chat wire, and on Responses where the server has it."""
    rows = [row for row in load_rows().providers if row.vendor == name]
    assert {row.wire for row in rows} >= {"openai_chat"} | (set() if name == "lmstudio" else {"openai_responses"})
    assert all(row.keyless and row.base_url.startswith("http://localhost:") for row in rows)
    if name == "vllm":
        assert "http://localhost:8000/v1" in {row.base_url for row in rows}


# Hosted tools.

HOSTED: list[tuple[str, dict[str, object]]] = [
    ("openai_responses", {"type": "web_search"}),
    ("openai_responses", {"type": "file_search", "vector_store_ids": ["vs_1"]}),
    ("openai_responses", {"type": "code_interpreter", "container": {"type": "auto"}}),
    ("openai_responses", {"type": "image_generation"}),
    ("openai_responses", {"type": "computer_use_preview", "display_width": 9, "display_height": 9, "environment": "browser"}),
    ("openai_responses", {"type": "mcp", "server_label": "s", "server_url": "https://mcp.example"}),
    ("anthropic_messages", {"type": "web_search_20250305", "name": "web_search"}),
    ("anthropic_messages", {"type": "code_execution_20250825", "name": "code_execution"}),
    ("gemini", {"googleSearch": {}}),
    ("gemini", {"codeExecution": {}}),
]


@pytest.mark.parametrize(("wire", "declared"), HOSTED, ids=lambda value: value if isinstance(value, str) else json.dumps(value))
def test_a_hosted_tool_is_declared_verbatim_on_its_own_wire_and_on_no_other(wire: str, declared: dict[str, object]) -> None:
    """S1.7, S1.16."""
    hosted = HostedTool(wire, json.dumps(declared), "hosted")
    for other in CODECS:
        encoded = CODECS[other].encode(Ask(TALK, origin(other), (hosted,), stream=False), Quirks(), None)
        assert (declared in json.loads(encoded.body).get("tools", [])) is (other == wire)
        assert any("hosted" in loss.what for loss in encoded.losses) is (other != wire)


# A loop that knows no wire.

WIRES_AND_BELOW = ("evener.wire", "evener.providers", "evener.transport")


def knows_wires(source: str) -> list[str]:
    """What a module imports from where providers differ."""
    tree = ast.parse(source)
    found = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    found += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    return [name for name in found if name.startswith(WIRES_AND_BELOW)]


def test_the_loop_looks_at_no_field_of_a_provider() -> None:
    """S1.6, S0.33, S3.25: events, plan and driver import nothing that knows a provider's shape."""
    folders = [path for folder in ("loop", "driver") for path in (SRC / "evener" / folder).rglob("*.py")]
    assert len(folders) > 5
    files = [*folders, SRC / "evener" / "events.py"]
    assert [hit for path in files for hit in knows_wires(path.read_text(encoding="utf-8"))] == []


def test_a_loop_that_looks_is_caught() -> None:
    assert knows_wires("from evener.wire.openai_chat import decode\nimport evener.providers.rows\n") == [
        "evener.wire.openai_chat",
        "evener.providers.rows",
    ]
