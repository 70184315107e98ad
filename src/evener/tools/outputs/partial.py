"""A structured answer during streaming: what has arrived so far, as plain JSON values. For display only. Pure.

Like the reader of a whole answer, it skips a code fence and thoughts before a prompted answer, unwraps a value that is not
an object, and uses the last call of `final_result`. It does not validate what it shows. Why not `jiter`: ADR 22.
"""

import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from math import isfinite

from evener.encodings.buffer import unescape
from evener.encodings.forms import FINAL_RESULT, THOUGHT_END
from evener.encodings.json import VALUE
from evener.tools.outputs.shape import OutputShape
from evener.transcript.ask import OutputForm
from evener.transcript.delta import ArgumentsDelta, CallBegun, CallEnded, Delta, TextDelta

MOST_DEEP = 100
MOST_BARE = 400
SPACE = re.compile(r"[ \t\n\r]*+")
INSIDE = re.compile(r'(?:[^"\\]++|\\.)*+', re.DOTALL)
BARE = re.compile(r'[^\s,:"\[\]{}]*+')
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
WORDS: dict[str, object] = {"true": True, "false": False, "null": None}

Container = list[object] | dict[str, object]
State = Callable[[str, int], int]
"""Reads from a place in the text and returns the place that it has reached."""


class PartialJson:
    """Feed it text, read `value`. `begun`: there is a value; `ended`: it is complete; `broken`: it cannot become complete."""

    def __init__(self) -> None:
        self.begun = False
        self.ended = False
        self.broken = False
        self._root: object = None
        self._open: list[Container] = []
        self._key = ""  # of the member that is read in the innermost object
        self._held = ""  # the beginning of an escape or of a bare word
        self._said: str | None = None  # of an open string
        self._more: list[str] = []  # what was added to it since
        self._name: list[str] = []  # an open key
        self._changed = False
        self._state: State = self._value

    @property
    def value(self) -> object:
        """The value so far; None where there is none. It changes with what is fed: take a `snapshot` to keep it."""
        self._write()
        return self._root

    def snapshot(self) -> object:
        """Return a copy of the value so far. Shares what is complete; O(members of the open objects and lists)."""
        self._write()
        copies: list[Container] = [one.copy() for one in self._open]
        for outer, inner in pairwise(copies):
            _replace_last(outer, inner)
        return copies[0] if copies else self._root

    def feed(self, text: str) -> bool:
        """Read more text. Return True if the value has changed."""
        self._changed = False
        text, self._held, place = self._held + text, "", 0
        while place < len(text) and not (self.ended or self.broken):
            place = self._state(text, place)
        return self._changed

    def close(self) -> bool:
        """End the text, which completes a number or word that is all of it. Return True if the value has changed."""
        self._changed = False
        held, self._held = self._held, ""
        if held and not self._open and self._state == self._bare:
            self._end_bare(held)
        return self._changed

    # The states.

    def _value(self, text: str, place: int) -> int:
        place = _skip_space(text, place)
        match text[place : place + 1]:
            case "":
                return place
            case "{":
                self._enter({}, self._first_member)
            case "[":
                self._enter([], self._first_item)
            case '"':
                self._put("")
                self._said = ""
                self._state = self._string
            case _:
                self._state = self._bare
                return place
        return place + 1

    def _first_item(self, text: str, place: int) -> int:
        place = _skip_space(text, place)
        if text.startswith("]", place):
            return self._leave(place)
        if place < len(text):
            self._state = self._value
        return place

    def _first_member(self, text: str, place: int) -> int:
        place = _skip_space(text, place)
        return self._leave(place) if text[place : place + 1] == "}" else self._member(text, place)

    def _member(self, text: str, place: int) -> int:
        return self._expect(text, place, '"', self._member_name)

    def _member_name(self, text: str, place: int) -> int:
        place, whole = self._string_part(text, place, self._name)
        if whole:
            self._key, self._name = "".join(self._name), []
            self._state = self._colon
        return place

    def _colon(self, text: str, place: int) -> int:
        return self._expect(text, place, ":", self._value)

    def _string(self, text: str, place: int) -> int:
        count = len(self._more)
        place, whole = self._string_part(text, place, self._more)
        self._changed = self._changed or len(self._more) > count
        if whole:
            self._write()
            self._said = None
            self._complete()
        return place

    def _bare(self, text: str, place: int) -> int:
        found = BARE.match(text, place)
        end = found.end() if found else place
        if end - place > MOST_BARE:
            self.broken = True
        elif end == len(text):
            self._held = text[place:]
        else:
            self._end_bare(text[place:end])
        return end

    def _after(self, text: str, place: int) -> int:
        """Read what follows an item or a member."""
        place = _skip_space(text, place)
        within = self._open[-1]
        match text[place : place + 1], within:
            case "", _:
                return place
            case ",", list():
                self._state = self._value
            case ",", dict():
                self._state = self._member
            case ("]", list()) | ("}", dict()):
                return self._leave(place)
            case _:
                self.broken = True
        return place + 1

    # Shared by the states.

    def _expect(self, text: str, place: int, sign: str, onward: State) -> int:
        """Read a sign that must come now, perhaps after space."""
        place = _skip_space(text, place)
        found = text[place : place + 1]
        if found == sign:
            self._state = onward
            return place + 1
        self.broken = bool(found)
        return place

    def _string_part(self, text: str, place: int, said: list[str]) -> tuple[int, bool]:
        """Read more of a string, as far as it is certain. Return the place reached, and whether the string is complete."""
        found = INSIDE.match(text, place)
        end = found.end() if found else place
        whole = text[end : end + 1] == '"'
        piece, used, _ = unescape(text[place:end], final=whole)
        if piece:
            said.append(piece)
        if whole:
            return end + 1, True
        self._held = text[place + used :]
        return len(text), False

    def _end_bare(self, word: str) -> None:
        value = WORDS.get(word, word)
        if value is word:
            value = _number(word)
        if value is word:
            self.broken = True
            return
        self._put(value)
        self._complete()

    def _enter(self, container: Container, onward: State) -> None:
        if len(self._open) == MOST_DEEP:
            self.broken = True
            return
        self._put(container)
        self._open.append(container)
        self._state = onward

    def _leave(self, place: int) -> int:
        self._open.pop()
        self._complete()
        return place + 1

    def _complete(self) -> None:
        self._state = self._after
        self.ended = not self._open

    def _put(self, value: object) -> None:
        self.begun = self._changed = True
        match self._open[-1:]:
            case [list() as items]:
                items.append(value)
            case [dict() as members]:
                members.pop(self._key, None)  # so that the newest member is the last
                members[self._key] = value
            case _:
                self._root = value

    def _write(self) -> None:
        """Write what has been read of an open string into the value."""
        if self._said is None or not self._more:
            return
        self._said, self._more = self._said + "".join(self._more), []
        if self._open:
            _replace_last(self._open[-1], self._said)
        else:
            self._root = self._said


