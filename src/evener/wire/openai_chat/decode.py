"""Chat Completions' answers, whole or streamed, as neutral deltas. One path: a whole answer is one large delta. Pure.

Rules (sheet 6): the first choice counts. Token counts may come with any chunk, also after the last word. A turn is complete
when a finish reason was seen, with [DONE] after it or without; one that ends without a reason is truncated, whatever its end
mark says (where a row never gives reasons, a chunk without choices and the end mark tell). An error may stand in a chunk after
a 200. A chunk of an unknown form is a notice.
"""

from collections.abc import Iterator

import msgspec

from evener.errors import TruncatedStream, WireError
from evener.transcript import delta as d
from evener.transcript.delta import TextDelta
from evener.transcript.reply import Reply
from evener.wire.assembler import assemble
from evener.wire.faults import complaint_of, typed
from evener.wire.lenient import BROKEN, mend, read_some
from evener.wire.openai_chat.chunks import (
    CARRYING,
    NOTHING_SAID,
    Choice,
    Chunk,
    Message,
    form_of,
    is_there,
    read_chunk,
    read_opening,
    read_words,
)
from evener.wire.openai_chat.counts import Counts, usage_of
from evener.wire.openai_chat.tags import Tags
from evener.wire.openai_chat.turn import Turn
from evener.wire.quirks import Quirks
from evener.wire.sse import SseReader
from evener.wire.stream import NO_ANSWER, NO_REASON, StreamDecoder, not_ours, read_frames, settle
from evener.wire.text import dumps, fields

__all__ = ["decode", "decoder"]

END = b"[DONE]"
ANSWER = "a chat completion"
UNCOUNTED = Counts()
NOWHERE = -1


class _RawChoice(msgspec.Struct):
    delta: dict[str, msgspec.Raw] | None = None
    message: dict[str, msgspec.Raw] | None = None


class _RawChunk(msgspec.Struct):
    choices: list[_RawChoice] = []


_raw_chunks = msgspec.json.Decoder(_RawChunk)


def decode(body: bytes, quirks: Quirks) -> Reply:
    """A whole answer."""
    found: list[d.Delta] = []
    events = _events(quirks, whole=True)
    frames = [body]
    try:
        if not read_frames(events, frames, found, ANSWER):
            found += events.closed()
    except BROKEN as error:
        raise not_ours(error, body, ANSWER) from None
    if not events.answered and not any(isinstance(delta, d.Failed) for delta in found):
        start = body[:60].decode(errors="replace")
        raise WireError(
            f"Expected a chat completion, but the answer has no choices. It begins with {start!r}. Check the base URL."
        )
    settle(events, found, frames if events.turn.silent else [])
    return assemble(found)


def decoder(quirks: Quirks) -> StreamDecoder:
    """A streamed answer."""
    return StreamDecoder(_events(quirks), SseReader())


