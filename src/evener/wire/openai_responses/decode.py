"""Responses' answers, whole or streamed, as neutral deltas. One path: a whole answer is the deltas of its items. Pure.

Rules (sheet 8): several items may be open at once, keyed by `output_index`; names and ids stand in `output_item.added`, the
truth in `output_item.done` (also what a clone did not stream); usage stands in the terminal event only; a stream without a
terminal event is truncated, as is one that leaves a call open. An item counts once, by its place or by its id.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache

import msgspec

from evener.errors import WireError
from evener.transcript import delta as d
from evener.transcript.delta import ArgumentsDelta, SealAdded, TextDelta
from evener.transcript.reply import Reply, StopReason
from evener.wire.assembler import assemble
from evener.wire.faults import complaint_of, typed
from evener.wire.lenient import BROKEN, mend, parse_some, read_some
from evener.wire.openai_responses.blocks import FREE_CALL, TextSeal, qualified
from evener.wire.openai_responses.citations import read_citation
from evener.wire.openai_responses.events import (
    CARRYING,
    NOTHING,
    NULL,
    REPEATED,
    TERMINAL,
    AnyEvent,
    Arguments,
    Begun,
    Completed,
    Created,
    Ended,
    Known,
    Part,
    PlainCall,
    PlainMessage,
    Reasoned,
    Refusal,
    Response,
    Summary,
    Thought,
    Words,
    form_of,
    read_any_event,
    read_call,
    read_event,
    read_message,
    read_name,
    read_response,
)
from evener.wire.openai_responses.hosted import hosted_block
from evener.wire.openai_responses.usage import read_usage
from evener.wire.quirks import Quirks
from evener.wire.sse import SseReader
from evener.wire.stream import NO_REASON, OPEN_CALL, StreamDecoder, settle
from evener.wire.text import dumps, fields, free_arguments, text_in, word

__all__ = ["PARTS", "decode", "decoder"]

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
COMPACTED = "response.compaction"
KEPT = ("response.output_item.", "response.output_text.", "response.created")
"""How events are named that must be understood, besides the terminal ones."""
PARTS = "\n\n"
TWO_ANSWERS = "A second answer began in one stream. Expected one; nothing of them counts. Ask again."
# Events whose content stands again, whole, in `output_item.done`.
SAID_AGAIN = (
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


ROOM = 1000
"""Numbers kept free for the parts of one item."""


class _Turn(msgspec.Struct, gc=False):
    """What is known of the answer so far; turns its events and its items into deltas."""

    started: bool = False
    refused: bool = False
    shown: dict[int, list[str]] = {}
    parts: dict[int, int] = {}  # the part of a reasoning item shown last; those of its content count down from -1
    calls: dict[int, tuple[str, str]] = {}
    open: set[int] = set()  # calls and items of the provider's own that have begun
    done: set[int] = set()
    ids: set[str] = set()  # of the items that are done
    id: str = ""
    state: str = ""  # in which it ended
    compacted: bool = False

    def read(self, frames: Iterator[bytes], found: list[d.Delta]) -> bool:
        """Events; a terminal event and errors are the last."""
        for frame in frames:
            try:
                event = read_event(frame)
            except msgspec.ValidationError:
                if self._other(frame, found):
                    return True
                continue
            kind = type(event)
            if kind is Words:
                slot, text = event.output_index * ROOM + event.content_index, event.delta
                shown = self.shown.get(slot)
                if shown is None:
                    self.shown[slot] = [text]
                else:
                    shown.append(text)
                found.append(TextDelta(slot, text))
            elif kind is Arguments:
                found.append(ArgumentsDelta(event.output_index * ROOM, event.delta))
            elif kind is Summary:
                found.append(self._think(event.output_index * ROOM, event.summary_index, event.delta))
            elif kind is Thought:
                found.append(self._think(event.output_index * ROOM, -1 - event.content_index, event.delta))
            elif kind not in REPEATED and self._rare(event, frame, found):
                return True
        return False

    def mend(self, frame: bytes) -> tuple[bytes, list[d.Notice]]:
        """An event without what need not be understood."""
        return mend(frame, form_of, CARRYING)

    def missing(self) -> str:
        """Why the answer does not count, now that it has ended."""
        if not self.state:
            return NO_REASON
        return OPEN_CALL if self.open else ""

    def end(self) -> None:
        """Without a terminal event a turn is never complete."""

    def complete(self, number: int, raw: msgspec.Raw, found: list[d.Delta]) -> None:
        """An item is complete: whatever was not streamed of it follows now."""
        named = read_name(raw)
        kind = named.type
        if kind == "function_call":
            call, kept = read_call(raw), _kept(fields(raw), ("type", "call_id", "name", "arguments"))
            self._begin_call(number, call.call_id, qualified(text_in(call.namespace), call.name), found)
            self._end_call(number, call.arguments or "{}", kept, word(kept.get("id")), found)
        elif kind == FREE_CALL:
            call, kept = read_call(raw), _kept(fields(raw), ("call_id", "name", "input"))
            self._begin_call(number, call.call_id, qualified(text_in(call.namespace), call.name), found)
            self._end_call(number, free_arguments(call.input or ""), kept, word(kept.get("id")), found)
        elif kind == "message" and text_in(named.role) in ("", "assistant"):  # a compaction hands the user's back, too
            self._message(number, raw, found)
        elif kind == "reasoning":
            self._reasoning(number * ROOM, raw, found)
        else:
            self.compacted = self.compacted or kind.startswith("compaction")
            found.append(d.HostedAdded(number * ROOM, hosted_block(raw)))
        self._finish(number, *_ids(raw))

    def stop(self, response: Response, found: list[d.Delta], said: str = "") -> None:
        """The terminal state: usage, and why it ended. `said` is the state that the event's own name tells."""
        if response.usage is not None:
            found.append(d.UsageReported(read_usage(response.usage)))
        status, details = response.status or said, response.incomplete_details
        if response.object == COMPACTED or (not status and self.compacted):
            self.state = COMPACTED
            found.append(d.Stopped("compacted", COMPACTED))
            return
        self.state = status
        reason = "" if details is None else details.reason or ""
        found.append(d.Stopped(self._why(status, reason), reason or status))

    def _finish(self, number: int, *ids: str) -> None:
        self.done.add(number)
        self.open.discard(number)
        self.ids.update(ids)

    def _rare(self, event: Known, frame: bytes, found: list[d.Delta]) -> bool:
        if type(event) is Begun:
            item = event.item
            if type(item) is PlainCall:
                self.open.add(event.output_index)
                self._begin_call(event.output_index, item.call_id, item.name, found)
            elif item is None:
                raise _without("response.output_item.added", "item")
        elif type(event) is Ended:
            self._complete(event, frame, found)
        elif type(event) is Completed:
            if event.response is None:
                raise _without("response.completed", "response")
            self._end(event.response, frame, "completed", found)
            return True
        elif type(event) is Created:
            return self._begin_answer(event.response or Response(), found)
        elif type(event) is Refusal:
            slot = event.output_index * ROOM + event.content_index
            self.shown.setdefault(slot, []).append(event.delta)
            found.append(TextDelta(slot, event.delta))
        return False

    def _other(self, frame: bytes, found: list[d.Delta]) -> bool:
        """An event that has none of the known forms."""
        event = _any_event(frame, found)
        if event is None:
            return False
        kind = event.type
        if kind == "response.output_item.added":
            self._begin(event, found)
        elif kind == "response.output_item.done":
            self.complete(event.output_index, event.item, found)
        elif kind in TERMINAL:
            self._end(_response_of(event), frame, kind.removeprefix("response."), found)
            return True
        elif kind == "response.created":
            return self._begin_answer(_response_of(event), found)
        elif kind == "error" or event.error not in NONE:
            found.append(_failed(frame))
            return True
        elif not is_repeated(kind):
            found.append(d.Notice(kind, frame.decode()))
        return False

    def _begin_answer(self, response: Response, found: list[d.Delta]) -> bool:
        """The answer begins; True, and it has failed, when another one had begun before."""
        if self.started and response.id != self.id:
            found.append(d.Failed(WireError(TWO_ANSWERS)))
            return True
        self._start(response, found)
        return False

    def _start(self, response: Response, found: list[d.Delta]) -> None:
        self.started, self.id = True, response.id or ""
        found.append(d.Started(self.id, response.model or ""))

    def _end(self, response: Response, frame: bytes, said: str, found: list[d.Delta]) -> None:
        if said == "failed" or _is_failed(response, found):
            found.append(_failed(bytes(fields(frame)["response"])))
            return
        if not self.started:
            self._start(response, found)
        known = frozenset(self.ids)
        for number, item in enumerate(response.output or ()):
            if number not in self.done and known.isdisjoint(_ids(item)):
                self.complete(number, item, found)
        self.stop(response, found, said)

    def _begin(self, event: AnyEvent, found: list[d.Delta]) -> None:
        """An item of any form begins: only calls have something to tell."""
        if event.item in NONE:
            raise _without(event.type, "item")
        kind = read_name(event.item).type
        if kind == "function_call":
            call = read_call(event.item)
            self._begin_call(event.output_index, call.call_id, qualified(text_in(call.namespace), call.name), found)
        if kind not in ("message", "reasoning"):
            self.open.add(event.output_index)

    def _complete(self, event: Ended, frame: bytes, found: list[d.Delta]) -> None:
        """An item is complete. One of a plain form is not taken apart again."""
        item, number = event.item, event.output_index
        if type(item) is PlainMessage:
            seal = dumps({"item": {"id": item.id, "status": item.status}}).decode()
            for slot in self._say_rest(number, [part.text for part in item.content], found):
                found.append(SealAdded(slot, "text", seal, item.id))
            self._finish(number, item.id)
        elif type(item) is PlainCall:
            self._begin_call(number, item.call_id, item.name, found)
            self._end_call(number, item.arguments or "{}", {"id": item.id, "status": item.status}, item.id, found)
            self._finish(number, item.id, item.call_id)
        else:
            self.complete(number, read_any_event(frame).item, found)

    def _begin_call(self, number: int, id: str, name: str, found: list[d.Delta]) -> None:
        call = (id, name)
        if self.calls.get(number) != call:
            self.calls[number] = call
            found.append(d.CallStarted(number * ROOM, id, name))

    def _end_call(self, number: int, arguments: str, kept: Mapping[str, object], id: str, found: list[d.Delta]) -> None:
        slot = number * ROOM
        if kept:
            found.append(SealAdded(slot, "call", dumps(kept).decode(), id))
        found.append(d.CallEnded(slot, arguments))

    def _think(self, slot: int, part: int, text: str) -> d.ReasoningDelta:
        """More of a reasoning item. A new part is set apart from what was shown before it, be it announced or not."""
        if self.parts.get(slot, part) != part:
            text = PARTS + text
        self.parts[slot] = part
        self.shown.setdefault(slot, []).append(text)
        return d.ReasoningDelta(slot, text)

    def _unsent(self, slot: int, text: str) -> str:
        """What of a block's whole text was not shown yet."""
        shown = "".join(self.shown.get(slot, ()))
        return text[len(shown) :] if shown != text and text.startswith(shown) else ""

    def _say_rest(self, number: int, texts: list[str], found: list[d.Delta]) -> list[int]:
        """The slot of each part of a message; what was not shown of them is said now.

        A clone may number the parts of its deltas in another way than it lists them at the end: then all that was shown is
        held against all that there is.
        """
        first = number * ROOM
        slots = list(range(first, first + len(texts)))
        shown = [slot for slot in self.shown if first <= slot < first + ROOM]
        told = {slot: "".join(self.shown[slot]) for slot in sorted(shown)}
        if all(slot < first + len(texts) and texts[slot - first].startswith(text) for slot, text in told.items()):
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

    def _message(self, number: int, raw: msgspec.Raw, found: list[d.Delta]) -> None:
        item = _kept(fields(raw), ("type", "role", "content"))
        raws = read_message(raw).content
        parts = [_part(one, found) for one in raws]
        self.refused = self.refused or any(part.type == "refusal" for part in parts)
        texts = [part.refusal if part.type == "refusal" else part.text for part in parts]
        for slot, part, own in zip(self._say_rest(number, texts, found), parts, raws, strict=True):
            for cited in part.annotations or ():
                found.append(d.CitationAdded(slot, read_citation(cited, found)))
            ours = ("refusal",) if part.type == "refusal" else ("type", "text", "logprobs")
            seal = TextSeal(item, _kept(fields(own), ours, EMPTY))
            found.append(SealAdded(slot, "text", dumps(seal).decode(), word(item.get("id"))))
            if part.logprobs and part.logprobs not in EMPTY:
                found.append(d.Notice("logprobs", bytes(part.logprobs).decode()))

    def _reasoning(self, slot: int, raw: msgspec.Raw, found: list[d.Delta]) -> None:
        read = read_some(raw, Reasoned, "reasoning", found)
        text = PARTS.join(part.text for part in (*(read.summary or ()), *(read.content or ())) if part.text)
        rest = self._unsent(slot, text)
        if rest:
            found.append(d.ReasoningDelta(slot, rest))
        kept = _kept(fields(raw), ("type",))
        found.append(SealAdded(slot, "reasoning", dumps(kept).decode(), word(kept.get("id"))))

    def _why(self, status: str, reason: str) -> StopReason:
        if status == "completed":
            return "tools" if self.calls else "refusal" if self.refused else "done"
        return INCOMPLETE.get(reason, STATUS.get(status, "other"))


