"""Gemini's answers, whole or streamed, as neutral deltas. One path: a whole answer is a stream of one chunk. Pure.

Rules (sheets 3, 7, 8 and 9): a chunk has new parts only. Successive texts are one text, but a signed text is a block of its
own. Calls come whole, often without an id, and with the finish reason STOP. Token counts are snapshots: the last one is used.
There is no end marker: a turn is complete when a finish reason has come and the bytes have ended. A call may come in pieces; an
incomplete one is discarded with its turn.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from evener.errors import WireError
from evener.transcript import delta as d
from evener.transcript.blocks import Citation
from evener.transcript.delta import CitationAdded, ReasoningDelta, TextDelta
from evener.transcript.repair import make_id
from evener.transcript.reply import Reply, StopReason, Usage
from evener.wire.faults import read_failure
from evener.wire.gemini.parts import HOSTED, KNOWN, NULL, SIGNATURE, Raws, as_list, hosted_block, sealed_text
from evener.wire.prefix import dumps, fields
from evener.wire.quirks import Quirks
from evener.wire.reading import BROKEN, Carrying, Count, Items, mend
from evener.wire.sse import SseReader
from evener.wire.stream import (
    NO_REASON,
    OPEN_CALL,
    StreamDecoder,
    assemble,
    read_frames,
    settle,
    unreadable_error,
)


class _Place(msgspec.Struct):
    uri: str | None = None
    title: str | None = None
    fileSearchStore: str | None = None  # noqa: N815 - here and below, the wire's own spelling


class _Source(msgspec.Struct):
    web: _Place | None = None
    retrievedContext: _Place | None = None  # noqa: N815
    maps: _Place | None = None

    def place(self) -> tuple[str, str]:
        """Return address and title."""
        found = self.web or self.retrievedContext or self.maps or _Place()
        return found.uri or "", found.title or found.fileSearchStore or ""


class _Segment(msgspec.Struct):
    startIndex: int | None = None  # noqa: N815
    endIndex: int | None = None  # noqa: N815
    text: str | None = None


class _Support(msgspec.Struct):
    segment: _Segment | None = None
    groundingChunkIndices: list[int] | None = None  # noqa: N815


class _Grounding(msgspec.Struct):
    groundingChunks: list[_Source] | None = None  # noqa: N815
    groundingSupports: list[_Support] | None = None  # noqa: N815


class _Cited(msgspec.Struct):
    startIndex: int | None = None  # noqa: N815
    endIndex: int | None = None  # noqa: N815
    uri: str | None = None
    title: str | None = None


class _Citations(msgspec.Struct):
    citations: list[_Cited] | None = None
    citationSources: list[_Cited] | None = None  # noqa: N815


_groundings = msgspec.json.Decoder(_Grounding)
_citations = msgspec.json.Decoder(_Citations)

Said = Sequence[TextDelta]
"""The pieces of the answer's text so far."""


STRIDE = 4096
INNER = bytes(range(0x80, 0xC0))
"""The bytes of UTF-8 that do not begin a character."""


class _Ruler:
    """Converts byte offsets in a long text to character offsets, without counting from the start each time."""

    def __init__(self, said: Said) -> None:
        self.said = said
        self.bytes = "".join(piece.text for piece in said).encode()
        self.counts = [0]  # characters before each stride
        for start in range(0, len(self.bytes), STRIDE):
            self.counts.append(self.counts[-1] + _characters(self.bytes[start : start + STRIDE]))
        begins: dict[int, int] = {}
        place = 0
        for piece in said:
            begins.setdefault(piece.index, place)
            place += len(piece.text)
        self.blocks, self.begins = list(begins), list(begins.values())

    def locate(self, start: int, end: int, quote: str) -> tuple[int, int, int]:
        """Return the block in which a range of bytes begins, and the range in characters; -1 if the bytes do not match the
        quote."""
        first, last = self._character(start), self._character(end)
        meant = not quote or (end - start == len(quote.encode()) and self.bytes[start:end].decode(errors="replace") == quote)
        if first < 0 or last <= first or not meant:
            return self.said[-1].index, -1, -1
        number = bisect_right(self.begins, first) - 1
        return self.blocks[number], first - self.begins[number], last - self.begins[number]

    def _character(self, place: int) -> int:
        if (
            not 0 <= place <= len(self.bytes)
            or self.bytes[place : place + 1].translate(None, INNER) != self.bytes[place : place + 1]
        ):
            return -1
        stride = place // STRIDE
        return self.counts[stride] + _characters(self.bytes[stride * STRIDE : place])


