"""Parts that only this wire understands, kept verbatim: whose they are, what they wait for, and a line for elsewhere. Pure."""

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


def hosted_block(raw: msgspec.Raw) -> HostedBlock:
    """A part of the provider's own."""
    own = camel_fields(raw)
    kind = next((name for name in HOSTED if name in own), "")
    inner = camel_fields(own[kind]) if kind and bytes(own[kind])[:1] == b"{" else {}
    whose: Literal["", "assistant"] = "assistant" if kind else ""
    name = word(inner.get("id"))
    opens, closes = (name, "") if kind in BEGINNINGS else ("", name)
    return HostedBlock(bytes(raw).decode(), WIRE, _line(own, kind, inner), whose, opens, closes)


def _line(own: dict[str, msgspec.Raw], kind: str, inner: dict[str, msgspec.Raw]) -> str:
    named = [kind or next(iter(own), "empty part"), word(inner.get("toolType")), word(inner.get("outcome"))]
    said = next((word(inner.get(name)) for name in ("code", "output", "args", "response") if name in inner), "")
    said = said if len(said) <= 300 else said[:300] + "..."
    return " ".join(name for name in named if name) + (f": {said}" if said else "")
