"""Figures and how they are printed: ours beside something else from the same run, and the bar where there is one."""

from collections.abc import Sequence

import msgspec

__all__ = ["Figure", "failed", "printed", "printed_beside", "stand_beside"]

WORSE = 1.05
"""What a figure of this tree may be, as a multiple of that of an older revision."""


class Figure(msgspec.Struct, frozen=True):
    """Two costs and their ratio.

    With `most` our cost may be that many times the other; with `least` the other must be that many times ours.
    A figure with neither is for reading only; one without `ours` says in its note why there is none.
    """

    name: str
    ours: float = 0.0
    other: float = 0.0
    unit: str = "us"
    most: float = 0.0
    least: float = 0.0
    note: str = ""

    @property
    def measured(self) -> bool:
        """Whether there is anything to compare."""
        return self.ours > 0 and self.other > 0

    @property
    def ratio(self) -> float:
        """Ours to the other; the other to ours where that is what the bar is about."""
        if not self.measured:
            return 0.0
        return self.other / self.ours if self.least else self.ours / self.other

    @property
    def verdict(self) -> str:
        """`pass`, `FAIL`, `none` for what could not be measured, or nothing where there is no bar."""
        if not self.measured:
            return "none"
        if self.most:
            return "pass" if self.ratio <= self.most else "FAIL"
        if self.least:
            return "pass" if self.ratio >= self.least else "FAIL"
        return ""

    @property
    def bar(self) -> str:
        """The bar in words."""
        return f"<= {self.most:g}x" if self.most else f">= {self.least:g}x" if self.least else ""


def printed(figures: Sequence[Figure], other: str) -> str:
    """A table as text. `other` heads the column of what we are compared with."""
    return _align([("", "ours", other, "ratio", "bar", "", ""), *(_cells(figure) for figure in figures)])


def stand_beside(then: Sequence[Figure], now: Sequence[Figure]) -> list[Figure]:
    """Return the figures of this tree beside those of an older revision. What was not measured there has no bar."""
    return [
        msgspec.structs.replace(
            new, other=old.ours, least=0.0, most=WORSE if old.ours else 0.0, note=new.note if not new.ours else old.note
        )
        for old, new in zip(then, now, strict=True)
    ]


def printed_beside(figures: Sequence[Figure], before: str) -> str:
    """Return such figures as the text of a table: of the older revision, of this tree, and their ratio."""
    rows = []
    for figure in figures:
        then, now = (f"{_number(value)} {figure.unit}" if value else "-" for value in (figure.other, figure.ours))
        ratio = f"{figure.ratio:.2f}x" if figure.measured else "-"
        rows.append((figure.name, then, now, ratio, figure.bar, figure.verdict, "" if figure.measured else figure.note))
    return _align([("", before, "now", "ratio", "bar", "", ""), *rows])


def _align(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of a name, four numbers, a verdict and a note as text."""
    widths = [max(len(row[column]) for row in rows) for column in range(7)]
    lines = []
    for row in rows:
        first, *numbers = (cell.rjust(width) for cell, width in zip(row[:5], widths[:5], strict=True))
        lines.append("  ".join((first.strip().ljust(widths[0]), *numbers, row[5].ljust(widths[5]), row[6])).rstrip())
    return "\n".join(lines)


def failed(figures: Sequence[Figure]) -> list[Figure]:
    """The figures that miss their bar, or could not be measured against it."""
    return [figure for figure in figures if figure.verdict == "FAIL" or (figure.bar and not figure.measured)]


def _cells(figure: Figure) -> tuple[str, ...]:
    if not figure.measured:
        return (figure.name, "", "", "", figure.bar, "none", figure.note)
    ours, other = (f"{_number(value)} {figure.unit}" for value in (figure.ours, figure.other))
    return (figure.name, ours, other, f"{figure.ratio:.2f}x", figure.bar, figure.verdict, figure.note)


def _number(value: float) -> str:
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
