"""Folds deltas into a Reply. The only place where streamed pieces become blocks; the same for all wires. Pure.

A call that was never closed makes no reply, and one that was cut before its arguments has none that can be read: half a call
must not run.
"""

from collections.abc import Iterable
from typing import assert_never

import msgspec

from evener.errors import TruncatedStream, WireError
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
from evener.transcript.delta import ArgumentsDelta, ReasoningDelta, Started, Stopped, TextDelta, UsageReported
from evener.transcript.origin import Seal
from evener.transcript.reply import Reply, Stop
from evener.transcript.usage import Usage
from evener.wire.lenient import pair_halves

__all__ = ["Assembler", "assemble"]


NONE_YET = Usage()
UNNAMED = Started("", "")
PIECES = {TextDelta: "text", ReasoningDelta: "reasoning", ArgumentsDelta: "call"}
"""Nearly all deltas of a stream, and what a block is that begins with one."""
CUT = ("length", "context_full")
"""Reasons to stop that come in the middle of what was being said."""


class _Part(msgspec.Struct, gc=False):
    """A block under construction."""

    kind: str
    pieces: list[str] = []
    citations: list[Citation] = []
    seal: Seal | None = None
    call_id: str = ""
    name: str = ""
    ended: bool = False
    block: HostedBlock | None = None


class Assembler(msgspec.Struct, gc=False):
    """Add deltas, then take the reply. A stream that failed raises its error; one that never stopped, or that left a call
    open, has no reply."""

    _parts: dict[int, _Part] = {}
    _notices: list[tuple[str, str]] = []
    _usage: Usage = NONE_YET
    _stop: Stop | None = None
    _started: d.Started = UNNAMED

    def add(self, deltas: Iterable[d.Delta]) -> None:
        """Fold deltas in, in order."""
        parts = self._parts
        for delta in deltas:
            if type(delta) is TextDelta or type(delta) is ArgumentsDelta or type(delta) is ReasoningDelta:
                part = parts.get(delta.index)
                if part is None:
                    parts[delta.index] = _Part(PIECES[type(delta)], [delta.text])
                else:
                    part.pieces.append(delta.text)
            elif type(delta) is UsageReported:
                self._usage = delta.usage
            elif type(delta) is Started:
                self._started = delta
            elif type(delta) is Stopped:
                self._stop = Stop(delta.reason, delta.raw, delta.detail)
            elif type(delta) is d.Notice:
                self._notices.append((delta.name, delta.raw))
            elif type(delta) is d.Failed:
                raise delta.error
            else:
                self._add_to_part(delta)

    def _add_to_part(
        self, delta: d.CallStarted | d.CallEnded | d.HostedAdded | d.MediaAdded | d.SealAdded | d.CitationAdded
    ) -> None:
        index = delta.index
        if type(delta) is d.CallStarted:
            part = self._part(index, "call")
            part.call_id, part.name = delta.id, delta.name
        elif type(delta) is d.CallEnded:
            part = self._part(index, "call")
            part.pieces, part.ended = [delta.raw], True
        elif type(delta) is d.SealAdded:
            self._part(index, delta.block).seal = Seal(delta.data, id=delta.id)
        elif type(delta) is d.CitationAdded:
            self._part(index, "text").citations.append(delta.citation)
        elif type(delta) is d.HostedAdded:
            self._part(index, "hosted").block = delta.block
        elif type(delta) is d.MediaAdded:
            part = self._part(index, "media")
            part.name, part.pieces = delta.media_type, [delta.data]
        else:
            assert_never(delta)

    def reply(self) -> Reply:
        """The whole answer."""
        if self._stop is None:
            raise WireError("The answer has no end. Feed the decoder's `close()` and check for a truncated stream.")
        parts, started = self._parts, self._started
        blocks: list[Block] = []
        for index in sorted(parts) if len(parts) > 1 else parts:
            blocks.append(_block(parts[index]))
        if self._stop.reason in CUT and blocks and type(blocks[-1]) is ToolCall and blocks[-1].raw == "{}":
            # The limit came before its arguments. Without any, it would run with its defaults.
            blocks[-1] = msgspec.structs.replace(blocks[-1], raw="")
        return Reply(tuple(blocks), self._stop, self._usage, started.id, started.model, tuple(self._notices))

    def _part(self, index: int, kind: str) -> _Part:
        part = self._parts.get(index)
        if part is None:
            part = self._parts[index] = _Part(kind)
        return part


def _block(part: _Part) -> Block:
    if part.block:
        return part.block
    kind, text = part.kind, "".join(part.pieces)
    if kind == "text":
        return TextBlock(text, tuple(part.citations), part.seal)
    if kind == "reasoning":
        return ReasoningBlock(text, part.seal)
    if kind == "media":
        made = ImageBlock if part.name.startswith("image/") else DocumentBlock
        return made(Inline(text), part.name, seal=part.seal)
    if not part.ended:
        raise TruncatedStream(
            f"The call of {part.name} was not closed, so it must not run. The turn does not count; ask again."
        )
    if "\\ud" in text or "\\uD" in text:
        text = pair_halves(text)
    return ToolCall(part.call_id, part.name, text or "{}", part.seal)


def assemble(deltas: Iterable[d.Delta]) -> Reply:
    """The reply that these deltas make."""
    assembler = Assembler()
    assembler.add(deltas)
    return assembler.reply()
