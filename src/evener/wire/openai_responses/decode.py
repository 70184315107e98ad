"""Responses' answers, whole or streamed, as neutral deltas. One path: a whole answer is the deltas of its items. Pure.

Rules (sheet 8): several items may be open at once, keyed by `output_index`; names and ids stand in `output_item.added`, the
truth in `output_item.done` (also what a clone did not stream); usage stands in the terminal event only; a stream without a
terminal event is truncated.
"""

import msgspec

from evener.errors import WireError
from evener.transcript import delta as d
from evener.transcript.reply import Reply, StopReason
from evener.wire.assembler import assemble
from evener.wire.faults import complaint_of, typed
from evener.wire.openai_responses.blocks import TextSeal
from evener.wire.openai_responses.citations import read_citation
from evener.wire.openai_responses.hosted import hosted_block
from evener.wire.openai_responses.usage import Counts, read_usage
from evener.wire.quirks import Quirks
from evener.wire.reading import Items
from evener.wire.stream import StreamDecoder
from evener.wire.text import dumps, fields, parse, word

__all__ = ["PARTS", "decode", "decoder"]

NOTHING = msgspec.Raw(b"")
NULL = b"null"
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
    "response.queued",
    "response.compaction.",
    "keepalive",
)


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    output_index: int = 0
    content_index: int = 0
    summary_index: int = 0
    delta: str = ""
    item: msgspec.Raw = NOTHING
    response: msgspec.Raw = NOTHING
    annotation: msgspec.Raw = NOTHING
    error: msgspec.Raw = NOTHING


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


class _Text(msgspec.Struct):
    type: str = ""
    text: str = ""


class _Call(msgspec.Struct):
    call_id: str = ""
    name: str = ""
    arguments: str | None = None


class _Message(msgspec.Struct):
    content: Items = []


class _Reasoned(msgspec.Struct):
    summary: list[_Text] | None = None
    content: list[_Text] | None = None


class _Part(msgspec.Struct):
    type: str = ""
    text: str = ""
    refusal: str = ""
    annotations: Items | None = None
    logprobs: msgspec.Raw = NOTHING


_events = msgspec.json.Decoder(_Event)
_names = msgspec.json.Decoder(_Named)
_responses = msgspec.json.Decoder(_Response)
_calls = msgspec.json.Decoder(_Call)
_messages = msgspec.json.Decoder(_Message)
_reasoned = msgspec.json.Decoder(_Reasoned)
_parts = msgspec.json.Decoder(_Part)

ROOM = 1000
"""Numbers kept free for the parts of one item."""


