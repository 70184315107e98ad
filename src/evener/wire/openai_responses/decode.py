"""Responses' answers, whole or streamed, as neutral deltas. One path: a whole answer is the deltas of its items. Pure.

Rules (sheet 8): several items may be open at once, keyed by `output_index`. `output_item.added` has names and ids;
`output_item.done` has the complete item, also if a clone did not stream it. Only the terminal event has usage. A stream is
truncated if it lacks a terminal event or leaves a call open. An item is read once, identified by its place or its id.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache, reduce
from operator import or_
from typing import Literal, final

import msgspec

from evener.errors import WireError
from evener.transcript import delta as d
from evener.transcript.delta import ArgumentsDelta, SealAdded, TextDelta
from evener.transcript.reply import Reply, StopReason, Usage
from evener.wire.diagnosis import DIAGNOSIS
from evener.wire.faults import complaint_of, make_error, read_failure
from evener.wire.openai_responses.encode import FREE_CALL, TextSeal, qualify_name
from evener.wire.openai_responses.hosted import hosted_block, read_citation
from evener.wire.prefix import cut_arguments, dumps, fields, free_arguments, text_in, word
from evener.wire.quirks import Quirks
from evener.wire.reading import BROKEN, Carrying, Count, Items, mend, parse_some, read_some
from evener.wire.sse import SseReader
from evener.wire.stream import NO_REASON, OPEN_CALL, StreamDecoder, assemble, settle


class _Cached(msgspec.Struct, gc=False):
    cached_tokens: Count = None
    cache_write_tokens: Count = None


class _Thought(msgspec.Struct, gc=False):
    reasoning_tokens: Count = None


class _Counts(msgspec.Struct, gc=False):
    """The field `usage` of an answer."""

    input_tokens: Count = None
    output_tokens: Count = None
    input_tokens_details: _Cached | None = None
    output_tokens_details: _Thought | None = None


def read_usage(read: _Counts) -> Usage:
    """Return the counts. input_tokens includes cache reads and writes, output_tokens includes reasoning (sheet 10)."""
    cached = written = thought = 0
    if (taken := read.input_tokens_details) is not None:
        cached, written = int(taken.cached_tokens or 0), int(taken.cache_write_tokens or 0)
    if (given := read.output_tokens_details) is not None:
        thought = int(given.reasoning_tokens or 0)
    total = int(read.input_tokens or 0)
    return Usage(total, max(0, total - cached - written), cached, written, int(read.output_tokens or 0), thought)


NOTHING = msgspec.Raw(b"")
NULL = msgspec.Raw(b"null")


class _IncompleteReason(msgspec.Struct, gc=False):
    """The reason of an incomplete answer."""

    reason: str | None = None


class _Response(msgspec.Struct, gc=False):
    """The answer as a whole."""

    id: str | None = None
    object: str = ""
    status: str | None = None
    error: msgspec.Raw = NOTHING
    incomplete_details: _IncompleteReason | None = None
    model: str | None = None
    output: Items | None = None
    usage: _Counts | None = None
    prompt_cache_diagnostics: msgspec.Raw = NOTHING


class PlainPart(msgspec.Struct, tag="output_text", forbid_unknown_fields=True, gc=False):
    """A part of a message that contains only text."""

    annotations: tuple[()] = ()
    logprobs: tuple[()] = ()
    text: str = ""


@final
class PlainMessage(msgspec.Struct, tag="message", forbid_unknown_fields=True, gc=False):
    """A message of such parts. A message with any other field is an `_AnyMessage`."""

    id: str
    status: str
    content: list[PlainPart]
    role: Literal["assistant"] = "assistant"


@final
class PlainCall(msgspec.Struct, tag="function_call", forbid_unknown_fields=True, gc=False):
    """A call of one of our tools."""

    id: str
    status: str
    arguments: str
    call_id: str
    name: str


class _ReasoningItem(msgspec.Struct, tag="reasoning", gc=False):
    """A reasoning item of any form. All of it is kept unchanged."""


class _OpenedMessage(msgspec.Struct, tag="message", gc=False):
    """The beginning of a message of any form. Its content comes later."""

    role: str | None = None


class _Event(msgspec.Struct, gc=False):
    """The fields that every event may have. An event of a known name is unknown if one of them has another type."""

    output_index: int = 0
    content_index: int = 0
    summary_index: int = 0
    delta: str = ""


@final
class _MoreWords(_Event, tag="response.output_text.delta", gc=False):
    """A piece of text: by far the most frequent event."""


@final
class _MoreArguments(_Event, tag="response.function_call_arguments.delta", gc=False):
    """More of a call's arguments."""


