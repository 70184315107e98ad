"""How the line that is being written looks: rows of styled text and a cursor. Pure."""

from collections.abc import Sequence

import msgspec

from evener.cli.chat.draft import Item
from evener.cli.chat.layout import CYAN, DIM, PLAIN, Span
from evener.cli.chat.width import columns

__all__ = ["View", "view_of"]


class View(msgspec.Struct, frozen=True):
    """The line as rows of styled text, and where the cursor stands among them."""

    rows: tuple[tuple[Span, ...], ...]
    row: int
    column: int


def view_of(items: Sequence[Item], at: int, width: int, *, prompt: str, lead: str, style: str = CYAN) -> View:
    """The items with the cursor before the one at `at`. Broken where a row is full: the cursor always has a column."""
    rows: list[list[Span]] = [[Span(prompt, style)]]
    used, cursor = columns(prompt), (0, columns(prompt))
    for place, item in enumerate(items):
        pieces = [item] if isinstance(item, str) else list(item.label)
        for number, piece in enumerate(pieces):
            size = 0 if piece == "\n" else 1 if piece == "\t" else columns(piece)
            if used + size > width - 1 and used > columns(lead):
                rows.append([Span(lead)])
                used = columns(lead)
            if place == at and number == 0:
                cursor = len(rows) - 1, used
            if piece == "\n":
                rows.append([Span(lead)])
                used = columns(lead)
                continue
            rows[-1].append(Span(" " if piece == "\t" else piece, PLAIN if isinstance(item, str) else DIM))
            used += size
    if at >= len(items):
        cursor = len(rows) - 1, used
    return View(tuple(tuple(one) for one in rows), cursor[0], min(cursor[1], width - 1))
