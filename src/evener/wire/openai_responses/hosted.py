"""Items that only this wire understands, kept verbatim: whose they are, what they wait for, and a line for elsewhere. Pure."""

import msgspec

from evener.transcript.blocks import HostedBlock
from evener.wire.openai_responses.blocks import WIRE
from evener.wire.text import fields, word

__all__ = ["hosted_block", "is_answer"]


def is_answer(kind: str) -> bool:
    """Whether an item is something the client sends back."""
    return kind.endswith("_output") or kind in ("mcp_approval_response", "compaction_trigger")


def hosted_block(raw: msgspec.Raw) -> HostedBlock:
    """An item of the provider's own."""
    own = fields(raw)
    kind, call = word(own.get("type")), word(own.get("call_id"))
    if word(own.get("execution")) == "server":
        call = ""  # nobody has to answer it
    opens = call if not is_answer(kind) else ""
    closes = call if is_answer(kind) else ""
    return HostedBlock(bytes(raw).decode(), WIRE, _line(own), opens=opens, closes=closes, id=word(own.get("id")))


def _line(own: dict[str, msgspec.Raw]) -> str:
    named = [word(own.get(name)) for name in ("type", "name", "server_label", "status")]
    said = next((word(own.get(name)) for name in ("action", "queries", "code", "arguments") if own.get(name)), "")
    said = said if len(said) <= 300 else said[:300] + "..."
    return " ".join(name for name in named if name) + (f": {said}" if said else "")
