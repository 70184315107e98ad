"""Responses' answers, whole or streamed, as neutral deltas. One path: a whole answer is the deltas of its items. Pure.

Rules (sheet 8): several items may be open at once, keyed by `output_index`; names and ids stand in `output_item.added`, the
truth in `output_item.done` (also what a clone did not stream); usage stands in the terminal event only; a stream without a
terminal event is truncated.
"""

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache

import msgspec

from evener.errors import WireError
from evener.transcript import delta as d
from evener.transcript.delta import ArgumentsDelta, TextDelta
from evener.transcript.reply import Reply, StopReason
from evener.wire.assembler import assemble
from evener.wire.faults import complaint_of, typed
from evener.wire.openai_responses.blocks import TextSeal
from evener.wire.openai_responses.citations import read_citation
from evener.wire.openai_responses.hosted import hosted_block
from evener.wire.openai_responses.usage import Counts, read_usage
from evener.wire.quirks import Quirks
from evener.wire.reading import Items
from evener.wire.sse import SseReader
from evener.wire.stream import StreamDecoder
from evener.wire.text import dumps, fields, parse, word

__all__ = ["PARTS", "decode", "decoder"]

NOTHING = msgspec.Raw(b"")
NULL = msgspec.Raw(b"null")
NONE = (NOTHING, NULL)
EMPTY = (NULL, msgspec.Raw(b"[]"))
Raws = dict[str, msgspec.Raw]
INCOMPLETE: dict[str, StopReason] = {"max_output_tokens": "length", "content_filter": "refusal"}
STATUS: dict[str, StopReason] = {
    "cancelled": "cancelled",
    "queued": "pending",
    "in_progress": "pending",
    "incomplete": "other",
}
COMPACTED = "response.compaction"
TERMINAL = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
PARTS = "\n\n"
# Events whose content stands again, whole, in `output_item.done`.
REPEATED = (
    "response.content_part.",
    "response.output_text.done",
    "response.refusal.done",
    "response.function_call_arguments.done",
    "response.reasoning_summary_part.",
    "response.reasoning_summary_text.done",
    "response.reasoning_text.done",
    "response.web_search_call.",
    "response.file_search_call.",
    "response.code_interpreter_call",
    "response.image_generation_call.in_progress",
    "response.image_generation_call.generating",
    "response.image_generation_call.completed",
    "response.mcp_",
    "response.custom_tool_call_input.",
    "response.shell_call",
    "response.in_progress",
    "response.output_text.annotation.added",
    "response.queued",
    "response.compaction.",
    "keepalive",
)


class _Named(msgspec.Struct):
    type: str = ""
    role: str | None = None