class _Turn:
    """What is known of the answer so far; turns its items into deltas."""

    def __init__(self) -> None:
        self.shown: dict[int, list[str]] = {}
        self.parts: dict[int, int] = {}  # the part of a reasoning item shown last; those of its content count down from -1
        self.calls: dict[int, tuple[str, str]] = {}
        self.refused = False
        self.done: set[int] = set()

    def slot(self, item: int, part: int = 0) -> int:
        """The number of a block within the reply: items may finish in another order than they stand in."""
        return item * ROOM + part

    def show(self, slot: int, text: str) -> str:
        """Note that this much of a block was shown."""
        self.shown.setdefault(slot, []).append(text)
        return text

    def unsent(self, slot: int, text: str) -> str:
        """What of a block's whole text was not shown yet."""
        shown = "".join(self.shown.get(slot, ()))
        return text[len(shown) :] if text.startswith(shown) else ""

    def think(self, slot: int, part: int, text: str) -> d.ReasoningDelta:
        """More of a reasoning item. A new part is set apart from what was shown before it, be it announced or not."""
        if self.parts.get(slot, part) != part:
            text = PARTS + text
        self.parts[slot] = part
        self.shown.setdefault(slot, []).append(text)
        return d.ReasoningDelta(slot, text)

    def begin(self, number: int, raw: msgspec.Raw) -> list[d.Delta]:
        """An item begins."""
        if _names.decode(raw).type != "function_call":
            return []
        call = _calls.decode(raw)
        if self.calls.get(number) == (call.call_id, call.name):
            return []
        self.calls[number] = (call.call_id, call.name)
        return [d.CallStarted(self.slot(number), call.call_id, call.name)]

    def end(self, number: int, raw: msgspec.Raw) -> list[d.Delta]:
        """An item is complete: whatever was not streamed of it follows now."""
        self.done.add(number)
        named = _names.decode(raw)
        match named.type:
            case "message" if named.role in (None, "assistant"):  # a compaction hands the user's messages back, too
                return self._message(number, raw)
            case "reasoning":
                return self._reasoning(number, raw)
            case "function_call":
                return self._call(number, raw)
            case _:
                return [d.HostedAdded(self.slot(number), hosted_block(raw))]

    def _call(self, number: int, raw: msgspec.Raw) -> list[d.Delta]:
        started = self.begin(number, raw)
        slot = self.slot(number)
        kept = _kept(fields(raw), ("type", "call_id", "name", "arguments"))
        seal: list[d.Delta] = [d.SealAdded(slot, "call", dumps(kept).decode(), word(kept.get("id")))] if kept else []
        return [*started, *seal, d.CallEnded(slot, _calls.decode(raw).arguments or "{}")]

    def _reasoning(self, number: int, raw: msgspec.Raw) -> list[d.Delta]:
        read = _reasoned.decode(raw)
        slot = self.slot(number)
        text = PARTS.join(part.text for part in (*(read.summary or ()), *(read.content or ())) if part.text)
        rest = self.unsent(slot, text)
        found: list[d.Delta] = [d.ReasoningDelta(slot, rest)] if rest else []
        kept = _kept(fields(raw), ("type",))
        return [*found, d.SealAdded(slot, "reasoning", dumps(kept).decode(), word(kept.get("id")))]

    def _message(self, number: int, raw: msgspec.Raw) -> list[d.Delta]:
        item = _kept(fields(raw), ("type", "role", "content"))
        found: list[d.Delta] = []
        for place, part in enumerate(_messages.decode(raw).content):
            found += self._part(self.slot(number, place), part, item)
        return found

    def _part(self, slot: int, raw: msgspec.Raw, item: dict[str, msgspec.Raw]) -> list[d.Delta]:
        part = _parts.decode(raw)
        refusal = part.type == "refusal"
        self.refused = self.refused or refusal
        rest = self.unsent(slot, part.refusal if refusal else part.text)
        found: list[d.Delta] = [d.TextDelta(slot, rest)] if rest else []
        ours = ("refusal",) if refusal else ("type", "text", "logprobs")
        own = {name: value for name, value in _kept(fields(raw), ours).items() if bytes(value) != b"[]"}
        found += (d.CitationAdded(slot, read_citation(cited)) for cited in part.annotations or ())
        found.append(d.SealAdded(slot, "text", dumps(TextSeal(item, own)).decode(), word(item.get("id"))))
        if part.logprobs and bytes(part.logprobs) not in (NULL, b"[]"):
            found.append(d.Notice("logprobs", bytes(part.logprobs).decode()))
        return found

    def stop(self, response: _Response) -> list[d.Delta]:
        """The terminal state: usage, and why it ended."""
        found: list[d.Delta] = [d.UsageReported(read_usage(response.usage))] if response.usage else []
        if response.object == COMPACTED:
            return [*found, d.Stopped("compacted", response.object)]
        status = response.status or "completed"
        reason = (response.incomplete_details.reason or "") if response.incomplete_details else ""
        found.append(d.Stopped(self._why(status, reason), reason or status))
        return found

    def _why(self, status: str, reason: str) -> StopReason:
        if status == "completed":
            return "tools" if self.calls else "refusal" if self.refused else "done"
        return INCOMPLETE.get(reason, STATUS.get(status, "other"))


def _kept(own: dict[str, msgspec.Raw], ours: tuple[str, ...]) -> dict[str, msgspec.Raw]:
    return {name: value for name, value in own.items() if name not in ours and bytes(value) != NULL}


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
            found += turn.end(number, raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"Expected Responses items: {error}. Is this endpoint of that wire?") from None
    return [*found, *turn.stop(response)]


