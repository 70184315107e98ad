"""What only this wire understands, kept verbatim, with a line for elsewhere that never holds sounds, pictures or keys. Pure."""

import re
from collections.abc import Iterator

import msgspec

from evener.transcript.blocks import HostedBlock
from evener.wire.openai_chat.seals import WIRE
from evener.wire.text import fields, word

__all__ = ["hosted_block"]

READABLE = {
    *("arguments", "code", "content", "document_name", "document_url", "filename", "input", "name", "output", "query"),
    *("refusal", "search_results", "results", "text", "title", "transcript", "url"),
}
"""Fields that people can read, wherever they stand."""
OPAQUE = re.compile(r"[A-Za-z0-9+/_=-]{80}|^data:")
"""What nobody can read: base64, signatures, ciphers."""
DEEPEST = 8
LONGEST = 290


def hosted_block(raw: msgspec.Raw, provider: str = "") -> HostedBlock:
    """A part, or a whole message or field of one, that has no neutral word."""
    own = fields(raw)
    name = word(own.get("type")) or word(own.get("role")) or next(iter(own), "")
    said = " ".join(_readable(_decoded(raw), 0, named=False))
    text = f"{name}: {said}" if said else name
    short = text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
    return HostedBlock(bytes(raw).decode(), WIRE, short, provider=provider)


def _decoded(raw: msgspec.Raw) -> object:
    """The value; nothing when it is JSON that cannot be had as one (too deep, a number too large)."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _readable(value: object, depth: int, *, named: bool) -> Iterator[str]:
    """The words in a value: its readable fields, those of objects within it included."""
    match value:
        case str() if named and value.strip() and not OPAQUE.search(value):
            yield value.strip()
        case dict() if depth < DEEPEST:
            for name, one in value.items():
                yield from _readable(one, depth + 1, named=name in READABLE)
        case list() if depth < DEEPEST:
            for one in value:
                yield from _readable(one, depth + 1, named=named)
