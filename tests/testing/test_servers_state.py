"""What the fake servers remember: signatures and what they are bound to, stored answers, and what each dialect wants back."""

import copy
import json
from collections.abc import Callable

import pytest

from evener.testing import Call, FakeServer, Thinking, Turn, turn
from tests.testing.raw import Json, ask, body_of, message_of

STREAMED = [False, True]

# --- thinking, and what it is bound to ---

TOOL = {"name": "f", "description": "", "input_schema": {"type": "object", "properties": {}}}
SYSTEM = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]


def claude_loop(server: FakeServer) -> Json:
    """A conversation of two turns, ready to be sent a third time, with two signed thoughts in it."""
    body: Json = {**body_of("anthropic_messages"), "system": copy.deepcopy(SYSTEM), "tools": [dict(TOOL)]}
    for result in ("one", "two"):
        content = ask(server, "anthropic_messages", body).json["content"]
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": result}
            for block in content
            if block["type"] == "tool_use"
        ]
        body["messages"] += [{"role": "assistant", "content": content}, {"role": "user", "content": results}]
    return body


SAME: dict[str, Callable[[Json], object]] = {
    "nothing": lambda _body: None,
    "a moved cache mark": lambda body: body["system"][0].pop("cache_control"),
    "a string for one text block": lambda body: body.update(system="Be brief."),
    "one text block for a string": lambda body: body["messages"][0].update(content=[{"type": "text", "text": "Hi"}]),
    "other settings": lambda body: body.update(max_tokens=99, output_config={"effort": "low"}),
}
OTHER: dict[str, Callable[[Json], object]] = {
    "the text of a thought": lambda body: body["messages"][1]["content"][0].update(thinking="I never thought that."),
    "a signature": lambda body: body["messages"][1]["content"][0].update(signature="QUJD"),
    "the data of a hidden thought": lambda body: body["messages"][3]["content"][0].update(data="QUJD"),
    "the system prompt": lambda body: body.update(system="Be long."),
    "the tools": lambda body: body["tools"].append({**TOOL, "name": "g"}),
    "the first message": lambda body: body["messages"][0].update(content="Hi?"),
    "a result": lambda body: body["messages"][2]["content"][0].update(content="another"),
    "the order of two thoughts": lambda body: _swap_thoughts(body["messages"]),
    "the turns before": lambda body: body["messages"].__delitem__(slice(1, 3)),
}


def _swap_thoughts(messages: list[Json]) -> None:
    first, second = messages[1]["content"], messages[3]["content"]
    first[0], second[0] = second[0], first[0]


def thoughtful_script() -> list[Turn]:
    loop = [turn(Thinking("I see."), Call("f")), turn(Thinking("Hidden.", redacted=True), Call("f"))]
    return [*loop, turn(Thinking("Done."), "Done.")]


@pytest.mark.parametrize("change", SAME)
def test_thinking_goes_back_where_it_came_from(change: str) -> None:
    with FakeServer("anthropic_messages", thoughtful_script()) as server:
        body = claude_loop(server)
        SAME[change](body)
        assert ask(server, "anthropic_messages", body).status == 200
        assert server.rejected == []


@pytest.mark.parametrize("change", OTHER)
def test_thinking_after_another_prefix_is_refused(change: str) -> None:
    with FakeServer("anthropic_messages", thoughtful_script()) as server:
        body = claude_loop(server)
        OTHER[change](body)
        heard = ask(server, "anthropic_messages", body)
        assert heard.status == 400
        assert server.rejected[0].violations[0].rule.startswith("thinking.")
        assert message_of("anthropic_messages", heard.json).startswith("messages.")


@pytest.mark.parametrize("change", ["the system prompt", "the tools", "the first message"])
def test_the_binding_can_be_let_go(change: str) -> None:
    with FakeServer("anthropic_messages", thoughtful_script(), prefix_bound=False) as server:
        body = claude_loop(server)
        OTHER[change](body)
        assert ask(server, "anthropic_messages", body).status == 200