def _characters(data: bytes) -> int:
    return len(data.translate(None, INNER))


def read_citations(name: str, raw: msgspec.Raw, said: Said) -> list[CitationAdded]:
    """Return the citations in this metadata; none if it is of another kind or an unknown shape."""
    if not said:
        return []
    try:
        match name:
            case "groundingMetadata":
                return list(_read_grounding(_groundings.decode(raw), said))
            case "citationMetadata":
                return list(_read_cited(_citations.decode(raw), said))
            case _:
                return []
    except msgspec.ValidationError:
        return []


def _read_grounding(read: _Grounding, said: Said) -> Iterator[CitationAdded]:
    sources = [source.place() for source in read.groundingChunks or ()]
    ruler = _Ruler(said)
    for support in read.groundingSupports or ():
        segment = support.segment or _Segment()
        index, start, end = ruler.locate(segment.startIndex or 0, segment.endIndex or 0, segment.text or "")
        for number in support.groundingChunkIndices or ():
            url, title = sources[number] if 0 <= number < len(sources) else ("", "")
            yield CitationAdded(index, Citation(url, title, segment.text or "", start, end))


def _read_cited(read: _Citations, said: Said) -> Iterator[CitationAdded]:
    ruler = _Ruler(said)
    for one in (*(read.citations or ()), *(read.citationSources or ())):
        index, start, end = ruler.locate(one.startIndex or 0, one.endIndex or 0, "")
        yield CitationAdded(index, Citation(one.uri or "", one.title or "", "", start, end))


STEP = re.compile(r"""\.([^.\[\]'"]+)|\[(\d{1,4})\]|\[(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")\]""")


class _Piece(msgspec.Struct):
    jsonPath: str  # noqa: N815 - here and below, the wire's own spelling
    stringValue: str | None = None  # noqa: N815
    numberValue: msgspec.Raw = NULL  # noqa: N815
    boolValue: bool | None = None  # noqa: N815
    willContinue: bool | None = None  # noqa: N815

    def value(self) -> object:
        """Return the value of the piece: a text, a boolean, or unparsed JSON."""
        if self.stringValue is not None:
            return self.stringValue
        return self.boolValue if self.boolValue is not None else self.numberValue


_pieces = msgspec.json.Decoder(_Piece)


class Partial(msgspec.Struct):
    """The call so far. `beside` are the other fields of its parts."""

    index: int
    beside: dict[str, msgspec.Raw]
    kept: dict[str, msgspec.Raw]
    _root: dict[str, object] = {}
    _open: set[str] = set()
    _whole: msgspec.Raw = NULL
    spoilt: bool = False  # a piece of it could not be read, so it never becomes complete

    def add(self, inner: dict[str, msgspec.Raw]) -> bool:
        """Add a part of the call. True if it is the last. Raises `msgspec.ValidationError` if it is not one."""
        spoilt, self.spoilt = self.spoilt, True
        for raw in msgspec.json.decode(inner.get("partialArgs", NULL), type=Items | None) or ():
            self._put(_pieces.decode(raw))
        if inner.get("args", NULL) != NULL:
            self._whole = inner["args"].copy()
        self.spoilt = spoilt
        return not spoilt and bytes(inner.get("willContinue", NULL)) != b"true"

    def arguments(self) -> str:
        """Return the JSON text of all arguments."""
        return bytes(self._whole).decode() if self._whole != NULL else dumps(self._root).decode()

    def _put(self, piece: _Piece) -> None:
        value = piece.value()
        *steps, last = _steps(piece.jsonPath)
        holder: object = self._root
        for step, after in pairwise((*steps, last)):
            holder = _child(holder, step, [] if isinstance(after, int) else {})
        before = _child(holder, last, None)
        text = piece.jsonPath in self._open and isinstance(before, str) and isinstance(value, str)
        _put(holder, last, f"{before}{value}" if text else value)
        if piece.willContinue:
            self._open.add(piece.jsonPath)
        else:
            self._open.discard(piece.jsonPath)