def _raise_for(response: _Response, body: bytes) -> None:
    if response.status == "failed" or (response.error and bytes(response.error) != NULL):
        complaint = complaint_of(body)
        if complaint:
            raise typed(complaint, {})
        raise WireError("The response failed and says nothing about it. Ask again.")


def decoder(quirks: Quirks) -> StreamDecoder:  # noqa: ARG001 - every codec's decoder takes the quirks
    """A streamed answer."""
    return StreamDecoder(_Events())


class _Events:
    def __init__(self) -> None:
        self._turn = _Turn()
        self._started = False
        self._over = False

    def read(self, frame: bytes, found: list[d.Delta]) -> bool:
        """One event; a terminal event and errors are the last."""
        try:
            event = _events.decode(frame)
        except msgspec.ValidationError:
            found.append(_notice(frame))
            return False
        match event.type:
            case "response.output_text.delta":
                slot = self._turn.slot(event.output_index, event.content_index)
                found.append(d.TextDelta(slot, self._turn.show(slot, event.delta)))
            case "response.function_call_arguments.delta":
                found.append(d.ArgumentsDelta(self._turn.slot(event.output_index), event.delta))
            case "response.reasoning_summary_text.delta":
                found.append(self._turn.think(event.output_index * ROOM, event.summary_index, event.delta))
            case "response.reasoning_text.delta":
                found.append(self._turn.think(event.output_index * ROOM, -1 - event.content_index, event.delta))
            case _:
                found += self._event(event, frame)
        return self._over

    def end(self) -> None:
        """Without a terminal event a turn is never complete."""

    def _event(self, event: _Event, frame: bytes) -> list[d.Delta]:
        turn = self._turn
        slot = (event.output_index, event.content_index)
        match event.type:
            case "response.refusal.delta":
                place = turn.slot(*slot)
                return [d.TextDelta(place, turn.show(place, event.delta))]
            case "response.output_item.added":
                return turn.begin(event.output_index, event.item)
            case "response.output_item.done":
                return turn.end(event.output_index, event.item)
            case _:
                return self._rare(event, frame)

    def _rare(self, event: _Event, frame: bytes) -> list[d.Delta]:
        match event.type:
            case "response.created":
                return self._start(_responses.decode(event.response))
            case "response.output_text.annotation.added":
                return []
            case kind if kind in TERMINAL:
                return self._end(kind, event.response)
            case "error":
                return self._error(frame)
            case _ if event.error and bytes(event.error) != NULL:
                return self._error(frame)
            case kind if kind.startswith(REPEATED):
                return []
            case kind:
                return [d.Notice(kind, frame.decode())]

    def _start(self, response: _Response) -> list[d.Delta]:
        self._started = True
        return [d.Started(response.id or "", response.model or "")]

    def _end(self, kind: str, raw: msgspec.Raw) -> list[d.Delta]:
        self._over = True
        response = _responses.decode(raw)
        if kind == "response.failed" or (response.error and bytes(response.error) != NULL):
            return self._error(bytes(raw))
        rest = [] if self._started else self._start(response)
        for number, item in enumerate(response.output or ()):
            if number not in self._turn.done:
                rest += self._turn.end(number, item)
        return [*rest, *self._turn.stop(response)]

    def _error(self, frame: bytes) -> list[d.Delta]:
        self._over = True
        complaint = complaint_of(frame)
        if complaint is None:
            return [d.Failed(WireError("The stream reported an error without a message. Ask again."))]
        return [d.Failed(typed(complaint, {}))]


def _notice(frame: bytes) -> d.Notice:
    """An event whose fields are not what we know by these names: a notice, unless it is one that must be understood."""
    name = _names.decode(frame).type
    if name in TERMINAL or name.startswith(("response.output_item.", "response.output_text.", "response.created")):
        _events.decode(frame)
    return d.Notice(name, frame.decode())
