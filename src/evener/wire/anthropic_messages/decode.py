"""Anthropic's answers, whole or streamed, as neutral deltas. One path: a whole answer is the deltas of its blocks. Pure.

Rules (sheet 9): a signature is assigned, not appended; usage snapshots overwrite field by field; tool input is parsed at the
block's end; a stream is truncated if it lacks `message_stop` or a stop reason, or leaves a call open;
unknown events are notices, unknown blocks are kept verbatim.
"""

from collections.abc import Callable, Iterator
from typing import Literal, final

import msgspec

from evener.errors import TruncatedStream, WireError
from evener.transcript import delta as d
from evener.transcript.delta import ArgumentsDelta, ReasoningDelta, TextDelta
from evener.transcript.reply import Reply, StopReason, Usage
from evener.wire.anthropic_messages.hosted import citations_in, hosted_block, read_citation, seal_name
from evener.wire.diagnosis import DIAGNOSIS
from evener.wire.faults import complaint_of, make_error, read_failure
from evener.wire.prefix import dumps, fields, text_in
from evener.wire.quirks import Quirks
from evener.wire.reading import BROKEN, Carrying, Count, Items, mend, parse_some, read_some
from evener.wire.stream import FRAMINGS, NO_ANSWER, NO_REASON, OPEN_CALL, StreamDecoder, assemble, settle

NOTHING = msgspec.Raw(b"")
NOT_SAID = (NOTHING, msgspec.Raw(b"null"))
NULL = msgspec.Raw(b"null")
NO_INPUT = msgspec.Raw(b"{}")


class _Details(msgspec.Struct, gc=False):
    """Counts of a part of the output."""

    thinking_tokens: Count = None


class _Counts(msgspec.Struct, gc=False):
    """Token counts. If a field is absent, the previous count stays."""

    input_tokens: Count = None
    cache_creation_input_tokens: Count = None
    cache_read_input_tokens: Count = None
    output_tokens: Count = None
    output_tokens_details: _Details | None = None

    def add(self, later: "_Counts") -> None:
        """Replace the counts that a later snapshot states."""
        if later.input_tokens is not None:
            self.input_tokens = later.input_tokens
        if later.cache_creation_input_tokens is not None:
            self.cache_creation_input_tokens = later.cache_creation_input_tokens
        if later.cache_read_input_tokens is not None:
            self.cache_read_input_tokens = later.cache_read_input_tokens
        if later.output_tokens is not None:
            self.output_tokens = later.output_tokens
        if later.output_tokens_details is not None:
            self.output_tokens_details = later.output_tokens_details


Counted = _Counts | None | msgspec.UnsetType
"""Token counts. If they are absent or null, the previous ones stay."""


@final
class _MoreText(msgspec.Struct, tag="text_delta", gc=False):
    """More text."""

    text: str = ""


@final
class _MoreThinking(msgspec.Struct, tag="thinking_delta", gc=False):
    """More reasoning."""

    thinking: str = ""


@final
class _MoreJson(msgspec.Struct, tag="input_json_delta", gc=False):
    """More of a call's arguments."""

    partial_json: str = ""


@final
class _MoreSignature(msgspec.Struct, tag="signature_delta", gc=False):
    """The whole signature of thinking."""

    signature: str = ""


@final
class Cited(msgspec.Struct, tag="citations_delta", gc=False):
    """A citation of the text."""

    citation: msgspec.Raw = NOTHING


@final
class _BlockDelta(msgspec.Struct, tag="content_block_delta", gc=False):
    """A piece of a block: by far the most frequent event."""

    delta: _MoreText | _MoreJson | _MoreThinking | _MoreSignature | Cited
    index: int = 0


@final
class _Text(msgspec.Struct, tag="text", forbid_unknown_fields=True, gc=False):
    """The beginning of a text block. This form, like the two below, has no unknown fields."""

    text: str = ""
    citations: msgspec.Raw = NULL


@final
class _Call(msgspec.Struct, tag="tool_use", forbid_unknown_fields=True, gc=False):
    """A call of one of our tools."""

    id: str = ""
    name: str = ""
    input: msgspec.Raw = NO_INPUT


@final
class _Thinking(msgspec.Struct, tag="thinking", forbid_unknown_fields=True, gc=False):
    """Reasoning. Its signature comes last; a placeholder before it goes into the seal."""

    thinking: str = ""
    signature: msgspec.Raw = NULL


