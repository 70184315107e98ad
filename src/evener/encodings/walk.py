"""Follows JSON text that comes in pieces: where a value ends, and what a string says so far. Pure; never raises on input."""

import re

__all__ = ["Span", "unescaped"]

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