@final
class _MoreSummary(_Event, tag="response.reasoning_summary_text.delta", gc=False):
    """More of a summary of the reasoning."""


@final
class _MoreThought(_Event, tag="response.reasoning_text.delta", gc=False):
    """More of the reasoning itself."""


@final
class _MoreRefusal(_Event, tag="response.refusal.delta", gc=False):
    """More of a refusal."""


@final
class _ItemBegun(_Event, tag="response.output_item.added", gc=False):
    """An item begins. Only the beginning of a call has data that is needed."""

    item: PlainCall | _OpenedMessage | _ReasoningItem | None = None


@final
class _ItemEnded(_Event, tag="response.output_item.done", gc=False):
    """An item is complete. It has a plain form, as nearly all have."""

    item: PlainMessage | PlainCall | _ReasoningItem | None = None


@final
class Created(_Event, tag="response.created", gc=False):
    """The answer begins."""

    response: _Response | None = None


@final
class Completed(_Event, tag="response.completed", gc=False):
    """The answer is complete."""

    response: _Response | None = None


class Repeated(_Event, gc=False):
    """An event to ignore, because another event has the same content. An event with an error is of another form."""

    error: None = None


REPEATED: frozenset[type[msgspec.Struct]] = frozenset(
    msgspec.defstruct("Repeated", (), bases=(Repeated,), tag=f"response.{name}", gc=False)
    for name in (
        *("in_progress", "queued", "content_part.added", "content_part.done", "refusal.done"),
        *("output_text.done", "output_text.annotation.added", "function_call_arguments.done"),
        *("reasoning_summary_part.added", "reasoning_summary_part.done", "reasoning_summary_text.done", "reasoning_text.done"),
        *("web_search_call.in_progress", "web_search_call.searching", "web_search_call.completed"),
        *("file_search_call.in_progress", "file_search_call.searching", "file_search_call.completed"),
        *("code_interpreter_call.in_progress", "code_interpreter_call.interpreting", "code_interpreter_call.completed"),
        *("code_interpreter_call_code.delta", "code_interpreter_call_code.done"),
        *("mcp_call_arguments.delta", "mcp_call_arguments.done"),
        *("custom_tool_call_input.delta", "custom_tool_call_input.done"),
    )
)
"""A form for each of these events that is frequent enough to be recognised by its whole name."""

_Forms = (
    _MoreWords | _MoreArguments | _MoreSummary | _MoreThought | _MoreRefusal | _ItemBegun | _ItemEnded | Created | Completed
)
_Known = _Forms | Repeated


class AnyEvent(_Event, gc=False):
    """An event of any name. The other fields may have any value."""

    type: str = ""
    item: msgspec.Raw = NOTHING
    response: msgspec.Raw = NOTHING
    error: msgspec.Raw = NOTHING


class _Named(msgspec.Struct, gc=False):
    """The type, the role and the error of any object."""

    type: str = ""
    role: msgspec.Raw = NULL
    error: msgspec.Raw = NOTHING


class Terminal(msgspec.Struct, gc=False):
    """The end of the answer, whatever its status."""

    response: _Response
    type: str = ""


class _ReasoningText(msgspec.Struct, gc=False):
    """A part of a reasoning item."""

    type: str = ""
    text: str = ""


class Reasoned(msgspec.Struct, gc=False):
    """The readable fields of a reasoning item."""

    summary: list[_ReasoningText] | None = None
    content: list[_ReasoningText] | None = None


class _AnyCall(msgspec.Struct, gc=False):
    """Any call."""

    call_id: str = ""
    name: str = ""
    arguments: str | None = None
    input: str | None = None
    namespace: msgspec.Raw = NOTHING


class _AnyMessage(msgspec.Struct, gc=False):
    """Any message."""

    content: Items = []


class _AnyPart(msgspec.Struct, gc=False):
    """Any part of one."""

    type: str = ""
    text: str = ""
    refusal: str = ""
    annotations: Items | None = None
    logprobs: msgspec.Raw = NOTHING


