"""Chat Completions' answers, whole or streamed, as neutral deltas. One path: a whole answer is one large delta. Pure.

Rules (sheet 6): only the first choice is read. Token counts may come with any chunk, also after the finish reason. A turn is
complete when a finish reason has come, with or without [DONE] after it. A turn without a reason is truncated, even if [DONE]
has come; only on a row that never gives reasons, a chunk without choices and [DONE] complete it. After a status of 200, a chunk
may contain an error. A chunk of an unknown form is a notice.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from evener.errors import TruncatedStream, WireError
from evener.transcript import delta as d
from evener.transcript.blocks import Citation
from evener.transcript.delta import Delta, ReasoningDelta, TextDelta
from evener.transcript.repair import make_id
from evener.transcript.reply import Reply, StopReason, Usage
from evener.wire.faults import complaint_of, make_error, read_failure
from evener.wire.openai_chat.encode import CLOSING, OPENING
from evener.wire.openai_chat.parts import FIELD, REFUSAL, hosted_block, is_there, seal_text
from evener.wire.prefix import as_object, cut_arguments, dumps, fields, free_arguments, text_in, word
from evener.wire.quirks import Quirks
from evener.wire.reading import BROKEN, Carrying, Count, Items, Place, mend, read_some
from evener.wire.sse import SseReader
from evener.wire.stream import (
    NO_ANSWER,
    NO_REASON,
    StreamDecoder,
    assemble,
    read_frames,
    settle,
    unreadable_error,
)


class _Cited(msgspec.Struct):
    url: str | None = None
    title: str | None = None
    filename: str | None = None
    content: str | None = None
    start_index: Place = None
    end_index: Place = None


NOTHING_CITED = Citation()


def read_citation(raw: msgspec.Raw, found: list[d.Delta]) -> Citation | None:
    """Return the citation in an annotation. Add a notice to `found` for an annotation of another kind.

    The details are in a field that is named like the annotation's type, or beside that field.
    """
    if bytes(raw)[:1] != b"{":
        found.append(d.Notice("annotation", bytes(raw).decode()))
        return None
    own = fields(raw)
    odd: list[d.Delta] = []
    read = read_some(own.get(word(own.get("type")), raw), _Cited, "annotation", odd)
    start, end = read.start_index, read.end_index
    title, quote = read.title or read.filename or "", read.content or ""
    cited = Citation(read.url or "", title, quote, -1 if start is None else start, -1 if end is None else end)
    if odd:
        found.append(d.Notice("annotation", bytes(raw).decode()))
    return None if odd and cited == NOTHING_CITED else cited


def read_citations(raw: msgspec.Raw) -> tuple[Citation, ...]:
    """Return the citations in a list of annotations; those of an unknown form are left out."""
    if bytes(raw)[:1] != b"[":
        return ()
    found = (read_citation(one, []) for one in msgspec.json.decode(raw, type=list[msgspec.Raw]))
    return tuple(one for one in found if one is not None)


class _Prompt(msgspec.Struct, gc=False):
    cached_tokens: Count = None
    cache_write_tokens: Count = None


class _Output(msgspec.Struct, gc=False):
    reasoning_tokens: Count = None


class _Counts(msgspec.Struct, gc=False):
    """The token counts of this wire."""

    prompt_tokens: Count = None
    completion_tokens: Count = None
    total_tokens: Count = None
    prompt_tokens_details: _Prompt | None = None
    completion_tokens_details: _Output | None = None
    prompt_cache_hit_tokens: Count = None
    cached_tokens: Count = None
    num_cached_tokens: Count = None
    reasoning_tokens: Count = None


NO_PROMPT, NO_OUTPUT = _Prompt(), _Output()


def usage_of(read: _Counts, *, apart: bool) -> Usage:
    """Return the counts as `Usage`. `apart`: the output count does not include reasoning."""
    prompt, output = read.prompt_tokens_details or NO_PROMPT, read.completion_tokens_details or NO_OUTPUT
    cached = prompt.cached_tokens or read.prompt_cache_hit_tokens or read.cached_tokens or read.num_cached_tokens or 0
    thought = output.reasoning_tokens or read.reasoning_tokens or 0
    total, cached, written = int(read.prompt_tokens or 0), int(cached), int(prompt.cache_write_tokens or 0)
    said, thought = int(read.completion_tokens or 0), int(thought)
    if apart:
        whole = max(said + thought, int(read.total_tokens or 0) - total)
        said, thought = whole, thought or whole - said
    return Usage(total, max(0, total - cached - written), cached, written, said, thought)


# The beginning of the base64 of each audio format; anything else is read as raw samples.
SOUNDS = {"UklGR": "audio/wav", "SUQz": "audio/mpeg", "//": "audio/mpeg", "T2dn": "audio/ogg", "ZkxhQ": "audio/flac"}


class _Audio(msgspec.Struct):
    id: str | None = None
    transcript: str | None = None
    data: str | None = None
    expires_at: Place = None


class Speech:
    """The audio of an answer, from its pieces."""

    def __init__(self) -> None:
        self.id = ""
        self._expires: int | None = None
        self._data: list[str] = []

    def add(self, raw: bytes, found: list[Delta]) -> str:
        """Add a piece, and return its transcript. Fields that cannot be read are notices."""
        read = read_some(raw, _Audio, "audio", found)
        self.id = read.id or self.id
        self._expires = read.expires_at or self._expires
        self._data += [read.data] if read.data else []
        return read.transcript or ""

    def sound(self) -> tuple[str, str]:
        """Return the media type and the base64 of the audio; both empty if there is none."""
        data = "".join(self._data)
        sort = next((sort for start, sort in SOUNDS.items() if data.startswith(start)), "audio/pcm")
        return (sort, data) if data else ("", "")

    def seal_fields(self) -> dict[str, msgspec.Raw]:
        """Return the fields for the seal of the transcript's block."""
        return {"audio": msgspec.Raw(dumps({"id": self.id, "expires_at": self._expires}))} if self.id else {}