@final
class _BlockBegun(msgspec.Struct, tag="content_block_start", gc=False):
    """A block of one of these kinds begins, without unknown fields."""

    content_block: _Text | _Call | _Thinking
    index: int = 0


@final
class _BlockEnded(msgspec.Struct, tag="content_block_stop", gc=False):
    """A block is complete."""

    index: int = 0


class _MessageStart(msgspec.Struct, gc=False):
    """The fields of the message that are known at its start."""

    model: str = ""
    id: str = ""
    type: str = ""
    content: list[msgspec.Raw] = []
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: Counted = msgspec.UNSET
    diagnostics: msgspec.Raw = NOTHING


@final
class _MessageStarted(msgspec.Struct, tag="message_start", gc=False):
    """The message begins."""

    message: _MessageStart


class _Finish(msgspec.Struct, gc=False):
    """Why the message ends."""

    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: msgspec.Raw = NOTHING


@final
class _MessageFinished(msgspec.Struct, tag="message_delta", gc=False):
    """The message is complete, but for its end marker."""

    delta: _Finish | None = None
    usage: Counted = msgspec.UNSET


@final
class _MessageStopped(msgspec.Struct, tag="message_stop", gc=False):
    """The end marker."""


@final
class Ping(msgspec.Struct, tag="ping", gc=False):
    """A keep-alive event."""


_Event = _BlockDelta | _BlockBegun | _BlockEnded | _MessageStarted | _MessageFinished | _MessageStopped | Ping
PIECE = "content_block_delta"
PIECES = ("text_delta", "thinking_delta", "input_json_delta", "signature_delta", "citations_delta")
BEGUN = "content_block_start"
EVENTS = ("content_block_stop", "message_start", "message_delta", "message_stop", "ping")
"""Types of events that have one known form."""


class _TextStart(msgspec.Struct):
    """The beginning of a text block, with any other fields."""

    text: str = ""


class ToolUse(msgspec.Struct):
    """The beginning of a call, with any other fields."""

    id: str = ""
    name: str = ""


class AnyBegun(msgspec.Struct):
    """The beginning of a block of any type."""

    content_block: msgspec.Raw
    index: int = 0


class AnyPiece(msgspec.Struct):
    """The type of any piece, block or event."""

    type: str = ""


class Other(msgspec.Struct):
    """An event of any other form."""

    type: str = ""
    index: int = 0
    delta: AnyPiece | None = None
    error: msgspec.Raw = NOTHING


FORMS: dict[str, type[msgspec.Struct]] = {
    "content_block_delta": _BlockDelta,
    "content_block_start": AnyBegun,
    "content_block_stop": _BlockEnded,
    "message_start": _MessageStarted,
    "message_delta": _MessageFinished,
    "message_stop": _MessageStopped,
    "ping": Ping,
}
"""The form of an event by its type, for `mend`. An event of another type is an `Other`."""

CARRYING: Carrying = {
    _MoreText: ("text",),
    _MoreJson: ("partial_json",),
    _BlockDelta: ("delta", "index"),
    AnyBegun: ("content_block", "index"),
    _BlockEnded: ("index",),
    _MessageStart: ("type", "content", "stop_reason"),
    _MessageStarted: ("message",),
    _Finish: ("stop_reason",),
    _MessageFinished: ("delta",),
    AnyPiece: ("type",),
    Other: ("type", "index", "delta"),
}
"""The fields that carry the answer."""


def form_of(frame: bytes) -> type[msgspec.Struct]:
    """Return the form of an event, by its type."""
    return FORMS.get(read_type(frame).type, Other)


read_type = msgspec.json.Decoder(AnyPiece).decode
read_text = msgspec.json.Decoder(_TextStart).decode
read_call = msgspec.json.Decoder(ToolUse).decode
read_other = msgspec.json.Decoder(Other).decode
read_begun = msgspec.json.Decoder(AnyBegun).decode
_events: msgspec.json.Decoder[_Event] = msgspec.json.Decoder(_Event)
read_event = _events.decode


STOPS: dict[str, StopReason] = {
    "end_turn": "done",
    "tool_use": "tools",
    "max_tokens": "length",
    "model_context_window_exceeded": "context_full",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "pause_turn": "paused",
    "compaction": "compacted",
}
SAID = {
    "text": ("type", "text"),
    "thinking": ("type", "thinking"),
    "redacted_thinking": ("type",),
    "tool_use": ("type", "id", "name", "input"),
}
"""The blocks that have a neutral form, and the fields that it contains. Other fields go into a seal."""
TWO_MESSAGES = "The stream contains a second message; one was expected. Both are discarded. Ask again."
Raws = dict[str, msgspec.Raw]
Sealable = Literal["text", "reasoning", "call"]


