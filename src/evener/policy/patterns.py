"""Regular expressions that take time linear in the text: all ways to match are followed at once, none is tried again. Pure.

What JSON Schemas use of ECMA 262 is understood: literals, classes, groups, alternatives, repetitions, anchors, word
boundaries. Lookarounds, back references and Unicode properties are not: `compile_pattern` refuses them, and the caller says
that they are not enforced. Python's own `re` is never given a foreign pattern: some take longer than the universe has.
"""

import re
from collections.abc import Callable, Iterable
from functools import cache

import msgspec

from evener.policy.folding import folded

__all__ = ["Pattern", "Unsupported", "compile_pattern", "folded_pattern", "ignore_case"]

MOST_STATES = 2_000
MOST_STEPS = 5_000_000
MOST_NESTED = 50

Test = Callable[[str], bool]

DIGITS = frozenset("0123456789")
WORDS = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
SPACES = frozenset(" \t\n\r\f\v\u00a0\ufeff\u2028\u2029\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B))))
CLASSES: dict[str, Test] = {
    "d": DIGITS.__contains__,
    "D": lambda char: char not in DIGITS,
    "w": WORDS.__contains__,
    "W": lambda char: char not in WORDS,
    "s": SPACES.__contains__,
    "S": lambda char: char not in SPACES,
}
CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "0": "\0"}
SYNTAX = frozenset(r"^$\.*+?()[]{}|/-")


class Unsupported(Exception):
    """A pattern that is not understood, and why."""


class _State(msgspec.Struct):
    """A place in the automaton: `test` takes a character on the way to the first of `ways`, `anchor` only looks around."""

    test: Test | None = None
    anchor: str = ""
    ways: list[int] = msgspec.field(default_factory=list)


class Pattern(msgspec.Struct, frozen=True):
    """A compiled pattern. State 0 is the start, `end` the match."""

    text: str
    states: tuple[_State, ...]
    end: int

    def occurs_in(self, text: str) -> bool | None:
        """Whether it matches anywhere in a text; None when that is too long to find out."""
        if len(text) * len(self.states) > MOST_STEPS:
            return None
        alive: list[int] = []
        for place in range(len(text) + 1):
            here = self._reached([*alive, 0], text, place)
            if self.end in here:
                return True
            if place == len(text):
                break
            char = text[place]
            states = self.states
            alive = [states[at].ways[0] for at in here if (test := states[at].test) is not None and test(char)]
        return False

    def _reached(self, start: list[int], text: str, place: int) -> set[int]:
        """The states that can be reached without taking a character."""
        seen: set[int] = set()
        left = start
        while left:
            at = left.pop()
            if at in seen:
                continue
            state = self.states[at]
            seen.add(at)
            if state.test is None and (not state.anchor or _holds(state.anchor, text, place)):
                left += state.ways
        return seen


def _holds(anchor: str, text: str, place: int) -> bool:
    match anchor:
        case "^":
            return place == 0
        case "$":
            return place == len(text)
    before = place > 0 and text[place - 1] in WORDS
    after = place < len(text) and text[place] in WORDS
    return (before != after) == (anchor == "b")


def compile_pattern(text: str) -> Pattern:
    """A pattern ready to use; raises Unsupported."""
    return _Parser(text).pattern()


def ignore_case(pattern: Pattern) -> Pattern:
    """The same pattern for text in any case. A negated class takes a character that it takes in one of its cases."""
    states = tuple(_State(state.test and _in_any_case(state.test), state.anchor, state.ways) for state in pattern.states)
    return Pattern(pattern.text, states, pattern.end)


def _in_any_case(test: Test) -> Test:
    return lambda char: test(char) or any(test(other) for other in _cases(char))


@cache
def _cases(char: str) -> tuple[str, ...]:
    """A character in its other cases, as far as they are one character."""
    forms = {
        form(one) for one in (char, char.upper(), char.lower()) for form in (str.upper, str.lower, str.casefold, str.title)
    }
    return tuple(sorted(form for form in forms if len(form) == 1 and form != char))


def folded_pattern(text: str) -> str:
    """The pattern with its literal characters folded as `folding.readings` folds a text: case of ASCII stays."""
    text = re.sub(r"\s+", " ", text)
    pieces = re.findall(r"\\.|.", text, re.DOTALL)
    return "".join(piece if piece.isascii() else _folded_literal(piece[-1]) for piece in pieces)


def _folded_literal(char: str) -> str:
    return "".join(f"\\{one}" if one in SYNTAX else one for one in folded(char))


