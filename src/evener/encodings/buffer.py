"""The buffer that the readers of text encodings share: text is added at the end and leaves as deltas. Pure.

A reader is a generator over an `AnswerBuffer`; it yields if it needs more text, and ends with the text. It looks for a
`Marker`, a sequence of steps, from which two patterns are made: that of the whole, and that of all its beginnings. White
space next to a call is left out; in an answer without calls every character is kept.
"""

import re
from collections.abc import Callable, Generator, Mapping
from functools import cached_property
from typing import Literal, TypeVar

import msgspec

from evener.transcript.delta import ArgumentsDelta, CallBegun, CallEnded, Delta, Notice, ReasoningDelta, TextDelta
from evener.wire.prefix import dumps

T = TypeVar("T")
Wait = Generator[None, None, T]
"""Yields while more text is needed, and returns what was read."""

TICKS = "```"
OPENING = re.compile(rf"\s*{TICKS}[^\n`]*\n")


def strip_fence(text: str) -> str:
    """Return the text without white space and without a code fence around it."""
    found = OPENING.match(text)
    if not found:
        return text.strip()
    return text[found.end() :].strip().removesuffix(TICKS).rstrip()


# Markers.


class Chars(msgspec.Struct, frozen=True):
    """A step that is a pattern of characters. It must match every beginning of what it matches."""

    pattern: str


class Either(msgspec.Struct, frozen=True):
    """A step that is one of several words or sequences, the first that fits; `name` is that of its group in a match."""

    ways: tuple["str | tuple[Step, ...]", ...]
    name: str = ""


Step = str | Chars | Either
"""A text stands for itself."""


def _pattern(steps: "tuple[Step, ...] | str") -> str:
    """Return the regular expression of a sequence of steps."""
    if isinstance(steps, str):
        return re.escape(steps)
    found = ""
    for step in steps:
        match step:
            case Chars(pattern):
                found += pattern
            case Either(ways, name):
                found += (f"(?P<{name}>" if name else "(?:") + "|".join(map(_pattern, ways)) + ")"
            case _:
                found += re.escape(step)
    return found


def _beginnings(steps: "tuple[Step, ...] | str", rest: str = "") -> str:
    """Return the regular expression of all beginnings of a sequence; `rest` is that of the part that follows."""
    for step in reversed(steps):
        match step:
            case Chars(pattern):
                rest = f"{pattern}(?:{rest})?"
            case Either(ways):
                rest = "|".join(_beginnings(way, rest) for way in ways)
            case _:
                for char in reversed(step):
                    rest = f"{re.escape(char)}(?:{rest})?"
    return rest


class Marker(msgspec.Struct, frozen=True, dict=True):
    """What begins or ends something that is not text. Its patterns are compiled when they are first used."""

    steps: tuple[Step, ...]

    @cached_property
    def whole(self) -> "re.Pattern[str]":
        """The pattern of the marker."""
        return re.compile(_pattern(self.steps))

    @cached_property
    def begun(self) -> "re.Pattern[str]":
        """The regular expression of an end of the text that may be the beginning of the marker."""
        return re.compile(rf"(?:{_beginnings(self.steps)})?\Z")


MOST = 200
"""Blanks in a row that are waited through: with more of them nothing begins, and what is held stays small."""
BLANK = Chars(rf"\s{{0,{MOST}}}")
FENCE = Either(((Either(((TICKS, Chars(r"\w{0,40}"), Chars(r"[ \t]{0,40}"), Chars(r"\r?"), "\n"),), "fence"), BLANK), ()))
"""The start of a code fence, if there is one."""
FENCE_END = Marker((Chars(r"\s*"), TICKS))
LINE = Chars(rf"(?:\A|(?<=\n)|(?<=</think>))[ \t]{{0,{MOST}}}")
"""Where a line begins."""


# JSON in pieces.

BROKEN = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_objects: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])

OUTSIDE = re.compile(r'["{}\[\]]')
INSIDE = re.compile(r'["\\]')
ENDS = re.compile(r"[\s,}\]]")
PLAIN = re.compile(r'[^"\\]+')
HIGH = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}")
LOW = re.compile(r"\\u[dD][c-fC-F][0-9a-fA-F]{2}")
CODE = re.compile(r"\\u[0-9a-fA-F]{4}")
BEGUN_CODE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\", "/": "/"}
UNREADABLE = "\ufffd"


