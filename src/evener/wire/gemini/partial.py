"""A call whose arguments come in pieces, each with the place in the arguments where it belongs. Pure.

A piece is `{"jsonPath": "$.days[0].city", "stringValue": "New ", "willContinue": true}`: a text that will continue is added to,
any other value stands as it came. The call is complete with the first part that does not say `willContinue` itself.
"""

import re
from itertools import pairwise

import msgspec

from evener.wire.reading import Items
from evener.wire.text import dumps

__all__ = ["Partial"]

STEP = re.compile(r"""\.([^.\[\]'"]+)|\[(\d{1,4})\]|\[(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")\]""")
NULL = msgspec.Raw(b"null")


class _Piece(msgspec.Struct):
    jsonPath: str  # noqa: N815 - here and below, the wire's own spelling
    stringValue: str | None = None  # noqa: N815
    numberValue: msgspec.Raw = NULL  # noqa: N815
    boolValue: bool | None = None  # noqa: N815
    willContinue: bool | None = None  # noqa: N815

    def value(self) -> object:
        """What the piece gives: a text, or JSON that stands as it came."""
        if self.stringValue is not None:
            return self.stringValue
        return self.boolValue if self.boolValue is not None else self.numberValue


_pieces = msgspec.json.Decoder(_Piece)


class Partial(msgspec.Struct):
    """The call so far. `beside` are the other fields of its parts."""

    index: int
    beside: dict[str, msgspec.Raw]
    kept: dict[str, msgspec.Raw]
    _root: dict[str, object] = {}
    _open: set[str] = set()
    _whole: msgspec.Raw = NULL
    spoilt: bool = False  # a piece of it could not be read: it never ends

    def add(self, inner: dict[str, msgspec.Raw]) -> bool:
        """Take a part of the call in; True when it is the last. Raises `msgspec.ValidationError` on what is none."""
        spoilt, self.spoilt = self.spoilt, True
        for raw in msgspec.json.decode(inner.get("partialArgs", NULL), type=Items | None) or ():
            self._put(_pieces.decode(raw))
        if inner.get("args", NULL) != NULL:
            self._whole = inner["args"].copy()
        self.spoilt = spoilt
        return not spoilt and bytes(inner.get("willContinue", NULL)) != b"true"

    def arguments(self) -> str:
        """The JSON text of all arguments."""
        return bytes(self._whole).decode() if self._whole != NULL else dumps(self._root).decode()

    def _put(self, piece: _Piece) -> None:
        value = piece.value()
        *steps, last = _steps(piece.jsonPath)
        holder: object = self._root
        for step, after in pairwise((*steps, last)):
            holder = _child(holder, step, [] if isinstance(after, int) else {})
        before = _child(holder, last, None)
        text = piece.jsonPath in self._open and isinstance(before, str) and isinstance(value, str)
        _put(holder, last, f"{before}{value}" if text else value)
        if piece.willContinue:
            self._open.add(piece.jsonPath)
        else:
            self._open.discard(piece.jsonPath)


def _steps(path: str) -> list[str | int]:
    """The names and numbers of a path, from the root on."""
    steps: list[str | int] = []
    place = 1
    while place < len(path) and (found := STEP.match(path, place)):
        name, number, *quoted = found.groups()
        steps.append(int(number) if number else name or re.sub(r"\\(.)", r"\1", quoted[0] or quoted[1] or ""))
        place = found.end()
    if path[:1] != "$" or place != len(path) or not steps or isinstance(steps[0], int):
        raise msgspec.ValidationError(f"the path {path[:60]!r} of an argument cannot be read")
    return steps


def _child(holder: object, step: str | int, new: object) -> object:
    """What stands there; a new one where nothing does."""
    if isinstance(step, int) and isinstance(holder, list):
        holder += [None] * (step + 1 - len(holder))
        found: object = holder[step]
    elif isinstance(step, str) and isinstance(holder, dict):
        found = holder.get(step)
    else:
        raise msgspec.ValidationError("an argument is both a list and an object")
    if found is None:
        _put(holder, step, new)
        return new
    return found


def _put(holder: object, step: str | int, value: object) -> None:
    if isinstance(holder, dict):
        holder[step] = value
    if isinstance(holder, list) and isinstance(step, int):
        holder[step] = value