def test_a_mismatch_passes_when_the_request_asks_to_drop_such_blocks() -> None:
    with FakeServer("anthropic_messages", thoughtful_script()) as server:
        body = claude_loop(server)
        body.update(system="Be long.", thinking={"type": "adaptive"})
        body["thinking"]["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
        heard = ask(server, "anthropic_messages", body, headers={"anthropic-beta": "thinking-binding-controls-2026-08-01"})
        assert heard.status == 200


def test_another_servers_signature_is_foreign() -> None:
    with FakeServer("anthropic_messages", thoughtful_script()) as one:
        body = claude_loop(one)
    with FakeServer("anthropic_messages", ["Hello."]) as other:
        assert ask(other, "anthropic_messages", body).status == 400
    first, second = body["messages"][1]["content"][0], body["messages"][3]["content"][0]
    known = {first["signature"]: first["thinking"], second["data"]: ""}
    with FakeServer("anthropic_messages", ["Hello."], issued=known) as other:
        assert ask(other, "anthropic_messages", body).status == 200


def test_thinking_is_hidden_when_the_request_says_so() -> None:
    body = {**body_of("anthropic_messages"), "thinking": {"type": "adaptive", "display": "omitted"}}
    with FakeServer("anthropic_messages", [turn(Thinking("Secret."), "Hi.")]) as server:
        thought = ask(server, "anthropic_messages", body).json["content"][0]
    assert thought["thinking"] == ""
    assert thought["signature"]


# --- what lies on the server ---


def test_a_chain_is_checked_with_what_is_stored() -> None:
    with FakeServer("openai_responses", [turn(Thinking("Hm."), Call("f", id="call_1")), "Done."]) as server:
        first = ask(server, "openai_responses").json
        body = {"model": "gpt-5.5", "previous_response_id": first["id"]}
        unanswered = ask(server, "openai_responses", {**body, "input": "And?"})
        assert (unanswered.status, "No tool output found" in message_of("openai_responses", unanswered.json)) == (400, True)
        result = {"type": "function_call_output", "call_id": "call_1", "output": "1"}
        assert ask(server, "openai_responses", {**body, "input": [result]}).status == 200


def test_what_is_not_stored_cannot_be_referred_to() -> None:
    with FakeServer("openai_responses", ["One."]) as server:
        kept = ask(server, "openai_responses", {**body_of("openai_responses"), "store": False}).json
        for name in (kept["id"], "resp_nobody"):
            heard = ask(server, "openai_responses", {"model": "gpt-5.5", "input": "Hm?", "previous_response_id": name})
            assert heard.json["error"]["code"] == "previous_response_not_found"
        reference = [{"type": "item_reference", "id": "msg_nobody"}]
        assert ask(server, "openai_responses", {"model": "gpt-5.5", "input": reference}).status == 404
        lost = {"model": "gpt-5.5", "input": "Hm?", "conversation": "conv_nobody"}
        assert ask(server, "openai_responses", lost).status == 404


def test_a_conversation_grows_on_the_server() -> None:
    with FakeServer("openai_responses", [turn(Call("f", id="call_1")), "Done."]) as server:
        name = ask(server, "openai_responses", {}, path="/conversations").json["id"]
        body = {"model": "gpt-5.5", "conversation": {"id": name}}
        assert ask(server, "openai_responses", {**body, "input": "Go."}).json["conversation"] == {"id": name}
        result = {"type": "function_call_output", "call_id": "call_1", "output": "1"}
        assert ask(server, "openai_responses", {**body, "input": [result]}).status == 200


def responses_loop(server: FakeServer) -> Json:
    body: Json = {**body_of("openai_responses"), "store": False}
    output = ask(server, "openai_responses", body).json["output"]
    result = {"type": "function_call_output", "call_id": "call_1", "output": "1"}
    return {**body, "input": [*body["input"], *output, result]}


REASONING: dict[str, tuple[int, Callable[[list[Json]], object]]] = {
    "as it came": (200, lambda _items: None),
    "altered": (400, lambda items: items[1].update(encrypted_content="QUJD")),
    "without its item": (400, lambda items: items.__delitem__(slice(2, 4))),
    "left out": (400, lambda items: items.pop(1)),
    "left out, and so is the id of its item": (200, lambda items: (items.pop(1), items[1].pop("id"))),
}


@pytest.mark.parametrize("change", REASONING)
def test_encrypted_reasoning_goes_back_as_it_came(change: str) -> None:
    status, spoil = REASONING[change]
    with FakeServer("openai_responses", [turn(Thinking("Hm."), Call("f", id="call_1")), "Done."]) as server:
        body = responses_loop(server)
        spoil(body["input"])
        assert ask(server, "openai_responses", body).status == status


SIGNATURES: dict[str, tuple[int, Callable[[Json], object]]] = {
    "as it came": (200, lambda _part: None),
    "in the other alphabet": (
        200,
        lambda part: part.update(thoughtSignature=part["thoughtSignature"].replace("+", "-").replace("/", "_")),
    ),
    "altered": (400, lambda part: part.update(thoughtSignature="QUJD")),
    "left out": (400, lambda part: part.pop("thoughtSignature")),
    "skipped": (200, lambda part: part.update(thoughtSignature="c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=")),
    "skipped in plain words": (200, lambda part: part.update(thoughtSignature="skip_thought_signature_validator")),
}


@pytest.mark.parametrize("change", SIGNATURES)
def test_a_thought_signature_goes_back_as_it_came(change: str) -> None:
    status, spoil = SIGNATURES[change]
    with FakeServer("gemini", [turn(Call("f"), Call("g")), "Done."]) as server:
        body = body_of("gemini")
        content = ask(server, "gemini", body).json["candidates"][0]["content"]
        spoil(content["parts"][0])
        calls = [part["functionCall"] for part in content["parts"]]
        results = [{"functionResponse": {**call, "response": {"output": "1"}}} for call in calls]
        for result in results:
            del result["functionResponse"]["args"]
        body["contents"] += [content, {"role": "user", "parts": results}]
        assert ask(server, "gemini", body).status == status


def test_a_stream_without_sse_is_one_array() -> None:
    with FakeServer("gemini", ["Hello."]) as server:
        path = "/v1beta/models/gemini-3-flash-preview:streamGenerateContent"
        chunks: list[Json] = json.loads(ask(server, "gemini", path=path).body)
    assert chunks[-1]["candidates"][0]["finishReason"] == "STOP"


# --- the dialects of Chat ---

FIELDS = {
    "": "reasoning_content",
    "deepseek": "reasoning_content",
    "kimi": "reasoning_content",
    "openrouter": "reasoning_details",
    "groq": "reasoning",
    "mistral": "thinking",
}


@pytest.mark.parametrize("streamed", STREAMED)
@pytest.mark.parametrize("dialect", FIELDS)
def test_reasoning_comes_in_the_field_of_the_dialect(dialect: str, streamed: bool) -> None:
    body = {**body_of("openai_chat", streamed=streamed), "model": "some-model"}
    with FakeServer("openai_chat", [turn(Thinking("Hm, hm, hm."), "Hi.")], dialect=dialect) as server:
        assert f'"{FIELDS[dialect]}":'.encode() in ask(server, "openai_chat", body, streamed=streamed).body


def test_openai_itself_shows_no_reasoning_on_chat() -> None:
    with FakeServer("openai_chat", [turn(Thinking("Hm, hm."), "Hi.")], dialect="openai") as server:
        held = ask(server, "openai_chat").json
    assert "reasoning" not in str(held["choices"])
    assert held["usage"]["completion_tokens_details"]["reasoning_tokens"] == 2


USAGE: dict[str, Callable[[list[Json]], object]] = {
    "": lambda events: events[-1]["choices"] == [] and events[-1]["usage"],
    "deepseek": lambda events: events[-1]["choices"][0]["finish_reason"] and events[-1]["usage"],
    "groq": lambda events: events[-1]["x_groq"]["usage"],
    "kimi": lambda events: events[-1]["choices"][0]["usage"],
    "openrouter": lambda events: events[-1]["choices"] and events[-1]["usage"] and not events[-2]["usage"],
}


@pytest.mark.parametrize("dialect", USAGE)
def test_usage_comes_where_the_dialect_has_it(dialect: str) -> None:
    body = {**body_of("openai_chat", streamed=True), "model": "some-model", "stream_options": {"include_usage": True}}
    with FakeServer("openai_chat", ["Hi."], dialect=dialect) as server:
        assert USAGE[dialect](ask(server, "openai_chat", body, streamed=True).events)


def test_a_dialect_that_wants_its_reasoning_back_gets_it_or_refuses() -> None:
    with FakeServer("openai_chat", [turn(Thinking("Hm."), Call("f")), "Done."], dialect="deepseek") as server:
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
        body = {**body_of("openai_chat"), "model": "deepseek-v4-pro", "tools": [tool]}
        message = ask(server, "openai_chat", body).json["choices"][0]["message"]
        kept = {name: message[name] for name in ("role", "content", "tool_calls", "reasoning_content")}
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "1"}
        bare = {name: value for name, value in kept.items() if name != "reasoning_content"}
        assert ask(server, "openai_chat", {**body, "messages": [*body["messages"], bare, result]}).status == 400
        assert ask(server, "openai_chat", {**body, "messages": [*body["messages"], kept, result]}).status == 200
