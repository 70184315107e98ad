"""Cuts Markdown that arrives in pieces into parts that are printed once. However the text is cut, the parts are the same.

A part is a block, a list item, or some lines of code. It is settled when the next one has begun; the rest is `tail`, which is
redrawn as it grows. Control characters are removed first; without colour a part is a line as it was written.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec
from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich import box
from rich import markdown as md
from rich.cells import chop_cells
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from evener.cli.chat.screen import hang
from evener.cli.terminal import Cleaner

TALLEST = 40
"""Lines of code after which a part of a code block is settled, although the block continues."""
LONGEST = 16_000
"""Characters after which any block is cut: what is not settled is parsed again for every redraw."""
LISTS = ("bullet_list_open", "ordered_list_open")

# Tags and entities stay as written: rich hides tags, and an entity can name a control character.
PARSER = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("entity")


class MarkdownPart(msgspec.Struct, frozen=True):
    """Markdown that is printed as a whole. `gap`: after a blank row; `inside`: it continues the code block before it."""

    text: str
    gap: bool = False
    inside: bool = False
    plain: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.gap:
            yield Segment.line()
        tokens = [] if self.plain else PARSER.parse(self.text)
        if self.plain:
            yield Text(self.text)
        elif len(tokens) == 1 and tokens[0].type == "fence":
            yield _code(self.text.split("\n"), tokens[0], inside=self.inside)
        else:
            rows = list(Segment.split_lines(console.render(_Rendered(tokens), options)))
            while rows and not rows[0]:  # rich puts blank rows between the blocks of a list
                del rows[0]
            for row in rows:
                yield from row
                yield Segment.line()


class Markdown:
    """The text of one answer. Without `colour` it stays as it was written."""

    def __init__(self, *, colour: bool) -> None:
        self._colour = colour
        self._cleaner = Cleaner()
        self._rest = ""
        self._begun = self._gap = self._inside = False

    def feed(self, text: str) -> None:
        """Take a piece of the text."""
        self._rest += self._cleaner.feed(text)

    def settle(self) -> list[MarkdownPart]:
        """Return the parts that will not change any more."""
        found: list[MarkdownPart] = []
        while True:
            head = self._rest[:LONGEST]
            starts = self._starts(head[: head.rfind("\n") + 1])
            if len(starts) < 2 and len(self._rest) >= LONGEST:
                starts = [0, _last_break(head)]
            if len(starts) < 2:
                return found
            for start, end in pairwise([0, *starts[1:]]):
                found += self._cut(end - start)
                if self._inside:
                    break

    def close(self) -> list[MarkdownPart]:
        """Return all that is left."""
        self._rest += self._cleaner.close()
        if self._rest and not self._rest.endswith("\n"):
            self._rest += "\n"
        return [*self.settle(), *self._cut(len(self._rest))]

    @property
    def tail(self) -> MarkdownPart | None:
        """The last part, which may still change."""
        return self._part(self._rest) if self._rest.strip() else None

    def _starts(self, text: str) -> list[int]:
        """Return where the parts of a text of whole lines begin."""
        offsets = _line_starts(text)
        return [offsets[line] for line in _first_lines(text)] if self._colour else offsets

    def _cut(self, size: int) -> Iterator[MarkdownPart]:
        """Take `size` characters as one part."""
        text, self._rest = self._rest[:size], self._rest[size:]
        if text.strip() or (text and not self._colour):
            yield self._part(text)
            self._begun = True
        self._gap = not text[:-1].rpartition("\n")[2].strip()
        self._inside = False
        if self._rest and self._colour and (opening := _open_fence(text)):
            self._inside, self._rest = True, f"{opening}\n{self._rest}"

    def _part(self, text: str) -> MarkdownPart:
        if not self._colour:
            return MarkdownPart(text.removesuffix("\n"), plain=True)
        return MarkdownPart(text.strip("\n"), gap=self._gap and self._begun and not self._inside, inside=self._inside)


def _line_starts(text: str) -> list[int]:
    starts = [0]
    for line in text.split("\n")[:-1]:
        starts.append(starts[-1] + len(line) + 1)
    return starts


def _last_break(text: str) -> int:
    """Return where to cut a text that is too long."""
    place = max(text.rfind("\n"), text.rfind(" ")) + 1
    return place if place > len(text) // 2 else len(text)


def _first_lines(text: str) -> Iterator[int]:
    """Yield the first line of each part of a text."""
    lines = text.split("\n")
    in_list = False
    for token in PARSER.parse(text):
        start, end = token.map or (0, 0)
        if token.level == 0:
            in_list = token.type in LISTS and token.nesting == 1
        if token.nesting < 0 or not (token.level == 0 or (in_list and token.type == "list_item_open" and token.level == 1)):
            continue
        if not (in_list and token.level == 0):
            yield start
        if token.type == "fence" and token.level == 0:
            yield from _code_cuts(lines, start, end)


def _code_cuts(lines: Sequence[str], start: int, end: int) -> Iterator[int]:
    """Yield where to cut long code: after the last blank line among its first lines, if there is one."""
    if end - start > TALLEST + 1:
        blank = [line for line in range(start + 2, start + TALLEST + 1) if not lines[line].strip()]
        yield blank[-1] + 1 if blank else start + TALLEST + 1


def _open_fence(text: str) -> str:
    """Return the opening line of the code that a text leaves open; empty if there is none."""
    tokens = PARSER.parse(text)
    if not tokens or tokens[-1].type != "fence" or tokens[-1].level:
        return ""
    lines = text.rstrip("\n").split("\n")
    start = (tokens[-1].map or [0])[0]
    return "" if len(lines) > start + 1 and _closes(lines[-1], tokens[-1]) else lines[start][:100]


def _closes(line: str, fence: Token) -> bool:
    return line.strip().startswith(fence.markup) and not line.strip().strip(fence.markup[0])


# Rendering.


def _highlight(code: str, language: str) -> Text:
    syntax = Syntax("", language, theme="ansi_dark", background_color="default")
    text = syntax.highlight(code) if syntax.lexer else Text(code.expandtabs(4), "cyan")
    text.rstrip()
    return text


def _code(lines: Sequence[str], fence: Token, *, inside: bool) -> Text:
    """Return a code block with its fences. The terminal wraps long lines, so that they are copied as one line."""
    shown = [] if inside else [Text(lines[0].rstrip(), "dim")]
    if fence.content.strip():
        shown.append(_highlight(fence.content, fence.info.partition(" ")[0]))
    if len(lines) > 1 and _closes(lines[-1], fence):
        shown.append(Text(lines[-1].rstrip(), "dim"))
    joined = Text("\n", no_wrap=True, overflow="ignore").join(shown)
    joined.no_wrap, joined.overflow = True, "ignore"
    return joined


class _Code(md.CodeBlock):
    """Code inside a list or a quote: wrapped at the end of the row."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in _highlight(str(self.text), self.lexer_name).split("\n", allow_blank=True):
            ends, end = [], 0
            for row in chop_cells(line.plain, options.max_width):
                end += len(row)
                ends.append(end)
            yield from line.divide(ends[:-1])


