"""One scale of effort for all: each level, and a plain budget, is a legal request on every wire, exact or reported."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from evener.providers import load_rows
from evener.testing import check_request
from evener.transcript import Ask, Message, Origin, Reasoning, Settings, Transcript
from evener.transcript.ask import EFFORTS, Effort
from evener.wire import CODECS, Quirks
from tests.each import each

ROWS = load_rows()
MODELS = [
    ("anthropic", "claude-haiku-4-5"),
    ("anthropic", "claude-opus-4-8"),
    ("anthropic", "claude-opus-5-5"),
    ("openai", "gpt-4.1"),
    ("openai", "gpt-5"),
    ("openai", "gpt-5.5"),
    ("openai-chat", "gpt-5"),
    ("groq", "openai/gpt-oss-120b"),
    ("openrouter", "some/model"),
    ("deepseek", "deepseek-chat"),
    ("llamacpp", "local"),
    ("google", "gemini-2.5-flash"),
    ("google", "gemini-2.5-pro"),
    ("google", "gemini-3-pro-preview"),
]
LEVELS: tuple[Effort, ...] = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
SWITCHES = [
    *(Reasoning(effort=level) for level in LEVELS),
    *(Reasoning(budget=budget) for budget in (1024, 4000, 60_000)),
    *(Reasoning(mode="on"), Reasoning(mode="off"), Reasoning(mode="default", effort="low")),
]


def asked(wire: str, provider: str, model: str, reasoning: Reasoning) -> Ask:
    talk = Transcript([Message.user_text("Hello")])
    return Ask(talk, Origin(wire, provider, model=model), settings=Settings(max_output_tokens=20_000), reasoning=reasoning)


def words(value: Any) -> set[str]:
    """Every key and every word of a request."""
    if isinstance(value, dict):
        return {*value, *(word for child in value.values() for word in words(child))}
    return {word for child in value for word in words(child)} if isinstance(value, list) else {str(value).lower()}


def test_the_scale_is_the_one_of_the_ask() -> None:
    assert LEVELS == EFFORTS


@pytest.mark.parametrize("reasoning", SWITCHES, ids=str)
@each(("provider", "model"), MODELS)
def test_every_level_is_a_legal_request(provider: str, model: str, reasoning: Reasoning) -> None:
    """S0.42."""
    row = ROWS.provider(provider)
    quirks = ROWS.quirks(provider, model)
    encoded = CODECS[row.wire].encode(asked(row.wire, row.vendor, model, reasoning), quirks, None)
    assert check_request(row.wire, encoded.body, model=model) == []
    told = [loss for loss in encoded.losses if loss.what.startswith("reasoning")]
    plain = CODECS[row.wire].encode(asked(row.wire, row.vendor, model, Reasoning()), quirks, None)
    unsaid = quirks.thinks_unasked or quirks.thinking_control == "none" or quirks.default_effort
    assert told or encoded.body != plain.body or (reasoning.mode == "on" and unsaid) or reasoning.effort == "off"


EXACT: dict[str, tuple[Quirks, dict[str, str]]] = {
    "anthropic_messages": (Quirks(), {level: level for level in LEVELS[2:]}),
    "openai_responses": (Quirks(), {"off": "none", **{level: level for level in LEVELS[1:]}}),
    "openai_chat": (Quirks(), {"off": "none", **{level: level for level in LEVELS[1:]}}),
    "gemini": (Quirks(), {level: level for level in ("minimal", "low", "medium", "high")}),
}


@pytest.mark.parametrize("wire", CODECS)
@pytest.mark.parametrize("level", LEVELS)
def test_a_level_that_the_wire_has_is_sent_and_another_is_the_nearest_and_reported(wire: str, level: Effort) -> None:
    """S0.42."""
    quirks, exact = EXACT[wire]
    encoded = CODECS[wire].encode(asked(wire, "p", "m", Reasoning(effort=level)), quirks, None)
    told = [loss for loss in encoded.losses if loss.what == "reasoning effort"]
    if level in exact:
        assert exact[level] in words(json.loads(encoded.body))
        assert told == []
    elif wire == "anthropic_messages" and level == "off":
        assert "disabled" in words(json.loads(encoded.body))
        assert told == []
    else:
        assert len(told) == 1


@pytest.mark.parametrize("wire", CODECS)
def test_a_model_with_fewer_levels_gets_the_nearest(wire: str) -> None:
    quirks = replace(Quirks(), efforts=("low", "high"))
    encoded = CODECS[wire].encode(asked(wire, "p", "m", Reasoning(effort="max")), quirks, None)
    assert "high" in words(json.loads(encoded.body))
    assert [loss.kind for loss in encoded.losses if loss.what == "reasoning effort"] == ["degraded"]
