"""Reads an answer that is a JSON envelope: calls, or a final text streamed out of its string. Pure; nothing raises.

    {"tool": "NAME", "arguments": {...}}        {"calls": [{"tool": ...}, ...]}        {"answer": "TEXT"}

An envelope begins a line, perhaps within a code fence; whatever else stands there is text. A model that is not constrained
may write its keys in any order, or more than one envelope. What is broken off is kept: as the raw arguments of its call, or
as text with a notice.
"""

import re
from collections.abc import Callable, Collection, Mapping
from functools import partial

import msgspec

from evener.encodings.buffer import FENCE, LINE, MOST, AnswerBuffer, ReadState, Span, marker, unescaped
from evener.wire.prefix import dumps, text_in

__all__ = [
    "ANSWER",
    "ARGUMENTS",
    "CALLS",
    "TOOL",
    "VALUE",
    "JsonReader",
    "arguments_of",
    "named_arguments",
    "unwrapped",
    "without_nulls",
]


TOOL, ARGUMENTS, CALLS, ANSWER, VALUE = "tool", "arguments", "calls", "answer", "value"
NAMES = ("name", TOOL, "function")
INPUTS = (ARGUMENTS, "parameters", "input")

_objects: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
BROKEN = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def _fields(text: str) -> Mapping[str, msgspec.Raw]:
    try:
        return _objects.decode(text)
    except BROKEN:
        return {}


def arguments_of(raw: str) -> str:
    """The arguments that a value stands for. Some models write them as a text that holds JSON."""
    if raw[:1] != '"':
        return raw
    try:
        return msgspec.json.decode(raw, type=str)
    except BROKEN:
        return raw


def named_arguments(text: str) -> tuple[str, str] | None:
    """Name and arguments of a call that is one object with both; None when it is not."""
    found = _fields(text)
    name = next((text_in(found[key]) for key in NAMES if key in found), "")
    given = next((found[key] for key in INPUTS if key in found), msgspec.Raw(b"{}"))
    return (name, arguments_of(bytes(given).decode())) if name else None


def unwrapped(text: str) -> str:
    """The value that was asked for under a name of its own, because only objects can be; the text itself if it is not there."""
    found = _fields(text)
    return bytes(found[VALUE]).decode() if VALUE in found else text


def without_nulls(raw: str, optional: Collection[str]) -> str:
    """Arguments without the nulls that stand for absent ones, where the schema had to demand every property."""
    found = _fields(raw)
    absent = [name for name, value in found.items() if name in optional and bytes(value) == b"null"]
    return dumps({name: value for name, value in found.items() if name not in absent}).decode() if absent else raw


OBJECT = marker(LINE, ["{"])
SPACE = re.compile(r"\s*")
KEY = re.compile(r'\s*"((?:[^"\\]|\\.){0,200})"\s*:\s*(?=\S)', re.DOTALL)
BEGUN_KEY = re.compile(r'\s*(?:"(?:[^"\\]|\\.){0,200}\\?(?:"\s*(?::\s*)?)?)?\Z', re.DOTALL)
KEYS = (TOOL, ARGUMENTS, CALLS, ANSWER)