class _Reason(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    object: str = ""
    id: str | None = None
    model: str | None = None
    status: str | None = None
    output: Items | None = None
    usage: Counts | None = None
    incomplete_details: _Reason | None = None
    error: msgspec.Raw = NOTHING


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    output_index: int = 0
    content_index: int = 0
    summary_index: int = 0
    delta: str = ""
    item: msgspec.Raw = NOTHING
    response: _Response | None = None
    error: msgspec.Raw = NOTHING


class _Text(msgspec.Struct):
    type: str = ""
    text: str = ""


class _Reasoned(msgspec.Struct):
    summary: list[_Text] | None = None
    content: list[_Text] | None = None


class _Part(msgspec.Struct):
    type: str = ""
    text: str = ""
    refusal: str = ""
    annotations: Items | None = None
    logprobs: msgspec.Raw = NOTHING


read_event = msgspec.json.Decoder(_Event).decode
_names = msgspec.json.Decoder(_Named)
_responses = msgspec.json.Decoder(_Response)
_words = msgspec.json.Decoder(str | None)
_items: msgspec.json.Decoder[Items] = msgspec.json.Decoder(Items)
_reasoned = msgspec.json.Decoder(_Reasoned)
_parts = msgspec.json.Decoder(_Part)

ROOM = 1000
"""Numbers kept free for the parts of one item."""


class _Turn:
    """What is known of the answer so far; turns its items into deltas."""

    def __init__(self) -> None:
        self.shown: defaultdict[int, list[str]] = defaultdict(list)
        self.parts: dict[int, int] = {}  # the part of a reasoning item shown last; those of its content count down from -1
        self.calls: dict[int, tuple[str, str]] = {}
        self.refused = False
        self.done: set[int] = set()

    def unsent(self, slot: int, text: str) -> str:
        """What of a block's whole text was not shown yet."""
        shown = "".join(self.shown[slot])
        return text[len(shown) :] if text.startswith(shown) else ""

    def think(self, slot: int, part: int, text: str) -> d.ReasoningDelta:
        """More of a reasoning item. A new part is set apart from what was shown before it, be it announced or not."""
        if self.parts.get(slot, part) != part:
            text = PARTS + text
        self.parts[slot] = part
        self.shown[slot].append(text)
        return d.ReasoningDelta(slot, text)

    def begin(self, number: int, own: Raws, found: list[d.Delta]) -> None:
        """An item begins."""
        if _word(own, "type") == "function_call":
            call = (_word(own, "call_id"), _word(own, "name"))
            if self.calls.get(number) != call:
                self.calls[number] = call
                found.append(d.CallStarted(number * ROOM, *call))

    def end(self, number: int, raw: msgspec.Raw, found: list[d.Delta]) -> None:
        """An item is complete: whatever was not streamed of it follows now."""
        self.done.add(number)
        own = fields(raw)
        kind = _word(own, "type")
        if kind == "function_call":
            self._call(number, own, found)
        elif kind == "message" and _word(own, "role") in ("", "assistant"):  # a compaction hands the user's back, too
            self._message(number, own, found)
        elif kind == "reasoning":
            self._reasoning(number, raw, own, found)
        else:
            found.append(d.HostedAdded(number * ROOM, hosted_block(raw)))

    def _call(self, number: int, own: Raws, found: list[d.Delta]) -> None:
        self.begin(number, own, found)
        slot = number * ROOM
        kept = _kept(own, ("type", "call_id", "name", "arguments"))
        if kept:
            found.append(d.SealAdded(slot, "call", dumps(kept).decode(), word(kept.get("id"))))
        found.append(d.CallEnded(slot, _word(own, "arguments") or "{}"))

    def _reasoning(self, number: int, raw: msgspec.Raw, own: Raws, found: list[d.Delta]) -> None:
        read = _reasoned.decode(raw)
        slot = number * ROOM
        text = PARTS.join(part.text for part in (*(read.summary or ()), *(read.content or ())) if part.text)
        rest = self.unsent(slot, text)
        if rest:
            found.append(d.ReasoningDelta(slot, rest))
        kept = _kept(own, ("type",))
        found.append(d.SealAdded(slot, "reasoning", dumps(kept).decode(), word(kept.get("id"))))

    def _message(self, number: int, own: Raws, found: list[d.Delta]) -> None:
        item = _kept(own, ("type", "role", "content"))
        content = own.get("content")
        for place, part in enumerate(_items.decode(content) if content is not None else ()):
            self._part(number * ROOM + place, part, item, found)

    def _part(self, slot: int, raw: msgspec.Raw, item: Raws, found: list[d.Delta]) -> None:
        part = _parts.decode(raw)
        refusal = part.type == "refusal"
        self.refused = self.refused or refusal
        rest = self.unsent(slot, part.refusal if refusal else part.text)
        if rest:
            found.append(d.TextDelta(slot, rest))
        own = _kept(fields(raw), ("refusal",) if refusal else ("type", "text", "logprobs"), EMPTY)
        for cited in part.annotations or ():
            found.append(d.CitationAdded(slot, read_citation(cited)))
        found.append(d.SealAdded(slot, "text", dumps(TextSeal(item, own)).decode(), word(item.get("id"))))
        if part.logprobs and part.logprobs not in EMPTY:
            found.append(d.Notice("logprobs", bytes(part.logprobs).decode()))

    def stop(self, response: _Response, found: list[d.Delta]) -> None:
        """The terminal state: usage, and why it ended."""
        if response.usage:
            found.append(d.UsageReported(read_usage(response.usage)))
        if response.object == COMPACTED:
            found.append(d.Stopped("compacted", response.object))
            return
        status = response.status or "completed"
        reason = (response.incomplete_details.reason or "") if response.incomplete_details else ""
        found.append(d.Stopped(self._why(status, reason), reason or status))

    def _why(self, status: str, reason: str) -> StopReason:
        if status == "completed":
            return "tools" if self.calls else "refusal" if self.refused else "done"
        return INCOMPLETE.get(reason, STATUS.get(status, "other"))


def _kept(own: Raws, ours: tuple[str, ...], nothing: tuple[msgspec.Raw, ...] = (NULL,)) -> Raws:
    return {name: value for name, value in own.items() if name not in ours and value not in nothing}


def _word(own: Raws, name: str) -> str:
    raw = own.get(name)
    return "" if raw is None else _words.decode(raw) or ""


def decode(body: bytes, quirks: Quirks) -> Reply:  # noqa: ARG001 - every codec's decode takes the quirks
    """A whole answer."""
    return assemble(_whole(body))


def _whole(body: bytes) -> list[d.Delta]:
    response = parse(_responses, body, "a Responses answer")
    _raise_for(response, body)
    if not response.object.startswith("response"):
        raise WireError(f"Expected a response, but the answer is a {response.object!r}. Check the base URL.")
    turn = _Turn()
    found: list[d.Delta] = [d.Started(response.id or "", response.model or "")]
    try:
        for number, raw in enumerate(response.output or ()):
            turn.end(number, raw, found)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"Expected Responses items: {error}. Is this endpoint of that wire?") from None
    turn.stop(response, found)
    return found


