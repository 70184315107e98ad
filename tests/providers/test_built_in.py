"""The built-in rows: all of them load, deviate only where they say so, and hold the facts of the wire sheets."""

import re
import tomllib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evener.providers import ModelRow, Provider, Rows, load_rows
from evener.wire.quirks import Quirks
from evener.wire.request import SCALE

ROWS = load_rows()
DOCS = Path(__file__).resolve().parents[2] / "docs" / "providers.md"
ANTHROPIC = "anthropic_messages"
RESPONSES = "openai_responses"


@pytest.mark.parametrize(
    ("wire", "names"),
    [
        (ANTHROPIC, "anthropic bedrock bedrock-mantle claude-aws foundry openrouter-anthropic vertex"),
        (ANTHROPIC, "deepseek-anthropic kimi-anthropic minimax ollama-anthropic zai-anthropic"),
        (RESPONSES, "azure bedrock-mantle-openai openai xai"),
        (RESPONSES, "deepseek-responses ollama-responses openrouter-responses vllm-responses"),
    ],
)
def test_the_rows_of_a_wire_are_there(wire: str, names: str) -> None:
    assert set(names.split()) <= {provider.name for provider in ROWS.providers if provider.wire == wire}


@pytest.mark.parametrize("provider", ROWS.providers, ids=lambda provider: provider.name)
def test_a_provider_can_be_reached_and_given_its_key(provider: Provider) -> None:
    url = provider.url({variable.name: "x" for variable in provider.url_env})
    assert re.fullmatch(r"https://.+|http://localhost:\d+.*|http://127\.0\.0\.1.*", url)
    assert provider.key_env or provider.keyless
    assert msgspec.convert(msgspec.to_builtins(provider), Provider) == provider


def defaults_restated(row: ModelRow) -> Iterator[str]:
    """Fields in which a row for everyone says what holds anyway: it would undo a provider's own deviation."""
    standard = Quirks()
    if not row.providers:
        yield from (name for name, value in row.quirks if value == getattr(standard, name))


def contradictions(quirks: Quirks) -> Iterator[str]:
    """Fields of one record that cannot both be true."""
    if quirks.efforts and not quirks.effort:
        yield "efforts without effort"
    if quirks.efforts and quirks.default_effort and quirks.default_effort not in quirks.efforts:
        yield "the default effort is not among the efforts"
    if list(quirks.efforts) != sorted(set(quirks.efforts), key=SCALE.index):
        yield "efforts are out of order or repeated"
    if quirks.default_output > quirks.max_output > 0:
        yield "the default output is larger than the largest"
    if quirks.disabled_effort and "disabled" not in quirks.thinking_modes:
        yield "an effort for a mode that does not exist"
    if (quirks.version_in_body and not quirks.api_version) or not (quirks.model_in_body or quirks.path):
        yield "a body of its own without version or path"


@pytest.mark.parametrize("row", ROWS.models, ids=lambda row: ",".join(row.match))
def test_a_model_row_states_only_deviations(row: ModelRow) -> None:
    assert list(defaults_restated(row)) == []


CLAUDE = """
claude-3-opus-latest claude-3-5-haiku-latest claude-3-7-sonnet-20250219 claude-sonnet-4-0 claude-opus-4-1 claude-haiku-4-5
claude-opus-4-5 claude-sonnet-4-6 claude-opus-4-7 claude-opus-4-8 claude-sonnet-5 claude-opus-5 claude-fable-5 claude-fable-5-1
claude-mythos-preview claude-mythos-5-2 claude-opus-5-5 claude-sonnet-5-5 claude-haiku-5-5 claude-opus-6
"""
GPT = """
gpt-4o gpt-4.1 o3 o4-mini gpt-5 gpt-5-pro gpt-5-codex gpt-5-chat-latest gpt-5.1 gpt-5.1-codex gpt-5.1-codex-max
gpt-5.2-chat-latest gpt-5.2-pro gpt-5.3-codex gpt-5.4 gpt-5.4-mini gpt-5.5 gpt-5.6-sol
gpt-6-astra gpt-6.1-sol gpt-6.1-terra gpt-oss-20b
"""
OTHERS = "deepseek-v4-pro grok-4.3 grok-4.5 kimi-k3 gemini-2.5-pro gemini-3-flash gemini-4-argon unheard-of"
GPT_HOSTS = ("openai", "azure", "bedrock-mantle-openai", "openrouter-responses")


