"""Conversations that a provider shortens itself: how a request asks for it, and which part of an answer replaces the rest.
Pure.

The provider's summary is opaque and signed: it is kept verbatim, and sent only to that provider.
"""

from functools import partial

import msgspec
from msgspec.structs import replace

from evener.transcript.ask import Ask, Extra
from evener.transcript.blocks import HostedBlock
from evener.transcript.reply import Reply
from evener.wire.codec import Codec
from evener.wire.prefix import dumps, fields, text_in, word
from evener.wire.quirks import Quirks
from evener.wire.request import Encoded

BETAS = "anthropic-beta"
KIND = "compaction"
TAKEN = ("model", "input", "instructions", "previous_response_id", "prompt_cache_key", "prompt_cache_options")
"""Fields that the address for compactions takes; the others are of the answer that it does not give."""
INSTRUCTIONS = "Summarize the conversation so that the work can go on from the summary alone. Look above all at: "
LEAST_TRIGGER = 50_000
"""Tokens: below so many a provider does not compact by itself; it still clears tool results."""


def compacting_codec(codec: Codec, quirks: Quirks, focus: str = "") -> Codec | None:
    """Return the codec whose requests ask for a compaction instead of an answer; None where the endpoint has none.

    `focus` is what to look at above all: None is returned where the endpoint cannot be told.
    """
    if quirks.compaction == "field":
        return replace(codec, encode=partial(_with_field, codec, focus))
    if quirks.compaction == "route" and not focus:
        return replace(codec, encode=partial(_to_route, codec))
    return None


def _with_field(codec: Codec, focus: str, ask: Ask, quirks: Quirks, prior: Encoded | None) -> Encoded:
    told = {"instructions": INSTRUCTIONS + focus} if focus else {}
    body = dumps({KIND: {"type": "summarize", **told}}).decode()
    extra = Extra(codec.wire, body, ((BETAS, quirks.compaction_beta),) if quirks.compaction_beta else ())
    return codec.encode(replace(ask, extra=(*ask.extra, extra)), quirks, prior)


def _to_route(codec: Codec, ask: Ask, quirks: Quirks, prior: Encoded | None) -> Encoded:
    made = codec.encode(ask, quirks, prior)
    kept = {name: value for name, value in fields(made.body).items() if name in TAKEN}
    return replace(made, path=f"{made.path}/compact", body=dumps(kept))


def context_edits(wire: str, quirks: Quirks, *, trigger: int, least: int, keep: int) -> tuple[Extra, ...]:
    """Return the fields with which the provider shortens conversations itself, above `trigger` tokens; none where it does not.

    `least` is how many tokens a clearing must free, so that the prompt cache breaks rarely, `keep` how many calls keep their
    results.
    """
    if quirks.context_edits == "threshold":
        return (Extra(wire, dumps({"context_management": [{"type": KIND, "compact_threshold": trigger}]}).decode()),)
    if quirks.context_edits != "edits":
        return ()
    edits: list[dict[str, object]] = [
        {
            "type": "clear_tool_uses_20250919",
            "trigger": {"type": "input_tokens", "value": trigger},
            "keep": {"type": "tool_uses", "value": keep},
            "clear_at_least": {"type": "input_tokens", "value": least},
        }
    ]
    if trigger >= LEAST_TRIGGER:
        edits.append({"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": trigger}})
    headers = ((BETAS, ",".join(quirks.edit_betas)),) if quirks.edit_betas else ()
    return (Extra(wire, dumps({"context_management": {"edits": edits}}).decode(), headers),)


def read_compaction(reply: Reply) -> HostedBlock | str:
    """Return the block that stands for the conversation, with what can be read of it; or why there is none."""
    if reply.stop.reason != "compacted":
        return f"it stopped for another reason ({reply.stop.reason})"
    for block in reply.blocks:
        if isinstance(block, HostedBlock):
            own = fields(block.raw)
            if word(own.get("type")) == KIND:
                held = [bytes(own.get(name, msgspec.Raw(b"null"))) for name in ("content", "encrypted_content")]
                if all(value in (b"null", b'""') for value in held):
                    return "the provider came to none"
                said = text_in(own.get("content"))
                return replace(block, text=f"summary of the conversation so far: {said}") if said else block
    return "there is no compaction in it"