class Span:
    """One JSON value, from its first character on. Only brackets and strings count: what is between them is not judged."""

    __slots__ = ("_bare", "_begun", "_depth", "_escaped", "_quoted")

    def __init__(self) -> None:
        self._begun = False
        self._bare = False
        self._depth = 0
        self._quoted = False
        self._escaped = False

    def feed(self, text: str) -> int | None:
        """Return how many of these characters belong to the value; None if the value continues after them."""
        if not text:
            return None
        if not self._begun:
            self._begun, self._bare = True, text[0] not in '{["'
        if self._bare:
            end = ENDS.search(text)
            return end.start() if end else None
        place = 0
        if self._escaped:
            self._escaped, place = False, 1
        while found := (INSIDE if self._quoted else OUTSIDE).search(text, place):
            place = found.end()
            if found[0] == "\\":
                self._escaped = place == len(text)
                place += 1
            elif self._closes(found[0]):
                return place
        return None

    def _closes(self, sign: str) -> bool:
        if sign == '"':
            self._quoted = not self._quoted
            return not self._quoted and self._depth == 0
        self._depth += 1 if sign in "{[" else -1
        return self._depth <= 0


def unescape(text: str, *, final: bool) -> tuple[str, int, bool]:
    """Decode the inside of a JSON string. Return the text, the number of characters read, and whether the string has ended.

    Without `final` only unambiguous characters are read. An escape that JSON does not have stays unchanged; a lone half of a
    surrogate pair becomes U+FFFD.
    """
    said: list[str] = []
    place = 0
    while place < len(text):
        if text[place] == '"':
            return "".join(said), place + 1, True
        plain = PLAIN.match(text, place)
        piece, size = (plain[0], len(plain[0])) if plain else _escape(text, place, final=final)
        if not size:
            break
        said.append(piece)
        place += size
    return "".join(said), place, False


def _escape(text: str, place: int, *, final: bool) -> tuple[str, int]:
    """Return one decoded escape and its size; size 0 if more text is needed."""
    if not final and BEGUN_CODE.match(text, place):
        return "", 0
    if HIGH.match(text, place):
        low = LOW.match(text, place + 6)
        if low:
            return bytes.fromhex(text[place + 2 : place + 6] + low[0][2:]).decode("utf-16-be"), 12
        waits = place + 6 == len(text) or BEGUN_CODE.match(text, place + 6)
        return (UNREADABLE, 6) if final or not waits else ("", 0)
    if CODE.match(text, place):
        return UNREADABLE if LOW.match(text, place) else chr(int(text[place + 2 : place + 6], 16)), 6
    sign = text[place + 1 : place + 2]
    return ESCAPES.get(sign, "\\" + sign), 1 + len(sign)


def object_fields(text: str) -> Mapping[str, msgspec.Raw] | None:
    """Return the members of a JSON object; None if the text is not one whole object."""
    try:
        return _objects.decode(text)
    except BROKEN:
        return None


# The answer.

Kind = Literal["text", "thought", "call"]

BACKTICKS = re.compile("`+")
SEEN = 8  # characters that a look back needs
AT_ONCE = 16 * 1024
"""Characters that are read at once: each step takes from the front of what is held, and copies the rest."""