TERMINAL = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
FORMS: dict[str, type[msgspec.Struct]] = {
    "response.output_text.delta": _MoreWords,
    "response.function_call_arguments.delta": _MoreArguments,
    "response.reasoning_summary_text.delta": _MoreSummary,
    "response.reasoning_text.delta": _MoreThought,
    "response.refusal.delta": _MoreRefusal,
    "response.created": Created,
    **dict.fromkeys(TERMINAL, Terminal),
}
"""The form of an event by its type, for `mend`. An event of another type is an `AnyEvent`."""

CARRYING: Carrying = {
    _MoreWords: ("output_index", "content_index", "delta"),
    _MoreArguments: ("output_index", "delta"),
    _MoreSummary: ("output_index",),
    _MoreThought: ("output_index",),
    _MoreRefusal: ("output_index",),
    Terminal: ("type", "response"),
    _Response: ("status", "output"),
    AnyEvent: ("type", "output_index", "item"),
    _AnyPart: ("type", "text"),
    _Named: ("type",),
}
"""The fields that must have their type."""


def form_of(frame: bytes) -> type[msgspec.Struct]:
    """Return the form of an event, by its type."""
    return FORMS.get(read_name(frame).type, AnyEvent)


_events: msgspec.json.Decoder[_Known] = msgspec.json.Decoder(reduce(or_, REPEATED, _Forms))
read_response = msgspec.json.Decoder(_Response).decode
read_event = _events.decode
read_any_event = msgspec.json.Decoder(AnyEvent).decode
read_name = msgspec.json.Decoder(_Named).decode
read_call = msgspec.json.Decoder(_AnyCall).decode
read_message = msgspec.json.Decoder(_AnyMessage).decode
read_part = msgspec.json.Decoder(_AnyPart).decode


NONE = (NULL, NOTHING)
EMPTY = (NULL, msgspec.Raw(b"[]"))
Raws = dict[str, msgspec.Raw]
INCOMPLETE: dict[str, StopReason] = {"max_output_tokens": "length", "content_filter": "refusal"}
STATUS: dict[str, StopReason] = {
    "cancelled": "cancelled",
    "queued": "pending",
    "in_progress": "pending",
    "incomplete": "other",
}
OURS = {"function_call": ("type", "call_id", "name", "arguments"), FREE_CALL: ("call_id", "name", "input")}
"""By the type of a call, its fields with a neutral form; the others are sealed."""
THEIRS = ("user", "system", "developer")
"""Roles of messages that a compaction returns; a message of any other role is the answer."""
COMPACTED = "response.compaction"
KEPT = ("response.output_item.", "response.output_text.", "response.created")
"""Prefixes of the names of events that must be understood, apart from the terminal ones."""
PARTS = "\n\n"
TWO_ANSWERS = "The stream contains a second answer; one was expected. Both are discarded. Ask again."
# Prefixes of events whose content `output_item.done` repeats as a whole.
SAID_AGAIN = (
    *("response.content_part.", "response.output_text.done", "response.output_text.annotation.added", "response.refusal.done"),
    *("response.function_call_arguments.done", "response.custom_tool_call_input.", "response.mcp_", "response.shell_call"),
    *("response.reasoning_summary_part.", "response.reasoning_summary_text.done", "response.reasoning_text.done"),
    *("response.web_search_call.", "response.file_search_call.", "response.code_interpreter_call"),
    *("response.image_generation_call.in_progress", "response.image_generation_call.generating"),
    *("response.image_generation_call.completed", "response.in_progress", "response.queued", "response.compaction."),
    "keepalive",
)


ROOM = 1000
"""Numbers kept free for the parts of one item."""


