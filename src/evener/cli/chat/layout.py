"""Lines of styled text, and the rows they make on a terminal of some width. Pure.

A style is what stands between `ESC [` and `m`, as in `1` (bold) or `2;3` (dim, italic); empty is none.
"""

import msgspec

from evener.cli.chat.width import clusters, columns

__all__ = [
    "BOLD",
    "CYAN",
    "DIM",
    "GREEN",
    "ITALIC",
    "PLAIN",
    "RED",
    "STRUCK",
    "UNDERLINED",
    "YELLOW",
    "Line",
    "Span",
    "rows",
    "text_line",
]

PLAIN, BOLD, DIM, ITALIC, UNDERLINED, STRUCK = "", "1", "2", "3", "4", "9"
RED, GREEN, YELLOW, CYAN = "31", "32", "33", "36"
TAB = 4

Cell = tuple[str, int, str]
"""A cluster, its columns, its style."""


class Span(msgspec.Struct, frozen=True):
    """Text in one style."""

    text: str
    style: str = PLAIN


class Line(msgspec.Struct, frozen=True):
    """One line, however many rows it takes. `lead` stands before each row but the first.

    Without `wrap` it is broken only where the row is full: then the terminal knows that it is one line, and copies it as one.
    """

    spans: tuple[Span, ...] = ()
    lead: str = ""
    wrap: bool = True

    @property
    def text(self) -> str:
        """The text without its styles."""
        return "".join(span.text for span in self.spans)


def text_line(text: str, style: str = PLAIN, *, lead: str = "") -> Line:
    """A line in one style."""
    return Line((Span(text, style),), lead)


def rows(line: Line, width: int, *, colour: bool) -> list[str]:
    """The rows of a line, none wider than `width`, with their styles if there may be colour. There is always one."""
    cells = _cells(line)
    lead = line.lead if columns(line.lead) * 2 <= width else ""
    found: list[str] = []
    start, room = 0, width
    while start < len(cells) or not found:
        end = _end(cells, start, room, words=line.wrap)
        row = cells[start:end]
        if line.wrap and (end < len(cells) or sum(size for _, size, _ in row) > room):
            row = _stripped(row)
        found.append((lead if found else "") + _painted(row, colour=colour))
        start, room = end, width - columns(lead)
    return found


def _cells(line: Line) -> list[Cell]:
    made: list[Cell] = []
    used = 0
    for span in line.spans:
        for cluster in clusters(span.text):
            if cluster == "\t":
                size = TAB - used % TAB
                made += [(" ", 1, span.style)] * size
                used += size
                continue
            size = columns(cluster)
            made.append((cluster, size, span.style))
            used += size
    return made


def _end(cells: list[Cell], start: int, room: int, *, words: bool) -> int:
    """Where the row that begins at `start` ends: after its last whole word, or where it is full."""
    used, space = 0, -1
    for place in range(start, len(cells)):
        used += cells[place][1]
        if used > room and place > start:
            if not words:
                return place
            if cells[place][0] == " ":
                return _after_spaces(cells, place)
            return space + 1 if space > start else place
        if cells[place][0] == " ":
            space = place
    return len(cells)


def _after_spaces(cells: list[Cell], place: int) -> int:
    while place < len(cells) and cells[place][0] == " ":
        place += 1
    return place


def _stripped(row: list[Cell]) -> list[Cell]:
    end = len(row)
    while end and row[end - 1][0] == " ":
        end -= 1
    return row[:end]


def _painted(row: list[Cell], *, colour: bool) -> str:
    parts: list[str] = []
    style = PLAIN
    for text, _, wanted in row:
        if colour and wanted != style:
            parts.append(f"\x1b[0;{wanted}m" if wanted else "\x1b[0m")
            style = wanted
        parts.append(text)
    if style:
        parts.append("\x1b[0m")
    return "".join(parts)
