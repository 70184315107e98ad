"""Markdown that comes in pieces, as lines of styled text. Any cutting gives the same lines.

A line that has ended never changes. The one that has not is `tail`: drawn again as it grows, and nothing else is.
Controls are cleaned away first; without colour the lines are the text as it was written.
"""

import re

import msgspec

from evener.cli.chat.inline import spans_of
from evener.cli.chat.layout import BOLD, CYAN, DIM, PLAIN, UNDERLINED, Line, Span, text_line
from evener.cli.terminal import Cleaner

__all__ = ["Markdown"]

FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})([^`]*)$")
HEADING = re.compile(r" {0,3}(#{1,6})\s+(.*?)(?:\s+#+)?\s*$")
RULE = re.compile(r" {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$")
ITEM = re.compile(r"(\s*)([-*+]|\d{1,9}[.)])(\s+)(?:\[([ xX])\]\s+)?(.*)$")
QUOTE = re.compile(r" {0,3}((?:>\s?)+)(.*)$")
TABLE = re.compile(r"\s*\|.*\|\s*$")
BULLETS = "-*+"
RULE_COLUMNS = 24
DEEPEST_ITEM = 20


class _Fence(msgspec.Struct, frozen=True):
    """An open block of code: it ends with a row of at least as many of the same marks."""

    mark: str

    def ends(self, line: str) -> bool:
        bare = line.strip()
        return len(bare) >= len(self.mark) and not bare.strip(self.mark[0]) and len(line) - len(line.lstrip()) < 4


class Markdown:
    """The text of one answer. `colour` False keeps it as it was written."""

    def __init__(self, *, colour: bool) -> None:
        self._colour = colour
        self._cleaner = Cleaner()
        self._fence: _Fence | None = None
        self._begun: list[str] = []

    def feed(self, text: str) -> list[Line]:
        """The lines that ended with this piece."""
        return self._split(self._cleaner.feed(text))

    def close(self) -> list[Line]:
        """The last line, if it had not ended."""
        lines = self._split(self._cleaner.close())
        rest = "".join(self._begun)
        self._begun = []
        return [*lines, self._ended(rest)] if rest else lines

    @property
    def tail(self) -> Line | None:
        """The line that has not ended yet, as it looks so far."""
        if not self._begun:
            return None
        self._begun = ["".join(self._begun)]
        return self._rendered(self._begun[0])[0] if self._begun[0] else None

    def _split(self, text: str) -> list[Line]:
        first, *more = text.split("\n")
        self._begun.append(first)
        done: list[Line] = []
        for line in more:
            done.append(self._ended("".join(self._begun)))
            self._begun = [line]
        return done

    def _ended(self, text: str) -> Line:
        line, self._fence = self._rendered(text)
        return line

    def _rendered(self, text: str) -> tuple[Line, _Fence | None]:
        if not self._colour:
            return text_line(text), None
        if self._fence is not None:
            if self._fence.ends(text):
                return text_line(text, DIM), None
            return Line((Span(text, CYAN),), wrap=False), self._fence
        opened = FENCE.match(text)
        if opened:
            return text_line(text, DIM), _Fence(opened[2])
        return _block(text), None


def _block(text: str) -> Line:
    """A line outside of code."""
    if heading := HEADING.match(text):
        style = f"{BOLD};{UNDERLINED}" if len(heading[1]) == 1 else BOLD
        return Line(spans_of(heading[2], style))
    if RULE.match(text):
        return text_line("\u2500" * RULE_COLUMNS, DIM)
    if TABLE.match(text):
        return Line((Span(text),), wrap=False)
    if quote := QUOTE.match(text):
        bar = "\u2502 " * quote[1].count(">")
        return Line((Span(bar, DIM), *spans_of(quote[2], DIM)), lead=bar)
    if item := ITEM.match(text):
        return _item(item)
    indent = text[: len(text) - len(text.lstrip())]
    return Line(
        (Span(indent), *spans_of(text.lstrip())) if indent else spans_of(text), lead=" " * min(len(indent), DEEPEST_ITEM)
    )


def _item(found: re.Match[str]) -> Line:
    indent, mark, _, box, words = found.groups()
    indent = indent.expandtabs(4)[:DEEPEST_ITEM]
    sign = ("[x] " if box.strip() else "[ ] ") if box else ("\u2022 " if mark in BULLETS else f"{mark} ")
    return Line((Span(indent), Span(sign, PLAIN if box else CYAN), *spans_of(words)), lead=" " * (len(indent) + len(sign)))