class _Turn(msgspec.Struct, gc=False):
    """The state of decoding one answer. Turns events and items into deltas."""

    started: bool = False
    refused: bool = False
    shown: dict[int, list[str]] = {}
    parts: dict[int, int] = {}  # the latest part of a reasoning item; the parts of its content are -1, -2, ...
    calls: dict[int, tuple[str, str]] = {}
    open: set[int] = set()  # calls and items of the provider's own that have begun
    done: set[int] = set()
    ids: set[str] = set()  # of the completed items
    moved: dict[int, int] = {}  # by a number that a clone gave to several items: the number of the newest one
    id: str = ""
    state: str = ""  # the final status
    compacted: bool = False

    def read(self, frames: Iterator[bytes], found: list[d.Delta]) -> bool:
        """Read events. True if the answer has ended: with a terminal event, or in an error."""
        for frame in frames:
            try:
                event = read_event(frame)
            except msgspec.ValidationError:
                if self._read_other(frame, found):
                    return True
                continue
            kind = type(event)
            if self.moved:
                event.output_index = self.moved.get(event.output_index, event.output_index)
            if kind is _MoreWords:
                slot, text = event.output_index * ROOM + event.content_index, event.delta
                self.shown.setdefault(slot, []).append(text)
                found.append(TextDelta(slot, text))
            elif kind is _MoreArguments:
                found.append(ArgumentsDelta(event.output_index * ROOM, event.delta))
            elif kind is _MoreSummary:
                found.append(self._add_thought(event.output_index * ROOM, event.summary_index, event.delta))
            elif kind is _MoreThought:
                found.append(self._add_thought(event.output_index * ROOM, -1 - event.content_index, event.delta))
            elif kind not in REPEATED and self._read_rare(event, frame, found):
                return True
        return False

    def mend(self, frame: bytes) -> tuple[bytes, list[d.Notice]]:
        """Return an event without its optional fields of a wrong type."""
        return mend(frame, form_of, CARRYING)

    def missing(self) -> str:
        """Return why the ended answer is incomplete; empty if it is complete."""
        if not self.state:
            return NO_REASON
        return OPEN_CALL if self.open or (self.calls and STATUS.get(self.state) == "pending") else ""

    def end(self) -> None:
        """Return None: without a terminal event a turn is never complete."""

    def complete(self, number: int, raw: msgspec.Raw, found: list[d.Delta]) -> None:
        """Complete an item: add the parts of it that were not streamed."""
        named = read_name(raw)
        kind = named.type
        if kind in OURS:
            call, kept = read_call(raw), _keep_fields(fields(raw), OURS[kind])
            self._begin_call(number, call.call_id, qualify_name(text_in(call.namespace), call.name), found)
            free, status = kind == FREE_CALL, word(kept.get("status"))
            arguments = _arguments((call.input if free else call.arguments) or "", status, free=free)
            self._end_call(number, arguments, kept, word(kept.get("id")), found)
        elif kind == "message" and text_in(named.role) not in THEIRS:
            self._complete_message(number, raw, found)
        elif kind == "reasoning":
            self._complete_reasoning(number * ROOM, raw, found)
        else:
            self.compacted = self.compacted or kind.startswith("compaction")
            found.append(d.HostedAdded(number * ROOM, hosted_block(raw)))
        self._finish(number, *_ids(raw))

    def stop(self, response: _Response, found: list[d.Delta], said: str = "") -> None:
        """Report the terminal state: usage, and why it ended. `said` is the status according to the event's name."""
        if response.usage is not None:
            found.append(d.UsageReported(read_usage(response.usage)))
        if response.prompt_cache_diagnostics not in NONE:
            found.append(d.Notice(DIAGNOSIS, bytes(response.prompt_cache_diagnostics).decode()))
        status, details = response.status or said, response.incomplete_details
        if response.object == COMPACTED or (not status and self.compacted):
            self.state = COMPACTED
            found.append(d.Stopped("compacted", COMPACTED))
            return
        self.state = status
        reason = "" if details is None else details.reason or ""
        found.append(d.Stopped(self._why(status, reason), reason or status))

    def _place(self, number: int, ended: msgspec.Raw = NULL) -> int:
        """Return the number of an item that begins or has ended. If a clone repeats a number, return a new one."""
        if ended == NULL:
            taken = number in self.done or number * ROOM in self.shown
        else:
            taken = number in self.done and self.ids.isdisjoint(_ids(ended))
        if not taken:
            return number
        new = max((number, *self.done, *self.open)) + 1
        given = [one for one, now in self.moved.items() if now == number] or [number]
        self.moved.update(dict.fromkeys(given, new))
        return new

    def _finish(self, number: int, *ids: str) -> None:
        self.done.add(number)
        self.open.discard(number)
        self.ids.update(ids)

    def _read_rare(self, event: _Known, frame: bytes, found: list[d.Delta]) -> bool:
        if type(event) is _ItemBegun:
            item, number = event.item, self._place(event.output_index)
            if type(item) is PlainCall:
                self.open.add(number)
                self._begin_call(number, item.call_id, item.name, found)
            elif item is None:
                raise _describe_missing("response.output_item.added", "item")
        elif type(event) is _ItemEnded:
            self._complete_plain(event, frame, found)
        elif type(event) is Completed:
            if event.response is None:
                raise _describe_missing("response.completed", "response")
            self._end(event.response, frame, "completed", found)
            return True
        elif type(event) is Created:
            return self._begin_answer(event.response or _Response(), found)
        elif type(event) is _MoreRefusal:
            slot = event.output_index * ROOM + event.content_index
            self.shown.setdefault(slot, []).append(event.delta)
            found.append(TextDelta(slot, event.delta))
        return False

    def _read_other(self, frame: bytes, found: list[d.Delta]) -> bool:
        """Read an event that has none of the usual forms. True if the answer has ended: with a terminal event, or in an
        error.
        """
        event = _any_event(frame, found)
        if event is None:
            return False
        kind = event.type
        if kind == "response.output_item.added":
            self._begin(event, found)
        elif kind == "response.output_item.done":
            self.complete(self._place(self.moved.get(event.output_index, event.output_index), event.item), event.item, found)
        elif kind in TERMINAL:
            self._end(_response_of(event), frame, kind.removeprefix("response."), found)
            return True
        elif kind == "response.created":
            return self._begin_answer(_response_of(event), found)
        elif kind == "error" or event.error not in NONE:
            found.append(read_failure(frame))
            return True
        elif not is_repeated(kind):
            found.append(d.Notice(kind, frame.decode()))
        return False

    def _begin_answer(self, response: _Response, found: list[d.Delta]) -> bool:
        """Begin the answer. True if another one had begun before, which is an error."""
        if self.started and response.id != self.id:
            found.append(d.Failed(WireError(TWO_ANSWERS)))
            return True
        self._start(response, found)
        return False

    def _start(self, response: _Response, found: list[d.Delta]) -> None:
        self.started, self.id = True, response.id or ""
        found.append(d.Started(self.id, response.model or ""))

    def _end(self, response: _Response, frame: bytes, said: str, found: list[d.Delta]) -> None:
        if said == "failed" or _is_failed(response, found):
            found.append(read_failure(bytes(fields(frame)["response"])))
            return
        if not self.started:
            self._start(response, found)
        known = frozenset(self.ids)
        for number, item in enumerate(response.output or ()):
            if number not in self.done and known.isdisjoint(_ids(item)):
                self.complete(number, item, found)
        self.stop(response, found, said)

    def _begin(self, event: AnyEvent, found: list[d.Delta]) -> None:
        """Begin an item of any form. Only the beginning of a call has data that is needed."""
        if event.item in NONE:
            raise _describe_missing(event.type, "item")
        kind, number = read_name(event.item).type, self._place(self.moved.get(event.output_index, event.output_index))
        if kind == "function_call":
            call = read_call(event.item)
            self._begin_call(number, call.call_id, qualify_name(text_in(call.namespace), call.name), found)
        if kind not in ("message", "reasoning"):
            self.open.add(number)

    def _complete_plain(self, event: _ItemEnded, frame: bytes, found: list[d.Delta]) -> None:
        """Complete an item. One of a plain form is not parsed a second time."""
        item, number = event.item, event.output_index
        if number in self.done:
            raw = read_any_event(frame).item
            self.complete(self._place(number, raw), raw, found)
        elif type(item) is PlainMessage:
            seal = dumps({"item": {"id": item.id, "status": item.status}}).decode()
            for slot in self._say_rest(number, [part.text for part in item.content], found):
                found.append(SealAdded(slot, "text", seal, item.id))
            self._finish(number, item.id)
        elif type(item) is PlainCall:
            self._begin_call(number, item.call_id, item.name, found)
            arguments = _arguments(item.arguments, item.status, free=False)
            self._end_call(number, arguments, {"id": item.id, "status": item.status}, item.id, found)
            self._finish(number, item.id, item.call_id)
        else:
            self.complete(number, read_any_event(frame).item, found)

    def _begin_call(self, number: int, id: str, name: str, found: list[d.Delta]) -> None:
        call = (id, name)
        if self.calls.get(number) != call:
            self.calls[number] = call
            found.append(d.CallBegun(number * ROOM, id, name))

    def _end_call(self, number: int, arguments: str, kept: Mapping[str, object], id: str, found: list[d.Delta]) -> None:
        slot = number * ROOM
        if kept:
            found.append(SealAdded(slot, "call", dumps(kept).decode(), id))
        found.append(d.CallEnded(slot, arguments))

    def _add_thought(self, slot: int, part: int, text: str) -> d.ReasoningDelta:
        """Return more of a reasoning item. A blank line separates a new part, whether or not an event announced it."""
        if self.parts.get(slot, part) != part:
            text = PARTS + text
        self.parts[slot] = part
        self.shown.setdefault(slot, []).append(text)
        return d.ReasoningDelta(slot, text)

    def _find_unsent(self, slot: int, text: str) -> str:
        """Return the part of a block's whole text that was not streamed."""
        shown = "".join(self.shown.get(slot, ()))
        return text[len(shown) :] if shown != text and text.startswith(shown) else ""

    def _say_rest(self, number: int, texts: list[str], found: list[d.Delta]) -> list[int]:
        """Return the slot of each part of a message, and add the text that was not streamed.

        A clone may number the parts in its deltas in another way than at the end. Then the whole streamed text is compared
        with the whole text.
        """
        first = number * ROOM
        if len(texts) == 1 and self.shown.keys() == {first} and "".join(self.shown[first]) == texts[0]:
            return [first]  # nearly always
        slots = list(range(first, first + len(texts)))
        told = {slot: "".join(shown) for slot, shown in sorted(self.shown.items()) if first <= slot < first + ROOM}
        if all([slot < first + len(texts) and texts[slot - first].startswith(text) for slot, text in told.items()]):
            for slot, text in zip(slots, texts, strict=True):
                rest = text[len(told.get(slot, "")) :]
                if rest:
                    found.append(TextDelta(slot, rest))
            return slots
        whole, said = "".join(texts), "".join(told.values())
        last = max(told)
        if not whole.startswith(said):
            found.append(d.Notice("another text at the end", dumps({"text": whole}).decode()))
        elif len(whole) > len(said):
            found.append(TextDelta(last, whole[len(said) :]))
        return [*told, *[last] * len(texts)][: len(texts)]

    def _complete_message(self, number: int, raw: msgspec.Raw, found: list[d.Delta]) -> None:
        item = _keep_fields(fields(raw), ("type", "role", "content"))
        raws = read_message(raw).content
        parts = [_read_part(one, found) for one in raws]
        self.refused = self.refused or any(part.type == "refusal" for part in parts)
        texts = [part.refusal if part.type == "refusal" else part.text for part in parts]
        for slot, part, own in zip(self._say_rest(number, texts, found), parts, raws, strict=True):
            for cited in part.annotations or ():
                found.append(d.CitationAdded(slot, read_citation(cited, found)))
            ours = ("refusal",) if part.type == "refusal" else ("type", "text", "logprobs")
            seal = TextSeal(item, _keep_fields(fields(own), ours, EMPTY))
            found.append(SealAdded(slot, "text", dumps(seal).decode(), word(item.get("id"))))
            if not (part.text or part.refusal) and part.type not in ("output_text", "refusal"):
                found.append(d.Notice(part.type or "content", bytes(own).decode()))
            if part.logprobs and part.logprobs not in EMPTY:
                found.append(d.Notice("logprobs", bytes(part.logprobs).decode()))

    def _complete_reasoning(self, slot: int, raw: msgspec.Raw, found: list[d.Delta]) -> None:
        read = read_some(raw, Reasoned, "reasoning", found)
        text = PARTS.join(part.text for part in (*(read.summary or ()), *(read.content or ())) if part.text)
        rest = self._find_unsent(slot, text)
        if rest:
            found.append(d.ReasoningDelta(slot, rest))
        own = fields(raw)
        kept = _keep_fields(own, ("type", "summary") if _is_closed(own) else ("type",))
        found.append(SealAdded(slot, "reasoning", dumps(kept).decode(), word(kept.get("id"))))

    def _why(self, status: str, reason: str) -> StopReason:
        if status == "completed":
            return "tools" if self.calls else "refusal" if self.refused else "done"
        return INCOMPLETE.get(reason, STATUS.get(status, "other"))


