"""Items that only this wire understands, kept verbatim: whose they are, what they wait for, and a line for elsewhere. Pure."""

import msgspec

from evener.transcript.blocks import HostedBlock
from evener.wire.openai_responses.blocks import PART, WIRE
from evener.wire.seals import line_of
from evener.wire.text import dumps, fields, word

__all__ = ["hosted_block", "hosted_part", "is_answer"]


def is_answer(kind: str) -> bool:
    """Whether an item is something the client sends back."""
    return kind.endswith("_output") or kind in ("mcp_approval_response", "compaction_trigger")


def hosted_part(raw: msgspec.Raw, provider: str = "") -> HostedBlock:
    """A part of a message or a result that only this wire understands."""
    block = hosted_block(raw, provider)
    return msgspec.structs.replace(block, raw=dumps({PART: raw}).decode(), opens="", closes="")


def hosted_block(raw: msgspec.Raw, provider: str = "") -> HostedBlock:
    """An item of the provider's own."""
    own = fields(raw)
    kind, call = word(own.get("type")), word(own.get("call_id"))
    if word(own.get("execution")) == "server":
        call = ""  # nobody has to answer it
    opens = call if not is_answer(kind) else ""
    closes = call if is_answer(kind) else ""
    line = line_of(own, ("type", "name", "server_label", "status"))
    name = word(own.get("id"))
    return HostedBlock(bytes(raw).decode(), WIRE, line, opens=opens, closes=closes, id=name, provider=provider)