class _Parser:
    """One pattern on its way to an automaton. A piece is its first and last state; the last one has no ways out yet."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self.nested = 0
        self.states: list[_State] = []

    def pattern(self) -> Pattern:
        start = self._state()
        first, last = self._choice()
        if self.place < len(self.text):
            raise Unsupported(f"a ')' too many at {self.place}")
        self._join(start, first)
        return Pattern(self.text, tuple(self.states), last)

    def _state(self, test: Test | None = None, anchor: str = "") -> int:
        if len(self.states) >= MOST_STATES:
            raise Unsupported("it is too large")
        self.states.append(_State(test, anchor))
        return len(self.states) - 1

    def _join(self, start: int, end: int) -> None:
        self.states[start].ways.append(end)

    def _step(self, test: Test | None, anchor: str = "") -> tuple[int, int]:
        """A state that leads on, and where it leads."""
        first, last = self._state(test, anchor), self._state()
        self._join(first, last)
        return first, last

    def _peek(self) -> str:
        return self.text[self.place : self.place + 1]

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise Unsupported("it ends too early")
        self.place += 1
        return char

    def _choice(self) -> tuple[int, int]:
        first, last = self._state(), self._state()
        while True:
            begin, end = self._sequence()
            self._join(first, begin)
            self._join(end, last)
            if self._peek() != "|":
                return first, last
            self.place += 1

    def _sequence(self) -> tuple[int, int]:
        first = last = self._state()
        while self._peek() not in ("", "|", ")"):
            begin, end = self._repeated()
            self._join(last, begin)
            last = end
        return first, last

    def _repeated(self) -> tuple[int, int]:
        start = self.place
        piece = self._atom()
        end = self.place
        bounds = self._bounds()
        if bounds is None:
            return piece
        if self._peek() == "?":
            self.place += 1
        if self._peek() in ("*", "+") or self._bounds() is not None:
            raise Unsupported(f"nothing to repeat at {self.place}")
        return self._copies(piece, bounds, (start, end))

    def _bounds(self) -> tuple[int, int | None] | None:
        """How often, if that is said here."""
        match self._peek():
            case "*":
                bounds: tuple[int, int | None] = 0, None
            case "+":
                bounds = 1, None
            case "?":
                bounds = 0, 1
            case "{":
                return self._counted()
            case _:
                return None
        self.place += 1
        return bounds

    def _counted(self) -> tuple[int, int | None] | None:
        end = self.text.find("}", self.place)
        least, comma, most = self.text[self.place + 1 : end].partition(",")
        if end < 0 or not _is_count(least) or not (most == "" or _is_count(most)):
            return None
        self.place = end + 1
        high = int(least) if not comma else int(most) if most else None
        if high is not None and high < int(least):
            raise Unsupported("a repetition with the larger number first")
        return int(least), high

    def _copies(self, piece: tuple[int, int], bounds: tuple[int, int | None], where: tuple[int, int]) -> tuple[int, int]:
        """As many copies of a piece as its bounds say; each further one is read again from the text."""
        least, most = bounds
        first, last = self._state(), self._state()
        at, kept, unused = first, self.place, [piece]
        for number in range(most if most is not None else least + 1):
            begin, end = unused.pop() if unused else self._again(where)
            self._join(at, begin)
            if number >= least:
                self._join(at, last)
            if most is None and number == least:
                self._join(end, at)
                end = at
            at = end
        self.place = kept
        if at != last:
            self._join(at, last)
        return first, last

    def _again(self, where: tuple[int, int]) -> tuple[int, int]:
        self.place = where[0]
        piece = self._atom()
        self.place = where[1]
        return piece

    def _atom(self) -> tuple[int, int]:
        char = self._take()
        match char:
            case "(":
                return self._group()
            case "[":
                return self._step(self._class())
            case ".":
                return self._step(lambda char: char not in "\n\r\u2028\u2029")
            case "^" | "$":
                return self._step(None, char)
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise Unsupported(f"nothing to repeat at {self.place - 1}")
        return self._step(char.__eq__)

    def _group(self) -> tuple[int, int]:
        if self._peek() == "?":
            self._group_mark()
        self.nested += 1
        if self.nested > MOST_NESTED:
            raise Unsupported("its groups are nested too deep")
        piece = self._choice()
        if self._take() != ")":
            raise Unsupported("a group is not closed")
        self.nested -= 1
        return piece

    def _group_mark(self) -> None:
        """What may stand after `(?`: that the group is not captured, or its name."""
        rest = self.text[self.place + 1 :]
        if rest.startswith(":"):
            self.place += 2
            return
        name, closed, _ = rest.removeprefix("P").partition(">")
        if not closed or not name.startswith("<") or not name[1:].isidentifier():
            raise Unsupported("it looks ahead or behind, or sets flags")
        self.place = self.text.index(">", self.place) + 1

    def _escape(self) -> tuple[int, int]:
        char = self._peek()
        if char in ("b", "B"):
            self.place += 1
            return self._step(None, char)
        found = self._escaped()
        return self._step(found.__eq__ if isinstance(found, str) else found)

    def _escaped(self) -> str | Test:
        """What stands for one character after a backslash: that character, or a class of them."""
        char = self._take()
        if char in CLASSES:
            return CLASSES[char]
        if char in CONTROLS:
            return CONTROLS[char]
        if char in ("x", "u"):
            return self._code(2 if char == "x" else 4)
        if char in SYNTAX or not char.isalnum():
            return char
        raise Unsupported(f"\\{char} is not known")

    def _code(self, digits: int) -> str:
        code = self.text[self.place : self.place + digits]
        if len(code) < digits or not all(char in "0123456789abcdefABCDEF" for char in code):
            raise Unsupported("a character's number is cut off")
        self.place += digits
        return chr(int(code, 16))

    def _class(self) -> Test:
        negated = self._peek() == "^"
        self.place += negated
        tests: list[Test] = []
        singles: set[str] = set()
        while self._peek() != "]":
            start = self._member()
            if self._peek() == "-" and self.text[self.place + 1 : self.place + 2] not in ("]", ""):
                self.place += 1
                tests.append(_between(start, self._member()))
            elif isinstance(start, str):
                singles.add(start)
            else:
                tests.append(start)
        self.place += 1
        return _any_of(singles, tests, negated)

    def _member(self) -> str | Test:
        char = self._take()
        if char != "\\":
            return char
        if self._peek() == "b":
            self.place += 1
            return "\b"
        return self._escaped()


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5


def _between(low: str | Test, high: str | Test) -> Test:
    if not isinstance(low, str) or not isinstance(high, str) or low > high:
        raise Unsupported("a range without two ends in order")
    first, last = low, high
    return lambda char: first <= char <= last


def _any_of(singles: Iterable[str], tests: list[Test], negated: bool) -> Test:
    known = frozenset(singles)

    def test(char: str) -> bool:
        return (char in known or any(test(char) for test in tests)) is not negated

    return test
