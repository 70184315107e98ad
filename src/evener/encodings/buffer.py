"""The text of an answer while it is read: what is not certain yet, and the pieces that are. Pure; the same for all readers.

A reader is a state that is run over the tape until it needs more text. White space next to a call belongs to nobody and is
left out; in an answer without calls every character is kept.
"""

import re
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

__all__ = [
    "FENCE",
    "LINE",
    "AnswerBuffer",
    "ArgumentsEnded",
    "ArgumentsGiven",
    "Called",
    "Marker",
    "Noted",
    "ReadPiece",
    "ReadState",
    "Said",
    "Span",
    "bare",
    "marker",
    "unescaped",
]


FENCE_MARK = "```"
OPENING = re.compile(rf"\s*{FENCE_MARK}[^\n`]*\n")


def bare(text: str) -> str:
    """The text without white space and without a fence around it."""
    found = OPENING.match(text)
    if not found:
        return text.strip()
    return text[found.end() :].strip().removesuffix(FENCE_MARK).rstrip()


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
        """How many of these characters still belong to the value; None when it goes on after them."""
        if not text:
            return None
        if not self._begun:
            self._begun, self._bare = True, text[0] not in '{["'
        if self._bare:
            end = ENDS.search(text)
            return end.start() if end else None
        return self._walk(text)

    def _walk(self, text: str) -> int | None:
        place = 0
        if self._escaped and text:
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


def unescaped(text: str, *, final: bool) -> tuple[str, int, bool]:
    """What the inside of a JSON string says: as far as it is certain, how many characters that took, and whether it ended.

    An escape that JSON does not have stays as it is; half of a pair becomes the sign for what cannot be read.
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
    """One escape and its size; size 0 when more must come before it is certain."""
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


class Said(msgspec.Struct, frozen=True):
    """More text, or more of a thought."""

    text: str
    kind: Literal["text", "thought"] = "text"


class Called(msgspec.Struct, frozen=True):
    """A call has begun."""

    name: str


class ArgumentsGiven(msgspec.Struct, frozen=True):
    """More of its arguments."""

    text: str


class ArgumentsEnded(msgspec.Struct, frozen=True):
    """The call is over; these are its arguments."""

    raw: str


class Noted(msgspec.Struct, frozen=True):
    """Something that is neither text nor a call."""

    name: str
    text: str


ReadPiece = Said | Called | ArgumentsGiven | ArgumentsEnded | Noted
ReadState = Callable[[], "ReadState | None"]
"""One step over the tape: the state to go on with, or None when it waits for more text (or has seen the last)."""

MOST = 200
"""Blanks in a row that are waited through: with more of them nothing begins, and what is held stays small."""
FENCE = rf"(?:(?P<fence>```\w{{0,40}}[ \t]{{0,40}}\r?\n)\s{{0,{MOST}}})"
BEGUN_FENCE = rf"(?:`{{1,2}}|```\w{{0,40}}[ \t]{{0,40}}\r?(?:\n\s{{0,{MOST}}})?)"
LINE = rf"(?:\A|(?<=\n)|(?<=</think>))[ \t]{{0,{MOST}}}"
"""Where a line begins."""
TICKS = re.compile("`+")
SEEN = 8  # characters that a look back needs


class Marker(msgspec.Struct, frozen=True):
    """What begins something that is not text, after a code fence perhaps; and how a text ends that may become it."""

    whole: "re.Pattern[str]"
    begun: "re.Pattern[str]"


def marker(place: str, words: Iterable[str], *, after: str = "") -> Marker:
    """A marker of one of these words, at a place, with a pattern after it."""
    given = sorted(words, key=len, reverse=True)
    starts = sorted({word[:size] for word in given for size in range(1, len(word) + 1)}, key=len, reverse=True)
    any_word, any_start = ("|".join(map(re.escape, texts)) for texts in (given, starts))
    return Marker(
        re.compile(rf"{place}{FENCE}?(?P<word>{any_word}){after}"),
        re.compile(rf"{place}(?:{BEGUN_FENCE}|{FENCE}?(?:{any_start})[ \t]{{0,{MOST}}})?\Z"),
    )


class AnswerBuffer:
    """Text comes in at the end, is taken from the front, and leaves as pieces."""

    def __init__(self) -> None:
        self.held = ""
        self.ended = False
        self.touched = False  # the answer is not simply its text
        self.calls = 0
        self.seen = ""  # the last characters that were taken
        self._found: list[ReadPiece] = []
        self._gap = ""  # white space that may turn out to stand next to a call
        self._fresh = False  # nothing was said since the last call or label
        self._last = ""  # the kind of what was said last, if no call came after it
        self._ticks = 0  # how many backticks what was said ends in
        self.in_fence = False  # a code fence in what was said is still open

    def run(self, state: ReadState) -> ReadState:
        """Go on from a state as far as the text reaches."""
        while after := state():
            state = after
        return state

    def pieces(self) -> list[ReadPiece]:
        """What is certain since this was last asked."""
        found, self._found = self._found, []
        return found

    def take(self, size: int) -> str:
        """Take characters from the front."""
        taken, self.held = self.held[:size], self.held[size:]
        self.seen = (self.seen + taken)[-SEEN:]
        return taken

    def say_until(self, sign: Marker, kind: Literal["text", "thought"] = "text") -> "re.Match[str] | None":
        """Say all before the marker, and take nothing of it. None: there is none yet, and what may become one is held."""
        before = len(self.seen)
        text = self.seen + self.held
        found = sign.whole.search(text, before)
        if found is None:
            begun = None if self.ended else sign.begun.search(text, before)
            self.say(self.take((begun.start() if begun else len(text)) - before), kind)
            return None
        self.say(self.take(found.start() - before), kind)
        if self.in_fence and found["fence"] and found["fence"].strip() == "```":  # it closes a block of the text
            self.say(self.take(found.end("fence") - found.start()), kind)
            return self.say_until(sign, kind)
        return found

    def say(self, text: str, kind: Literal["text", "thought"] = "text") -> None:
        """More text. Behind a label it goes on in a line of its own."""
        self._count(text)
        text = self._gap + text
        said = text.rstrip()
        self._gap = text[len(said) :]
        said = said.lstrip() if self._fresh else said
        if said:
            said = f"\n{said}" if self._fresh and self._last == kind else said
            self._fresh, self._last = False, kind
            self._found.append(Said(said, kind))

    def _count(self, text: str) -> None:
        """Keep up with the fences that what is said opens and closes."""
        for found in TICKS.finditer(text):
            before = 0 if found.start() else self._ticks
            self._ticks = before + len(found[0])
            self.in_fence ^= before < 3 <= self._ticks
        if text and not text.endswith("`"):
            self._ticks = 0

    def label(self) -> None:
        """Something that is neither text nor a call was taken: white space around it goes."""
        self.touched, self._fresh, self._gap = True, True, ""

    def call(self, name: str) -> None:
        self.label()
        self._last = ""
        self.calls += 1
        self._found.append(Called(name))

    def give(self, text: str) -> None:
        if text:
            self._found.append(ArgumentsGiven(text))

    def finish(self, raw: str) -> None:
        self._found.append(ArgumentsEnded(raw))

    def note(self, name: str, text: str) -> None:
        self._found.append(Noted(name, text))

    def speak(self, text: str) -> None:
        """Text to the letter, out of an envelope."""
        if text:
            self.touched = True
            self._found.append(Said(text))

    def close(self) -> None:
        """Let go of white space, if no call stands beside it."""
        if self._gap and not self.touched:
            self._found.append(Said(self._gap))
        self._gap = ""
