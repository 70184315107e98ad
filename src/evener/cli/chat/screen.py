"""Prints the conversation above the rows that prompt_toolkit draws: once, so that it scrolls away.

After a resize everything visible is printed again, because terminals differ in what a resize does to text.
"""

import os
from collections import deque
from contextlib import suppress
from typing import TextIO

import msgspec
from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Size
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text
from rich.theme import Theme

from evener.cli.terminal import COLOURS

REMEMBERED = 500
"""Parts that are kept for printing them again."""
NARROWEST = 8
BEGIN, END = "\x1b[?2026h", "\x1b[?2026l"
LOOKS = Theme(
    {
        "markdown.h1": "bold underline",
        **{f"markdown.h{level}": "bold" for level in range(2, 7)},
        "markdown.code": "cyan",
        "markdown.item.bullet": "cyan",
        "markdown.link": "underline",
        "markdown.link_url": "dim",
    }
)


class Output(Vt100_Output):
    """A terminal output that writes nothing while it is `held`, so that a redraw arrives as a whole."""

    held = False

    def flush(self) -> None:
        if not self.held:
            with suppress(OSError):  # the terminal is gone: the end of its input ends the chat
                super().flush()


class ScreenLine(msgspec.Struct, frozen=True):
    """A line of one or more rows: `first` is put before the first row, `lead` before the others."""

    text: str = ""
    style: str = ""
    first: str = ""
    lead: str = ""
    mark: str = "dim"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from hang(console, options, Text(self.text, self.style), marks=(self.first, self.lead), style=self.mark)


def hang(
    console: Console, options: ConsoleOptions, inner: RenderableType, *, marks: tuple[str, str], style: str
) -> RenderResult:
    """Yield rows with a mark before each: the first of `marks` for the first row, the second for the others."""
    mark, lead = marks
    if cell_len(lead) * 2 > options.max_width:
        lead = ""
    room = max(NARROWEST // 2, options.max_width - max(cell_len(mark), cell_len(lead)))
    for row in console.render_lines(inner, options.update(width=room, height=None), pad=False) or [[]]:
        yield Segment(mark, console.get_style(style))
        yield from row
        yield Segment.line()
        mark = lead


class Screen:
    """The printed conversation, and what is to be printed next. `begin` and `end` enclose each redraw."""

    def __init__(self, terminal: TextIO, *, colour: bool) -> None:
        size = Vt100_Output.from_pty(terminal).get_size
        depth = None if colour else ColorDepth.DEPTH_1_BIT
        self.output = Output(terminal, size, os.environ.get("TERM"), depth, enable_bell=False, enable_cpr=False)
        self.colour = colour
        self._console = Console(
            force_terminal=True, color_system="standard" if colour else None, theme=LOOKS, legacy_windows=False, _environ={}
        )
        self._size = size()
        self._said: deque[RenderableType] = deque(maxlen=REMEMBERED)
        self._new: list[RenderableType] = []
        self._since = 0
        self._taken = 0
        self._live = 0

    @property
    def width(self) -> int:
        return max(NARROWEST, self.output.get_size().columns)

    @property
    def height(self) -> int:
        return self.output.get_size().rows

    def say(self, *parts: RenderableType) -> None:
        """Add parts. They are printed with the next redraw."""
        self._new += parts
        self._since += len(parts)

    def mark(self) -> None:
        """Set the point to which `take_back` returns."""
        self._since = 0

    def take_back(self) -> bool:
        """Remove what was added since the mark. False if a part of it has scrolled away: then nothing is removed."""
        waiting = min(self._since, len(self._new))
        printed = self._since - waiting
        taken = sum(self._rows(part, self.width) for part in list(self._said)[len(self._said) - printed :])
        if printed > len(self._said) or taken + self._live > self.height:
            return False
        del self._new[len(self._new) - waiting :]
        for _ in range(printed):
            self._said.pop()
        self._since = 0
        self._taken += taken
        return True

    def begin(self, app: Application[int]) -> None:
        """Print what is new, or everything that fits after a resize. The rows below are redrawn after it."""
        self.output.held = True
        self.output.write_raw(BEGIN)
        if self.output.get_size() != self._size:
            self.redraw(app)
        elif self._new or self._taken:
            app.renderer.erase()
            self._print()

    def end(self, app: Application[int]) -> None:
        """Write the redraw to the terminal."""
        drawn = app.renderer.last_rendered_screen
        self._live = drawn.height if drawn else 0
        self.output.write_raw(END)
        self.release()

    def forget_size(self) -> None:
        """Print everything again with the next redraw."""
        self._size = Size(0, 0)

    def release(self) -> None:
        self.output.held = False
        self.output.flush()

    def redraw(self, app: Application[int]) -> None:
        """Print everything that fits again, at the current size of the terminal.

        What would be lost is printed even if it does not fit: what is new, and what a narrower terminal has cut.
        """
        before, self._size = self._size, self.output.get_size()
        kept = len(self._new) + (self._count_in_sight(before) if self._size.columns < before.columns else 0)
        self._said.extend(self._new)
        self._new, self._taken = [], 0
        app.renderer.erase()
        rows = app.layout.container.preferred_height(self._size.columns, self._size.rows).preferred
        room, shown = self._size.rows - rows, []
        for number, part in enumerate(reversed(self._said)):
            if room <= 0 and number >= kept:
                break
            lines = self._lines(part)
            shown.append("".join(f"{line}\r\n" for line in (lines if number < kept else lines[-room:])))
            room -= self._rows(part, self.width)
        self.output.write_raw("".join(("\x1b[H\x1b[2J", *reversed(shown))))

    def leave(self) -> None:
        """Print what is new since the last redraw."""
        self._print()
        self.release()

    def render(self, part: RenderableType, width: int = 0) -> str:
        """Return a part as text with colour codes, at the width of the terminal unless another is given."""
        self._console.width = width or self.width
        with self._console.capture() as made:
            self._console.print(part, crop=False, end="")
        return made.get()

    def _print(self) -> None:
        lines = [line for part in self._new for line in self._lines(part)]
        up = f"\x1b[{self._taken}A\r\x1b[J" if self._taken else ""
        self.output.write_raw(up + "".join(f"{line}\r\n" for line in lines))
        self._said.extend(self._new)
        self._new, self._taken = [], 0

    def _lines(self, part: RenderableType, width: int = 0) -> list[str]:
        return self.render(part, width).split("\n")[:-1]

    def _rows(self, part: RenderableType, width: int) -> int:
        return sum(max(1, len(chop_cells(COLOURS.sub("", line), width))) for line in self._lines(part, width))

    def _count_in_sight(self, size: Size) -> int:
        """Return how many of the last parts were on a screen of this size, the first of them perhaps in part."""
        room, count = size.rows - self._live, 0
        for part in reversed(self._said):
            if room <= 0:
                break
            room -= self._rows(part, max(NARROWEST, size.columns))
            count += 1
        return count
