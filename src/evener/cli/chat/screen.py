"""The terminal below the program: lines that have been said scroll away, and under them a few rows are drawn anew.

Writes control sequences and knows where the cursor is; decides nothing of what is shown. After a resize everything that
is visible is drawn again, for no two terminals agree on what a resize does to text.
"""

from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from evener.cli.chat.layout import Line, Span, rows

__all__ = ["Live", "Screen"]

REMEMBERED = 500
"""Lines that are kept to draw them again."""
BEGIN, END = "\x1b[?2026h\x1b[?25l", "\x1b[?25h\x1b[?2026l"


class Live(msgspec.Struct, frozen=True):
    """The rows under what was said. `rows` fit the width; the cursor stands in one of them."""

    rows: tuple[str, ...] = ("",)
    row: int = 0
    column: int = 0


class Screen:
    """`size` gives columns and rows whenever it is asked."""

    def __init__(self, write: Callable[[str], None], *, size: Callable[[], tuple[int, int]], colour: bool) -> None:
        self._write = write
        self._size = size
        self._colour = colour
        self._said: deque[Line] = deque(maxlen=REMEMBERED)
        self._new: list[Line] = []
        self._since = 0
        self._cursor = 0

    @property
    def width(self) -> int:
        return max(8, self._size()[0])

    @property
    def height(self) -> int:
        return max(4, self._size()[1])

    @property
    def colour(self) -> bool:
        return self._colour

    def say(self, lines: Iterable[Line]) -> None:
        """Lines that stay. They are written with the next `draw`."""
        added = list(lines)
        self._new += added
        self._since += len(added)

    def mark(self) -> None:
        """What is said from here on can be taken back."""
        self._since = 0

    def take_back(self) -> bool:
        """Take off the screen what was said since the mark. False when part of it has scrolled away: then nothing happens."""
        waiting = min(self._since, len(self._new))
        printed = self._since - waiting
        taken = sum(len(self.rows(line)) for line in list(self._said)[len(self._said) - printed :]) if printed else 0
        if taken + self._cursor >= self.height or printed > len(self._said):
            return False
        del self._new[len(self._new) - waiting :]
        for _ in range(printed):
            self._said.pop()
        self._since = 0
        self._cursor += taken
        return True

    def draw(self, live: Live) -> None:
        """Write what is new, and the rows under it."""
        out = [BEGIN, f"\x1b[{self._cursor}A" if self._cursor else "", "\r\x1b[J"]
        for line in self._new:
            out.append(self._printed(line))
            self._said.append(line)
        self._new = []
        self._write("".join((*out, self._placed(live), END)))

    def redraw(self, live: Live) -> None:
        """Draw everything that fits again, at the size that the terminal has now."""
        self._said.extend(self._new)
        self._new = []
        room = self.height - len(live.rows)
        shown: list[str] = []
        for line in reversed(self._said):
            if room <= 0:
                break
            found = self.rows(line)
            shown.append(self._printed(line) if len(found) <= room else "\r\n".join(found[-room:]) + "\r\n")
            room -= len(found)
        self._write("".join((BEGIN, "\x1b[H\x1b[2J", *reversed(shown), self._placed(live), END)))

    def leave(self) -> None:
        """Write what is new, and nothing under it: the cursor stands at the beginning of a row."""
        self.draw(Live())

    def rows(self, line: Line) -> list[str]:
        """A line as it looks here."""
        return rows(line, self.width, colour=self._colour)

    def row(self, *spans: Span) -> str:
        """A row of these spans; what is too wide is cut."""
        return self.rows(Line(spans, wrap=False))[0]

    def _printed(self, line: Line) -> str:
        """A line that is not wrapped is written in one go: full rows make the terminal break it, and join it again."""
        return ("\r\n" if line.wrap else "").join(self.rows(line)) + "\r\n"

    def _placed(self, live: Live) -> str:
        """The live rows, and the cursor among them."""
        self._cursor = live.row
        up = len(live.rows) - 1 - live.row
        return "".join(
            (
                "\r\n".join(live.rows),
                f"\x1b[{up}A" if up else "",
                "\r",
                f"\x1b[{live.column}C" if live.column else "",
            )
        )