def _arguments(written: str, status: str, *, free: bool) -> str:
    """Return the arguments of a call. Its status says whether the limit or a filter cut it off."""
    if status == "incomplete":
        return cut_arguments(written, free=free)
    return free_arguments(written) if free else written or "{}"


def _is_closed(own: Raws) -> bool:
    """True if the model reads only the encrypted form of a reasoning item: the summary in its text is for users.

    OpenAI says that the summary never reaches the model (vllm-project/vllm#36516), and VS Code's Copilot sends it back empty.
    Items with readable content as well are left as they are.
    """
    return own.get("encrypted_content", NULL) != NULL and own.get("content", NULL) in EMPTY


def _read_part(raw: msgspec.Raw, found: list[d.Delta]) -> _AnyPart:
    """Return a part of a message, as far as it can be read."""
    if bytes(raw)[:1] != b"{":
        raise msgspec.ValidationError("a part of a message that is no object")
    try:
        return read_part(raw)
    except BROKEN:
        return read_some(raw, _AnyPart, "content", found, CARRYING)


def _ids(raw: msgspec.Raw) -> list[str]:
    """Return the ids that identify an item: its own, and that of its call."""
    own = fields(raw)
    names = ("id", "call_id") if word(own.get("type")) == "function_call" else ("id",)
    return [found for name in names if (found := word(own.get(name)))]


