"""Anthropic's answers, whole or streamed, as neutral deltas. One path: a whole answer is the deltas of its blocks. Pure.

Rules (sheet 9): a signature is assigned, not appended; usage snapshots overwrite field by field; tool input is parsed at the
block's end; a stream without `message_stop` is truncated; unknown events are notices, unknown blocks are kept verbatim.
"""

from typing import Literal

import msgspec

from evener.errors import WireError
from evener.transcript import delta as d
from evener.transcript.reply import Reply, StopReason
from evener.transcript.usage import Usage
from evener.wire.anthropic_messages.citations import citations_in, read_citation
from evener.wire.anthropic_messages.hosted import hosted_block, seal_name
from evener.wire.assembler import assemble
from evener.wire.faults import complaint_of, typed
from evener.wire.quirks import Quirks
from evener.wire.reading import Items
from evener.wire.stream import StreamDecoder
from evener.wire.text import dumps, fields, parse

__all__ = ["decode", "decoder"]

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
NOTHING = msgspec.Raw(b"")
NULL = b"null"
Sealable = Literal["text", "reasoning", "call"]


class _Delta(msgspec.Struct, gc=False):
    type: str = ""
    text: str = ""
    partial_json: str = ""
    thinking: str = ""
    signature: str = ""
    citation: msgspec.Raw = NOTHING
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: msgspec.Raw = NOTHING


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    index: int = 0
    delta: _Delta | None = None
    content_block: msgspec.Raw = NOTHING
    message: msgspec.Raw = NOTHING
    usage: msgspec.Raw = NOTHING
    error: msgspec.Raw = NOTHING


class _Message(msgspec.Struct):
    id: str = ""
    model: str = ""
    type: str = ""
    content: Items = []
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: msgspec.Raw = NOTHING
    usage: msgspec.Raw = NOTHING
    error: msgspec.Raw = NOTHING


class _Block(msgspec.Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = NOTHING


class _Details(msgspec.Struct):
    thinking_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None
    output_tokens_details: _Details | None = None


class _Refusal(msgspec.Struct):
    category: str | None = None
    explanation: str | None = None


_events = msgspec.json.Decoder(_Event)
_messages = msgspec.json.Decoder(_Message)
_blocks = msgspec.json.Decoder(_Block)
_usages = msgspec.json.Decoder(_Usage | None)
_refusals = msgspec.json.Decoder(_Refusal | None)


class _Open(msgspec.Struct):
    """A block that has begun: its own fields, and what was added since."""

    kind: str
    own: dict[str, msgspec.Raw]
    pieces: list[str] = []
    citations: Items = []


class _Turn:
    """What is known of the answer so far; turns its blocks into deltas."""

    def __init__(self) -> None:
        self.open: dict[int, _Open] = {}
        self.usage = _Usage()
        self.stop = ("", "")

    def begin(self, index: int, raw: msgspec.Raw) -> list[d.Delta]:
        """A block begins, with whatever it already holds."""
        block = _blocks.decode(raw)
        opened = self.open[index] = _Open(block.type, fields(raw))
        match block.type:
            case "text":
                found: list[d.Delta] = [d.TextDelta(index, block.text)] if block.text else []
                for citation in citations_in(opened.own.get("citations")):
                    found += self.cite(index, citation)
                return found
            case "thinking":
                return [d.ReasoningDelta(index, block.thinking)]
            case "tool_use":
                return [d.CallStarted(index, block.id, block.name)]
            case _:
                return []

    def cite(self, index: int, raw: msgspec.Raw) -> list[d.Delta]:
        opened = self.open.get(index)
        if opened is None:
            return [d.Notice("citation without a block", bytes(raw).decode())]
        opened.citations.append(raw.copy())
        return [d.CitationAdded(index, read_citation(raw))]

    def end(self, index: int) -> list[d.Delta]:
        """A block is complete."""
        opened = self.open.pop(index, None)
        if opened is None:
            return []
        match opened.kind:
            case "text":
                opened.own["citations"] = msgspec.Raw(dumps(opened.citations) if opened.citations else NULL)
                return _sealed(index, "text", opened.own, ("type", "text"))
            case "thinking":
                return _sealed(index, "reasoning", opened.own, ("type", "thinking"))
            case "redacted_thinking":
                return _sealed(index, "reasoning", opened.own, ("type",))
            case "tool_use":
                seal = _sealed(index, "call", opened.own, ("type", "id", "name", "input"))
                return [*seal, d.CallEnded(index, _arguments(opened))]
            case _:
                return [_hosted(index, opened)]

    def count(self, raw: msgspec.Raw) -> d.UsageReported:
        """A usage snapshot: what it states replaces what was known."""
        new, old = _usages.decode(raw) or _Usage(), self.usage
        self.usage = _Usage(
            _or(new.input_tokens, old.input_tokens),
            _or(new.cache_creation_input_tokens, old.cache_creation_input_tokens),
            _or(new.cache_read_input_tokens, old.cache_read_input_tokens),
            _or(new.output_tokens, old.output_tokens),
            new.output_tokens_details or old.output_tokens_details,
        )
        return d.UsageReported(_usage(self.usage))


def _or(new: int | None, old: int | None) -> int | None:
    return old if new is None else new


def _usage(read: _Usage) -> Usage:
    """Anthropic's input_tokens is the uncached part only; output_tokens includes thinking (sheet 11)."""
    uncached, written, cached = (
        read.input_tokens or 0,
        read.cache_creation_input_tokens or 0,
        read.cache_read_input_tokens or 0,
    )
    thought = read.output_tokens_details.thinking_tokens if read.output_tokens_details else 0
    return Usage(uncached + written + cached, uncached, cached, written, read.output_tokens or 0, thought or 0)


def _sealed(index: int, block: Sealable, own: dict[str, msgspec.Raw], ours: tuple[str, ...]) -> list[d.Delta]:
    kept = {name: value for name, value in own.items() if name not in ours and bytes(value) != NULL}
    if not kept:
        return []
    data = dumps(kept).decode()
    return [d.SealAdded(index, block, data, seal_name(data) if block == "reasoning" else "")]


def _arguments(opened: _Open) -> str:
    streamed = "".join(opened.pieces)
    return streamed or bytes(opened.own.get("input", b"{}")).decode()


def _hosted(index: int, opened: _Open) -> d.HostedAdded:
    text = "".join(opened.pieces)
    if text:  # a call without arguments streams one empty piece, and its input stays as it began
        opened.own["input"] = msgspec.Raw(text.encode() if _is_json(text) else dumps(text))
    return d.HostedAdded(index, hosted_block(opened.own))


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


def _stop(reason: str, sequence: str, details: msgspec.Raw) -> d.Stopped:
    detail = sequence
    if details and (read := _refusals.decode(details)):
        detail = ": ".join(part for part in (read.category, read.explanation) if part)
    return d.Stopped(STOPS.get(reason, "other"), reason, detail)


def decode(body: bytes, quirks: Quirks) -> Reply:  # noqa: ARG001 - every codec's decode takes the quirks
    """A whole answer."""
    return assemble(_whole(body))


def _whole(body: bytes) -> list[d.Delta]:
    message = parse(_messages, body, "an Anthropic message")
    if message.type == "error" or message.error:
        complaint = complaint_of(body)
        if complaint:
            raise typed(complaint, {})
    if message.type != "message":
        raise WireError(f"Expected an Anthropic message, but the answer is of type {message.type!r}. Check the base URL.")
    turn = _Turn()
    found: list[d.Delta] = [d.Started(message.id, message.model)]
    try:
        for index, raw in enumerate(message.content):
            found += turn.begin(index, raw)
            found += turn.end(index)
        if message.usage:
            found.append(turn.count(message.usage))
        found.append(_stop(message.stop_reason or "", message.stop_sequence or "", message.stop_details))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"Expected Anthropic content blocks: {error}. Is this endpoint of that wire?") from None
    return found