class _Heading(md.Heading):
    LEVEL_ALIGN = dict.fromkeys(md.Heading.LEVEL_ALIGN, "default")


class _Rule(md.HorizontalRule):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("\u2500" * min(24, options.max_width), "dim")


class _Quote(md.BlockQuote):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from hang(console, options, self.elements, marks=("\u2502 ", "\u2502 "), style="dim")


class _Item(md.ListItem):
    def render_bullet(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from hang(console, options, self.elements, marks=("\u2022 ", "  "), style="cyan")

    def render_number(self, console: Console, options: ConsoleOptions, number: int, last_number: int) -> RenderResult:  # noqa: ARG002
        mark = f"{number}. "
        yield from hang(console, options, self.elements, marks=(mark, " " * len(mark)), style="cyan")


class _Table(md.TableElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        head = self.header.row.cells if self.header and self.header.row else []
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, border_style="dim", header_style="bold")
        for cell in head:
            table.add_column(cell.content, justify=cell.justify, overflow="fold")
        for row in self.body.rows if self.body else ():
            table.add_row(*(cell.content for cell in row.cells))
        yield table


class _Rendered(md.Markdown):
    """The Markdown of rich, without centring, frames and padding, and with the line ends of the text."""

    elements = md.Markdown.elements | {
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
        "blockquote_open": _Quote,
        "hr": _Rule,
        "list_item_open": _Item,
        "table_open": _Table,
    }

    def __init__(self, tokens: Sequence[Token]) -> None:
        super().__init__("", justify="default", hyperlinks=False)
        self.parsed = [token.copy(children=list(_simplify(token.children))) if token.children else token for token in tokens]


def _simplify(tokens: Sequence[Token]) -> Iterator[Token]:
    """Keep line ends, show an image as a link, and show a link whose text is its address once."""
    for place, token in enumerate(tokens):
        if token.type == "softbreak":
            yield token.copy(type="hardbreak")
        elif token.type == "image":
            yield Token("link_open", "a", 1, attrs={"href": token.attrs.get("src", "")})
            yield Token("text", "", 0, content=token.content)
            yield Token("link_close", "a", -1)
        elif not _is_bare(tokens, place):
            yield token


def _is_bare(tokens: Sequence[Token], place: int) -> bool:
    """True if this token begins or ends a link whose text is its address."""
    start = place if tokens[place].type == "link_open" else place - 2
    ends = [token.type for token in tokens[max(start, 0) : start + 3]]
    if ends != ["link_open", "text", "link_close"] or place == start + 1:
        return False
    return tokens[start].attrs.get("href") == tokens[start + 1].content
