"""Rows at work: what an encoder writes with a row's quirks is what that endpoint takes."""

import json
from pathlib import Path
from typing import Any

import pytest

from evener.providers import Provider, load_rows
from evener.testing.check import check_request
from evener.transcript import (
    Ask,
    Cache,
    Choice,
    Message,
    Origin,
    OutputSchema,
    Reasoning,
    ReasoningBlock,
    Seal,
    Settings,
    State,
    TextBlock,
    ToolCall,
    ToolSpec,
    Transcript,
)
from evener.wire import CODECS, Encoded, Quirks

ROWS = load_rows()
CLAUDE = """
claude-3-7-sonnet-20250219 claude-sonnet-4-0 claude-haiku-4-5 claude-opus-4-5 claude-opus-4-6 claude-opus-4-7 claude-opus-4-8
claude-sonnet-5 claude-opus-5 claude-fable-5 claude-opus-5-5 claude-sonnet-5-5 claude-haiku-5-5 claude-fable-5-2
""".split()
GPT = """
gpt-4o gpt-4.1 o3 gpt-5 gpt-5-pro gpt-5.1 gpt-5.2-chat-latest gpt-5.2-pro gpt-5.4 gpt-5.5 gpt-5.6-sol gpt-6-astra gpt-6.1-sol
""".split()
SCHEMA = '{"type":"object","properties":{"x":{"type":"string"}},"required":["x"],"additionalProperties":false}'


def origin(provider: Provider, model: str) -> Origin:
    return Origin(wire=provider.wire, provider=provider.vendor, endpoint=provider.base_url, model=model)


def encode(provider: Provider, model: str, messages: list[Message], *, quirks: Quirks | None = None, **more: Any) -> Encoded:
    ask = Ask(Transcript(messages, system="Be brief."), origin(provider, model), **more)
    return CODECS[provider.wire].encode(ask, quirks or ROWS.quirks(provider.name, model), None)


def demanding(provider: str, model: str, reasoning: Reasoning, quirks: Quirks | None = None) -> Encoded:
    """Sampling, forced choice, a schema, a mid-conversation instruction, too many tokens and a prefill at once."""
    messages = [
        Message.user_text("a"),
        Message.assistant_text("b"),
        Message.user_text("c"),
        Message.system_text("d"),
        Message.assistant_text("e"),
    ]
    return encode(
        ROWS.provider(provider),
        model,
        messages,
        quirks=quirks,
        tools=(ToolSpec("look", schema=SCHEMA, strict=True),),
        choice=Choice("required"),
        settings=Settings(temperature=1.0, max_output_tokens=999_999),
        reasoning=reasoning,
        output=OutputSchema(SCHEMA),
    )


CASES = [("anthropic", model) for model in CLAUDE] + [("openai", model) for model in GPT]


@pytest.mark.parametrize(
    "reasoning", [Reasoning(), Reasoning(effort="max"), Reasoning(mode="off"), Reasoning(budget=2000)], ids=str
)
@pytest.mark.parametrize(("provider", "model"), CASES, ids=lambda part: str(part))
def test_a_demanding_request_becomes_one_that_the_model_takes(provider: str, model: str, reasoning: Reasoning) -> None:
    assert check_request(ROWS.provider(provider).wire, demanding(provider, model, reasoning).body) == []


@pytest.mark.parametrize(("provider", "model"), [("anthropic", "claude-opus-5-5"), ("openai", "gpt-6-astra")])
def test_without_its_row_the_same_request_would_be_refused(provider: str, model: str) -> None:
    encoded = demanding(provider, model, Reasoning(mode="off"), Quirks())
    assert check_request(ROWS.provider(provider).wire, encoded.body) != []


@pytest.mark.parametrize("provider", ROWS.providers, ids=lambda provider: provider.name)
def test_every_provider_gets_a_request_for_its_own_address(provider: Provider) -> None:
    encoded = encode(provider, "some-model", [Message.user_text("a")], cache=Cache(mode="moving"))
    body = json.loads(encoded.body)
    quirks = provider.quirks
    assert "{" not in encoded.path
    assert encoded.path.startswith("/")
    assert ("model" in body) is quirks.model_in_body
    assert ("some-model" in encoded.path) is not quirks.model_in_body
    assert ("store" in body) is (provider.wire == "openai_responses" and quirks.store)
    assert ("include" in body) is (provider.wire == "openai_responses" and quirks.sealed)
    assert body.get("anthropic_version", "") == (quirks.api_version if quirks.version_in_body else "")
    if not quirks.cache_marks:
        assert "cache_control" not in encoded.body.decode()


def test_bedrock_names_the_model_in_the_path_and_the_version_in_the_body() -> None:
    bedrock = ROWS.provider("bedrock")
    for stream, path in [(True, "invoke-with-response-stream"), (False, "invoke")]:
        encoded = encode(bedrock, "us.anthropic.claude-opus-4-8", [Message.user_text("a")], stream=stream)
        assert encoded.path == f"/model/us.anthropic.claude-opus-4-8/{path}"
        assert json.loads(encoded.body)["anthropic_version"] == "bedrock-2023-05-31"
        assert "anthropic-version" not in dict(encoded.headers)


