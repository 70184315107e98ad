"""How the servers that speak Chat Completions differ in their answers: one record each, from section 9 of its sheet. Data."""

from collections.abc import Mapping
from typing import Literal

import msgspec

__all__ = ["Style", "style"]


class Style(msgspec.Struct, frozen=True, kw_only=True):
    """One server's way.

    `reasoning`: the field that carries it, "chunks" for parts of the content, or "" for nowhere. `usage`: where a stream
    reports it: in a chunk of its own when asked for, on the finishing chunk (asked or not), in a field of that chunk, inside
    its choice, or on one more chunk with a choice. `comments`: a line of comment opens the stream. `error`: how a stream
    breaks. `alphanumeric`: call ids of nine letters or digits. `padding`: chunks are padded with a field of noise.
    """

    reasoning: Literal["", "reasoning_content", "reasoning", "chunks"] = "reasoning_content"
    details: bool = False
    usage: Literal["asked", "finish", "always", "x_groq", "choice", "after"] = "asked"
    comments: bool = False
    error: Literal["data", "event", "chunk"] = "data"
    alphanumeric: bool = False
    padding: bool = False


_PLAIN = Style()
_NAMED = Style(reasoning="reasoning")
_STYLES: Mapping[str, Style] = {
    "openai": Style(reasoning="", padding=True),
    "azure": Style(reasoning="", padding=True),
    "xai": Style(reasoning=""),
    "deepseek": Style(usage="finish"),
    "kimi": Style(usage="choice"),
    "moonshot": Style(usage="choice"),
    "zai": Style(usage="always"),
    "mistral": Style(reasoning="chunks", usage="always", alphanumeric=True),
    "groq": Style(reasoning="reasoning", usage="x_groq", error="event"),
    "openrouter": Style(reasoning="reasoning", details=True, usage="after", comments=True, error="chunk"),
    "ollama": _NAMED,
    "vllm": _NAMED,
    "cerebras": _NAMED,
}


def style(dialect: str) -> Style:
    """The record of a dialect; reasoning in `reasoning_content` and usage when asked for where nothing else is known."""
    return _STYLES.get(dialect, _PLAIN)
