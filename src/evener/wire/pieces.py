"""A whole reply as the deltas that would have made it: so that whole and streamed answers take one path. Pure."""

from collections.abc import Iterator

from evener.errors import BadValue
from evener.transcript import delta as d
from evener.transcript.blocks import (
    Block,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    ReasoningBlock,
    TextBlock,
    ToolCall,
    ToolResult,
)
from evener.transcript.origin import Seal
from evener.transcript.reply import Reply

__all__ = ["deltas_of"]


def deltas_of(reply: Reply) -> Iterator[d.Delta]:
    """The deltas, in order; `assemble` makes the same reply of them."""
    yield d.Started(reply.id, reply.model)
    for index, block in enumerate(reply.blocks):
        yield from _pieces(index, block)
    for name, raw in reply.notices:
        yield d.Notice(name, raw)
    yield d.UsageReported(reply.usage)
    yield d.Stopped(reply.stop.reason, reply.stop.raw, reply.stop.detail)


def _pieces(index: int, block: Block) -> Iterator[d.Delta]:
    match block:
        case TextBlock(text, citations, seal):
            yield d.TextDelta(index, text)
            yield from (d.CitationAdded(index, citation) for citation in citations)
            yield from _seal(index, "text", seal)
        case ReasoningBlock(text, seal):
            yield d.ReasoningDelta(index, text)
            yield from _seal(index, "reasoning", seal)
        case ToolCall(id, name, raw, seal):
            yield d.CallStarted(index, id, name)
            yield d.ArgumentsDelta(index, raw)
            yield d.CallEnded(index, raw)
            yield from _seal(index, "call", seal)
        case HostedBlock():
            yield d.HostedAdded(index, block)
        case ImageBlock(source=Inline(content)) | DocumentBlock(source=Inline(content)):
            yield d.MediaAdded(index, block.media_type, content)
            yield from _seal(index, "media", block.seal)
        case ImageBlock() | DocumentBlock() | ToolResult():
            raise BadValue(f"A model's answer cannot hold a {block.kind} block of this kind. Give deltas for it yourself.")


def _seal(index: int, kind: d.SealedKind, seal: Seal | None) -> Iterator[d.Delta]:
    if seal is not None:
        yield d.SealAdded(index, kind, seal.data, seal.id)