class _Message(msgspec.Struct, gc=False):
    id: str = ""
    model: str = ""
    type: str = ""
    content: Items = []
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: msgspec.Raw = NOTHING
    usage: Counted = msgspec.UNSET
    error: msgspec.Raw = NOTHING
    diagnostics: msgspec.Raw = NOTHING


class _Refusal(msgspec.Struct, gc=False):
    category: str | None = None
    explanation: str | None = None


WHOLE: Carrying = {_Message: ("type", "content", "stop_reason")}
MAY_STAY_OPEN = ("text", "thinking", "redacted_thinking")
"""Blocks that may be open when the stop reason comes. Any other open block is an error."""


class _Open(msgspec.Struct, gc=False):
    """A block that has begun: its fields to keep (all of them, if it has no neutral form), and the pieces added since."""

    kind: str
    own: Raws
    input: msgspec.Raw = NULL
    pieces: list[str] = []
    citations: Items = []


class _Turn(msgspec.Struct, gc=False):
    """The state of decoding one answer. Turns events and blocks into deltas."""

    begun: bool = False
    known: set[int] = set()
    open: dict[int, _Open] = {}
    usage: _Counts | None = None
    stopped: d.Stopped | None = None

    def read(self, frames: Iterator[bytes], found: list[d.Delta]) -> bool:
        """Read events. True if the last one has come: `message_stop` or an error."""
        for frame in frames:
            try:
                event = read_event(frame)
            except msgspec.ValidationError:
                if self._read_other(frame, found):
                    return True
                continue
            if type(event) is _BlockDelta:
                delta = event.delta
                if type(delta) is _MoreText:
                    found.append(TextDelta(event.index, delta.text))
                elif type(delta) is _MoreThinking:
                    found.append(ReasoningDelta(event.index, delta.thinking))
                else:
                    self._read_piece(event.index, delta, frame, found)
            elif READ[type(event)](self, event, found):
                return True
        return False

    def mend(self, frame: bytes) -> tuple[bytes, list[d.Notice]]:
        """Return an event without its optional fields of a wrong type."""
        return mend(frame, form_of, CARRYING)

    def end(self) -> None:
        """Return None: without `message_stop` a turn is never complete."""

    def missing(self) -> str:
        """Return why the ended message is incomplete; empty if it is complete."""
        if self.stopped is None or not self.stopped.raw:
            return NO_REASON
        return OPEN_CALL if self.open and any(one.kind not in MAY_STAY_OPEN for one in self.open.values()) else ""

    def begin(self, index: int, block: _Text | _Call | _Thinking, own: Raws, found: list[d.Delta]) -> None:
        """Begin a block, with the content that it already has. `own` are the fields that only this wire knows."""
        self._number(index)
        if type(block) is _Text:
            self.open[index] = _Open("text", own)
            if block.text:
                found.append(TextDelta(index, block.text))
            if block.citations is not NULL:
                for citation in citations_in(block.citations):
                    self.cite(index, citation, found)
        elif type(block) is _Call:
            self.open[index] = _Open("tool_use", own, block.input)
            found.append(d.CallBegun(index, block.id, block.name))
        else:
            if block.signature is not NULL:
                own["signature"] = block.signature
            self.open[index] = _Open("thinking", own)
            found.append(ReasoningDelta(index, block.thinking))

    def begin_any(self, index: int, raw: msgspec.Raw, found: list[d.Delta]) -> None:
        """Begin a block of any kind, with any fields."""
        kind, own = read_type(raw).type, fields(raw)
        kept = {name: value for name, value in own.items() if name not in SAID.get(kind, ())}
        match kind:
            case "text":
                self.begin(index, _Text(read_text(raw).text, own.get("citations", NULL)), kept, found)
            case "tool_use":
                call = read_call(raw)
                self.begin(index, _Call(call.id, call.name, own.get("input", NO_INPUT)), kept, found)
            case "thinking":
                said = own.get("thinking", NULL)
                self.begin(index, _Thinking(text_in(said)), kept, found)
                if said != NULL and bytes(said)[:1] != b'"':
                    found.append(d.Notice("thinking", bytes(said).decode()))
            case _:
                self._number(index)
                self.open[index] = _Open(kind, kept)

    def _number(self, index: int) -> None:
        if index in self.known:
            raise msgspec.ValidationError(f"a second block of the number {index}")
        self.known.add(index)

    def cite(self, index: int, raw: msgspec.Raw, found: list[d.Delta]) -> None:
        """Add a citation to a text that has begun."""
        opened = self.open.get(index)
        if opened is None:
            found.append(d.Notice("citation without a block", bytes(raw).decode()))
        else:
            opened.citations.append(raw.copy())
            found.append(d.CitationAdded(index, read_citation(raw, found)))

    def complete(self, index: int, found: list[d.Delta]) -> None:
        """Complete a block."""
        opened = self.open.pop(index, None)
        if opened is None:
            return
        own, kind = opened.own, opened.kind
        if kind == "text":
            if own or opened.citations:
                own["citations"] = msgspec.Raw(dumps(opened.citations)) if opened.citations else NULL
                _seal(index, "text", own, found)
        elif kind == "tool_use":
            if own:
                _seal(index, "call", own, found)
            found.append(d.CallEnded(index, "".join(opened.pieces) or bytes(opened.input).decode()))
        elif kind in SAID:
            _seal(index, "reasoning", own, found)
        else:
            found.append(_read_hosted(index, opened))

    def count(self, stated: Counted, found: list[d.Delta]) -> None:
        """Apply a usage snapshot: the counts that it states replace the previous ones."""
        if stated is msgspec.UNSET:
            return
        known = self.usage
        if known is None:
            known = self.usage = stated or _Counts()
        elif stated is not None:
            known.add(stated)
        found.append(d.UsageReported(_usage(known)))

    def _read_piece(self, index: int, delta: _MoreJson | _MoreSignature | Cited, frame: bytes, found: list[d.Delta]) -> None:
        """Add a piece to the block that has begun."""
        opened = self.open.get(index)
        if type(delta) is Cited:
            self.cite(index, delta.citation or NULL, found)
        elif opened is None:
            found.append(d.Notice("input_json_delta" if type(delta) is _MoreJson else "signature_delta", frame.decode()))
        elif type(delta) is _MoreSignature:
            opened.own["signature"] = msgspec.Raw(dumps(delta.signature))
        else:
            opened.pieces.append(delta.partial_json)
            if opened.kind == "tool_use":
                found.append(ArgumentsDelta(index, delta.partial_json))

    def _read_begun(self, event: _BlockBegun, found: list[d.Delta]) -> None:
        self.begin(event.index, event.content_block, {}, found)

    def _read_ended(self, event: _BlockEnded, found: list[d.Delta]) -> None:
        self.complete(event.index, found)

    def _read_started(self, event: _MessageStarted, found: list[d.Delta]) -> bool:
        if self.begun:
            found.append(d.Failed(WireError(TWO_MESSAGES)))
            return True
        message, self.begun = event.message, True
        found.insert(0, d.Started(message.id, message.model))
        if message.diagnostics not in NOT_SAID:
            found.append(d.Notice(DIAGNOSIS, bytes(message.diagnostics).decode()))
        self.count(message.usage, found)
        return False

    def _read_finished(self, event: _MessageFinished, found: list[d.Delta]) -> None:
        finish = event.delta
        if finish and finish.stop_reason:
            self.stopped = _stop(finish.stop_reason, finish.stop_sequence or "", finish.stop_details, found)
        self.count(event.usage, found)

    def _read_stopped(self, event: _MessageStopped, found: list[d.Delta]) -> bool:  # noqa: ARG002 - as every way to read
        for index in sorted(self.open) if self.open and not self.missing() else ():
            self.complete(index, found)
        found.append((self.stopped or d.Stopped("other")) if self.begun else d.Failed(TruncatedStream(NO_ANSWER)))
        return True

    def _read_ping(self, event: Ping, found: list[d.Delta]) -> None:
        """Do nothing."""

    def _read_other(self, frame: bytes, found: list[d.Delta]) -> bool:
        """Read an event, or a piece of a block, of unknown form. True if it is an error."""
        event = read_other(frame)
        if event.type in EVENTS or (event.type == PIECE and event.delta and event.delta.type in PIECES):
            read_event(frame)  # raises with the reason
        if event.type == BEGUN:
            begun = read_begun(frame)
            self.begin_any(begun.index, begun.content_block, found)
        elif event.type == PIECE and (event.delta or not event.error):
            self._read_unknown(event, frame, found)
        elif event.type == "error" or event.error:
            found.append(read_failure(frame))
            return True
        else:
            found.append(d.Notice(event.type, frame.decode()))
        return False

    def _read_unknown(self, event: Other, frame: bytes, found: list[d.Delta]) -> None:
        """Add a piece of unknown type to a block that has no neutral form; if there is no such block, report a notice."""
        opened = self.open.get(event.index)
        if event.delta and opened and opened.kind not in ("text", "thinking", "tool_use"):
            added = fields(fields(frame)["delta"])
            opened.own |= {name: value.copy() for name, value in added.items() if name != "type"}
        else:
            found.append(d.Notice(event.delta.type if event.delta else event.type, frame.decode()))