def _part(raw: msgspec.Raw, found: list[d.Delta]) -> Part:
    """A part of a message, as far as it can be read."""
    if bytes(raw)[:1] != b"{":
        raise msgspec.ValidationError("a part of a message that is no object")
    return read_some(raw, Part, "content", found, CARRYING)


def _ids(raw: msgspec.Raw) -> list[str]:
    """What an item is known by: its id, and that of the call it is."""
    own = fields(raw)
    names = ("id", "call_id") if word(own.get("type")) == "function_call" else ("id",)
    return [found for name in names if (found := word(own.get(name)))]


def _kept(own: Raws, ours: tuple[str, ...], nothing: tuple[msgspec.Raw, ...] = (NULL,)) -> Raws:
    return {name: value for name, value in own.items() if name not in ours and value not in nothing}


def decode(body: bytes, quirks: Quirks) -> Reply:  # noqa: ARG001 - every codec's decode takes the quirks
    """A whole answer."""
    return assemble(_whole(body))


def _whole(body: bytes) -> list[d.Delta]:
    found: list[d.Delta] = []
    response = parse_some(body, Response, "a Responses answer", CARRYING, found)
    _raise_for(response, body, found)
    if not response.object.startswith("response") and (response.object or response.output is None):
        raise WireError(f"Expected a response, but the answer is a {response.object!r}. Check the base URL.")
    turn = _Turn()
    found.insert(0, d.Started(response.id or "", response.model or ""))
    try:
        for number, raw in enumerate(response.output or ()):
            turn.complete(number, raw, found)
    except BROKEN as error:
        raise WireError(f"Expected Responses items: {error}. Is this endpoint of that wire?") from None
    turn.stop(response, found)
    settle(turn, found, [] if response.output else [body])
    return found


