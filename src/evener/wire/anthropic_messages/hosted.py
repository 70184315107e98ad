"""Blocks that only this wire understands, kept verbatim: whose they are, what they wait for, and a line for elsewhere. Pure."""

from hashlib import blake2b
from typing import Literal

import msgspec

from evener.transcript.blocks import HostedBlock
from evener.wire.anthropic_messages.blocks import WIRE
from evener.wire.schema_nodes import as_list
from evener.wire.seals import line_of
from evener.wire.text import dict_of, dumps, word

__all__ = ["Whose", "hosted_block", "seal_name"]

QUOTED = ("document", "search_result")
"""Types whose words are the user's own: they go to other wires in full."""

Whose = Literal["", "user", "assistant", "system", "result"]

# Whose message a type belongs to (sheets 3 and 4); a type that is not listed may stand anywhere.
WHOSE: dict[str, Whose] = {
    "container_upload": "user",
    "search_result": "user",
    "tool_addition": "system",
    "tool_removal": "system",
    "tool_reference": "result",
    "browser_state": "result",
    "server_tool_use": "assistant",
    "mcp_tool_use": "assistant",
    "mcp_tool_listing": "assistant",
    "compaction": "assistant",
    "fallback": "assistant",
}


def hosted_block(own: dict[str, msgspec.Raw], provider: str = "", whose: Whose = "") -> HostedBlock:
    """A block of the provider's own, from its fields. `whose` says where it stood, if that is where it may go back."""
    kind = word(own.get("type"))
    whose = whose or WHOSE.get(kind, "assistant" if kind.endswith("_tool_result") else "")
    opens = word(own.get("id")) if kind in ("server_tool_use", "mcp_tool_use") else ""
    closes = word(own.get("tool_use_id")) if kind.endswith("_tool_result") else ""
    line = _quoted(own) if kind in QUOTED else line_of(own, ("type", "name", "server_name", "tool_name"))
    return HostedBlock(dumps(own).decode(), WIRE, line, whose, opens, closes, opens, provider)


def _quoted(own: dict[str, msgspec.Raw]) -> str:
    """Return what the user gave the model to read, in full, under its title."""
    said = {name: msgspec.json.decode(value) for name, value in own.items()}
    source = said.get("source")
    parts = dict_of(source).get("content") if isinstance(source, dict) else said.get("content")
    texts = [parts] if isinstance(parts, str) else [dict_of(part).get("text") for part in as_list(parts)]
    head = [said.get(name) for name in ("type", "title", "source", "context")]
    lines = [", ".join(text for text in head if isinstance(text, str) and text), *texts]
    return "\n".join(text for text in lines if isinstance(text, str) and text)


def seal_name(data: str) -> str:
    """A name for signed thinking, which has none of its own: the same signature twice is the same thinking twice."""
    return blake2b(data.encode(), digest_size=12).hexdigest()
