"""Parts that only this wire understands, kept verbatim: whose they are, what they wait for, and a line for elsewhere. Pure."""

import re
from collections.abc import Iterator
from typing import Literal

import msgspec

from evener.transcript.blocks import HostedBlock
from evener.wire.gemini.parts import WIRE, camel_fields
from evener.wire.text import word

__all__ = ["CIRCULATED", "HOSTED", "hosted_block"]

CIRCULATED = ("toolCall", "toolResponse")
"""What the provider's own tools were asked and gave back: parts that only some endpoints hand out and take back (sheet 3)."""

BEGINNINGS = ("executableCode", "toolCall")
ENDS = ("codeExecutionResult", "toolResponse")
HOSTED = (*BEGINNINGS, *ENDS)

READABLE = ("code", "output", "args", "response")
OPAQUE = re.compile(r"[A-Za-z0-9+/_=-]{80}|^data:")
"""What nobody can read: base64, signatures, ciphers."""
SECRET = re.compile("signature|encrypted|token|^data$", re.IGNORECASE)
DEEPEST = 8
LONGEST = 290


def hosted_block(raw: msgspec.Raw, provider: str = "") -> HostedBlock:
    """A part of the provider's own."""
    own = camel_fields(raw)
    kind = next((name for name in HOSTED if name in own), "")
    inner = camel_fields(own[kind]) if kind and bytes(own[kind])[:1] == b"{" else {}
    whose: Literal["", "assistant"] = "assistant" if kind else ""
    name = word(inner.get("id"))
    opens, closes = (name, "") if kind in BEGINNINGS else ("", name)
    return HostedBlock(bytes(raw).decode(), WIRE, _line(own, kind, inner), whose, opens, closes, provider=provider)


def _line(own: dict[str, msgspec.Raw], kind: str, inner: dict[str, msgspec.Raw]) -> str:
    named = [kind or next(iter(own), "empty part"), word(inner.get("toolType")), word(inner.get("outcome"))]
    said = " ".join(text for name in READABLE if name in inner for text in _words(_value(inner[name]), 0))
    text = " ".join(name for name in named if name) + (f": {said}" if said else "")
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _value(raw: msgspec.Raw) -> object:
    """What JSON says; nothing where it goes too deep or a number is too large."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _words(value: object, depth: int) -> Iterator[str]:
    """The texts in a value that people can read."""
    match value:
        case str() if value.strip() and not OPAQUE.search(value):
            yield value.strip()
        case dict() if depth < DEEPEST:
            for name, one in value.items():
                if not SECRET.search(name):
                    yield from _words(one, depth + 1)
        case list() if depth < DEEPEST:
            for one in value:
                yield from _words(one, depth + 1)