READ: dict[type[_Event], Callable[..., bool | None]] = {
    _BlockBegun: _Turn._read_begun,
    _BlockEnded: _Turn._read_ended,
    _MessageStarted: _Turn._read_started,
    _MessageFinished: _Turn._read_finished,
    _MessageStopped: _Turn._read_stopped,
    Ping: _Turn._read_ping,
}
"""The function that reads each event except `content_block_delta`. It returns True for the last event."""


def _usage(read: _Counts) -> Usage:
    """Return the counts. Anthropic's input_tokens is the uncached part only; output_tokens includes thinking (sheet 11)."""
    uncached, cached = int(read.input_tokens or 0), int(read.cache_read_input_tokens or 0)
    written, details = int(read.cache_creation_input_tokens or 0), read.output_tokens_details
    thought = int((details.thinking_tokens if details else 0) or 0)
    return Usage(uncached + written + cached, uncached, cached, written, int(read.output_tokens or 0), thought)


def _seal(index: int, block: Sealable, own: Raws, found: list[d.Delta]) -> None:
    kept = {name: value for name, value in own.items() if value != NULL}
    if kept:
        data = dumps(kept).decode()
        found.append(d.SealAdded(index, block, data, seal_name(data) if block == "reasoning" else ""))


def _read_hosted(index: int, opened: _Open) -> d.HostedAdded:
    text = "".join(opened.pieces)
    if text:  # a call without arguments streams one empty piece: its input is that of the block's start
        opened.own["input"] = msgspec.Raw(text.encode() if _is_json(text) else dumps(text))
    return d.HostedAdded(index, hosted_block(opened.own))


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