class JsonReader:
    """The states of the reader; `start` is the first.

    `wrapped`: envelopes stand under a name of their own. `texts`: an answer is a text; else it is JSON of its own shape, that
    goes on as it is.
    """

    def __init__(self, tape: AnswerBuffer, *, wrapped: bool = False, texts: bool = True) -> None:
        self._tape = tape
        self._wrapped = wrapped
        self._texts = texts
        lead = rf'\{{\s{{0,{MOST}}}"{VALUE}"\s{{0,{MOST}}}:\s{{0,{MOST}}}' if wrapped else ""
        keys = "|".join(KEYS)
        self._whole = re.compile(rf'[ \t]*{FENCE}?(?:{lead})?\{{\s{{0,{MOST}}}(?="(?:{keys})"\s{{0,{MOST}}}:)')
        self._begun = re.compile(_prefixes(wrapped=wrapped))
        self._reset()

    def _reset(self) -> None:
        self._raw: list[str] = []  # the envelope as far as it was taken
        self._depth = 0  # braces to close around the current object
        self._listed = False  # within the list of calls
        self._name = ""
        self._arguments: list[str] | None = None
        self._open = False  # a call has begun and not ended
        self._spoke = False  # the envelope gave something
        self._span = Span()

    def _take(self, size: int) -> str:
        taken = self._tape.take(size)
        self._raw.append(taken)
        return taken

    # Text, and what may be an envelope.

    def start(self) -> ReadState | None:
        """Text, up to the next object."""
        return self._judge if self._tape.say_until(OBJECT) else None

    def _judge(self) -> ReadState | None:
        tape = self._tape
        found = self._whole.match(tape.held)
        if found is None:
            if self._begun.match(tape.held):
                if not tape.ended:
                    return None
                tape.note("malformed_call", tape.held)
            tape.say(tape.take(tape.held.index("{")))
            self._span = Span()
            return self._skim
        self._reset()
        self._fenced = "```" in found[0]
        self._depth = found[0].count("{")
        self._take(found.end())
        return self._member

    def _skim(self) -> ReadState | None:
        """An object that is no envelope is text to its end."""
        tape = self._tape
        size = self._span.feed(tape.held)
        tape.say(tape.take(len(tape.held) if size is None else size))
        return None if size is None else self.start

    # Inside an envelope.

    def _member(self) -> ReadState | None:
        """A key, or the end of the object."""
        tape = self._tape
        rest = tape.held.lstrip()
        space = len(tape.held) - len(rest)
        if rest[:1] == ",":
            self._take(space + 1)
            return self._member
        if rest[:1] == "}":
            self._take(space + 1)
            return self._object_ends()
        key = KEY.match(tape.held)
        if key:
            self._take(key.end())
            return self._value(key[1])
        return None if BEGUN_KEY.match(tape.held) and not tape.ended else self._broken()

    def _value(self, key: str) -> ReadState:
        first = self._tape.held[0]
        self._span = Span()
        if key == ANSWER:
            self._spoke = True
            self._tape.label()
            if first == '"' and self._texts:
                self._take(1)
                return self._answer
            return self._answer_raw
        if key == TOOL and first == '"':
            return self._whole_value(self._named)
        if key == ARGUMENTS:
            return self._given if self._open and first == "{" else self._whole_value(self._kept)
        if key == CALLS and first == "[" and not self._listed:
            self._take(1)
            self._listed = True
            return self._item
        return self._broken if key in (TOOL, CALLS) else self._whole_value(partial(self._unread, key))

    def _answer(self) -> ReadState | None:
        """A text, streamed out of its string."""
        text, size, closed = unescaped(self._tape.held, final=self._tape.ended)
        self._take(size)
        self._tape.speak(text)
        return self._member if closed else None

    def _answer_raw(self) -> ReadState | None:
        size = self._span.feed(self._tape.held)
        self._tape.speak(self._take(len(self._tape.held) if size is None else size))
        return None if size is None else self._member

    def _given(self) -> ReadState | None:
        """The arguments of an open call, shown as they come."""
        size = self._span.feed(self._tape.held)
        text = self._take(len(self._tape.held) if size is None else size)
        self._arguments = self._arguments or []
        self._arguments.append(text)
        self._tape.give(text)
        if size is None:
            if self._tape.ended:
                self._end_call(cut=True)
            return None
        return self._member

    def _whole_value(self, then: Callable[[str], None]) -> ReadState:
        """A value that is of use only when it is whole."""
        pieces: list[str] = []

        def collect() -> ReadState | None:
            size = self._span.feed(self._tape.held)
            pieces.append(self._take(len(self._tape.held) if size is None else size))
            if size is None:
                return self._broken() if self._tape.ended else None
            then("".join(pieces))
            return self._member

        return collect

    def _named(self, raw: str) -> None:
        if self._name or self._open:  # a second name begins a second call
            self._end_call(cut=False)
        try:
            self._name = text_in(msgspec.Raw(raw.encode()))
        except (msgspec.MsgspecError, UnicodeEncodeError):
            self._name = raw.strip('"')
        if self._arguments is None:
            self._open_call()

    def _kept(self, raw: str) -> None:
        self._arguments = [arguments_of(raw)]

    def _unread(self, key: str, raw: str) -> None:
        self._tape.note("unread_field", f'"{key}": {raw}')

    # Calls.

    def _open_call(self) -> None:
        self._open = self._spoke = True
        self._tape.call(self._name)

    def _end_call(self, *, cut: bool) -> None:
        """The call as far as it came. One that was cut off must not look like a call without arguments."""
        if not self._open and self._name:
            self._open_call()
            self._tape.give("".join(self._arguments or []))
        if self._open:
            none = "".join(self._raw) if cut else "{}"
            self._tape.finish(none if self._arguments is None else "".join(self._arguments))
        self._open, self._name, self._arguments = False, "", None

    def _item(self) -> ReadState | None:
        """The next call of a list, or its end."""
        tape = self._tape
        space = SPACE.match(tape.held)
        sign = tape.held[space.end() :][:1] if space else ""
        if not sign and not tape.ended:
            return None
        if sign not in ("{", ",", "]") or not space:
            return self._broken()
        self._take(space.end() + 1)
        if sign == "]":
            self._listed = False
            return self._member
        self._depth += sign == "{"
        return self._member if sign == "{" else self._item

    def _object_ends(self) -> ReadState:
        self._depth -= 1
        if self._name or self._open:
            self._end_call(cut=False)
        if self._listed:
            return self._item
        if self._depth:
            return self._member
        if not self._spoke:
            return self._broken()
        return self._after

    def _broken(self) -> ReadState:
        """The envelope does not go on as it must: keep what there is, and read on behind it."""
        tape = self._tape
        spoke = self._spoke
        self._end_call(cut=True)
        if not (spoke or self._spoke):
            whole = "".join(self._raw) + tape.take(len(tape.held) if tape.ended else 0)
            tape.note("malformed_call", whole)
            tape.say(whole)
        self._span = Span()
        return self._behind

    def _behind(self) -> ReadState | None:
        return self.start if self._tape.held else None

    def _after(self) -> ReadState | None:
        """Behind an envelope: the end of the fence that it stood in. The next one may follow at once."""
        tape = self._tape
        rest = tape.held.lstrip()
        if self._fenced and rest.startswith("```"):
            tape.take(len(tape.held) - len(rest) + 3)
        elif self._fenced and "```".startswith(rest) and not tape.ended:
            return None
        self._fenced = False
        tape.seen = "\n"
        return self.start


def _prefixes(*, wrapped: bool) -> str:
    """A pattern for all that may still become an envelope, if more comes."""
    words = "|".join(sorted({key[:size] for key in KEYS for size in range(1, len(key) + 1)}, key=len, reverse=True))
    blank = rf"\s{{0,{MOST}}}"
    key = rf'\{{{blank}(?:"(?:(?:{words})(?:"{blank})?)?)?'
    if wrapped:
        starts = "|".join(VALUE[:size] for size in range(len(VALUE), 0, -1))
        key = rf'(?:{key}|\{{{blank}(?:"(?:(?:{starts})(?:"{blank}(?::{blank}(?:{key})?)?)?)?)?)'
    return rf"[ \t]*{FENCE}?{key}\Z"
