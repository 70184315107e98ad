"""Model strings: what is understood, and what is said instead of a guess."""

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from evener.errors import UsageError
from evener.providers.rows import ALIASES, MAKERS, ModelName, ModelRow, Rows, load_rows, parse_model

ROWS = load_rows()

UNDERSTOOD = {
    "anthropic:claude-opus-5-5": ("anthropic", "claude-opus-5-5"),
    "anthropic/claude-opus-5-5": ("anthropic", "claude-opus-5-5"),
    "openrouter/vendor/name:free": ("openrouter", "vendor/name:free"),
    "openrouter:vendor/name:free": ("openrouter", "vendor/name:free"),
    "bedrock:us.anthropic.claude-opus-4-5-20251101-v1:0": ("bedrock", "us.anthropic.claude-opus-4-5-20251101-v1:0"),
    "ollama:qwen3:8b": ("ollama", "qwen3:8b"),
    "Anthropic:Claude": ("anthropic", "Claude"),
    "  openai:gpt-5.1\n": ("openai", "gpt-5.1"),
    "local:smollm2": ("local", "smollm2"),
    "local:path/to/model.gguf": ("local", "path/to/model.gguf"),
    "local:/abs/a b.gguf": ("local", "/abs/a b.gguf"),
    "smollm2": ("local", "smollm2"),
    "deepseek-anthropic:claude-x": ("deepseek-anthropic", "claude-x"),
}


@pytest.mark.parametrize("text", UNDERSTOOD)
def test_a_model_string_names_a_provider_and_a_model(text: str) -> None:
    """S2.38."""
    assert parse_model(text, rows=ROWS) == ModelName(*UNDERSTOOD[text])


def test_a_name_reads_back_as_itself() -> None:
    name = parse_model("openrouter/vendor/name:free", rows=ROWS)
    assert parse_model(str(name), rows=ROWS) == name


REFUSED = {
    "": "empty",
    "   ": "empty",
    "anthropic": "'anthropic' is a provider; the model is missing",
    "anthropic:": "names a provider, but no model",
    "antropic:claude-opus-5-5": "Did you mean anthropic:claude-opus-5-5",
    "claude-opus-5-5": "Write anthropic:claude-opus-5-5.",
    "anthropic.claude-opus-4-5": "Write anthropic:anthropic.claude-opus-4-5.",
    "gpt-5.1": "Write openai:gpt-5.1.",
    "o3-mini": "Write openai:o3-mini.",
    "gemini-3-pro-preview": "Write google:gemini-3-pro-preview.",
    "kimi-k3": "Write kimi:kimi-k3.",
    "qwen3:8b": "ollama:qwen3:8b",
    "vendor/name": "names no provider, and no row knows a model of this name",
    "models/tiny.gguf": "Write local:models/tiny.gguf to run this file",
    "claud": "Did you mean 'claude'?",
    "no-such-thing": "for example anthropic:claude-opus-5-5 or local:smollm2",
    "anthropic:a\x1b[31m": "not a plain text",
    "anthropic:" + "x" * 1001: "at most 1000 characters",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_understood_is_answered_with_what_to_write(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_model(text, rows=ROWS)
    assert REFUSED[text] in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_name_that_means_another_model_at_a_host_is_not_advised_there() -> None:
    with pytest.raises(UsageError) as caught:
        parse_model("claude-opus-5-5", rows=ROWS)
    assert "deepseek" not in str(caught.value)


def test_rows_of_the_user_are_advised_too() -> None:
    rows = Rows(ROWS.providers, (*ROWS.models, ModelRow(("lab-*",), ("vllm",))))
    with pytest.raises(UsageError, match=r"Write vllm:lab-7\."):
        parse_model("lab-7", rows=rows)


def test_an_alias_stands_for_the_whole_text() -> None:
    assert parse_model("fast", rows=ROWS, aliases={"fast": "groq/x"}) == ModelName("groq", "x")


def test_an_alias_may_stand_for_another_one_once() -> None:
    aliases = {"mine": "fast", "fast": "groq:x", "far": "mine"}
    assert parse_model("mine", rows=ROWS, aliases=aliases) == ModelName("groq", "x")
    with pytest.raises(UsageError, match="more than one other alias"):
        parse_model("far", rows=ROWS, aliases=aliases)


@pytest.mark.parametrize("aliases", [{"a": "a"}, {"a": "b", "b": "a"}])
def test_an_alias_that_leads_back_to_itself_is_an_error(aliases: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="leads back to itself"):
        parse_model("a", rows=ROWS, aliases=aliases)


@pytest.mark.parametrize("alias", ALIASES)
def test_every_built_in_alias_names_a_model_of_a_row(alias: str) -> None:
    name = parse_model(alias, rows=ROWS)
    assert name.provider == "local" or ROWS.facts(name.provider, name.model).window


@pytest.mark.parametrize(("pattern", "provider"), MAKERS)
def test_every_maker_is_a_row_whose_models_the_rows_know(pattern: str, provider: str) -> None:
    assert ROWS.provider(provider).name == provider
    stem = pattern.split("*")[0].split("[")[0]
    known = [match for row in ROWS.models for match in row.match]
    assert any(match.startswith(stem) or fnmatchcase(match, pattern) for match in known)


@pytest.mark.parametrize(("alias", "meaning"), ALIASES.items())
def test_every_built_in_alias_is_documented(alias: str, meaning: str) -> None:
    page = Path(__file__).parents[2] / "docs" / "configuration.md"
    assert f"| `{alias}` | `{meaning}` |" in page.read_text(encoding="utf-8")