def _keep_fields(own: Raws, ours: tuple[str, ...], nothing: tuple[msgspec.Raw, ...] = (NULL,)) -> Raws:
    return {name: value for name, value in own.items() if name not in ours and value not in nothing}


def decode(body: bytes, quirks: Quirks) -> Reply:  # noqa: ARG001 - every codec's decode takes the quirks
    """Return a whole answer."""
    return assemble(_read_whole(body))


def _read_whole(body: bytes) -> list[d.Delta]:
    found: list[d.Delta] = []
    response = parse_some(body, _Response, "a Responses answer", CARRYING, found)
    _raise_for(response, body, found)
    if not response.object.startswith("response") and (response.object or response.output is None):
        raise WireError(f"Expected a response, but the answer is a {response.object!r}. Check the base URL.")
    turn = _Turn()
    found.insert(0, d.Started(response.id or "", response.model or ""))
    try:
        for number, raw in enumerate(response.output or ()):
            turn.complete(number, raw, found)
    except BROKEN as error:
        raise WireError(
            f"Expected Responses items: {error}. Check the base URL, and that this endpoint speaks that wire."
        ) from None
    turn.stop(response, found)
    settle(turn, found, [] if response.output else [body])
    return found


def _raise_for(response: _Response, body: bytes, found: list[d.Delta]) -> None:
    if _is_failed(response, found):
        complaint = complaint_of(body)
        if complaint:
            raise make_error(complaint, {})
        raise WireError("The response failed, and the provider gave no reason. Ask again.")