class _Events(msgspec.Struct, gc=False):
    """`plain`: a chunk may be words and nothing else, as far as the dialect goes. `words` is the place of the text that the
    next chunk most likely adds to; NOWHERE while there is none, or once a chunk was of another form."""

    quirks: Quirks
    turn: Turn
    whole: bool = False
    plain: bool = True
    words: int = NOWHERE
    answered: bool = False
    started: bool = False
    counted: bool = False
    beside: list[Message] = []

    def read(self, frames: Iterator[bytes], found: list[d.Delta]) -> bool:
        """Chunks; the end mark and errors are the last."""
        for frame in frames:
            if self.words >= 0:
                other = self._spoken(frame, frames, found)
                if other is None:
                    return False
                frame = other
            try:
                chunk = None if frame == END else read_chunk(frame) if self.started else self._open(frame, found)
            except msgspec.DecodeError:
                chunk = _end_in(frame)
            if chunk is None:
                found += self.closed() if self.answered else [d.Failed(TruncatedStream(NO_ANSWER))]
                return True
            if chunk.choices and not chunk.error:
                if self._choices(chunk.choices, frame, found):
                    return True
            elif self._bare(chunk, frame, found):
                return True
            if chunk.usage or self.quirks.usage_path or chunk.moderation or chunk.prompt_filter_results:
                self._beside(chunk, frame, found)
        return False

    def _spoken(self, frame: bytes | None, frames: Iterator[bytes], found: list[d.Delta]) -> bytes | None:
        """This chunk and the next ones, as long as they are words and nothing else; the first that is not."""
        place = self.words
        while frame is not None:
            try:
                (choice,) = read_words(frame).choices
            except msgspec.DecodeError:
                self.words, self.plain = NOWHERE, False
                break
            text = choice.delta.content
            if text:
                found.append(TextDelta(place, text))
            frame = next(frames, None)
            if choice.finish_reason:
                self.words = NOWHERE
                self.turn.ended(choice.finish_reason, choice.native_finish_reason or "")
                break
        return frame

    def mend(self, frame: bytes) -> tuple[bytes, list[d.Notice]]:
        """A chunk without what need not be understood."""
        return mend(frame, form_of, CARRYING)

    def missing(self) -> str:
        """Why the turn does not count, now that it has ended."""
        told = self.turn.finish or (not self.quirks.stop_told and (self.whole or self.counted))
        return "" if told else NO_REASON

    def end(self) -> list[d.Delta] | None:
        """A turn that has said why it ended is complete, also without the end mark."""
        return self.closed() if self.turn.finish else None

    def closed(self) -> list[d.Delta]:
        """What follows at the end. An answer that said nothing where it is looked for may have said it beside."""
        found: list[d.Delta] = []
        if self.beside and self.turn.silent:
            for said in self.beside:
                self.turn.add(said, found, whole=True)
        return [*found, *self.turn.end()]

    def _open(self, frame: bytes, found: list[d.Delta]) -> Chunk:
        """The first chunks, up to one that says whose answer it is."""
        chunk = read_opening(frame)
        if chunk.id or chunk.model:
            self.started = True
            self.turn.id = chunk.id or ""
            found.append(d.Started(chunk.id or "", chunk.model or ""))
        return chunk

    def _choices(self, choices: list[Choice], frame: bytes, found: list[d.Delta]) -> bool:
        turn = self.turn
        if not self.answered:
            self.answered = True
        for choice in choices:
            if choice.index:
                found.append(d.Notice("another choice", frame.decode()))
                continue
            said = choice.delta if choice.message is None else self._either(choice.message, choice.delta)
            if said is not None:
                turn.add(said, found, self.whole)
            if choice.finish_reason:
                turn.ended(choice.finish_reason, choice.native_finish_reason or "")
            if self.quirks.answer_fields:
                self._keep(frame)
            if (choice.usage or choice.logprobs or choice.error) and self._beside_choice(choice, found):
                return True
        if self.plain and turn.kind == "text":
            self.words = turn.place
        return False

    def _either(self, message: Message, delta: Message | None) -> Message:
        """The one of the two that belongs here; the other one is kept until it is known whether anything was said."""
        if delta is None:
            return message
        said, other = (message, delta) if self.whole else (delta, message)
        if other != NOTHING_SAID and self.turn.silent:
            self.beside = _distinct([*self.beside, other])
        return said

    def _beside_choice(self, choice: Choice, found: list[d.Delta]) -> bool:
        """What else a choice may hold; True when it is an error."""
        if choice.usage:
            self._count(dumps(choice.usage), found)
        if isinstance(choice.logprobs, dict) and any(is_there(raw) for raw in choice.logprobs.values()):
            found.append(d.Notice("logprobs", dumps(choice.logprobs).decode()))
        if not choice.error:
            return False
        found.append(_failed(dumps({"error": choice.error})))
        return True

    def _keep(self, frame: bytes) -> None:
        """Fields of the message that must go back as they came, if this chunk has some."""
        names = self.quirks.answer_fields
        if any(name.encode() in frame for name in names):
            read = _raw_chunks.decode(frame).choices[0]
            self.turn.keep(read.delta or read.message or {}, names, whole=self.whole)

    def _bare(self, chunk: Chunk, frame: bytes, found: list[d.Delta]) -> bool:
        """A chunk without choices: an error, counts only, a sign of life, or something nobody knows."""
        if chunk.error:
            found.append(_failed(frame))
            return True
        if chunk.usage or chunk.choices is not None:
            self.counted = self.answered  # what comes after all choices comes last
            return False
        kind = read_opening(frame).object or ""
        if kind.startswith("chat.completion") or "choices" in fields(frame):
            return False
        complaint = complaint_of(frame)
        found.append(d.Failed(typed(complaint, {})) if complaint else d.Notice(kind or "chunk", frame.decode()))
        return complaint is not None

    def _beside(self, chunk: Chunk, frame: bytes, found: list[d.Delta]) -> None:
        """What else a chunk may hold: token counts, and words about the answer rather than of it."""
        if chunk.usage:
            self._counted(chunk.usage, frame, found)
        elif self.quirks.usage_path and self.quirks.usage_path[0].encode() in frame:
            raw: bytes | msgspec.Raw = frame
            for name in self.quirks.usage_path:
                raw = fields(raw).get(name, msgspec.Raw(b"{}")) if bytes(raw)[:1] == b"{" else raw
            self._count(bytes(raw), found)
        if chunk.moderation:
            found.append(d.Notice("moderation", dumps(chunk.moderation).decode()))
        if chunk.prompt_filter_results:
            found.append(d.Notice("prompt_filter_results", dumps(chunk.prompt_filter_results).decode()))

    def _counted(self, counts: Counts, frame: bytes, found: list[d.Delta]) -> None:
        """The counts of a chunk. Where nothing is known of them, they may be empty: then they say nothing."""
        if counts == UNCOUNTED:
            self._count(dumps(fields(fields(frame)["usage"])), found)
        else:
            found.append(d.UsageReported(usage_of(counts, apart=self.quirks.reasoning_apart)))

    def _count(self, raw: bytes, found: list[d.Delta]) -> None:
        """Read token counts; counts of an unknown form are a notice."""
        if raw not in (b"null", b"{}"):
            counts = read_some(raw, Counts, "usage", found)
            found.append(d.UsageReported(usage_of(counts, apart=self.quirks.reasoning_apart)))


def _events(quirks: Quirks, *, whole: bool = False) -> _Events:
    plain = not (whole or quirks.think_tags or quirks.answer_fields or quirks.usage_path)
    return _Events(quirks, Turn(Tags() if quirks.think_tags else None), whole, plain)


def _end_in(frame: bytes) -> Chunk | None:
    """None, where what cannot be read is an end mark with spaces around it."""
    if frame.strip() != END:
        raise
    return None


def _distinct(said: list[Message]) -> list[Message]:
    """Messages that came one after the other, without the last but one where the last repeats it."""
    *_, before, after = NOTHING_SAID, *said
    grown = isinstance(before.content, str) and isinstance(after.content, str) and after.content.startswith(before.content)
    return [*said[:-2], after] if grown else said


def _failed(frame: bytes) -> d.Failed:
    complaint = complaint_of(frame)
    return d.Failed(typed(complaint, {}) if complaint else WireError("The provider reported an error without a message."))
