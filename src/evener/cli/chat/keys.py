"""From the bytes that a terminal sends to keys, typed text and pastes. Pure; any cutting of the bytes gives the same.

A lone Escape is the beginning of every other sequence: it stays undecided until more comes, or until `flush` says that
nothing will.
"""

import re

import msgspec

__all__ = ["Key", "KeyReader", "Paste", "Press", "Typed"]

BEGIN, END = b"\x1b[200~", b"\x1b[201~"
MOST = 32 * 1024 * 1024
"""Bytes of one paste; what comes beyond is dropped."""

CSI = re.compile(rb"\x1b\[([0-?]{0,32})[ -/]{0,4}([@-~])")
BEGUN = re.compile(rb"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}|O)?\Z")
LETTERS = {b"A": "up", b"B": "down", b"C": "right", b"D": "left", b"H": "home", b"F": "end", b"Z": "shift-tab"}
NUMBERS = {
    b"1": "home",
    b"2": "insert",
    b"3": "delete",
    b"4": "end",
    b"5": "page-up",
    b"6": "page-down",
    b"7": "home",
    b"8": "end",
}
WORDWISE = {"right": "alt-f", "left": "alt-b", "delete": "alt-d"}
CONTROLS = {
    0x0D: "enter",
    0x0A: "newline",
    0x09: "tab",
    0x7F: "backspace",
    0x08: "backspace",
    0x00: "ctrl-space",
    0x1F: "ctrl-_",
}
NEWLINES = (b"\x1b\r", b"\x1b\n")


class Key(msgspec.Struct, frozen=True):
    """A key that is no character: `enter`, `up`, `ctrl-c`, `alt-b`, `escape`."""

    name: str


class Typed(msgspec.Struct, frozen=True):
    """Characters."""

    text: str


class Paste(msgspec.Struct, frozen=True):
    """What the terminal says was pasted, as one."""

    text: str


Press = Key | Typed | Paste


class KeyReader:
    """Bytes in, presses out."""

    def __init__(self) -> None:
        self._held = b""
        self._pasted: bytearray | None = None

    @property
    def undecided(self) -> bool:
        """Whether something waits for more bytes, or for `flush`."""
        return bool(self._held) and self._pasted is None

    def feed(self, data: bytes) -> list[Press]:
        """What these bytes complete."""
        found: list[Press] = []
        held = self._held + data
        self._held = b""
        while held:
            if self._pasted is not None:
                held = self._paste(self._pasted, held, found)
                continue
            size, press = _next(held)
            if size == 0:
                self._held = held
                break
            held = held[size:]
            if isinstance(press, Key) and press.name == "paste":
                self._pasted = bytearray()
            elif press is not None:
                found.append(press)
        return found

    def flush(self) -> list[Press]:
        """Nothing more comes for now: a lone Escape was the key."""
        held, self._held = self._held, b""
        if not held:
            return []
        if held[:1] == b"\x1b":
            return [Key("escape"), *self.feed(held[1:])] if len(held) == 1 else []
        return [Typed("\ufffd")]

    def _paste(self, pasted: bytearray, held: bytes, found: list[Press]) -> bytes:
        """Take more of a paste; what is left after it."""
        seen = len(pasted)
        pasted += held
        end = pasted.find(END, max(0, seen - len(END)))
        if end < 0:
            if len(pasted) > MOST + len(END):
                del pasted[MOST : -len(END)]
            return b""
        rest = bytes(pasted[end + len(END) :])
        text = bytes(pasted[:end]).decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
        found.append(Paste(text))
        self._pasted = None
        return rest


def _next(held: bytes) -> tuple[int, Press | None]:
    """The first press and its size; 0 when more bytes are needed."""
    first = held[0]
    if first == 0x1B:
        return _sequence(held)
    if first < 0x20 or first == 0x7F:
        return 1, Key(CONTROLS.get(first) or f"ctrl-{chr(first + 0x60)}")
    if first < 0x80:
        end = 1
        while end < len(held) and 0x20 <= held[end] < 0x7F:
            end += 1
        return end, Typed(held[:end].decode())
    return _character(held)


def _character(held: bytes) -> tuple[int, Press | None]:
    size = 2 if held[0] < 0xE0 else 3 if held[0] < 0xF0 else 4
    try:
        return size, Typed(held[:size].decode())
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data" and len(held) < size:
            return 0, None
        return max(1, error.end - error.start), Typed("\ufffd")


def _sequence(held: bytes) -> tuple[int, Press | None]:
    if held.startswith(BEGIN):
        return len(BEGIN), Key("paste")
    if held[:2] in NEWLINES:
        return 2, Key("newline")
    if BEGUN.match(held):
        return 0, None
    if hit := CSI.match(held):
        return hit.end(), _named(hit[1], hit[2])
    if held[:2] == b"\x1bO":
        name = LETTERS.get(held[2:3], "")
        return 3, Key(name) if name else None
    if held[:2] == b"\x1b\x1b":
        return 1, Key("escape")
    if held[1] == 0x7F:
        return 2, Key("alt-backspace")
    size, press = _next(held[1:])
    if size == 0:
        return 0, None
    if isinstance(press, Typed):  # only the first character belongs to the Escape
        return 1 + (1 if held[1] < 0x80 else size), Key(f"alt-{press.text[0].lower()}")
    return 1 + size, press


def _named(parameters: bytes, final: bytes) -> Press | None:
    """A key by its sequence; None for what nobody asked for. With Ctrl or Alt the arrows go over words."""
    number, _, modifier = parameters.partition(b";")
    if parameters in (b"13;2", b"13;3", b"13;5", b"27;2;13", b"27;5;13") and final in b"u~":
        return Key("newline")
    name = LETTERS.get(final) if final != b"~" else NUMBERS.get(number)
    if name is None:
        return None
    if modifier in (b"3", b"5", b"7"):
        return Key(WORDWISE.get(name, name))
    return Key(name)