def _raise_for(response: Response, body: bytes, found: list[d.Delta]) -> None:
    if _is_failed(response, found):
        complaint = complaint_of(body)
        if complaint:
            raise typed(complaint, {})
        raise WireError("The response failed and says nothing about it. Ask again.")


def _is_failed(response: Response, found: list[d.Delta]) -> bool:
    """True if the answer is an error. What stands for one in an answer that has another state must complain of something."""
    error = response.error
    if response.status in (None, "failed") or error in NONE:
        return response.status == "failed" or error not in NONE
    if bytes(error)[:1] == b"{" and complaint_of(dumps({"error": error})):
        return True
    found.append(d.Notice("error", bytes(error).decode(errors="replace")))
    return False


def decoder(quirks: Quirks) -> StreamDecoder:  # noqa: ARG001 - every codec's decoder takes the quirks
    """A streamed answer."""
    return StreamDecoder(_Turn(), SseReader())


def _response_of(event: AnyEvent) -> Response:
    if event.response in NONE:
        raise _without(event.type, "response")
    return read_response(event.response)


def _without(kind: str, what: str) -> msgspec.ValidationError:
    return msgspec.ValidationError(f"a {kind} event without its {what}")


def _failed(frame: bytes) -> d.Failed:
    complaint = complaint_of(frame)
    return d.Failed(
        typed(complaint, {}) if complaint else WireError("The stream reported an error without a message. Ask again.")
    )


@lru_cache(maxsize=100)
def is_repeated(kind: str) -> bool:
    """Whether what an event of this name says is said again, or is of no use."""
    return kind.startswith(SAID_AGAIN)


def _any_event(frame: bytes, found: list[d.Delta]) -> AnyEvent | None:
    """An event of any form. One whose fields are not what we know by these names is a notice, unless it is one
    that must be understood; an error is one all the same."""
    try:
        return read_any_event(frame)
    except msgspec.ValidationError:
        named = read_name(frame)
        if named.type == "error" or named.error not in NONE:
            return AnyEvent("error")
        if named.type in TERMINAL or named.type.startswith(KEPT):
            raise
        found.append(d.Notice(named.type, frame.decode()))
        return None