class _ImageUrl(msgspec.Struct):
    url: str = ""


class _Image(msgspec.Struct):
    image_url: _ImageUrl | None = None


DATA_URL = re.compile(r"data:(image/[\w.+-]+);base64,([A-Za-z0-9+/]+={0,2})\Z")


TEXTS = {b'"reasoning.text"': "text", b'"reasoning.summary"': "summary"}
NULL_BYTES = b"null"


class _Entry(msgspec.Struct):
    """One entry: its fields, and the pieces of its text."""

    own: dict[str, msgspec.Raw]
    texts: str
    pieces: list[str] = []

    def raw(self) -> dict[str, msgspec.Raw]:
        """Return the entry, with its pieces joined."""
        return {**self.own, self.texts: msgspec.Raw(dumps("".join(self.pieces)))} if self.pieces else self.own


class ReasoningDetails:
    """The field `reasoning_details`, from its pieces."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []

    def add(self, entries: Sequence[msgspec.Raw], *, whole: bool) -> str:
        """Add entries, and return their readable text. `whole`: they are the whole list, not pieces."""
        shown: list[str] = []
        for raw in entries:
            own = fields(raw.copy())
            texts = TEXTS.get(bytes(own.get("type", b"")), "")
            text = text_in(own.get(texts))
            shown.append(text)
            last = self._entries[-1] if self._entries else None
            if last is None or whole or not texts or not _same(last.own, own):
                self._entries.append(_Entry(own, texts, [] if whole or not text else [text]))
            else:
                last.own |= {name: value for name, value in own.items() if bytes(value) != NULL_BYTES and name != texts}
                last.pieces.append(text)
        return "".join(shown)

    def seal_fields(self) -> dict[str, msgspec.Raw]:
        """Return the field to send back; nothing if there were no entries."""
        if not self._entries:
            return {}
        return {"reasoning_details": msgspec.Raw(dumps([entry.raw() for entry in self._entries]))}


def _same(one: dict[str, msgspec.Raw], other: dict[str, msgspec.Raw]) -> bool:
    return all(bytes(one.get(name, NULL_BYTES)) == bytes(other.get(name, NULL_BYTES)) for name in ("type", "index"))


Piece = tuple[str, str]
"""`reasoning` or `text`, and more of it."""


class Tags:
    """Splits text with <think> tags into pieces. `feed` may hold text back; `close` returns it."""

    def __init__(self) -> None:
        self._held = ""
        self._state = "start"

    def feed(self, text: str) -> list[Piece]:
        """Return the pieces that later text cannot change."""
        if self._state == "text":
            return [("text", text)]
        self._held += text
        return self._start() if self._state == "start" else self._think()

    def close(self) -> list[Piece]:
        """Return the pieces that `feed` had held back."""
        kind = "reasoning" if self._state == "think" else "text"
        held, self._held = self._held, ""
        return [(kind, held)] if held else []

    def _start(self) -> list[Piece]:
        begun = self._held.lstrip()
        if begun.startswith(OPENING):
            self._state, self._held = "think", begun[len(OPENING) :]
            return self._think()
        if OPENING.startswith(begun):
            return []
        self._state = "text"
        return self.close()

    def _think(self) -> list[Piece]:
        thought, found, rest = self._held.partition(CLOSING)
        if found:
            self._state, self._held = "text", ""
            return [piece for piece in (("reasoning", thought), ("text", rest)) if piece[1]]
        kept = next((size for size in range(len(CLOSING) - 1, 0, -1) if thought.endswith(CLOSING[:size])), 0)
        self._held = thought[len(thought) - kept :]
        return [("reasoning", thought[: len(thought) - kept])] if len(thought) > kept else []


def split(text: str) -> list[Piece]:
    """Return a whole text in its pieces."""
    tags = Tags()
    return [*tags.feed(text), *tags.close()]


NULL = msgspec.Raw(b"null")
Object = dict[str, msgspec.Raw] | None
Some = dict[str, msgspec.Raw] | list[msgspec.Raw] | str | bool | None
"""The type of a field that is only tested for presence: any form is accepted, and null needs no work."""


class _Function(msgspec.Struct, gc=False):
    """The function of a call. Arguments are a text; some servers send the object itself."""

    name: str | None = None
    arguments: str | dict[str, msgspec.Raw] | None = None


class Custom(msgspec.Struct, gc=False):
    """A tool of free text."""

    name: str | None = None
    input: str | None = None


class _CallPiece(msgspec.Struct, gc=False):
    """A call, or a piece of one."""

    index: int | None = None
    id: str | None = None
    function: _Function | None = None
    custom: msgspec.Raw = NULL  # read if there is no function


class _Message(msgspec.Struct, gc=False):
    """A message, or a delta of one."""

    content: str | Items | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_CallPiece] | None = None
    refusal: str | None = None
    reasoning_details: Items | None = None
    annotations: Items | None = None
    audio: Object = None
    function_call: _Function | None = None
    executed_tools: Items | None = None
    images: Items | None = None


class _Choice(msgspec.Struct, gc=False):
    """One choice. We never ask for more than one."""

    index: int | None = None
    delta: _Message | None = None
    logprobs: Some = None
    finish_reason: str | None = None
    native_finish_reason: str | None = None
    message: _Message | None = None
    usage: Object = None
    error: Some = None


class Chunk(msgspec.Struct, gc=False):
    """The fields of a whole answer, or of a chunk, that are read every time."""

    choices: list[_Choice] | None = None
    usage: _Counts | None = None
    error: Some = None
    moderation: Some = None
    prompt_filter_results: Some = None


class _Opening(Chunk, gc=False):
    """A chunk with the fields that all chunks of an answer share."""

    id: str | None = None
    model: str | None = None
    object: str | None = None


class _Words(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    content: str | None = None
    role: str | None = None
    refusal: None = None
    reasoning: None = None
    reasoning_content: None = None
    tool_calls: None = None


class _Speaking(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    delta: _Words
    index: Literal[0] | None = None
    logprobs: None = None
    finish_reason: str | None = None
    native_finish_reason: str | None = None


class _TextChunk(msgspec.Struct, gc=False):
    """A chunk with only a piece of text, or the finish reason. A choice with any other field is not of this form."""

    choices: tuple[_Speaking]
    usage: None = None
    error: None = None
    moderation: None = None
    prompt_filter_results: None = None


CARRYING: Carrying = {
    _Function: ("name", "arguments"),
    _CallPiece: ("index", "id", "function"),
    _Message: ("content", "tool_calls", "function_call"),
    _Choice: ("index", "delta", "message", "finish_reason"),
    _Opening: ("choices",),
}
"""The fields that must have their type."""


def form_of(frame: bytes) -> type[_Opening]:  # noqa: ARG001 - other wires look at the event
    """Return the form of every chunk."""
    return _Opening


NOTHING_SAID = _Message()
read_custom = msgspec.json.Decoder(Custom).decode
read_chunk = msgspec.json.Decoder(Chunk).decode
read_opening = msgspec.json.Decoder(_Opening).decode
read_words = msgspec.json.Decoder(_TextChunk).decode


Sealable = Literal["text", "reasoning", "call"]
ROOM = 1_000_000
REASONING, HOSTED, CONTENT, REFUSED, SPOKEN, MEDIA, CALLS = 0, 1, 2, ROOM, ROOM + 1, ROOM + 2, 2 * ROOM
LEGACY = -1
STOPS: dict[str, StopReason] = {
    "stop": "done",
    "tool_calls": "done",  # the presence of calls decides
    "function_call": "done",
    "": "done",
    "length": "length",
    "model_length": "length",
    "model_context_window_exceeded": "context_full",
    "content_filter": "refusal",
    "sensitive": "refusal",
}
BROKEN_OFF = ("error", "insufficient_system_resource", "network_error", "abort")
"""Reasons of servers that stopped in the middle of an answer (sheet 6)."""


class _Call(msgspec.Struct, gc=False):
    """A call that has begun."""

    slot: int
    id: str = ""
    name: str = ""
    shown: tuple[str, str] | None = None
    pieces: list[str] = []
    own: dict[str, msgspec.Raw] = {}


class ChatAnswer(msgspec.Struct, gc=False):
    """The state of decoding one answer."""

    _tags: Tags | None = None
    id: str = ""  # of the answer
    finish: str = ""
    native: str = ""
    fields: dict[str, msgspec.Raw] = {}  # of the message, to be sent back
    calls: list[_Call] = []
    _by_index: dict[int, _Call] = {}
    place: int = CONTENT - 1  # of the latest content; `kind` is its kind
    kind: str = ""
    _kinds: dict[int, str] = {}  # of every slot that can have a seal, except calls
    _seals: dict[int, dict[str, msgspec.Raw]] = {}
    _details: ReasoningDetails | None = None
    _speech: Speech | None = None
    _executed: dict[bytes, msgspec.Raw] = {}  # by index: a later one has more fields
    _refusals: list[str] = []
    _images: int = 0

    def add(self, said: _Message, found: list[d.Delta], whole: bool) -> None:
        """Add a message, or a delta of one."""
        thought = said.reasoning_content or said.reasoning
        if said.reasoning_details and (entries := _objects("reasoning_details", said.reasoning_details, found)):
            self._details = self._details or ReasoningDetails()
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
                self._add_content(text, found)
        if said.tool_calls:
            for number, call in enumerate(said.tool_calls):
                self._add_call(call, number if whole else None, found)
        if said.refusal or said.annotations or said.audio or said.function_call or said.executed_tools or said.images:
            self._add_rare(said, found)

    def note_end(self, reason: str, native: str) -> None:
        """Record the finish reason. Of several, keep the first that is not a normal end."""
        if STOPS.get(self.finish, "other") == "done":
            self.finish, self.native = reason, native

    def keep(self, own: dict[str, msgspec.Raw], names: Sequence[str], *, whole: bool) -> None:
        """Keep these fields of a message and of its calls, which must be sent back unchanged."""
        self.fields |= _find_named(own, names)
        for place, raw in enumerate(msgspec.json.decode(own.get("tool_calls", b"null"), type=list[msgspec.Raw] | None) or ()):
            call = fields(raw)
            number = place if whole else msgspec.json.decode(call.get("index", b"null"), type=int | None)
            known = self._by_index.get(place if number is None else number)
            if known:
                known.own |= _find_named(call, names)

    @property
    def silent(self) -> bool:
        """True if there is no content yet."""
        return not (
            self._kinds
            or self.calls
            or self._executed
            or self._speech
            or self._refusals
            or self._images
            or self.place >= CONTENT
        )

    def end(self) -> list[d.Delta]:
        """Return the last deltas: calls, seals, and why the answer ended."""
        found: list[d.Delta] = []
        if self._tags:
            for kind, piece in self._tags.close():
                self._add_piece(kind, piece, found)
        if self._refusals:
            self._add_refusal("".join(self._refusals), found)
        if self._speech:
            sort, sound = self._speech.sound()
            if sound:
                found.append(d.MediaAdded(MEDIA, sort, sound))
        if self._executed:
            told = msgspec.Raw(dumps({"executed_tools": list(self._executed.values())}))
            found.append(d.HostedAdded(HOSTED, hosted_block(told)))
        self._seal_blocks(found)
        for call in self.calls:
            found.append(d.CallEnded(call.slot, self._arguments(call)))
        native = self.native if self.native != self.finish else ""
        found.append(d.Stopped(self._why(), self.finish, native))
        return found

    def _add_refusal(self, words: str, found: list[d.Delta]) -> None:
        """Add a refusal as the answer; beside content or calls it is a notice."""
        if self.calls or "text" in self._kinds.values():
            found.append(d.Notice("refusal", dumps(words).decode()))
        else:
            self._kinds[REFUSED] = "text"
            found.append(d.TextDelta(REFUSED, words))

    def _arguments(self, call: _Call) -> str:
        """Return the arguments of a call. Those of the last call may be incomplete if the model was stopped."""
        written, free = "".join(call.pieces), bytes(call.own.get("type", b"")) == b'"custom"'
        if call is self.calls[-1] and STOPS.get(self.finish, "other") != "done":
            return cut_arguments(written, free=free)
        return free_arguments(written) if free else written or "{}"

    def _why(self) -> StopReason:
        known = STOPS.get(self.finish, "other")
        if known != "done":
            return known
        return "tools" if self.calls else "refusal" if REFUSED in self._kinds else "done"

    def _seal_blocks(self, found: list[d.Delta]) -> None:
        """Add a seal for each block that has fields of its own; the first seal also has those of the message."""
        seals = self._seals
        if self._details:
            seals[REASONING] = self._details.seal_fields()
        if REFUSED in self._kinds:
            seals[REFUSED] = {FIELD: msgspec.Raw(REFUSAL)}
        if self._speech:
            seals[SPOKEN] = self._speech.seal_fields()
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
        """Return the slot for content of this kind. A change of kind begins a new slot."""
        if kind != self.kind:
            self.kind = kind
            self.place += 1
            if kind != "hosted":
                self._kinds[self.place] = kind
        return self.place

    def _add_content(self, content: str | list[msgspec.Raw], found: list[d.Delta]) -> None:
        if isinstance(content, list):
            for raw in content:
                self._add_part(raw, found)
        elif self._tags is None:
            found.append(d.TextDelta(self._slot("text"), content))
        else:
            for kind, piece in self._tags.feed(content):
                self._add_piece(kind, piece, found)

    def _add_piece(self, kind: str, text: str, found: list[d.Delta]) -> None:
        slot = self._slot(kind)
        found.append(d.TextDelta(slot, text) if kind == "text" else d.ReasoningDelta(slot, text))

    def _add_part(self, raw: msgspec.Raw, found: list[d.Delta]) -> None:
        """Add a part of the content: text, reasoning, or a part that only this wire knows."""
        start = bytes(raw)[:1]
        if start == b'"':
            self._add_piece("text", text_in(raw), found)
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
            self._add_piece(kind, text, found)
        self._seals.setdefault(slot, {}).update({name: value for name, value in own.items() if is_there(value)})

    def _add_call(self, call: _CallPiece, number: int | None, found: list[d.Delta]) -> None:
        function = call.function or _Function()
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
        known_as = (opened.id or make_id(self.id or opened.name, opened.slot - CALLS), opened.name)
        if opened.shown != known_as:
            opened.shown = known_as
            found.append(d.CallBegun(opened.slot, *known_as))
        text = dumps(arguments).decode() if isinstance(arguments, dict) else arguments
        if text:
            opened.pieces.append(text)
            found.append(d.ArgumentsDelta(opened.slot, text))

    def _find(self, call: _CallPiece, name: str, number: int | None) -> _Call:
        """Return the call that a piece belongs to, or a new one. `number` is its place in a whole list of calls."""
        index = call.index if number is None else number
        if index is not None:
            known = self._by_index.get(index)
            if known and number is None and not _is_another(call, known, name):
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

    def _add_rare(self, said: _Message, found: list[d.Delta]) -> None:
        if said.refusal:
            self._refusals.append(said.refusal)
        for raw in said.annotations or ():
            cited = read_citation(raw, found)
            if cited is not None:
                found.append(d.CitationAdded(self._slot("text"), cited))
        if said.audio:
            self._add_speech(dumps(said.audio), found)
        if said.function_call and (said.function_call.name or said.function_call.arguments):
            self._add_call(_CallPiece(LEGACY, function=said.function_call), None, found)
        for raw in _objects("executed_tools", said.executed_tools or (), found):
            self._executed[bytes(fields(raw).get("index", b"")) or bytes(raw)] = raw.copy()
        for raw in said.images or ():
            self._add_image(raw, found)

    def _add_image(self, raw: msgspec.Raw, found: list[Delta]) -> None:
        """Add an image that the model made; one that is not in the answer itself is a notice."""
        at = read_some(raw, _Image, "images", []).image_url
        match = DATA_URL.match(at.url if at else "")
        if match is None:
            found.append(d.Notice("images", bytes(raw).decode()))
            return
        self._images += 1
        found.append(d.MediaAdded(MEDIA + self._images, match[1], match[2]))

    def _add_speech(self, raw: bytes, found: list[d.Delta]) -> None:
        self._speech = self._speech or Speech()
        words = self._speech.add(raw, found)
        if words:
            self._kinds[SPOKEN] = "text"
            found.append(d.TextDelta(SPOKEN, words))


def _is_another(call: _CallPiece, known: _Call, name: str) -> bool:
    """True if a piece with the number of a known call begins another call.

    It does if it has another id. If neither has an id, it does if it has a name and arguments, and the known arguments are
    complete."""
    if call.id or known.id:
        return bool(call.id and known.id and call.id != known.id)
    written = call.function.arguments if call.function else None
    return bool(name and known.name and written) and as_object("".join(known.pieces)) is not None


def _objects(name: str, items: Sequence[msgspec.Raw], found: list[d.Delta]) -> list[msgspec.Raw]:
    """Return the items that are objects; the others are notices."""
    kept = [raw for raw in items if bytes(raw)[:1] == b"{"]
    if len(kept) < len(items):
        found += (d.Notice(name, bytes(raw).decode()) for raw in items if bytes(raw)[:1] != b"{")
    return kept


def _text(own: dict[str, msgspec.Raw], name: str, found: list[d.Delta]) -> str:
    """Take out the text of a field; any other value is a notice."""
    raw = own.pop(name, None)
    if raw is not None and bytes(raw) != b"null" and bytes(raw)[:1] != b'"':
        found.append(d.Notice(name, bytes(raw).decode()))
    return text_in(raw)


def _thoughts(own: dict[str, msgspec.Raw], found: list[d.Delta]) -> str:
    """Take the reasoning out of a part: a list of texts, or one text."""
    if bytes(own.get("thinking", b""))[:1] != b"[":
        return _text(own, "thinking", found)
    inner = msgspec.json.decode(own.pop("thinking"), type=list[msgspec.Raw])
    return "".join(text_in(fields(one).get("text")) for one in _objects("thinking", inner, found))


def _find_named(own: dict[str, msgspec.Raw], names: Sequence[str]) -> dict[str, msgspec.Raw]:
    return {name: own[name].copy() for name in names if name in own and is_there(own[name])}


def _sealable(kind: str) -> Sealable:
    return "text" if kind == "text" else "reasoning" if kind == "reasoning" else "call"


END = b"[DONE]"
ANSWER = "a chat completion"
UNCOUNTED = _Counts()
NOWHERE = -1


class _RawChoice(msgspec.Struct):
    delta: dict[str, msgspec.Raw] | None = None
    message: dict[str, msgspec.Raw] | None = None


class _RawChunk(msgspec.Struct):
    choices: list[_RawChoice] = []


_raw_chunks = msgspec.json.Decoder(_RawChunk)


def decode(body: bytes, quirks: Quirks) -> Reply:
    """Return a whole answer."""
    found: list[d.Delta] = []
    events = _events(quirks, whole=True)
    frames = [body]
    try:
        if not read_frames(events, frames, found, ANSWER):
            found += events.close()
    except BROKEN as error:
        raise unreadable_error(error, body, ANSWER) from None
    if not events.answered and not any(isinstance(delta, d.Failed) for delta in found):
        start = body[:60].decode(errors="replace")
        raise WireError(
            f"Expected a chat completion, but the answer has no choices. It begins with {start!r}. Check the base URL."
        )
    settle(events, found, frames if events.turn.silent else [])
    return assemble(found)


def decoder(quirks: Quirks) -> StreamDecoder:
    """Return a streamed answer."""
    return StreamDecoder(_events(quirks), SseReader())


class _Events(msgspec.Struct, gc=False):
    """`plain`: the dialect allows chunks that contain only text. `words` is the slot of the text that the next chunk probably
    extends; NOWHERE if there is none, or after a chunk of another form."""

    quirks: Quirks
    turn: ChatAnswer
    whole: bool = False
    plain: bool = True
    words: int = NOWHERE
    answered: bool = False
    started: bool = False
    counted: bool = False
    beside: list[_Message] = []

    def read(self, frames: Iterator[bytes], found: list[d.Delta]) -> bool:
        """Read chunks. True if the answer has ended: with its end mark, or in an error."""
        for frame in frames:
            if self.words >= 0:
                other = self._read_words(frame, frames, found)
                if other is None:
                    return False
                frame = other
            try:
                chunk = None if frame == END else read_chunk(frame) if self.started else self._open(frame, found)
            except msgspec.DecodeError:
                chunk = _check_end(frame)
            if chunk is None:
                found += self.close() if self.answered else [d.Failed(TruncatedStream(NO_ANSWER))]
                return True
            if chunk.choices and not chunk.error:
                if self._choices(chunk.choices, frame, found):
                    return True
            elif self._read_bare(chunk, frame, found):
                return True
            if chunk.usage or self.quirks.usage_path or chunk.moderation or chunk.prompt_filter_results:
                self._read_beside(chunk, frame, found)
        return False

    def _read_words(self, frame: bytes | None, frames: Iterator[bytes], found: list[d.Delta]) -> bytes | None:
        """Read this chunk and the next ones while they contain only text. Return the first other chunk."""
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
                self.turn.note_end(choice.finish_reason, choice.native_finish_reason or "")
                break
        return frame

    def mend(self, frame: bytes) -> tuple[bytes, list[d.Notice]]:
        """Return a chunk without its optional fields of a wrong type."""
        return mend(frame, form_of, CARRYING)

    def missing(self) -> str:
        """Return why the ended turn is incomplete; empty if it is complete."""
        if self.turn.finish in BROKEN_OFF:
            return f"its rest, because the server broke it off ({self.turn.finish})"
        told = self.turn.finish or (not self.quirks.stop_told and (self.whole or self.counted))
        return "" if told else NO_REASON

    def end(self) -> list[d.Delta] | None:
        """Return the last deltas. A turn with a finish reason is complete, also without [DONE]."""
        return self.close() if self.turn.finish else None

    def close(self) -> list[d.Delta]:
        """Return the last deltas. If the expected field was empty in all chunks, read the other one: `message` or `delta`."""
        found: list[d.Delta] = []
        if self.beside and self.turn.silent:
            for said in self.beside:
                self.turn.add(said, found, whole=True)
        return [*found, *self.turn.end()]

    def _open(self, frame: bytes, found: list[d.Delta]) -> Chunk:
        """Read a chunk at the beginning of the answer, until one has its id or its model."""
        chunk = read_opening(frame)
        if chunk.id or chunk.model:
            self.started = True
            self.turn.id = chunk.id or ""
            found.append(d.Started(chunk.id or "", chunk.model or ""))
        return chunk

    def _choices(self, choices: list[_Choice], frame: bytes, found: list[d.Delta]) -> bool:
        turn = self.turn
        if not self.answered:
            self.answered = True
        for choice in choices:
            if choice.index:
                found.append(d.Notice("another choice", frame.decode()))
                continue
            said = choice.delta if choice.message is None else self._choose_message(choice.message, choice.delta)
            if said is not None:
                turn.add(said, found, self.whole)
            if choice.finish_reason:
                turn.note_end(choice.finish_reason, choice.native_finish_reason or "")
            if self.quirks.answer_fields:
                self._keep(frame)
            if (choice.usage or choice.logprobs or choice.error) and self._read_choice_fields(choice, found):
                return True
        if self.plain and turn.kind == "text":
            self.words = turn.place
        return False

    def _choose_message(self, message: _Message, delta: _Message | None) -> _Message:
        """Return the expected one of the two fields, and keep the other in case the expected one stays empty."""
        if delta is None:
            return message
        said, other = (message, delta) if self.whole else (delta, message)
        if other != NOTHING_SAID and self.turn.silent:
            self.beside = _drop_repeated([*self.beside, other])
        return said

    def _read_choice_fields(self, choice: _Choice, found: list[d.Delta]) -> bool:
        """Read the other fields of a choice. True if one is an error."""
        if choice.usage:
            self._count(dumps(choice.usage), found)
        if isinstance(choice.logprobs, dict) and any(is_there(raw) for raw in choice.logprobs.values()):
            found.append(d.Notice("logprobs", dumps(choice.logprobs).decode()))
        if not choice.error:
            return False
        found.append(read_failure(dumps({"error": choice.error})))
        return True

    def _keep(self, frame: bytes) -> None:
        """Keep the fields of the message in this chunk that must be sent back unchanged."""
        names = self.quirks.answer_fields
        if any(name.encode() in frame for name in names):
            read = _raw_chunks.decode(frame).choices[0]
            self.turn.keep(read.delta or read.message or {}, names, whole=self.whole)

    def _read_bare(self, chunk: Chunk, frame: bytes, found: list[d.Delta]) -> bool:
        """Read a chunk without choices: an error, token counts, a keep-alive, or something unknown. True if it is an error."""
        if chunk.error:
            found.append(read_failure(frame))
            return True
        if chunk.usage or chunk.choices is not None:
            self.counted = self.answered  # counts after all choices are the last ones
            return False
        kind = read_opening(frame).object or ""
        if kind.startswith("chat.completion") or "choices" in fields(frame):
            return False
        complaint = complaint_of(frame)
        found.append(d.Failed(make_error(complaint, {})) if complaint else d.Notice(kind or "chunk", frame.decode()))
        return complaint is not None

    def _read_beside(self, chunk: Chunk, frame: bytes, found: list[d.Delta]) -> None:
        """Read the other fields of a chunk: token counts, and reports about the answer."""
        if chunk.usage:
            self._report_counts(chunk.usage, frame, found)
        elif self.quirks.usage_path and self.quirks.usage_path[0].encode() in frame:
            raw: bytes | msgspec.Raw = frame
            for name in self.quirks.usage_path:
                raw = fields(raw).get(name, msgspec.Raw(b"{}")) if bytes(raw)[:1] == b"{" else raw
            self._count(bytes(raw), found)
        if chunk.moderation:
            found.append(d.Notice("moderation", dumps(chunk.moderation).decode()))
        if chunk.prompt_filter_results:
            found.append(d.Notice("prompt_filter_results", dumps(chunk.prompt_filter_results).decode()))

    def _report_counts(self, counts: _Counts, frame: bytes, found: list[d.Delta]) -> None:
        """Report the counts of a chunk. If no known count is there, the field may be empty: then report nothing."""
        if counts == UNCOUNTED:
            self._count(dumps(fields(fields(frame)["usage"])), found)
        else:
            found.append(d.UsageReported(usage_of(counts, apart=self.quirks.reasoning_apart)))

    def _count(self, raw: bytes, found: list[d.Delta]) -> None:
        """Read token counts; counts of an unknown form are a notice."""
        if raw not in (b"null", b"{}"):
            counts = read_some(raw, _Counts, "usage", found)
            found.append(d.UsageReported(usage_of(counts, apart=self.quirks.reasoning_apart)))


def _events(quirks: Quirks, *, whole: bool = False) -> _Events:
    plain = not (whole or quirks.think_tags or quirks.answer_fields or quirks.usage_path)
    return _Events(quirks, ChatAnswer(Tags() if quirks.think_tags else None), whole, plain)


def _check_end(frame: bytes) -> Chunk | None:
    """Return None if an unreadable frame is [DONE] with spaces around it; else raise again."""
    if frame.strip() != END:
        raise
    return None


def _drop_repeated(said: list[_Message]) -> list[_Message]:
    """Return the messages in order, without the last but one if the last repeats its content."""
    *_, before, after = NOTHING_SAID, *said
    grown = isinstance(before.content, str) and isinstance(after.content, str) and after.content.startswith(before.content)
    return [*said[:-2], after] if grown else said