def _is_failed(response: _Response, found: list[d.Delta]) -> bool:
    """True if the answer is an error. In an answer with another status, the field `error` must contain a message or a code."""
    error = response.error
    if response.status in (None, "failed") or error in NONE:
        return response.status == "failed" or error not in NONE
    if bytes(error)[:1] == b"{" and complaint_of(dumps({"error": error})):
        return True
    found.append(d.Notice("error", bytes(error).decode(errors="replace")))
    return False


def decoder(quirks: Quirks) -> StreamDecoder:  # noqa: ARG001 - every codec's decoder takes the quirks
    """Return a streamed answer."""
    return StreamDecoder(_Turn(), SseReader())


def _response_of(event: AnyEvent) -> _Response:
    if event.response in NONE:
        raise _describe_missing(event.type, "response")
    return read_response(event.response)


def _describe_missing(kind: str, what: str) -> msgspec.ValidationError:
    return msgspec.ValidationError(f"a {kind} event without its {what}")


@lru_cache(maxsize=100)
def is_repeated(kind: str) -> bool:
    """True if another event repeats the content of an event of this name, or if it has none."""
    return kind.startswith(SAID_AGAIN)


def _any_event(frame: bytes, found: list[d.Delta]) -> AnyEvent | None:
    """Return an event of any form. If its fields have other types than we know, add a notice and return None; raise if it
    must be understood. An error event is always returned."""
    try:
        return read_any_event(frame)
    except msgspec.ValidationError:
        named = read_name(frame)
        if named.type == "error" or named.error not in NONE:
            return AnyEvent(type="error")
        if named.type in TERMINAL or named.type.startswith(KEPT):
            raise
        found.append(d.Notice(named.type, frame.decode()))
        return None