@pytest.mark.parametrize("provider", ROWS.providers, ids=lambda provider: provider.name)
def test_no_model_at_a_provider_contradicts_itself(provider: Provider) -> None:
    models = OTHERS + (CLAUDE if provider.wire == ANTHROPIC else GPT if provider.name in GPT_HOSTS else "")
    found = {model: list(contradictions(ROWS.quirks(provider.name, model))) for model in models.split()}
    assert {model: hits for model, hits in found.items() if hits} == {}


@pytest.mark.parametrize("provider", [row for row in ROWS.providers if row.wire == ANTHROPIC], ids=lambda row: row.name)
def test_claudes_rules_hold_only_where_claude_answers(provider: Provider) -> None:
    asked = ROWS.quirks(provider.name, "claude-opus-5-5")
    assert (asked.sampling == "none") is (provider.quirks.thinking_kept == "sealed")
    assert asked.sampling == "none" or asked in (provider.quirks, msgspec.structs.replace(provider.quirks, max_output=384_000))


def test_a_restated_default_and_a_contradiction_are_caught() -> None:
    assert list(defaults_restated(ModelRow(("x",), quirks=(("strict", True), ("tools", False))))) == ["strict"]
    assert list(defaults_restated(ModelRow(("x",), providers=("openai",), quirks=(("strict", True),)))) == []
    bad = Quirks(
        effort=False, efforts=("high", "low"), default_effort="max", max_output=1, disabled_effort="low", thinking_modes=(),
        version_in_body=True,
    )  # fmt: skip
    assert len(list(contradictions(bad))) == 6
    assert list(contradictions(Quirks())) == []