def _raise_for(response: _Response, body: bytes) -> None:
    if response.status == "failed" or response.error not in NONE:
        complaint = complaint_of(body)
        if complaint:
            raise typed(complaint, {})
        raise WireError("The response failed and says nothing about it. Ask again.")


def decoder(quirks: Quirks) -> StreamDecoder:  # noqa: ARG001 - every codec's decoder takes the quirks
    """A streamed answer."""
    return StreamDecoder(_Events(), SseReader())


class _Events:
    __slots__ = ("_started", "_turn")

    def __init__(self) -> None:
        self._turn = _Turn()
        self._started = False

    def read(self, frames: Iterator[bytes], found: list[d.Delta]) -> bool:
        """Events; a terminal event and errors are the last."""
        turn = self._turn
        for frame in frames:
            try:
                event = read_event(frame)
            except msgspec.ValidationError:
                found.append(_notice(frame))
                continue
            kind = event.type
            if kind == "response.output_text.delta":
                slot = event.output_index * ROOM + event.content_index
                turn.shown[slot].append(event.delta)
                found.append(TextDelta(slot, event.delta))
            elif kind == "response.function_call_arguments.delta":
                found.append(ArgumentsDelta(event.output_index * ROOM, event.delta))
            elif kind == "response.reasoning_summary_text.delta":
                found.append(turn.think(event.output_index * ROOM, event.summary_index, event.delta))
            elif kind == "response.reasoning_text.delta":
                found.append(turn.think(event.output_index * ROOM, -1 - event.content_index, event.delta))
            elif self._rare(event, frame, found):
                return True
        return False

    def end(self) -> None:
        """Without a terminal event a turn is never complete."""

    def _rare(self, event: _Event, frame: bytes, found: list[d.Delta]) -> bool:
        kind = event.type
        if kind == "response.output_item.added":
            self._turn.begin(event.output_index, fields(event.item), found)
        elif kind == "response.output_item.done":
            self._turn.end(event.output_index, event.item, found)
        elif kind in TERMINAL:
            self._end(event, frame, found)
            return True
        elif kind == "response.created":
            self._start(_whole_response(event), found)
        elif kind == "response.refusal.delta":
            slot = event.output_index * ROOM + event.content_index
            self._turn.shown[slot].append(event.delta)
            found.append(TextDelta(slot, event.delta))
        elif kind == "error" or event.error not in NONE:
            found.append(_failed(frame))
            return True
        elif not is_repeated(kind):
            found.append(d.Notice(kind, frame.decode()))
        return False

    def _start(self, response: _Response, found: list[d.Delta]) -> None:
        self._started = True
        found.append(d.Started(response.id or "", response.model or ""))

    def _end(self, event: _Event, frame: bytes, found: list[d.Delta]) -> None:
        response = _whole_response(event)
        if event.type == "response.failed" or response.error not in NONE:
            found.append(_failed(bytes(fields(frame)["response"])))
            return
        if not self._started:
            self._start(response, found)
        for number, item in enumerate(response.output or ()):
            if number not in self._turn.done:
                self._turn.end(number, item, found)
        self._turn.stop(response, found)


def _whole_response(event: _Event) -> _Response:
    if event.response is None:
        raise msgspec.ValidationError(f"a {event.type} event without its response")
    return event.response


def _failed(frame: bytes) -> d.Failed:
    complaint = complaint_of(frame)
    return d.Failed(
        typed(complaint, {}) if complaint else WireError("The stream reported an error without a message. Ask again.")
    )


@lru_cache(maxsize=100)
def is_repeated(kind: str) -> bool:
    """Whether what an event of this name says is said again, or is of no use."""
    return kind.startswith(REPEATED)


def _notice(frame: bytes) -> d.Notice:
    """An event whose fields are not what we know by these names: a notice, unless it is one that must be understood."""
    name = _names.decode(frame).type
    if name in TERMINAL or name.startswith(("response.output_item.", "response.output_text.", "response.created")):
        read_event(frame)
    return d.Notice(name, frame.decode())
