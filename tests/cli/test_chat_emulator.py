"""A small VT100 for the tests of the chat: bytes in, a screen of text out. Colours are ignored, everything else is strict.

A sequence that it does not know is an error: the chat uses only what every terminal has.
"""

import re
import unicodedata

import pytest

SEQUENCE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")
IGNORED = {(mode, way) for mode in ("?1", "?7", "?12", "?25", "?2004", "?2026") for way in "hl"}


def width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


class Emulator:
    """A terminal of some size. `lines` is what is seen, `scrolled` what has gone off the top."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self.columns, self.rows = columns, rows
        self.cells = [[" "] * columns for _ in range(rows)]
        self.row = self.column = 0
        self.full = False  # the last column was written: the next character goes to the next row
        self.scrolled: list[str] = []
        self.modes: dict[str, str] = {}
        self._held = b""

    @property
    def lines(self) -> list[str]:
        return ["".join(row).rstrip() for row in self.cells]

    @property
    def text(self) -> str:
        return "\n".join(self.lines).rstrip("\n")

    @property
    def whole(self) -> str:
        """With what has scrolled away."""
        return "\n".join([*self.scrolled, self.text])

    def feed(self, data: bytes) -> None:
        data = self._held + data
        self._held = b""
        for cut in range(min(3, len(data)) + 1):
            try:
                text = data[: len(data) - cut].decode()
            except UnicodeDecodeError:
                continue
            self._held = data[len(data) - cut :]
            break
        else:
            raise AssertionError(f"not UTF-8: {data!r}")
        begun = re.search(r"\x1b(?:\[[?0-9;]*)?\Z", text)
        if begun:
            self._held = text[begun.start() :].encode() + self._held
            text = text[: begun.start()]
        self._write(text)

    def resize(self, columns: int, rows: int) -> None:
        """As a terminal without reflow does it: rows are cut or filled up."""
        gone = max(0, self.row - rows + 1)
        self.scrolled += self.lines[:gone]
        kept = [[*row[:columns], *" " * (columns - len(row))] for row in self.cells[gone : gone + rows]]
        self.cells = kept + [[" "] * columns for _ in range(rows - len(kept))]
        self.columns, self.rows = columns, rows
        self.row, self.column, self.full = self.row - gone, min(self.column, columns - 1), False

    def _write(self, text: str) -> None:
        place = 0
        while place < len(text):
            hit = SEQUENCE.match(text, place)
            if hit:
                self._obey(hit[1], hit[2])
                place = hit.end()
                continue
            self._put(text[place])
            place += 1

    def _put(self, char: str) -> None:
        match char:
            case "\r":
                self.column, self.full = 0, False
            case "\n":
                self._down()
                self.full = False
            case "\b":
                self.column, self.full = max(0, self.column - 1), False
            case _ if ord(char) < 32 or ord(char) == 127:
                raise AssertionError(f"the control character {char!r} reached the terminal")
            case _ if width(char) == 0:
                place = self.column if self.full else max(0, self.column - 1)
                self.cells[self.row][place] += char
            case _:
                self._draw(char, width(char))

    def _draw(self, char: str, size: int) -> None:
        if self.modes.get("?7") == "l":
            self.column, self.full = min(self.column, self.columns - size), False
        if self.full or self.column + size > self.columns:
            self.column, self.full = 0, False
            self._down()
        self.cells[self.row][self.column] = char
        if size == 2:
            self.cells[self.row][self.column + 1] = ""
        self.column += size
        if self.column >= self.columns:
            self.column, self.full = self.columns - 1, True

    def _down(self) -> None:
        if self.row < self.rows - 1:
            self.row += 1
            return
        self.scrolled.append(self.lines[0])
        self.cells = [*self.cells[1:], [" "] * self.columns]

    def _obey(self, parameters: str, final: str) -> None:
        if (parameters, final) in IGNORED:
            self.modes[parameters] = final
            return
        count = int(parameters) if parameters.isdigit() else 1
        match final, parameters:
            case "m", _:
                return
            case "A", _:
                self.row, self.full = max(0, self.row - count), False
            case "C", _:
                self.column, self.full = min(self.columns - 1, self.column + count), False
            case "D", _:
                self.column, self.full = max(0, self.column - count), False
            case "K", "":
                self.cells[self.row][self.column :] = [" "] * (self.columns - self.column)
            case "H", "":
                self.row, self.column, self.full = 0, 0, False
            case "J", "":
                self.cells[self.row][self.column :] = [" "] * (self.columns - self.column)
                self.cells[self.row + 1 :] = [[" "] * self.columns for _ in range(self.rows - self.row - 1)]
            case "J", "2":
                self.cells = [[" "] * self.columns for _ in range(self.rows)]
            case _:
                raise AssertionError(f"the sequence ESC [ {parameters} {final} is none that this terminal knows")


@pytest.mark.parametrize(
    ("sent", "seen"),
    {
        "abc": "abc",
        "abcdef": "abcdef",
        "abcdefg": "abcdef\ng",
        "abcdef\r\ng": "abcdef\ng",
        "ab\rc": "cb",
        "a\r\nb\x1b[1A\rc": "c\nb",
        "abc\x1b[1A\r\x1b[2Cx": "abx",
        "abc\r\x1b[J": "",
        "a\r\nb\x1b[H\x1b[2Jc": "c",
        "\x1b[1;31mred\x1b[0m": "red",
        "\u6f22\u5b57\u6f22\u5b57": "\u6f22\u5b57\u6f22\n\u5b57",
        "abcde\u6f22": "abcde\n\u6f22",
        "e\u0301x": "e\u0301x",
        "abcd\b\bx\x1b[2Dy": "aycd".replace("c", "x"),
        "abcd\x1b[3D\x1b[K": "a",
        "\x1b[?7labcdefgh\x1b[?7h": "abcdeh",
    }.items(),
)
def test_the_screen_is_what_a_terminal_shows(sent: str, seen: str) -> None:
    whole, bytewise = Emulator(6, 4), Emulator(6, 4)
    whole.feed(sent.encode())
    for byte in sent.encode():
        bytewise.feed(bytes([byte]))
    assert (whole.text, bytewise.text) == (seen, seen)


def test_what_scrolls_away_is_kept() -> None:
    screen = Emulator(6, 2)
    screen.feed(b"1\r\n2\r\n3")
    assert (screen.text, screen.scrolled, screen.whole) == ("2\n3", ["1"], "1\n2\n3")


@pytest.mark.parametrize("sent", [b"\x07", b"\x1b[5;5H", b"\x1b[6n", b"\xff\xff\xff\xff"])
def test_what_no_screen_should_get_is_an_error(sent: bytes) -> None:
    with pytest.raises(AssertionError):
        Emulator(6, 2).feed(sent)
