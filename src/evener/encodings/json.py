"""Reads an answer that is a JSON envelope: calls, or a final text streamed out of its string. Pure; nothing raises.

    {"tool": "NAME", "arguments": {...}}        {"calls": [{"tool": ...}, ...]}        {"answer": "TEXT"}

An envelope begins a line, perhaps within a code fence; whatever else stands there is text. A model that is not constrained
may write its keys in any order, or more than one envelope. What is broken off is kept: as the raw arguments of its call, or
as text with a notice. The buffer is told that the answer was cut.
"""

import re
from collections.abc import Collection

import msgspec

from evener.encodings.buffer import (
    BLANK,
    BROKEN,
    FENCE,
    FENCE_END,
    LINE,
    AnswerBuffer,
    Chars,
    Either,
    Marker,
    Wait,
    object_fields,
    unescape,
)
from evener.wire.prefix import dumps, text_in

TOOL, ARGUMENTS, CALLS, ANSWER, VALUE = "tool", "arguments", "calls", "answer", "value"
NAMES = ("name", TOOL, "function")
INPUTS = (ARGUMENTS, "parameters", "input")


def _arguments(raw: str) -> str:
    """Return the arguments as JSON text. Some models write them as a string that contains JSON."""
    if raw[:1] != '"':
        return raw
    try:
        return msgspec.json.decode(raw, type=str)
    except BROKEN:
        return raw


def named_arguments(text: str) -> tuple[str, str] | None:
    """Return name and arguments of a call that is one object with both; None if it is not."""
    found = object_fields(text) or {}
    name = next((text_in(found[key]) for key in NAMES if key in found), "")
    given = next((found[key] for key in INPUTS if key in found), msgspec.Raw(b"{}"))
    return (name, _arguments(bytes(given).decode())) if name else None


def unwrap(text: str) -> str:
    """Return the value inside a wrapper object; the text itself if there is no wrapper."""
    found = object_fields(text) or {}
    return bytes(found[VALUE]).decode() if VALUE in found else text


def drop_nulls(raw: str, optional: Collection[str]) -> str:
    """Return arguments without nulls for omitted fields. Such nulls occur if the schema had to require every field."""
    found = object_fields(raw) or {}
    absent = [name for name, value in found.items() if name in optional and bytes(value) == b"null"]
    return dumps({name: value for name, value in found.items() if name not in absent}).decode() if absent else raw


SPACE = Chars(r"\s*")
OBJECT = Marker((LINE, FENCE, "{"))
BRACE = ("{", BLANK)
WRAPPED = (*BRACE, f'"{VALUE}"', BLANK, ":", BLANK, *BRACE)
KEY = ('"', Either((TOOL, ARGUMENTS, CALLS, ANSWER)), '"', BLANK, ":")
BARE_ENVELOPE = Marker((Chars(r"[ \t]*"), FENCE, Either((BRACE,), "head"), *KEY))
WRAPPED_ENVELOPE = Marker((Chars(r"[ \t]*"), FENCE, Either((WRAPPED, BRACE), "head"), *KEY))
NAME = (Chars(r'(?P<key>(?:[^"\\]|\\(?s:.)){0,200})'), Chars(r"(?:\\\Z)?"))
MEMBER = Marker((SPACE, Either(((Either((",", "}"), "sign"),), ('"', *NAME, '"', SPACE, ":", SPACE, Chars(r"(?=\S)"))))))
ITEM = Marker((SPACE, Either(("{", ",", "]"), "sign")))


def read_json(tape: AnswerBuffer, *, wrapped: bool = False, texts: bool = True) -> Wait[None]:
    """Read an answer: envelopes, and the text around them.

    `wrapped`: envelopes are inside a wrapper object. `texts`: an answer is a text; else it is JSON, and is passed on unchanged.
    """
    envelope = WRAPPED_ENVELOPE if wrapped else BARE_ENVELOPE
    while (yield from tape.say_until(OBJECT)):
        found = yield from tape.expect(envelope)
        if found is None and tape.ended and envelope.begun.match(tape.held):
            tape.cut = True
            tape.reject(tape.take_all())
        elif found is None:  # an object that is no envelope is text to its end
            tape.say(tape.take(tape.held.index("{")))
            yield from tape.take_value(tape.say)
        elif (yield from _Envelope(tape, texts=texts).read(found)):
            if "```" in found[0]:
                yield from tape.skip(FENCE_END)
            tape.seen = "\n"  # the next one may follow at once