def decoder(quirks: Quirks) -> StreamDecoder:
    """A streamed answer."""
    return StreamDecoder(_Events(), quirks.framing)


class _Events:
    def __init__(self) -> None:
        self._turn = _Turn()
        self._stopped: d.Stopped | None = None
        self._over = False

    def read(self, frame: bytes, found: list[d.Delta]) -> bool:
        """One event; `message_stop` and errors are the last."""
        event = _events.decode(frame)
        delta = event.delta
        if delta is None or event.type != "content_block_delta":
            found += self._rare(event, frame)
            return self._over
        match delta.type:
            case "text_delta":
                found.append(d.TextDelta(event.index, delta.text))
            case "thinking_delta":
                found.append(d.ReasoningDelta(event.index, delta.thinking))
            case "input_json_delta" if opened := self._turn.open.get(event.index):
                opened.pieces.append(delta.partial_json)
                if opened.kind == "tool_use":
                    found.append(d.ArgumentsDelta(event.index, delta.partial_json))
            case _:
                found += self._delta(event.index, delta, frame)
        return False

    def end(self) -> None:
        """Without `message_stop` a turn is never complete."""

    def _delta(self, index: int, delta: _Delta, frame: bytes) -> list[d.Delta]:
        opened = self._turn.open.get(index)
        match delta.type:
            case "signature_delta" if opened:
                opened.own["signature"] = msgspec.Raw(dumps(delta.signature))
                return []
            case "citations_delta":
                return self._turn.cite(index, delta.citation)
            case _ if opened and opened.kind not in ("text", "thinking", "tool_use"):
                added = fields(fields(frame)["delta"])
                opened.own |= {name: value.copy() for name, value in added.items() if name != "type"}
                return []
            case _:
                return [d.Notice(delta.type, frame.decode())]

    def _rare(self, event: _Event, frame: bytes) -> list[d.Delta]:
        match event.type:
            case "content_block_start":
                return self._turn.begin(event.index, event.content_block.copy())
            case "content_block_stop":
                return self._turn.end(event.index)
            case "message_start":
                return self._start(event.message)
            case "message_delta":
                return self._finish(event)
            case "message_stop":
                return self._stop()
            case "ping":
                return []
            case _ if event.type == "error" or event.error:
                return self._error(frame)
            case _:
                return [d.Notice(event.type, frame.decode())]

    def _start(self, raw: msgspec.Raw) -> list[d.Delta]:
        message = _messages.decode(raw)
        counted = [self._turn.count(message.usage)] if message.usage else []
        return [d.Started(message.id, message.model), *counted]

    def _finish(self, event: _Event) -> list[d.Delta]:
        if event.delta and event.delta.stop_reason:
            self._stopped = _stop(event.delta.stop_reason, event.delta.stop_sequence or "", event.delta.stop_details)
        return [self._turn.count(event.usage)] if event.usage else []

    def _stop(self) -> list[d.Delta]:
        self._over = True
        ended = [delta for index in sorted(self._turn.open) for delta in self._turn.end(index)]
        return [*ended, self._stopped or d.Stopped("other")]

    def _error(self, frame: bytes) -> list[d.Delta]:
        complaint = complaint_of(frame)
        self._over = True
        if complaint is None:
            return [d.Failed(WireError("The stream reported an error that is not of Anthropic's shape."))]
        return [d.Failed(typed(complaint, {}))]
