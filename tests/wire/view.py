"""A Reply in the simple form of `tests/wire/expect.py`, so that the two can be compared. Changes nothing, judges nothing."""

import json
from collections.abc import Iterable
from typing import assert_never

from evener.transcript import (
    Block,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    ReasoningBlock,
    Reply,
    Seal,
    TextBlock,
    ToolCall,
    ToolResult,
)
from evener.transcript import delta as d
from tests.wire.expect import Answer, Json, Piece

TEXT_ARGUMENTS = ("openai_responses", "openai_chat")
"""Wires on which arguments are a text, to be kept to the letter; on the others they are a value, or a text when cut off."""


def seen(wire: str, reply: Reply) -> Answer:
    """All that a reply says."""
    usage = reply.usage
    return Answer(
        reply.id,
        reply.model,
        tuple(piece(wire, block) for block in reply.blocks),
        (reply.stop.reason, reply.stop.raw),
        (usage.input_total, usage.uncached, usage.cache_read, usage.cache_write, usage.output_total, usage.reasoning),
    )


def piece(wire: str, block: Block) -> Piece:
    """One block."""
    match block:
        case TextBlock(text, citations, seal):
            cited = tuple((one.url, one.title, one.quote, one.start, one.end) for one in citations)
            return Piece("text", text, sealed=_sealed(seal), cited=cited)
        case ReasoningBlock(text, seal):
            return Piece("reasoning", text, sealed=_sealed(seal))
        case ToolCall(id, name, raw, seal):
            arguments = raw if wire in TEXT_ARGUMENTS or not block.parses else json.loads(raw)
            return Piece("call", id=id, name=name, arguments=arguments, sealed=_sealed(seal))
        case HostedBlock(raw):
            return Piece("hosted", sealed=json.loads(raw))
        case ImageBlock() | DocumentBlock() | ToolResult():
            raise AssertionError(f"no answer holds a {block.kind}")
        case _:
            assert_never(block)


def _sealed(seal: Seal | None) -> Json:
    """The provider's fields. Where a text is a part of an item, the fields of both stand in the seal, apart."""
    own: Json = json.loads(seal.data) if seal else {}
    return {**own.get("item", {}), **own.get("part", {})} if own.keys() <= {"item", "part"} else own


def shown(deltas: Iterable[d.Delta]) -> tuple[str, ...]:
    """What the texts, thoughts and arguments of each block add up to, in the order of the blocks."""
    texts: dict[int, str] = {}
    for delta in deltas:
        match delta:
            case d.TextDelta(index, text) | d.ReasoningDelta(index, text) | d.ArgumentsDelta(index, text):
                texts[index] = texts.get(index, "") + text
            case d.SealAdded(index) | d.CallBegun(index):
                texts.setdefault(index, "")
            case _:
                pass
    return tuple(texts[index] for index in sorted(texts))