# Facts, with the section of the wire sheet that states them.
FACTS: list[tuple[str, str, str, dict[str, object]]] = [
    ("Messages 0: prefill ends with 4.6", "anthropic", "claude-haiku-4-5", {"prefill": True}),
    ("Messages 0: prefill ends with 4.6", "anthropic", "claude-sonnet-4-6", {"prefill": False}),
    ("Messages 0: sampling ends with 4.7", "anthropic", "claude-opus-4-6", {"sampling": "all"}),
    ("Messages 0: sampling ends with 4.7", "anthropic", "claude-opus-4-7", {"sampling": "none"}),
    ("Messages 0: sampling ends with 4.7", "anthropic", "claude-sonnet-5", {"sampling": "none"}),
    ("Messages 5: forced choice", "anthropic", "claude-opus-5", {"forced_choice": True}),
    ("Messages 5: forced choice", "anthropic", "claude-sonnet-5", {"forced_choice": True}),
    ("Messages 5: forced choice", "bedrock", "anthropic.claude-sonnet-5", {"forced_choice": False}),
    ("Messages 5: forced choice", "anthropic", "claude-fable-5", {"forced_choice": False}),
    ("Messages 5: forced choice", "anthropic", "claude-mythos-preview", {"forced_choice": False}),
    ("Messages 5: forced choice", "anthropic", "claude-opus-5-5", {"forced_choice": False}),
    ("Messages 5: forced choice", "anthropic", "claude-sonnet-5-5", {"forced_choice": False}),
    ("Messages 5: forced choice while thinking", "anthropic", "claude-opus-4-5", {"forced_choice_thinking": False}),
    ("Messages 3: system in mid conversation", "anthropic", "claude-opus-4-7", {"mid_system": False}),
    ("Messages 3: system in mid conversation", "anthropic", "claude-sonnet-4-6", {"mid_system": False}),
    ("Messages 3: system in mid conversation", "anthropic", "claude-opus-4-8", {"mid_system": True}),
    ("Messages 3: system in mid conversation", "anthropic", "claude-haiku-5-5", {"mid_system": True}),
    ("Messages 3: not on Foundry", "foundry", "claude-opus-4-8", {"mid_system": False}),
    ("Messages 7", "anthropic", "claude-sonnet-4-5", {"thinking_modes": ("enabled", "disabled"), "effort": False}),
    ("Messages 7", "anthropic", "claude-opus-4-5", {"thinking_modes": ("enabled", "disabled"), "effort": True}),
    (
        "Messages 7",
        "anthropic",
        "claude-opus-4-6",
        {"thinking_modes": ("adaptive", "enabled", "disabled"), "default_effort": "high"},
    ),
    ("Messages 7", "anthropic", "claude-opus-4-8", {"thinking_modes": ("adaptive", "disabled"), "thinks_unasked": False}),
    ("Messages 7", "anthropic", "claude-sonnet-5", {"thinking_modes": ("adaptive", "disabled"), "thinks_unasked": True}),
    ("Messages 7", "anthropic", "claude-opus-5", {"thinking_modes": ("adaptive", "disabled"), "disabled_effort": "high"}),
    ("Messages 7", "anthropic", "claude-fable-5", {"thinking_modes": ("adaptive",), "default_effort": "high"}),
    ("Messages 7", "anthropic", "claude-opus-5-5", {"thinking_modes": ("adaptive",), "default_effort": "medium"}),
    (
        "Messages 7",
        "anthropic",
        "claude-sonnet-5-5",
        {"thinking_modes": ("adaptive", "between_tools"), "default_effort": "high"},
    ),
    ("Messages 7", "anthropic", "claude-haiku-5-5", {"thinking_modes": ("adaptive", "disabled"), "default_effort": "medium"}),
    ("Messages 8: bound to the prefix", "anthropic", "claude-fable-5-2", {"prefix_bound": True}),
    ("Messages 8: bound to the prefix", "bedrock", "us.anthropic.claude-mythos-5-2-v1:0", {"prefix_bound": True}),
    ("Messages 8: bound to the prefix", "vertex", "claude-fable-5-1@20260901", {"prefix_bound": True}),
    ("Messages 8: bound to the prefix", "foundry", "claude-opus-5-5", {"prefix_bound": True}),
    ("Messages 8: not before 5.1", "anthropic", "claude-fable-5", {"prefix_bound": False}),
    ("Messages 8: not before 5.5", "anthropic", "claude-opus-5", {"prefix_bound": False}),
    ("Messages 8: same account", "anthropic", "claude-sonnet-5-5", {"prefix_bound": True, "seal_scope": "account"}),
    ("Messages 8: only its own blocks", "anthropic", "claude-haiku-5-5", {"prefix_bound": True, "seal_scope": "model"}),
    (
        "Messages 16: OpenRouter does not enforce it",
        "openrouter-anthropic",
        "anthropic/claude-fable-5.2",
        {"prefix_bound": False},
    ),
    ("Messages 12: no automatic marks", "bedrock", "claude-opus-4-8", {"cache_provider": False}),
    ("Messages 12: no automatic marks", "vertex", "claude-opus-4-8", {"cache_provider": False}),
    ("Messages 16", "bedrock", "x", {"model_in_body": False, "version_in_body": True, "api_version": "bedrock-2023-05-31"}),
    ("Messages 16", "bedrock", "x", {"stream_path": "/model/{model}/invoke-with-response-stream", "framing": "eventstream"}),
    (
        "Messages 16",
        "vertex",
        "x",
        {"model_in_body": False, "version_in_body": True, "stream_path": "/models/{model}:streamRawPredict"},
    ),
    ("Messages 16", "bedrock-mantle", "anthropic.claude-opus-4-8", {"model_in_body": True, "version_in_body": False}),
    (
        "Messages 16: aliases of other models",
        "deepseek-anthropic",
        "claude-opus-5-5",
        {"sampling": "all", "prefix_bound": False},
    ),
    ("Messages 16: media", "deepseek-anthropic", "deepseek-v4-pro", {"images": False, "documents": False, "cache_marks": 0}),
    ("Messages 16: compat hosts", "kimi-anthropic", "kimi-k3", {"strict": False, "output_schema": False, "effort": False}),
    ("Messages 16: compat hosts", "zai-anthropic", "glm-5.3", {"api_version": "2023-06-01"}),
    ("Messages 16", "ollama-anthropic", "qwen3:8b", {"forced_choice": False, "cache_marks": 0, "documents": False}),
    ("C4: recorded, so not stripped", "bedrock", "claude-opus-4-8", {"thinking_replay": "all", "thinking_kept": "sealed"}),
    ("C3: kept where it is bound", "anthropic", "claude-opus-5-5", {"thinking_replay": "all"}),
    ("Messages 16: replayed whole", "minimax", "minimax-m3", {"thinking_replay": "all", "thinking_kept": "any"}),
    ("S3.19: unsigned is kept", "kimi-anthropic", "kimi-k2.6", {"thinking_kept": "any", "seal_scope": "provider"}),
    ("S3.19: unsigned is kept", "deepseek-anthropic", "deepseek-flash", {"thinking_kept": "any", "seal_scope": "provider"}),
    ("Responses 0: no encrypted reasoning", "openai", "gpt-4o", {"sealed": False, "effort": False}),
    ("Responses 0: encrypted reasoning", "openai", "gpt-5-mini", {"sealed": True, "effort": True}),
    ("Responses 6", "openai", "o3", {"default_effort": "medium", "efforts": ("low", "medium", "high"), "sampling": "none"}),
    ("Responses 6: minimal", "openai", "gpt-5", {"default_effort": "medium", "efforts": ("minimal", "low", "medium", "high")}),
    (
        "Responses 6: off by default",
        "openai",
        "gpt-5.2",
        {"default_effort": "off", "sampling": "thinking_off", "thinks_unasked": False},
    ),
    ("Responses 6: off by default", "azure", "gpt-5.4", {"default_effort": "off", "sampling": "thinking_off"}),
    ("Responses 6: chat is fixed", "openai", "gpt-5.2-chat-latest", {"efforts": ("medium",)}),
    ("Responses 6: always on", "openai", "gpt-5.4-pro", {"sampling": "none", "thinks_unasked": True}),
    ("Responses 6", "openai", "gpt-5.5", {"default_effort": "medium", "sampling": "thinking_off"}),
    ("Responses 6: no minimal", "openai", "gpt-5.6-luna", {"efforts": ("off", "low", "medium", "high", "xhigh", "max")}),
    (
        "Responses 6: never off",
        "openai",
        "gpt-6-astra",
        {"efforts": ("low", "medium", "high", "xhigh", "max"), "sampling": "none"},
    ),
    ("Responses 6: never off", "openai", "gpt-6.1-sol", {"efforts": ("low", "medium", "high", "xhigh", "max")}),
    ("Responses 7: bound to the model", "openai", "gpt-5", {"seal_scope": "model"}),
    ("Responses 11: marks from 5.6 on", "openai", "gpt-5.5", {"cache_marks": 0}),
    ("Responses 11: marks from 5.6 on", "openai", "gpt-5.6-sol", {"cache_marks": 3, "cache_ttls": ("30m", "12h")}),
    (
        "Responses 14",
        "deepseek-responses",
        "deepseek-v4-flash",
        {"calls_last": True, "phase": False, "store": False, "sealed": False},
    ),
    ("Responses 14", "xai", "grok-4.5", {"store": True, "sealed": True, "cache_key": True, "phase": False}),
    ("Responses 14", "openrouter-responses", "openai/gpt-oss-20b", {"store": False, "item_ids": False, "cache_key": False}),
    ("Responses 14", "ollama-responses", "qwen3:8b", {"store": False, "sealed": False, "phase": False, "conversation": False}),
    ("Responses 14: older builds", "vllm-responses", "any", {"call_status": False, "store": False}),
    ("Gemini 1: the model is in the path", "google", "gemini-3-flash-preview", {"model_in_body": False, "seal_scope": "model"}),
    ("Gemini 2: hosted tools beside functions", "google", "gemini-3-flash-preview", {"hosted_beside": "flag"}),
    ("Gemini 2: hosted tools beside functions", "google-vertex", "gemini-3-flash-preview", {"hosted_beside": "free"}),
    ("Gemini 2: hosted tools beside functions", "google-vertex", "gemini-2.5-flash", {"hosted_beside": "no"}),
    ("Gemini 2: sampling is not heeded", "google", "gemini-4-argon", {"sampling": "none"}),
    ("Gemini 3: media in results", "google", "gemini-2.5-pro", {"result_parts": ()}),
    ("Gemini 4: checked arguments since 2.5", "google", "gemini-2.0-flash", {"strict": False}),
    ("Gemini 4: checked arguments since 2.5", "google", "gemini-2.5-flash", {"strict": True}),
    ("Gemini 6", "google", "gemini-2.0-flash", {"thinking_control": "none"}),
    ("Gemini 6", "google", "gemini-2.5-flash", {"thinking_control": "budget", "least_budget": 0, "most_budget": 24_576}),
    ("Gemini 6", "google", "gemini-2.5-pro-preview-03-25", {"least_budget": 128, "most_budget": 32_768}),
    ("Gemini 6", "google", "gemini-3-pro-preview", {"efforts": ("low", "medium", "high"), "default_effort": "high"}),
    ("Gemini 6", "google", "gemini-3-flash-preview", {"efforts": ("minimal", "low", "medium", "high")}),
    ("Gemini 6", "google", "gemini-3.8-flash", {"efforts": ("low", "medium", "high"), "default_effort": "medium"}),
    ("Gemini 7: signatures are demanded since 3", "google", "gemini-2.5-pro", {"call_signature": ""}),
    (
        "Gemini 7: signatures are demanded since 3",
        "google-vertex",
        "gemini-3.6-flash",
        {"call_signature": "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="},
    ),
]


