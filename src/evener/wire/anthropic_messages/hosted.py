"""Anthropic's own blocks, kept verbatim: the role they belong to, the result they wait for, a line for other wires. Pure."""

from hashlib import blake2b
from typing import Literal

import msgspec

from evener.transcript import delta as d
from evener.transcript.blocks import Citation, HostedBlock
from evener.wire.anthropic_messages.encode import WIRE
from evener.wire.prefix import dict_of, dumps, line_of, value_in, word
from evener.wire.reading import Place, read_some
from evener.wire.schema import as_list


class _Cited(msgspec.Struct):
    url: str | None = None
    title: str | None = None
    document_title: str | None = None
    cited_text: str | None = None
    start_char_index: Place = None
    end_char_index: Place = None


def citations_in(raw: msgspec.Raw | None) -> list[msgspec.Raw]:
    """Return the citations in the field `citations`, each as JSON; empty if it is not a list."""
    return msgspec.json.decode(raw, type=list[msgspec.Raw]) if raw is not None and bytes(raw)[:1] == b"[" else []


def read_citation(raw: msgspec.Raw, found: list[d.Delta] | None = None) -> Citation:
    """Return one citation, as far as it can be read; the rest of it is added to `found`, as notices."""
    read = read_some(raw, _Cited, "citation", [] if found is None else found)
    start, end = read.start_char_index, read.end_char_index
    title = read.title or read.document_title or ""
    quote = read.cited_text or ""
    return Citation(read.url or "", title, quote, -1 if start is None else start, -1 if end is None else end)


QUOTED = ("document", "search_result")
"""Types with text of the user, which other wires get in full."""

Whose = Literal["", "user", "assistant", "system", "result"]

# The role of the messages that may contain a type (sheets 3 and 4). Other types may be in any message.
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
    """Return a block of the provider's own, from its fields. `whose` is its message's role, if it may be in no other."""
    kind = word(own.get("type"))
    whose = whose or WHOSE.get(kind, "assistant" if kind.endswith("_tool_result") else "")
    opens = word(own.get("id")) if kind in ("server_tool_use", "mcp_tool_use") else ""
    closes = word(own.get("tool_use_id")) if kind.endswith("_tool_result") else ""
    line = _quote(own) if kind in QUOTED else line_of(own, ("type", "name", "server_name", "tool_name"))
    return HostedBlock(dumps(own).decode(), WIRE, line, whose, opens, closes, opens, provider)


def _quote(own: dict[str, msgspec.Raw]) -> str:
    """Return the text that the user gave the model to read, in full, with its title."""
    said = {name: value_in(raw) for name, raw in own.items()}
    source = said.get("source")
    parts = dict_of(source).get("content") if isinstance(source, dict) else said.get("content")
    texts = [parts] if isinstance(parts, str) else [dict_of(part).get("text") for part in as_list(parts)]
    head = [said.get(name) for name in ("type", "title", "source", "context")]
    lines = [", ".join(text for text in head if isinstance(text, str) and text), *texts]
    return "\n".join(text for text in lines if isinstance(text, str) and text)


def seal_name(data: str) -> str:
    """Return an id for signed thinking, which has none: a hash of its signature, which identifies the thinking."""
    return blake2b(data.encode(), digest_size=12).hexdigest()