# S3.18, S3.19: whose thinking goes back to whom.


def turn(made_by: Origin, *, signature: str = "") -> list[Message]:
    seal = Seal(json.dumps({"signature": signature}), made_by) if signature else None
    blocks = (ReasoningBlock("hm", seal=seal), TextBlock("b"))
    return [Message.user_text("a"), Message("assistant", blocks, origin=made_by), Message.user_text("c")]


def thinking(encoded: Encoded) -> list[dict[str, Any]]:
    messages = json.loads(encoded.body)["messages"]
    return [block for message in messages for block in message["content"] if block["type"] == "thinking"]


THIRD_PARTIES = ["minimax", "deepseek-anthropic", "kimi-anthropic", "zai-anthropic", "ollama-anthropic"]


@pytest.mark.parametrize("name", THIRD_PARTIES)
def test_third_parties_never_get_thinking_that_another_provider_signed(name: str) -> None:
    """S0.22, S3.18."""
    foreign = origin(ROWS.provider("anthropic"), "claude-opus-4-8")
    encoded = encode(ROWS.provider(name), "some-model", turn(foreign, signature="s"))
    assert thinking(encoded) == []
    assert [loss.kind for loss in encoded.losses] == ["dropped"]


@pytest.mark.parametrize("name", THIRD_PARTIES)
def test_third_parties_get_their_own_thinking_back_as_it_came(name: str) -> None:
    """S3.19."""
    provider = ROWS.provider(name)
    own = origin(provider, "some-model")
    assert thinking(encode(provider, "some-model", turn(own))) == [{"type": "thinking", "thinking": "hm"}]
    signed = thinking(encode(provider, "some-model", turn(own, signature="made up")))
    assert signed == [{"type": "thinking", "thinking": "hm", "signature": "made up"}]


def test_unsigned_reasoning_from_the_vendors_other_endpoint_is_kept() -> None:
    """S3.19."""
    other = Origin(wire="openai_chat", provider="deepseek", endpoint="https://api.deepseek.com", model="deepseek-v4-pro")
    assert thinking(encode(ROWS.provider("deepseek-anthropic"), "deepseek-v4-pro", turn(other))) != []
    assert thinking(encode(ROWS.provider("anthropic"), "claude-opus-4-8", turn(other))) == []


@pytest.mark.parametrize("name", ["bedrock", "foundry", "vertex"])
def test_a_row_decides_whether_a_cloud_gets_thinking_back(name: str, tmp_path: Path) -> None:
    """S3.18."""
    provider = ROWS.provider(name)
    own = turn(origin(provider, "claude-opus-4-8"), signature="s")
    assert thinking(encode(provider, "claude-opus-4-8", own, reasoning=Reasoning("high"))) != []
    path = tmp_path / "rows.toml"
    path.write_text(f'[providers.{name}]\nquirks.thinking_replay = "none"\n', encoding="utf-8")
    ask = Ask(Transcript(own), origin(provider, "claude-opus-4-8"))
    encoded = CODECS[provider.wire].encode(ask, load_rows(path).quirks(name, "claude-opus-4-8"), None)
    assert thinking(encoded) == []
    assert encoded.losses != ()


@pytest.mark.parametrize(("model", "kept"), [("claude-fable-5-2", 0), ("claude-haiku-5-5", 0), ("claude-opus-4-8", 1)])
def test_a_signature_bound_to_another_prefix_is_known_before_sending(model: str, kept: int) -> None:
    provider = ROWS.provider("anthropic")
    made_by = origin(provider, model)
    seal = Seal('{"signature":"s"}', made_by, binding="of another conversation")
    said = Message("assistant", (ReasoningBlock("hm", seal=seal), TextBlock("b")), origin=made_by)
    encoded = encode(provider, model, [Message.user_text("a"), said, Message.user_text("c")], reasoning=Reasoning("high"))
    assert len(thinking(encoded)) == kept
    assert len(encoded.losses) == 1 - kept


def test_calls_stand_last_where_the_row_says_so() -> None:
    provider = ROWS.provider("deepseek-responses")
    said = Message("assistant", (ToolCall("c1", "look", "{}"), TextBlock("between"), ToolCall("c2", "look", "{}")))
    results = [Message("user", tuple(Message.tool_result(name, "ok").blocks[0] for name in ("c1", "c2")))]
    encoded = encode(
        provider, "deepseek-v4-flash", [Message.user_text("a"), said, *results], tools=(ToolSpec("look"),), state=State()
    )
    kinds = [item.get("type", item.get("role")) for item in json.loads(encoded.body)["input"]]
    assert kinds[-4:] == ["function_call", "function_call", "function_call_output", "function_call_output"]
