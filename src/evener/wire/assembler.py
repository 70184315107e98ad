"""Folds deltas into a Reply. The only place where streamed pieces become blocks; the same for all wires. Pure."""

from collections.abc import Iterable
from typing import assert_never

import msgspec

from evener.errors import WireError
from evener.transcript import delta as d
from evener.transcript.blocks import (
    Block,
    Citation,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    ReasoningBlock,
    TextBlock,
    ToolCall,
)
from evener.transcript.origin import Seal
from evener.transcript.reply import Reply, Stop
from evener.transcript.usage import Usage

__all__ = ["Assembler", "assemble"]


NONE_YET = Usage()


class _Part(msgspec.Struct):
    """A block under construction."""

    kind: str
    pieces: list[str] = []
    citations: list[Citation] = []
    seal: Seal | None = None
    call_id: str = ""
    name: str = ""
    block: HostedBlock | None = None


class Assembler:
    """Add deltas, then take the reply. A stream that failed raises its error; one that never stopped has no reply."""

    def __init__(self) -> None:
        self._parts: dict[int, _Part] = {}
        self._notices: list[tuple[str, str]] = []
        self._usage = NONE_YET
        self._stop: Stop | None = None
        self._id = ""
        self._model = ""

    def add(self, deltas: Iterable[d.Delta]) -> None:
        """Fold deltas in, in order."""
        for delta in deltas:
            match delta:
                case d.TextDelta(index, text):
                    self._part(index, "text").pieces.append(text)
                case d.ReasoningDelta(index, text):
                    self._part(index, "reasoning").pieces.append(text)
                case d.ArgumentsDelta(index, text):
                    self._part(index, "call").pieces.append(text)
                case _:
                    self._add_rare(delta)

    def _add_rare(self, delta: d.Delta) -> None:
        match delta:
            case d.CallStarted() | d.CallEnded() | d.HostedAdded() | d.MediaAdded() | d.SealAdded() | d.CitationAdded():
                self._add_to_part(delta)
            case d.Started(id, model):
                self._id, self._model = id, model
            case d.UsageReported(usage):
                self._usage = usage
            case d.Stopped(reason, raw, detail):
                self._stop = Stop(reason, raw, detail)
            case d.Notice(name, raw):
                self._notices.append((name, raw))
            case d.Failed(error):
                raise error
            case d.TextDelta() | d.ReasoningDelta() | d.ArgumentsDelta():
                self.add((delta,))
            case _:
                assert_never(delta)

    def _add_to_part(
        self, delta: d.CallStarted | d.CallEnded | d.HostedAdded | d.MediaAdded | d.SealAdded | d.CitationAdded
    ) -> None:
        match delta:
            case d.CallStarted(index, id, name):
                part = self._part(index, "call")
                part.call_id, part.name = id, name
            case d.CallEnded(index, raw):
                self._part(index, "call").pieces = [raw]
            case d.HostedAdded(index, block):
                self._part(index, "hosted").block = block
            case d.MediaAdded(index, media_type, data):
                part = self._part(index, "media")
                part.name, part.pieces = media_type, [data]
            case d.SealAdded(index, kind, data, id):
                self._part(index, kind).seal = Seal(data, id=id)
            case d.CitationAdded(index, citation):
                self._part(index, "text").citations.append(citation)
            case _:
                assert_never(delta)

    def reply(self) -> Reply:
        """The whole answer."""
        if self._stop is None:
            raise WireError("The answer has no end. Feed the decoder's `close()` and check for a truncated stream.")
        blocks = tuple([_block(self._parts[index]) for index in sorted(self._parts)])
        return Reply(blocks, self._stop, self._usage, self._id, self._model, tuple(self._notices))

    def _part(self, index: int, kind: str) -> _Part:
        part = self._parts.get(index)
        if part is None:
            part = self._parts[index] = _Part(kind)
        return part


def _block(part: _Part) -> Block:
    if part.block:
        return part.block
    text = "".join(part.pieces)
    match part.kind:
        case "text":
            return TextBlock(text, tuple(part.citations), part.seal)
        case "reasoning":
            return ReasoningBlock(text, part.seal)
        case "media" if part.name.startswith("image/"):
            return ImageBlock(Inline(text), part.name, seal=part.seal)
        case "media":
            return DocumentBlock(Inline(text), part.name, seal=part.seal)
        case _:
            return ToolCall(part.call_id, part.name, text or "{}", part.seal)


def assemble(deltas: Iterable[d.Delta]) -> Reply:
    """The reply that these deltas make."""
    assembler = Assembler()
    assembler.add(deltas)
    return assembler.reply()