def _steps(path: str) -> list[str | int]:
    """Return the names and numbers of a path, from the root on."""
    steps: list[str | int] = []
    place = 1
    while place < len(path) and (found := STEP.match(path, place)):
        name, number, *quoted = found.groups()
        steps.append(int(number) if number else name or re.sub(r"\\(.)", r"\1", quoted[0] or quoted[1] or ""))
        place = found.end()
    if path[:1] != "$" or place != len(path) or not steps or isinstance(steps[0], int):
        raise msgspec.ValidationError(f"the path {path[:60]!r} of an argument cannot be read")
    return steps


def _child(holder: object, step: str | int, new: object) -> object:
    """Return the value at a step; insert a new one if there is none."""
    if isinstance(step, int) and isinstance(holder, list):
        holder += [None] * (step + 1 - len(holder))
        found: object = holder[step]
    elif isinstance(step, str) and isinstance(holder, dict):
        found = holder.get(step)
    else:
        raise msgspec.ValidationError("an argument is both a list and an object")
    if found is None:
        _put(holder, step, new)
        return new
    return found


def _put(holder: object, step: str | int, value: object) -> None:
    if isinstance(holder, dict):
        holder[step] = value
    if isinstance(holder, list) and isinstance(step, int):
        holder[step] = value


NOTHING = msgspec.Raw(b"")
HALF = {"partialArgs", "willContinue"}
"""Fields of a call that comes in pieces."""
ANSWER = "an answer of this wire (check the base URL)"
THOUGHT = '{"thought":true}'
STOPS: dict[str, StopReason] = {
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    "SAFETY": "refusal",
    "RECITATION": "refusal",
    "BLOCKLIST": "refusal",
    "PROHIBITED_CONTENT": "refusal",
    "SPII": "refusal",
    "MODEL_ARMOR": "refusal",
    "JAILBREAK": "refusal",
    "IMAGE_SAFETY": "refusal",
    "IMAGE_PROHIBITED_CONTENT": "refusal",
    "IMAGE_RECITATION": "refusal",
}
PLAIN = ("STOP", "UNEXPECTED_TOOL_CALL", "")
"""Reasons that do not say whether the model calls tools: the parts of the answer show it (recorded)."""