def _skip_space(text: str, place: int) -> int:
    found = SPACE.match(text, place)
    return found.end() if found else place


def _replace_last(container: Container, value: object) -> None:
    if isinstance(container, list):
        container[-1] = value
    else:
        container[next(reversed(container))] = value


def _number(word: str) -> object:
    """Return the number that a word is; the word itself if it is none."""
    if not NUMBER.fullmatch(word):
        return word
    if word.lstrip("-").isdigit():
        return int(word)
    number = float(word)
    return number if isfinite(number) else word


FENCE = re.compile(r"```[^\n`]{0,100}\n")
BEGUN_FENCE = re.compile(r"(?:`{0,2}|```[^\n`]{0,100})\Z")


class PartialReader:
    """An answer during streaming. Give it the deltas of a turn (`add`), or only the text of the answer (`feed`).

    `wrapped` says whether the value is a member of an object, as `Prepared.plan` knows; None assumes so for everything
    except an object. The `value` belongs to the reader and changes: use `snapshot` to keep it.
    """

    def __init__(self, shape: OutputShape, *, form: OutputForm = "", wrapped: bool | None = None) -> None:
        self._form = form
        self._wrapped = not shape.is_object if wrapped is None else wrapped
        self._call = -1  # the number of the block with the call that counts
        self._restart()

    def _restart(self) -> None:
        self._growing = PartialJson()
        self._lead: str | None = "" if self._form == "prompted" else None
        self._tail = ""  # of what was read, as far as it may begin the end of thoughts
        self._fed = False

    @property
    def begun(self) -> bool:
        """True if there is a value yet."""
        if not self._growing.begun:
            return False
        return not (self._wrapped and self._growing.value == {} and not self._growing.ended)

    @property
    def value(self) -> object:
        """The answer so far; None where there is none. It changes with what is fed."""
        return self._inner(self._growing.value) if self.begun else None

    def snapshot(self) -> object:
        """Return a copy of the answer so far, which later text does not change."""
        return self._inner(self._growing.snapshot()) if self.begun else None

    def add(self, deltas: Iterable[Delta]) -> bool:
        """Read more of the turn. Return True if the value has changed."""
        changed = False
        for delta in deltas:
            match delta:
                case TextDelta(_, text) if self._form != "tool":
                    changed = self.feed(text) or changed
                case CallBegun(index, _, name) if self._form == "tool" and name == FINAL_RESULT:
                    changed = self.begun or changed
                    self._call = index
                    self._restart()
                case ArgumentsDelta(index, text) if index == self._call:
                    changed = self.feed(text) or changed
                case CallEnded(index, raw) if index == self._call and not self._fed:
                    changed = self.feed(raw) or changed
        return changed

    def feed(self, text: str) -> bool:
        """Read more of the answer's text. Return True if the value has changed."""
        self._fed = True
        if self._form != "prompted":
            return self._growing.feed(text)
        read = self._tail + text
        _, ended, behind = read.rpartition(THOUGHT_END)
        changed = bool(ended) and self.begun
        if ended:
            self._restart()
            self._fed, text, read = True, behind, behind
        self._tail = read[-len(THOUGHT_END) + 1 :]
        return self._feed_prompted(text) or changed

    def close(self) -> bool:
        """End the answer, which completes a number that is all of it. Return True if the value has changed."""
        lead, self._lead = self._lead, None
        changed = self._growing.feed(lead) if lead else False
        return self._growing.close() or changed

    def _feed_prompted(self, text: str) -> bool:
        """Read text behind a code fence, if there is one. True if the value has changed."""
        if self._lead is None:
            return self._growing.feed(text)
        self._lead = (self._lead + text).lstrip()
        fence = FENCE.match(self._lead)
        if fence is None and BEGUN_FENCE.match(self._lead):
            return False
        text, self._lead = self._lead[fence.end() if fence else 0 :], None
        return self._growing.feed(text)

    def _inner(self, value: object) -> object:
        return value[VALUE] if self._wrapped and isinstance(value, dict) and VALUE in value else value