class _Envelope:
    """One envelope while it is read. Its methods return False if it does not continue as required."""

    def __init__(self, tape: AnswerBuffer, *, texts: bool) -> None:
        self._tape = tape
        self._texts = texts
        self._raw: list[str] = []  # as far as it was taken
        self._listed = False  # within the list of calls
        self._name = ""
        self._arguments: list[str] | None = None
        self._open = False  # a call has begun and not ended
        self._spoke = False  # it gave something

    def read(self, found: "re.Match[str]") -> Wait[bool]:
        """Read an envelope. A broken one is kept as text, and reading continues after it."""
        tape = self._tape
        self._take(found.end("head"))
        for _ in range(found["head"].count("{")):
            if not (yield from self._read_object()):
                break
        else:
            if self._spoke:
                return True
        tape.cut = tape.cut or tape.ended
        self._end_call(cut=True)
        if not self._spoke:
            tape.reject("".join(self._raw) + (tape.take_all() if tape.ended else ""))
        return False

    def _take(self, size: int) -> str:
        taken = self._tape.take(size)
        self._raw.append(taken)
        return taken

    def _expect(self, sign: Marker) -> "Wait[re.Match[str] | None]":
        """Remove a marker from the front and return its match; None if it is not there."""
        found = yield from self._tape.expect(sign)
        self._take(found.end() if found else 0)
        return found

    def _read_object(self) -> Wait[bool]:
        """Read the members of an object up to its closing brace."""
        while found := (yield from self._expect(MEMBER)):
            if found["sign"] == "}":
                if self._name or self._open:
                    self._end_call(cut=False)
                return True
            if not found["sign"] and not (yield from self._read_member(found["key"])):
                return False
        return False

    def _read_list(self) -> Wait[bool]:
        """Read a list of calls after its bracket."""
        self._take(1)
        self._listed = True
        while found := (yield from self._expect(ITEM)):
            if found["sign"] == "]":
                self._listed = False
                return True
            if found["sign"] == "{" and not (yield from self._read_object()):
                return False
        return False

    def _read_member(self, key: str) -> Wait[bool]:
        """Read the value of a key."""
        tape, first = self._tape, self._tape.held[0]
        if key == ANSWER:
            return (yield from self._read_answer(first))
        if key == CALLS and first == "[" and not self._listed:
            return (yield from self._read_list())
        if key == CALLS or (key == TOOL and first != '"'):
            return False
        if key == ARGUMENTS and self._open and first == "{":  # shown as they come
            self._arguments = self._arguments or []
            return (yield from tape.take_value(self._give))[1]
        value, closed = yield from tape.take_value(self._raw.append)
        if not closed:
            return False
        if key == TOOL:
            self._begin_call(value)
        elif key == ARGUMENTS:
            self._arguments = [_arguments(value)]
        else:
            tape.note("unread_field", f'"{key}": {value}')
        return True

    def _read_answer(self, first: str) -> Wait[bool]:
        """Read the answer: a text, which is streamed, or JSON."""
        tape = self._tape
        self._spoke = True
        tape.label()
        if first != '"' or not self._texts:
            return (yield from tape.take_value(self._answer))[1]
        self._take(1)
        while True:
            text, size, closed = unescape(tape.held, final=tape.ended)
            self._take(size)
            tape.say_exactly(text)
            if closed or tape.ended:
                return closed
            yield

    def _answer(self, text: str) -> None:
        self._raw.append(text)
        self._tape.say_exactly(text)

    def _give(self, text: str) -> None:
        self._raw.append(text)
        if self._arguments is not None:
            self._arguments.append(text)
        self._tape.give(text)

    def _begin_call(self, raw: str) -> None:
        if self._name or self._open:  # a second name begins a second call
            self._end_call(cut=False)
        try:
            self._name = text_in(msgspec.Raw(raw.encode()))
        except (msgspec.MsgspecError, UnicodeEncodeError):
            self._name = raw.strip('"')
        if self._arguments is None:
            self._open = self._spoke = True
            self._tape.call(self._name)

    def _end_call(self, *, cut: bool) -> None:
        """End the call with the arguments read so far. If it was cut off, it must not look like a call without arguments."""
        if not self._open and self._name:
            self._open = self._spoke = True
            self._tape.call(self._name)
            self._tape.give("".join(self._arguments or []))
        if self._open:
            none = "".join(self._raw) if cut else "{}"
            self._tape.finish(none if self._arguments is None else "".join(self._arguments))
        self._open, self._name, self._arguments = False, "", None
