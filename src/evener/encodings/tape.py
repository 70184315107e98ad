"""The text of an answer while it is read: what is not certain yet, and the pieces that are. Pure; the same for all readers.

A reader is a state that is run over the tape until it needs more text. White space next to a call belongs to nobody and is
left out; in an answer without calls every character is kept.
"""

import re
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

__all__ = ["FENCE", "LINE", "Called", "Finished", "Given", "Marker", "Noted", "Piece", "Said", "State", "Tape", "marker"]


class Said(msgspec.Struct, frozen=True):
    """More text, or more of a thought."""

    text: str
    kind: Literal["text", "thought"] = "text"


class Called(msgspec.Struct, frozen=True):
    """A call has begun."""

    name: str


class Given(msgspec.Struct, frozen=True):
    """More of its arguments."""

    text: str


class Finished(msgspec.Struct, frozen=True):
    """The call is over; these are its arguments."""

    raw: str


class Noted(msgspec.Struct, frozen=True):
    """Something that is neither text nor a call."""

    name: str
    text: str


Piece = Said | Called | Given | Finished | Noted
State = Callable[[], "State | None"]
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


class Tape:
    """Text comes in at the end, is taken from the front, and leaves as pieces."""

    def __init__(self) -> None:
        self.held = ""
        self.ended = False
        self.touched = False  # the answer is not simply its text
        self.calls = 0
        self.seen = ""  # the last characters that were taken
        self._found: list[Piece] = []
        self._gap = ""  # white space that may turn out to stand next to a call
        self._fresh = False  # nothing was said since the last call or label
        self._last = ""  # the kind of what was said last, if no call came after it
        self._ticks = 0  # how many backticks what was said ends in
        self.in_fence = False  # a code fence in what was said is still open

    def run(self, state: State) -> State:
        """Go on from a state as far as the text reaches."""
        while after := state():
            state = after
        return state

    def pieces(self) -> list[Piece]:
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
            self._found.append(Given(text))

    def finish(self, raw: str) -> None:
        self._found.append(Finished(raw))

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