@pytest.mark.parametrize(("source", "provider", "model", "facts"), FACTS, ids=lambda part: str(part))
def test_a_row_holds_what_the_sheet_says(source: str, provider: str, model: str, facts: dict[str, object]) -> None:
    quirks = ROWS.quirks(provider, model)
    assert {name: getattr(quirks, name) for name in facts} == facts, source


@pytest.mark.parametrize(
    ("provider", "model", "window", "output"),
    [
        ("anthropic", "claude-3-opus-latest", 200_000, 4_096),
        ("anthropic", "claude-opus-4-20250514", 200_000, 32_000),
        ("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", 200_000, 64_000),
        ("anthropic", "claude-sonnet-4-6", 1_000_000, 128_000),
        ("anthropic", "claude-fable-5-2", 1_000_000, 128_000),
        ("openai", "gpt-4o-2024-08-06", 128_000, 16_384),
        ("openai", "gpt-5.4", 1_050_000, 128_000),
        ("openai", "gpt-5.4-mini", 400_000, 128_000),
        ("openai", "unheard-of", 0, 0),
    ],
)
def test_windows_and_output_limits(provider: str, model: str, window: int, output: int) -> None:
    facts = ROWS.facts(provider, model)
    assert (facts.window, facts.quirks.max_output) == (window, output)