class _Call(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    name: str
    id: str | None = None
    args: msgspec.Raw = NULL


class _AnyCall(msgspec.Struct):
    name: str
    id: str | None = None
    args: msgspec.Raw = NULL


class _Part(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A part that is text or a call and nothing else. Any other field makes it another kind of part."""

    text: str | None = None
    thought: bool | None = None
    thoughtSignature: str | None = None  # noqa: N815 - here and below, the wire's own spelling
    functionCall: _Call | None = None  # noqa: N815


class _Parts(msgspec.Struct, gc=False):
    parts: list[_Part] | None = None


class _Plain(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The usual candidate: the first one, with content and no other field."""

    content: _Parts | None = None
    finishReason: str | None = None  # noqa: N815
    index: Literal[0] | None = None


class _Content(msgspec.Struct):
    parts: Items | None = None


class _Candidate(msgspec.Struct):
    """Any candidate. Its fields beside the content are kept unchanged."""

    content: _Content | None = None
    finishReason: str | None = None  # noqa: N815
    finishMessage: str | None = None  # noqa: N815
    index: int | None = None
    groundingMetadata: msgspec.Raw = NOTHING  # noqa: N815
    citationMetadata: msgspec.Raw = NOTHING  # noqa: N815
    urlContextMetadata: msgspec.Raw = NOTHING  # noqa: N815
    logprobsResult: msgspec.Raw = NOTHING  # noqa: N815
    safetyRatings: msgspec.Raw = NOTHING  # noqa: N815
    continuationToken: msgspec.Raw = NOTHING  # noqa: N815


BESIDE = _Candidate.__struct_fields__[4:]


class _Usage(msgspec.Struct, gc=False):
    promptTokenCount: Count = None  # noqa: N815
    candidatesTokenCount: Count = None  # noqa: N815
    cachedContentTokenCount: Count = None  # noqa: N815
    thoughtsTokenCount: Count = None  # noqa: N815
    toolUsePromptTokenCount: Count = None  # noqa: N815


class _Feedback(msgspec.Struct):
    blockReason: str | None = None  # noqa: N815
    blockReasonMessage: str | None = None  # noqa: N815


class _PlainChunk(msgspec.Struct, gc=False):
    """The usual chunk: one plain candidate, and no error."""

    candidates: tuple[_Plain]
    usageMetadata: _Usage | None = None  # noqa: N815
    modelVersion: str | None = None  # noqa: N815
    responseId: str | None = None  # noqa: N815
    error: None = None


class _Chunk(msgspec.Struct):
    """Any chunk."""

    candidates: list[_Candidate] | None = None
    usageMetadata: _Usage | None = None  # noqa: N815
    promptFeedback: _Feedback | None = None  # noqa: N815
    modelVersion: str | None = None  # noqa: N815
    responseId: str | None = None  # noqa: N815
    error: msgspec.Raw = NOTHING


class _Blob(msgspec.Struct):
    data: str
    mimeType: str = ""  # noqa: N815


CARRYING: Carrying = {
    _Content: ("parts",),
    _Candidate: ("content", "finishReason", "index"),
    _Feedback: ("blockReason",),
    _Chunk: ("candidates",),
}
"""The fields that carry the answer."""


def form_of(frame: bytes) -> type[_Chunk]:  # noqa: ARG001 - other wires look at the event
    """Return the form of every chunk."""
    return _Chunk


read_plain = msgspec.json.Decoder(_PlainChunk).decode
_chunks = msgspec.json.Decoder(_Chunk)
_parts = msgspec.json.Decoder(_Part)
_calls = msgspec.json.Decoder(_AnyCall)
_blobs = msgspec.json.Decoder(_Blob)


class _Turn(msgspec.Struct, gc=False):
    """The state of decoding one answer. Turns chunks and their parts into deltas."""

    id: str = ""
    index: int = -1
    open: str = ""  # the kind of the block that the next text may extend
    called: bool = False
    half: Partial | None = None
    said: list[TextDelta] = []
    begun: bool = False
    _stop: d.Stopped | None = None
    _finish: tuple[str, str] | None = None
    _counts: _Usage | None = None

    def read(self, frames: Iterator[bytes], found: list[d.Delta]) -> bool:
        """Read chunks. True if the answer has ended in an error."""
        for frame in frames:
            try:
                chunk = read_plain(frame)
            except msgspec.ValidationError:
                if self._read_rare(frame, found):
                    return True
                continue
            if not self.begun:
                self._begin(chunk.responseId, chunk.modelVersion, chunk.usageMetadata, found)
            (candidate,) = chunk.candidates
            content = candidate.content
            if content and content.parts:
                for part in content.parts:
                    if self.open == "text" and part.text and not (part.functionCall or part.thoughtSignature or part.thought):
                        delta = TextDelta(self.index, part.text)  # nearly every part
                        found.append(delta)
                        self.said.append(delta)
                    else:
                        self.part(part, found)
            if candidate.finishReason:
                self._finish = (candidate.finishReason, "")
            if chunk.usageMetadata:
                self._counts = chunk.usageMetadata
        return False

    def _read_rare(self, frame: bytes, found: list[d.Delta]) -> bool:
        """Read a chunk that contains more than text and calls. True if it is an error."""
        chunk = _chunks.decode(frame)
        if chunk.error and chunk.error != NULL:
            found.append(read_failure(frame))
            return True
        stated = (chunk.candidates, chunk.usageMetadata, chunk.promptFeedback, chunk.responseId, chunk.modelVersion)
        if not self.begun and stated.count(None) < len(stated):
            self._begin(chunk.responseId, chunk.modelVersion, chunk.usageMetadata, found)
        feedback = chunk.promptFeedback
        if chunk.candidates:
            for number, candidate in enumerate(chunk.candidates):
                if candidate.index:  # a reply is the first candidate; the others are notices
                    raws = msgspec.json.decode(fields(frame)["candidates"], type=Items)
                    found.append(d.Notice("candidate", bytes(raws[number]).decode()))
                else:
                    self._candidate(candidate, found)
        elif feedback and feedback.blockReason:
            self._stop = d.Stopped("refusal", feedback.blockReason, feedback.blockReasonMessage or "")
        elif not chunk.usageMetadata:
            found.append(d.Notice("chunk", frame.decode()))
        if chunk.usageMetadata:
            self._counts = chunk.usageMetadata
        return False

    def mend(self, frame: bytes) -> tuple[bytes, list[d.Notice]]:
        """Return a chunk without its optional fields of a wrong type."""
        return mend(frame, form_of, CARRYING)

    def missing(self) -> str:
        """Return why the ended turn is incomplete; empty if it is complete."""
        if not (self._finish or self._stop):
            return NO_REASON
        return OPEN_CALL if self.half else ""

    def end(self) -> list[d.Delta] | None:
        """Return the last deltas, now that the bytes have ended: the turn is complete if a reason to stop was given."""
        stop = self.stop(*self._finish) if self._finish else self._stop
        return [*self.report_usage(), stop] if stop else None

    def report_usage(self) -> list[d.UsageReported]:
        """Return the newest token counts. They are reported with the first chunk, in case the stream is cut, and at the end."""
        return [d.UsageReported(_usage(self._counts))] if self._counts else []

    def stop(self, reason: str, detail: str) -> d.Stopped:
        """Return why the turn ended. If the reason leaves it open, the presence of calls decides."""
        if reason in PLAIN and self.called:
            return d.Stopped("tools", reason, detail)
        return d.Stopped("done" if reason == "STOP" else STOPS.get(reason, "other"), reason, detail)

    def _begin(self, id: str | None, model: str | None, counts: _Usage | None, found: list[d.Delta]) -> None:
        self.begun = True
        self.id = id or ""
        found.append(d.Started(self.id, model or ""))
        self._counts = counts
        found += self.report_usage()

    def _candidate(self, candidate: _Candidate, found: list[d.Delta]) -> None:
        for raw in (candidate.content.parts if candidate.content else None) or ():
            self.any_part(raw, found)
        if candidate.finishReason:
            self._finish = (candidate.finishReason, candidate.finishMessage or "")
        for name in BESIDE:  # citations of the text, and the whole metadata unchanged
            raw = getattr(candidate, name)
            if raw and bytes(raw) not in (b"null", b"{}", b"[]"):
                found += read_citations(name, raw, self.said)
                found.append(d.Notice(name, bytes(raw).decode()))

    def part(self, part: _Part, found: list[d.Delta]) -> None:
        """Read a part that is text or a call."""
        if part.functionCall or part.thoughtSignature or part.thought:
            self._read_marked(part, found)
        elif part.text:
            if self.open != "text":
                self._next("text")
            self._say(part.text, found)

    def _read_marked(self, part: _Part, found: list[d.Delta]) -> None:
        """Read a call, a thought, or a signed part."""
        if part.functionCall:
            self._call(part.functionCall, _call_seal(part.functionCall, part), found)
        elif part.thoughtSignature:
            beside = {"thought": True, SIGNATURE: part.thoughtSignature} if part.thought else {SIGNATURE: part.thoughtSignature}
            self._add_sealed("reasoning" if part.thought else "text", part.text or "", dumps(beside).decode(), found)
        elif part.text:
            if self.open != "reasoning":
                found.append(d.SealAdded(self._next("reasoning"), "reasoning", THOUGHT))
            found.append(ReasoningDelta(self.index, part.text))

    def any_part(self, raw: msgspec.Raw, found: list[d.Delta]) -> None:
        """Read a part of any kind. A part of unknown form is kept unchanged."""
        own = fields(raw)
        try:
            self.part(_parts.decode(raw), found)
        except msgspec.ValidationError:
            try:
                self._with_more(own, found)
            except msgspec.ValidationError:
                found.append(d.HostedAdded(self._next(""), hosted_block(raw)))

    def _with_more(self, own: Raws, found: list[d.Delta]) -> None:
        """Read a part with fields of its own: those beside its data go into the seal."""
        data = [name for name in (*KNOWN, *HOSTED) if name in own]
        match data:
            case ["text"]:
                thought = bytes(own.get("thought", b"")) == b"true"
                text = msgspec.json.decode(own.pop("text"), type=str)
                self._add_sealed("reasoning" if thought else "text", text, sealed_text(own), found)
            case ["functionCall"]:
                raw = own.pop("functionCall")
                inner = fields(raw)
                if inner.keys() & HALF or (self.half and "name" not in inner):
                    self._half_call(inner, own, found)
                    return
                call = _calls.decode(raw)
                kept = {name: value for name, value in inner.items() if name not in ("id", "name", "args")}
                kept |= {} if call.id else {"id": NULL}
                self._call(call, sealed_text(own, "functionCall", kept), found)
            case ["inlineData"]:
                self._media(own, found)
            case _:
                raise msgspec.ValidationError("only its provider knows it")

    def _next(self, kind: str) -> int:
        """Begin a block."""
        self.index += 1
        self.open = kind
        return self.index

    def _say(self, text: str, found: list[d.Delta]) -> None:
        delta = TextDelta(self.index, text)
        found.append(delta)
        self.said.append(delta)

    def _add_sealed(self, kind: Literal["text", "reasoning"], text: str, seal: str, found: list[d.Delta]) -> None:
        """Add text with fields of its own: a block that later text does not extend."""
        index = self._next("")
        if text and kind == "text":
            self._say(text, found)
        elif text:
            found.append(ReasoningDelta(index, text))
        found.append(d.SealAdded(index, kind, seal))

    def _call(self, call: "_Call | _AnyCall", seal: str, found: list[d.Delta]) -> None:
        index = self._next("")
        self.called = True
        raw = "{}" if call.args == NULL else bytes(call.args).decode()
        found.append(d.CallBegun(index, call.id or make_id(self.id or call.name + raw, index), call.name))
        if seal:
            found.append(d.SealAdded(index, "call", seal))
        found.append(d.CallEnded(index, raw))

    def _half_call(self, inner: Raws, own: Raws, found: list[d.Delta]) -> None:
        """Add a piece of a call. The first one has its name; the last one lacks `willContinue`."""
        if "name" in inner:
            call = _calls.decode(dumps(inner))
            if self.half:
                self.half.spoilt = True
                raise msgspec.ValidationError("another call has not ended")
            kept = {name: value for name, value in inner.items() if name not in ("id", "name", "args", *HALF)}
            self.half = Partial(self._next(""), {}, kept | ({} if call.id else {"id": NULL}))
            self.called = True
            found.append(d.CallBegun(self.index, call.id or make_id(self.id or call.name, self.index), call.name))
        half = self.half
        if half is None:
            self.half = Partial(-1, {}, {}, spoilt=True)
            raise msgspec.ValidationError("a piece that belongs to no call")
        half.beside.update({name: value.copy() for name, value in own.items()})
        if half.add(inner):
            self.half = None
            seal = sealed_text(half.beside, "functionCall", half.kept)
            if seal:
                found.append(d.SealAdded(half.index, "call", seal))
            found.append(d.CallEnded(half.index, half.arguments()))

    def _media(self, own: Raws, found: list[d.Delta]) -> None:
        raw = own.pop("inlineData")
        blob, inner = _blobs.decode(raw), fields(raw)
        index = self._next("")
        found.append(d.MediaAdded(index, blob.mimeType, blob.data))
        kept = {name: value for name, value in inner.items() if name not in ("data", "mimeType")}
        seal = sealed_text(own, "inlineData", kept)
        if seal:
            found.append(d.SealAdded(index, "media", seal))


def _call_seal(call: _Call, part: _Part) -> str:
    seal: dict[str, object] = {} if call.id else {"functionCall": {"id": None}}
    if part.thought is not None:
        seal["thought"] = part.thought
    if part.thoughtSignature:
        seal[SIGNATURE] = part.thoughtSignature
    return dumps(seal).decode() if seal else ""


def _usage(read: _Usage) -> Usage:
    """Return the counts. The prompt count includes cached tokens, but not those of tools; thoughts and answer are counted apart
    (sheet 10)."""
    total = int(read.promptTokenCount or 0) + int(read.toolUsePromptTokenCount or 0)
    cached, thought = int(read.cachedContentTokenCount or 0), int(read.thoughtsTokenCount or 0)
    return Usage(total, max(0, total - cached), cached, 0, int(read.candidatesTokenCount or 0) + thought, thought)


def decode(body: bytes, quirks: Quirks) -> Reply:  # noqa: ARG001 - every codec's decode takes the quirks
    """Decode a whole answer, or a stream that came as one JSON array."""
    return assemble(_whole(body))


def _whole(body: bytes) -> list[d.Delta]:
    turn = _Turn()
    found: list[d.Delta] = []
    try:
        frames = [bytes(raw) for raw in as_list(msgspec.Raw(body.strip()))]
    except BROKEN as error:
        raise unreadable_error(error, body, ANSWER) from None
    if read_frames(turn, frames, found, ANSWER):
        return found
    if not turn.begun:
        raise WireError("Expected an answer of this wire, but it has neither candidates nor counts. Check the base URL.")
    found += turn.end() or [*turn.report_usage(), turn.stop("", "")]
    settle(turn, found, frames if turn.index < 0 else [])
    return found


def decoder(quirks: Quirks) -> StreamDecoder:  # noqa: ARG001 - every codec's decoder takes the quirks
    """Return the decoder of a streamed answer."""
    return StreamDecoder(_Turn(), SseReader())