class AnswerBuffer:
    """The text of one block of an answer while it is read, and the deltas that are certain.

    Blocks are numbered from `base` on. `begin` gets the name of each call and returns its id, `end` gets the arguments of
    that call and returns those that count.
    """

    def __init__(
        self,
        read: "Callable[[AnswerBuffer], Wait[None]]",
        base: int = 0,
        begin: Callable[[str], str] = str,
        end: Callable[[str], str] = str,
    ) -> None:
        self.base = base
        self.held = ""
        self.ended = False
        self.touched = False  # the answer is not simply its text
        self.called = False
        self.cut = False  # the text ended within an envelope or a call
        self.runnable = False  # a call ended with arguments that can be read
        self.seen = ""  # the last characters that were taken
        self.in_fence = False  # a code fence in what was said is still open
        self._begin = begin
        self._end = end
        self._found: list[Delta] = []
        self._slot = -1  # of the block that is open, and its kind
        self._kind = ""
        self._call = -1  # the slot of the last call: text may come before that call is over
        self._gap = ""  # white space that may turn out to stand next to a call
        self._fresh = False  # nothing was said since the last call or label
        self._last = ""  # the kind of what was said last, if no call came after it
        self._ticks = 0  # how many backticks what was said ends in
        self._reading = read(self)

    def feed(self, text: str) -> list[Delta]:
        """Read more text, and return the deltas that no later text can change."""
        for start in range(0, len(text), AT_ONCE):
            self.held += text[start : start + AT_ONCE]
            next(self._reading, None)
        found, self._found = self._found, []
        return found

    def close(self) -> list[Delta]:
        """Read to the end, and return the last deltas. White space at the end is kept if there is no call beside it."""
        self.ended = True
        next(self._reading, None)
        if self._gap and not self.touched:
            self._add(self._gap, "text")
        return self._found

    # What readers take.

    def take(self, size: int) -> str:
        """Remove and return characters from the front."""
        taken, self.held = self.held[:size], self.held[size:]
        self.seen = (self.seen + taken)[-SEEN:]
        return taken

    def take_all(self) -> str:
        """Remove and return all characters."""
        return self.take(len(self.held))

    def expect(self, sign: Marker) -> "Wait[re.Match[str] | None]":
        """Return the match of the marker at the front without removing it; None if the text cannot begin with it."""
        while not (found := sign.whole.match(self.held)) and not self.ended and sign.begun.match(self.held):
            yield
        return found

    def skip(self, sign: Marker) -> Wait[bool]:
        """Remove the marker from the front; True if it was there."""
        found = yield from self.expect(sign)
        self.take(found.end() if found else 0)
        return found is not None

    def take_value(self, each: Callable[[str], object]) -> Wait[tuple[str, bool]]:
        """Read a JSON value and pass its pieces to `each` as they arrive.

        Return its text, and whether it ended before the answer.
        """
        span = Span()
        pieces: list[str] = []
        while True:
            size = span.feed(self.held)
            pieces.append(self.take_all() if size is None else self.take(size))
            each(pieces[-1])
            if size is not None or self.ended:
                return "".join(pieces), size is not None
            yield

    def say_until(self, sign: Marker) -> "Wait[re.Match[str] | None]":
        """Emit all text before the next marker, and return the match; None if the text ends without one."""
        while not (found := self.say_before(sign)) and not self.ended:
            yield
        return found

    def say_before(self, sign: Marker, kind: Kind = "text") -> "re.Match[str] | None":
        """Emit the text before the marker. Return None if there is no marker yet; a possible beginning of it is kept back."""
        while True:
            before = len(self.seen)
            text = self.seen + self.held
            found = sign.whole.search(text, before)
            if found is None:
                begun = None if self.ended else sign.begun.search(text, before)
                self.say(self.take((begun.start() if begun else len(text)) - before), kind)
                return None
            self.say(self.take(found.start() - before), kind)
            if not self.in_fence or (found["fence"] or "").strip() != TICKS:
                return found
            self.say(self.take(found.end("fence") - found.start()), kind)  # it closes a code fence of the text

    # What readers make of it.

    def say(self, text: str, kind: Kind = "text") -> None:
        """Emit text. After a label it begins a new line."""
        self._count_fences(text)
        text = self._gap + text
        said = text.rstrip()
        self._gap = text[len(said) :]
        said = said.lstrip() if self._fresh else said
        if said:
            said = f"\n{said}" if self._fresh and self._last == kind else said
            self._fresh, self._last = False, kind
            self._add(said, kind)

    def _count_fences(self, text: str) -> None:
        """Track the code fences that the emitted text opens and closes."""
        for found in BACKTICKS.finditer(text):
            before = 0 if found.start() else self._ticks
            self._ticks = before + len(found[0])
            self.in_fence ^= before < 3 <= self._ticks
        if text and not text.endswith("`"):
            self._ticks = 0

    def _add(self, text: str, kind: Kind) -> None:
        slot = self._place(kind)
        self._found.append(TextDelta(slot, text) if kind == "text" else ReasoningDelta(slot, text))

    def _place(self, kind: Kind) -> int:
        """Return the index of the open block of this kind. Index 0 is reserved for text, to which a seal may belong."""
        if kind != self._kind or kind == "call":
            self._slot = max(self._slot + 1, 0 if kind == "text" else 1)
            self._kind = kind
        return self.base + self._slot

    def say_exactly(self, text: str) -> None:
        """Emit text from an envelope without changing its white space."""
        if text:
            self.touched = True
            self._add(text, "text")

    def label(self) -> None:
        """Note that a label was read, so that the white space around it is dropped."""
        self.touched, self._fresh, self._gap = True, True, ""

    def call(self, name: str) -> None:
        """Begin a call."""
        self.label()
        self._last = ""
        self.called = True
        self._call = self._place("call")
        self._found.append(CallBegun(self._call, self._begin(name), name))

    def give(self, text: str) -> None:
        """Emit a piece of the call's arguments."""
        if text:
            self._found.append(ArgumentsDelta(self._call, text))

    def finish(self, raw: str) -> None:
        """End the call with these arguments."""
        raw = self._end(raw)
        self.runnable = self.runnable or object_fields(raw) is not None
        self._found.append(CallEnded(self._call, raw))

    def note(self, name: str, text: str) -> None:
        """Emit a notice about text that is neither an answer nor a call."""
        self._found.append(Notice(name, dumps({"text": text}).decode()))

    def reject(self, text: str, kind: Kind = "text") -> None:
        """Emit an unreadable call as text, and as a notice."""
        self.note("malformed_call", text)
        self.say(text, kind)