@pytest.mark.parametrize(
    "model", ["claude-opus-5-7", "claude-sonnet-6", "claude-haiku-6-1", "claude-fable-6", "claude-mythos-5-3"]
)
def test_a_model_newer_than_the_file_is_taken_for_the_newest_of_its_family(model: str) -> None:
    quirks = ROWS.quirks("anthropic", model)
    assert (quirks.prefix_bound, quirks.prefill, quirks.sampling) == (True, False, "none")


def raw(name: str) -> dict[str, Any]:
    return tomllib.loads((resources.files("evener.providers") / name).read_text(encoding="utf-8"))


def test_each_file_holds_its_own_kind_of_row() -> None:
    assert set(raw("providers.toml")) == {"providers"}
    assert set(raw("models.toml")) == {"models"}


def table(rows: Rows) -> list[str]:
    """The table of docs/providers.md."""
    return [
        f"| `{row.name}` | `{row.wire}` | `{row.base_url}` | {' or '.join(f'`{name}`' for name in row.key_env)}"
        f"{' (optional)' if row.keyless else ''} |"
        for row in sorted(rows.providers, key=lambda row: (row.wire, row.name))
    ]


def test_the_documented_table_is_the_built_in_rows() -> None:
    shown = DOCS.read_text(encoding="utf-8").partition("## Built-in rows")[2]
    wanted = "\n".join(table(ROWS))
    assert shown.strip().partition("|---|---|---|---|\n")[2] == wanted, f"put this under the heading:\n{wanted}"


def test_every_field_of_a_row_is_documented() -> None:
    text = DOCS.read_text(encoding="utf-8")
    fields = [*Provider.__struct_fields__, *ModelRow.__struct_fields__, "like"]
    assert [name for name in fields if name != "name" and f"`{name}`" not in text] == []
