"""Differences are data: no provider or model is named in the code or comments of wire/ and loop/."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shape.tree import SRC

FOLDERS = ("wire", "loop")

# Names of wires (anthropic_messages, openai_chat, ..., the headers anthropic-version and anthropic-beta) are not names
# of providers: only the names below are, and the vendors whose wires these are do not occur among them.
NAMES = (
    "azure bedrock cerebras claude deepseek fireworks foundry gpt-\\w+ grok groq haiku huggingface kimi llama "
    "minimax mistral moonshot ollama openrouter (?<!audio/)(?<!codecs=)opus snowflake sonnet vertex xai zai z\\.ai"
).split()

# Case aside. A word ends at an underscore, a digit or a hump: GROQ_HOST, is_groq, groqStyle and Llama3 are all found.
NAMED = re.compile(
    "|".join(
        (
            rf"(?<![a-zA-Z])(?i:{'|'.join(NAMES)})(?!(?<=[a-zA-Z])[a-z])",
            rf"(?<=[a-z])(?:{'|'.join(name.capitalize() for name in NAMES if name.isalpha())})(?![a-z])",
            # An everyday word: a provider only where it opens a quoted name.
            r"""["']together(?i:[-_.]?ai)?(?:["':/])""",
        )
    )
)


def named(where: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        yield from (f"{where}:{number}: names {hit[0]!r}" for hit in NAMED.finditer(line))


def files() -> list[Path]:
    found = [path for folder in FOLDERS for path in sorted((SRC / "evener" / folder).rglob("*")) if path.is_file()]
    return [path for path in found if "__pycache__" not in path.parts]


def test_no_provider_or_model_is_named_in_wire_and_loop() -> None:
    assert [hit for path in files() for hit in named(path.relative_to(SRC).as_posix(), path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    "line",
    [
        'if "groq" in url:',
        'MODEL = "claude-1"',
        'model.startswith("gpt-4")',
        "gpt-oss",
        "# Mistral wants nine characters",
        "GROQ_HOST = 1",
        "def is_deepseek(row): ...",
        "class GroqQuirks: ...",
        "isGroq = True",
        'if name == "together":',
        'row = "together/some-model"',
        "# only z.ai does this",
        "Llama3",
        "llama.cpp",
        "the DeepSeek API",
        "VERTEX",
        "xAI",
    ],
)
def test_a_name_is_caught(line: str) -> None:
    assert len(list(named("plan.py", line))) == 1


@pytest.mark.parametrize(
    "line",
    [
        "# the two are joined together",
        'raise WireError("these go together")',
        'media_type == "audio/opus"',
        "from evener.wire import anthropic_messages, openai_chat, openai_responses, gemini",
        'headers = {"anthropic-version": v, "anthropic-beta": b}',
        "maximal = bazaaring + grokking_not",
        "minimaxing = 1",
    ],
)
def test_a_wire_or_an_everyday_word_passes(line: str) -> None:
    assert list(named("plan.py", line)) == []