def _stop(reason: str, sequence: str, details: msgspec.Raw, found: list[d.Delta]) -> d.Stopped:
    detail = sequence
    if details and details != NULL:
        read = read_some(details, _Refusal, "stop_details", found)
        detail = ": ".join(part for part in (read.category, read.explanation) if part)
    return d.Stopped(STOPS.get(reason, "other"), reason, detail)


def decode(body: bytes, quirks: Quirks) -> Reply:  # noqa: ARG001 - every codec's decode takes the quirks
    """Decode a whole answer."""
    return assemble(_whole(body))


def _whole(body: bytes) -> list[d.Delta]:
    found: list[d.Delta] = []
    message = parse_some(body, _Message, "an Anthropic message", WHOLE, found)
    if message.type == "error" or message.error:
        complaint = complaint_of(body)
        if complaint:
            raise make_error(complaint, {})
    if message.type != "message":
        raise WireError(f"Expected an Anthropic message, but the answer is of type {message.type!r}. Check the base URL.")
    turn = _Turn()
    found.insert(0, d.Started(message.id, message.model))
    if message.diagnostics not in NOT_SAID:
        found.append(d.Notice(DIAGNOSIS, bytes(message.diagnostics).decode()))
    try:
        for index, raw in enumerate(message.content):
            turn.begin_any(index, raw, found)
            turn.complete(index, found)
        turn.count(message.usage, found)
        turn.stopped = _stop(message.stop_reason or "", message.stop_sequence or "", message.stop_details, found)
        found.append(turn.stopped)
    except BROKEN as error:
        raise WireError(
            f"Expected Anthropic content blocks: {error}. Check the base URL, and that this endpoint speaks that wire."
        ) from None
    settle(turn, found, [] if message.content else [body])
    return found


def decoder(quirks: Quirks) -> StreamDecoder:
    """Return the decoder of a streamed answer."""
    return StreamDecoder(_Turn(), FRAMINGS[quirks.framing]())
