"""What is known of an answer so far: takes messages or deltas of one in, gives neutral deltas. Pure.

A message of this wire has fields, not blocks in an order, so each field has its place: reasoning, what hosted tools did, the
content with its parts, a refusal, speech, calls. Rules (sheet 6): a call is known by its index, and a new id is a new call even
then; without an index an id, or a name, begins one. Reasoning that stands twice, as text and in details, is shown once.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from evener.transcript import delta as d
from evener.transcript.delta import ReasoningDelta, TextDelta
from evener.transcript.reply import StopReason
from evener.wire.names import made_id
from evener.wire.openai_chat.chunks import Call, Function, Message, is_there, read_custom
from evener.wire.openai_chat.citations import citation
from evener.wire.openai_chat.details import Details
from evener.wire.openai_chat.hosted import hosted_block
from evener.wire.openai_chat.seals import FIELD, REFUSAL, seal_text
from evener.wire.openai_chat.speech import Speech
from evener.wire.openai_chat.tags import Tags
from evener.wire.text import dumps, fields, free_arguments, text_in, word

__all__ = ["Turn"]

Sealable = Literal["text", "reasoning", "call"]
ROOM = 1_000_000
REASONING, HOSTED, CONTENT, REFUSED, SPOKEN, MEDIA, CALLS = 0, 1, 2, ROOM, ROOM + 1, ROOM + 2, 2 * ROOM
LEGACY = -1
STOPS: dict[str, StopReason] = {
    "stop": "done",
    "tool_calls": "done",  # whether there are calls decides
    "function_call": "done",
    "": "done",
    "length": "length",
    "model_length": "length",
    "model_context_window_exceeded": "context_full",
    "content_filter": "refusal",
    "sensitive": "refusal",
}


class _Call(msgspec.Struct, gc=False):
    """A call that has begun."""

    slot: int
    id: str = ""
    name: str = ""
    shown: tuple[str, str] | None = None
    pieces: list[str] = []
    own: dict[str, msgspec.Raw] = {}


class Turn(msgspec.Struct, gc=False):
    """One answer."""

    _tags: Tags | None = None
    id: str = ""  # of the answer
    finish: str = ""
    native: str = ""
    fields: dict[str, msgspec.Raw] = {}  # of the message, to go back
    calls: list[_Call] = []
    _by_index: dict[int, _Call] = {}
    place: int = CONTENT - 1  # of the content that came last, and its kind
    kind: str = ""
    _kinds: dict[int, str] = {}  # of every slot that takes a seal, but calls
    _seals: dict[int, dict[str, msgspec.Raw]] = {}
    _details: Details | None = None
    _speech: Speech | None = None
    _executed: dict[bytes, msgspec.Raw] = {}  # by index: a later one is fuller
    _refusals: list[str] = []

    def add(self, said: Message, found: list[d.Delta], whole: bool) -> None:
        """Take a message in, or a delta of one."""
        thought = said.reasoning_content or said.reasoning
        if said.reasoning_details and (entries := _objects("reasoning_details", said.reasoning_details, found)):
            self._details = self._details or Details()
            readable = self._details.add(entries, whole=whole)
            thought = thought or readable
            self._kinds[REASONING] = "reasoning"
        if thought:
            self._kinds[REASONING] = "reasoning"
            found.append(ReasoningDelta(REASONING, thought))
        text = said.content
        if text:
            if self.kind == "text" and self._tags is None and type(text) is str:
                found.append(TextDelta(self.place, text))
            else:
                self._content(text, found)
        if said.tool_calls:
            for number, call in enumerate(said.tool_calls):
                self._call(call, number if whole else None, found)
        if said.refusal or said.annotations or said.audio or said.function_call or said.executed_tools:
            self._add_rare(said, found)

    def ended(self, reason: str, native: str) -> None:
        """Note why it ended; of several reasons, the first that is out of the ordinary counts."""
        if STOPS.get(self.finish, "other") == "done":
            self.finish, self.native = reason, native

    def keep(self, own: dict[str, msgspec.Raw], names: Sequence[str], *, whole: bool) -> None:
        """Keep these fields of a message and of its calls: they must go back as they came."""
        self.fields |= _named(own, names)
        for place, raw in enumerate(msgspec.json.decode(own.get("tool_calls", b"null"), type=list[msgspec.Raw] | None) or ()):
            call = fields(raw)
            number = place if whole else msgspec.json.decode(call.get("index", b"null"), type=int | None)
            known = self._by_index.get(place if number is None else number)
            if known:
                known.own |= _named(call, names)

    @property
    def silent(self) -> bool:
        """True while nothing was said."""
        return not (self._kinds or self.calls or self._executed or self._speech or self._refusals or self.place >= CONTENT)

    def end(self) -> list[d.Delta]:
        """All that is certain only now, and why it ended."""
        found: list[d.Delta] = []
        if self._tags:
            for kind, piece in self._tags.close():
                self._piece(kind, piece, found)
        if self._refusals:
            self._refuse("".join(self._refusals), found)
        if self._speech:
            sort, sound = self._speech.sound()
            if sound:
                found.append(d.MediaAdded(MEDIA, sort, sound))
        if self._executed:
            told = msgspec.Raw(dumps({"executed_tools": list(self._executed.values())}))
            found.append(d.HostedAdded(HOSTED, hosted_block(told)))
        self._sealed(found)
        for call in self.calls:
            written = "".join(call.pieces)
            free = bytes(call.own.get("type", b"")) == b'"custom"'
            found.append(d.CallEnded(call.slot, free_arguments(written) if free else written or "{}"))
        native = self.native if self.native != self.finish else ""
        found.append(d.Stopped(self._why(), self.finish, native))
        return found

    def _refuse(self, words: str, found: list[d.Delta]) -> None:
        """A refusal is the answer, or it is none: beside content or calls it is a notice."""
        if self.calls or "text" in self._kinds.values():
            found.append(d.Notice("refusal", dumps(words).decode()))
        else:
            self._kinds[REFUSED] = "text"
            found.append(d.TextDelta(REFUSED, words))

    def _why(self) -> StopReason:
        known = STOPS.get(self.finish, "other")
        if known != "done":
            return known
        return "tools" if self.calls else "refusal" if REFUSED in self._kinds else "done"

    def _sealed(self, found: list[d.Delta]) -> None:
        """A seal for each block that has fields of its own; those of the message ride on the first."""
        seals = self._seals
        if self._details:
            seals[REASONING] = self._details.sealed()
        if REFUSED in self._kinds:
            seals[REFUSED] = {FIELD: msgspec.Raw(REFUSAL)}
        if self._speech:
            seals[SPOKEN] = self._speech.sealed()
        for call in self.calls:
            if call.own:
                seals[call.slot] = call.own
        if not seals and not self.fields:
            return
        kinds = self._kinds | {call.slot: "call" for call in self.calls}
        message = self.fields
        for slot in sorted(kinds):
            text = seal_text(seals.get(slot, {}), message)
            message = {}
            if text:
                found.append(d.SealAdded(slot, _sealable(kinds[slot]), text))

    def _slot(self, kind: str) -> int:
        """The place of content of this kind: a new one when the kind changes."""
        if kind != self.kind:
            self.kind = kind
            self.place += 1
            if kind != "hosted":
                self._kinds[self.place] = kind
        return self.place

    def _content(self, content: str | list[msgspec.Raw], found: list[d.Delta]) -> None:
        if isinstance(content, list):
            for raw in content:
                self._part(raw, found)
        elif self._tags is None:
            found.append(d.TextDelta(self._slot("text"), content))
        else:
            for kind, piece in self._tags.feed(content):
                self._piece(kind, piece, found)

    def _piece(self, kind: str, text: str, found: list[d.Delta]) -> None:
        slot = self._slot(kind)
        found.append(d.TextDelta(slot, text) if kind == "text" else d.ReasoningDelta(slot, text))

    def _part(self, raw: msgspec.Raw, found: list[d.Delta]) -> None:
        """A part of the content: words, thoughts, or something only this wire knows."""
        start = bytes(raw)[:1]
        if start == b'"':
            self._piece("text", text_in(raw), found)
            return
        if start != b"{":
            found.append(d.Notice("content", bytes(raw).decode()))
            return
        own = fields(raw.copy())
        match word(own.pop("type", None)):
            case "text":
                kind, text = "text", _text(own, "text", found)
            case "thinking":
                kind, text = "reasoning", _thoughts(own, found)
            case _:
                self.kind = ""
                found.append(d.HostedAdded(self._slot("hosted"), hosted_block(raw.copy())))
                return
        slot = self._slot(kind)
        if text:
            self._piece(kind, text, found)
        self._seals.setdefault(slot, {}).update({name: value for name, value in own.items() if is_there(value)})

    def _call(self, call: Call, number: int | None, found: list[d.Delta]) -> None:
        function = call.function or Function()
        if function.arguments and not (call.id or function.name or number is not None) and isinstance(function.arguments, str):
            known = self._by_index.get(call.index) if call.index is not None else None
            if known:
                known.pieces.append(function.arguments)
                found.append(d.ArgumentsDelta(known.slot, function.arguments))
                return
        name, arguments = function.name or "", function.arguments
        custom = read_custom(call.custom) if not name and is_there(call.custom) else None
        if custom and not (custom.name or custom.input):
            custom = None
        if custom:
            name, arguments = custom.name or "", custom.input
        opened = self._find(call, name, number)
        if custom:
            opened.own["type"] = msgspec.Raw(b'"custom"')
        opened.id, opened.name = opened.id or call.id or "", opened.name or name
        known_as = (opened.id or made_id(self.id or opened.name, opened.slot - CALLS), opened.name)
        if opened.shown != known_as:
            opened.shown = known_as
            found.append(d.CallStarted(opened.slot, *known_as))
        text = dumps(arguments).decode() if isinstance(arguments, dict) else arguments
        if text:
            opened.pieces.append(text)
            found.append(d.ArgumentsDelta(opened.slot, text))

    def _find(self, call: Call, name: str, number: int | None) -> _Call:
        """The call that this is a piece of, or a new one. `number` is its place in a whole list of calls."""
        index = call.index if number is None else number
        if index is not None:
            known = self._by_index.get(index)
            if known and number is None and not (call.id and known.id and call.id != known.id):
                return known
        else:
            index = len(self.calls)
            known = next((one for one in reversed(self.calls) if one.id == call.id), None) if call.id else None
            if known or (self.calls and not call.id and not name):
                return known or self.calls[-1]
        opened = _Call(CALLS + len(self.calls))
        self.calls.append(opened)
        self._by_index[index] = opened
        return opened

    def _add_rare(self, said: Message, found: list[d.Delta]) -> None:
        if said.refusal:
            self._refusals.append(said.refusal)
        for raw in said.annotations or ():
            cited = citation(raw, found)
            if cited is not None:
                found.append(d.CitationAdded(self._slot("text"), cited))
        if said.audio:
            self._add_speech(dumps(said.audio), found)
        if said.function_call and (said.function_call.name or said.function_call.arguments):
            self._call(Call(LEGACY, function=said.function_call), None, found)
        for raw in _objects("executed_tools", said.executed_tools or (), found):
            self._executed[bytes(fields(raw).get("index", b"")) or bytes(raw)] = raw.copy()

    def _add_speech(self, raw: bytes, found: list[d.Delta]) -> None:
        self._speech = self._speech or Speech()
        words = self._speech.add(raw, found)
        if words:
            self._kinds[SPOKEN] = "text"
            found.append(d.TextDelta(SPOKEN, words))


def _objects(name: str, items: Sequence[msgspec.Raw], found: list[d.Delta]) -> list[msgspec.Raw]:
    """The items that are objects; the others are notices."""
    kept = [raw for raw in items if bytes(raw)[:1] == b"{"]
    if len(kept) < len(items):
        found += (d.Notice(name, bytes(raw).decode()) for raw in items if bytes(raw)[:1] != b"{")
    return kept


def _text(own: dict[str, msgspec.Raw], name: str, found: list[d.Delta]) -> str:
    """The text under a name, taken out; anything else there is a notice."""
    raw = own.pop(name, None)
    if raw is not None and bytes(raw) != b"null" and bytes(raw)[:1] != b'"':
        found.append(d.Notice(name, bytes(raw).decode()))
    return text_in(raw)


def _thoughts(own: dict[str, msgspec.Raw], found: list[d.Delta]) -> str:
    """The thoughts of a part, taken out: a list of texts, or one text."""
    if bytes(own.get("thinking", b""))[:1] != b"[":
        return _text(own, "thinking", found)
    inner = msgspec.json.decode(own.pop("thinking"), type=list[msgspec.Raw])
    return "".join(text_in(fields(one).get("text")) for one in _objects("thinking", inner, found))


def _named(own: dict[str, msgspec.Raw], names: Sequence[str]) -> dict[str, msgspec.Raw]:
    return {name: own[name].copy() for name in names if name in own and is_there(own[name])}


def _sealable(kind: str) -> Sealable:
    return "text" if kind == "text" else "reasoning" if kind == "reasoning" else "call"
