"""Decodes answers for all wires: events in, deltas out, and deltas assembled into a reply. Pure; it never raises on input.

An answer counts only when it is complete: its wire's end marker has arrived, it says why it stopped, and each call in it was
closed. Each wire reports what is missing; whether the answer counts is decided here, for all wires, streamed and whole.
"""

from collections.abc import Iterable, Iterator, Sequence
from operator import length_hint
from typing import Protocol, assert_never

import msgspec

from evener.errors import BadValue, EvenerError, TruncatedStream, WireError
from evener.transcript import delta as d
from evener.transcript.blocks import (
    Block,
    Citation,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    ReasoningBlock,
    Seal,
    TextBlock,
    ToolCall,
    ToolResult,
)
from evener.transcript.delta import (
    ArgumentsDelta,
    CallBegun,
    Delta,
    Failed,
    HostedAdded,
    MediaAdded,
    Notice,
    ReasoningDelta,
    Started,
    Stopped,
    TextDelta,
    UsageReported,
)
from evener.transcript.reply import Reply, Stop, Usage
from evener.wire.eventstream import EventStreamReader
from evener.wire.reading import BROKEN, has_text, pair_halves
from evener.wire.sse import SseReader

NONE_YET = Usage()
UNNAMED = Started("", "")
PIECES = {TextDelta: "text", ReasoningDelta: "reasoning", ArgumentsDelta: "call"}
"""Nearly all deltas of a stream, and the kind of block that each begins."""
CUT = ("length", "context_full", "refusal")
"""Reasons to stop that cut an answer in the middle."""


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


PartDelta = d.CallBegun | d.CallEnded | d.HostedAdded | d.MediaAdded | d.SealAdded | d.CitationAdded


class Assembler(msgspec.Struct, gc=False):
    """Add deltas, then take the reply. A stream that failed raises its error; one without an end, or with an open call, has
    no reply.
    """

    _parts: dict[int, _Part] = {}
    _notices: list[tuple[str, str]] = []
    _usage: Usage = NONE_YET
    _stop: Stop | None = None
    _started: d.Started = UNNAMED

    def add(self, deltas: Iterable[d.Delta]) -> None:
        """Fold deltas in, in order."""
        parts = self._parts
        for delta in deltas:
            sort = PIECES.get(type(delta))
            if sort is not None:
                index, text = delta.index, delta.text  # type: ignore[union-attr]  # each of these has both
                part = parts.get(index)
                if part is None:
                    parts[index] = _Part(sort, [text])
                else:
                    part.pieces.append(text)
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
                self._add_to_part(delta)  # type: ignore[arg-type]  # those of PIECES were taken above

    def _add_to_part(self, delta: PartDelta) -> None:
        index = delta.index
        if type(delta) is d.CallBegun:
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
        """Return the whole answer."""
        if self._stop is None:
            raise WireError("The answer has no end. Feed the decoder's `close()` and check for a truncated stream.")
        parts, started = self._parts, self._started
        blocks: list[Block] = []
        for index in sorted(parts) if len(parts) > 1 else parts:
            blocks.append(_block(parts[index]))
        if self._stop.reason in CUT and blocks and type(blocks[-1]) is ToolCall and blocks[-1].raw == "{}":
            # The limit came before its arguments. As an empty object they would run the tool with its defaults.
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
    return ToolCall(part.call_id, part.name, text, part.seal)


def assemble(deltas: Iterable[d.Delta]) -> Reply:
    """Return the reply that these deltas make."""
    assembler = Assembler()
    assembler.add(deltas)
    return assembler.reply()


def deltas_of(reply: Reply) -> Iterator[d.Delta]:
    """Yield the deltas of a reply, in order; `assemble` makes the same reply of them."""
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
            yield d.CallBegun(index, id, name)
            yield d.ArgumentsDelta(index, raw)
            yield from _seal(index, "call", seal)
            yield d.CallEnded(index, raw)
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


END = b"[DONE]"
EVENT = "an event of this wire"
NO_ANSWER = "The stream ended before it said anything. The turn does not count; ask again."
MID_TURN = "The stream ended in mid-turn. The turn does not count; ask again."
NO_REASON = "a reason why it stopped"
OPEN_CALL = "the end of a call that had begun"
FRAMINGS: dict[str, type[SseReader] | type[EventStreamReader]] = {"sse": SseReader, "eventstream": EventStreamReader}
"""Readers that split a streamed answer into events, by the quirk of that name."""
SAYING = frozenset({TextDelta, ReasoningDelta, ArgumentsDelta, CallBegun, HostedAdded, MediaAdded})
"""Deltas with content."""
UNREAD = 16
"""The most events that are kept of an answer in which nothing could be read yet."""


class EventReading(Protocol):
    """A wire's reading of its events, one after the other."""

    def read(self, frames: Iterator[bytes], found: list[Delta]) -> bool:
        """Add the deltas of these events; True, and no more are taken, at the last one. Decoding errors may pass."""
        ...

    def mend(self, frame: bytes) -> tuple[bytes, list[Notice]]:
        """Return an event that could not be decoded without its optional fields, and these as notices."""
        ...

    def missing(self) -> str:
        """Return what the ended answer lacks to be complete; empty when it is complete."""
        ...

    def end(self) -> list[Delta] | None:
        """Return the closing deltas if the turn is complete although the bytes ended without a last event, else None."""
        ...


class StreamDecoder(msgspec.Struct, gc=False):
    """Feed bytes, cut anywhere; get deltas. An error is a `Failed` delta, the last one."""

    _events: EventReading
    _frames: SseReader | EventStreamReader
    _over: bool = False
    _said: bool = False
    _unread: list[bytes] = []

    def feed(self, data: bytes) -> list[Delta]:
        """Return the deltas that these bytes complete."""
        if self._over:
            return []
        found: list[Delta] = []
        try:
            self._read(self._frames.feed(data), found)
        except WireError as error:
            self._fail(found, error)
        return found

    def close(self) -> list[Delta]:
        """Return the rest. A turn without its end marker is truncated, whatever half an event says."""
        if self._over:
            return []
        found: list[Delta] = []
        try:
            self._read(self._frames.close(), found)
        except WireError:  # half an event: the answer was cut, whatever came before
            found.clear()
            self._fail(found, TruncatedStream(MID_TURN))
        if not self._over:
            self._over = True
            try:
                closing = self._events.end()
            except BROKEN as error:
                self._fail(found, unreadable_error(error, b"", EVENT))
                return found
            if closing is None:
                self._fail(found, TruncatedStream(MID_TURN))
            else:
                found += closing
                settle(self._events, found, self._unread)
        return found

    def _read(self, frames: list[bytes], found: list[Delta]) -> None:
        if not frames:
            return
        left = iter(frames)
        try:
            over = self._events.read(left, found)
        except BROKEN as error:
            over = _read_on(self._events, frames, left, found, error, EVENT)
        if not self._said:
            self._said = not SAYING.isdisjoint(map(type, found))
            if not self._said:  # events are kept as long as nothing was read in them
                self._unread += frames[: min(UNREAD - len(self._unread), len(frames) - length_hint(left))]
            else:
                self._unread = []
        if over:
            self._over = True
            settle(self._events, found, self._unread)

    def _fail(self, found: list[Delta], error: EvenerError) -> None:
        self._over = True
        found.append(Failed(error))


def read_frames(events: EventReading, frames: list[bytes], found: list[Delta], what: str) -> bool:
    """Read the events of an answer that is complete. True if the last one was read."""
    left = iter(frames)
    try:
        return events.read(left, found)
    except BROKEN as error:
        return _read_on(events, frames, left, found, error, what)


def _read_on(
    events: EventReading, frames: list[bytes], left: Iterator[bytes], found: list[Delta], error: Exception, what: str
) -> bool:
    """Read an event again that could not be decoded, without its lesser fields, and then those that are left."""
    while True:
        frame = frames[-1 - length_hint(left)]
        if frame.strip() != END or isinstance(error, UnicodeDecodeError):
            try:
                mended, notices = events.mend(frame)
                over = events.read(iter((mended,)), found)
            except BROKEN:
                raise unreadable_error(error, frame, what) from None
            place = len(found) - over  # before the last one, after all others of the event
            found[place:place] = notices
            if over:
                return True
        try:
            return events.read(left, found)
        except BROKEN as another:
            error = another


def settle(events: EventReading, found: list[Delta], unread: Sequence[bytes]) -> None:
    """Decide whether an answer that has stopped counts. One that says nothing hands on the events that hold text."""
    last = found[-1]
    if type(last) is not Stopped:
        return
    missing = events.missing()
    if missing:
        found[-1] = Failed(TruncatedStream(f"The answer ended without {missing}. The turn does not count; ask again."))
    elif unread and last.reason == "done":
        found[-1:] = [*(Notice("text elsewhere", frame.decode()) for frame in unread if has_text(frame)), last]


def unreadable_error(error: Exception, frame: bytes, what: str) -> WireError:
    """Return the error for bytes that are not what was expected."""
    start = frame[:60].decode(errors="replace")
    return WireError(f"Expected {what}, but the bytes cannot be read as that: {error}. They begin with {start!r}.")
