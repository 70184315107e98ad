"""Markdown on a terminal: what it looks like, and that any cutting of the text gives the same screen."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evener.cli.chat.inline import spans_of
from evener.cli.chat.layout import Line, Span, rows, text_line
from evener.cli.chat.markdown import Markdown
from evener.cli.chat.screen import Live, Screen
from evener.cli.chat.width import clipped, columns
from tests.cli.test_chat_emulator import Emulator
from tests.patience import steps

SHOWN = {
    "# Title #": ["Title"],
    "plain **bold** *it* __bold__ _it_ ~~gone~~": ["plain bold it bold it gone"],
    "***both*** and **bold *and* it**": ["both and bold and it"],
    "2 * 3 * 4 and a_b_c and *args, **kwargs": ["2 * 3 * 4 and a_b_c and *args, **kwargs"],
    "unclosed **bold and `code": ["unclosed **bold and `code"],
    "`a*b*` and ``a`b``": ["a*b* and a`b"],
    r"\*not\* and \`not\`": ["*not* and `not`"],
    "[words](http://x.y/a_(b)) ![pic](p.png)": ["words (http://x.y/a_(b)) pic (p.png)"],
    "[http://x.y](http://x.y) [x] (y)": ["http://x.y [x] (y)"],
    "- one\n  - two\n1. three\n- [x] done\n- [ ] open": [
        "\u2022 one", "  \u2022 two", "1. three", "[x] done", "[ ] open",
    ],
    "> said\n>> twice": ["\u2502 said", "\u2502 \u2502 twice"],
    "---\ntext": ["\u2500" * 24, "text"],
    "| a | **b** |\n|---|---|": ["| a | **b** |", "|---|---|"],
    "```py\n# no *title*\n\n  - x\n```\n*it*": ["```py", "# no *title*", "", "  - x", "```", "it"],
    "~~~\n```\n~~~~\n**b**": ["~~~", "```", "~~~~", "b"],
    "````\n```\n````": ["````", "```", "````"],
    "```\nnever closed\n**b**": ["```", "never closed", "**b**"],
    "red \x1b[31mtext\x07 and \u202eback": ["red text and back"],
    "#no title\n\n\nthree": ["#no title", "", "", "three"],
}  # fmt: skip


def lines_of(text: str, cuts: list[int] | None = None, *, colour: bool = True) -> list[Line]:
    markdown = Markdown(colour=colour)
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts or [])})
    found: list[Line] = []
    for start, end in pairwise(places):
        found += markdown.feed(text[start:end])
        assert (markdown.tail is None) == (not text[:end] or text[:end].endswith("\n")) or "\x1b" in text or "\u202e" in text
    return found + markdown.close()


@pytest.mark.parametrize(("text", "shown"), SHOWN.items())
def test_marks_become_looks_and_everything_else_stays(text: str, shown: list[str]) -> None:
    assert [line.text for line in lines_of(text)] == shown


@pytest.mark.parametrize(
    ("text", "style"),
    {"**b**": "1", "*i*": "3", "`c`": "36", "~~s~~": "9", "**a *b* c**": "1 1;3 1", "[w](u)": "4 2"}.items(),
)
def test_each_mark_has_its_look(text: str, style: str) -> None:
    assert " ".join(span.style for span in spans_of(text)) == style


def test_without_colour_it_is_the_text_as_written() -> None:
    text = "# T\n- **b** `c`\n```\nx\n```\n"
    assert [line.text for line in lines_of(text, colour=False)] == text.splitlines()


PIECES = st.text(alphabet="a *_`~#->|[]()\n\\x1\u6f22\t\x1b", max_size=120)


@given(text=PIECES, cuts=st.lists(st.integers(0, 1000), max_size=12))
def test_any_cutting_gives_the_same_lines(text: str, cuts: list[int]) -> None:
    whole = Markdown(colour=True)
    expected = whole.feed(text) + whole.close()
    assert lines_of(text, cuts) == expected


@given(text=PIECES, cuts=st.lists(st.integers(0, 1000), max_size=8), width=st.integers(8, 30))
def test_any_cutting_gives_the_same_screen(text: str, cuts: list[int], width: int) -> None:
    assert painted(text, cuts, width) == painted(text, [], width)


def painted(text: str, cuts: list[int], width: int) -> str:
    """What a terminal shows when the text comes in these pieces, with a line under it that is always drawn again."""
    terminal = Emulator(width, 10)
    screen = Screen(lambda out: terminal.feed(out.encode()), size=lambda: (width, 10), colour=True)
    markdown = Markdown(colour=True)
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    for start, end in pairwise(places):
        screen.say(markdown.feed(text[start:end]))
        tail = screen.rows(markdown.tail)[-8:] if markdown.tail else []
        screen.draw(Live((*tail, "> "), len(tail), 2))
    screen.say(markdown.close())
    screen.draw(Live(("> ",), 0, 2))
    assert (terminal.row, terminal.column) == (terminal.text.count("\n"), 2) or terminal.scrolled
    return terminal.whole


@given(text=st.text(alphabet="ab *`\t\u6f22\u0301", max_size=80), width=st.integers(4, 20), wrap=st.booleans())
def test_no_row_is_wider_than_the_screen_and_no_word_is_lost(text: str, width: int, wrap: bool) -> None:
    line = Line((Span(text),), lead="  ", wrap=wrap)
    made = rows(line, width, colour=False)
    assert all(columns(row) <= width for row in made)
    assert re.sub(r"\s", "", "".join(made)) == re.sub(r"\s", "", text)


def test_words_are_kept_whole_and_lists_hang() -> None:
    (line,) = lines_of("- one two three four")
    assert rows(line, 11, colour=False) == ["\u2022 one two", "  three", "  four"]
    assert rows(text_line("abcdefghij"), 4, colour=False) == ["abcd", "efgh", "ij"]
    assert rows(Line(), 4, colour=True) == [""]
    assert rows(text_line("\u6f22\u5b57", "1"), 3, colour=True) == ["\x1b[0;1m\u6f22\x1b[0m", "\x1b[0;1m\u5b57\x1b[0m"]
    assert clipped("one  two three", 10) == "one two..."


@pytest.mark.parametrize("text", ["*" * 3999, "*a " * 1300, "[" * 3999, "`" * 1000 + "a" * 2000, "_a*b" * 990, "a" * 200_000])
def test_a_line_costs_steps_in_proportion_to_its_length(text: str) -> None:
    half = text[: len(text) // 2]
    assert steps(lambda: lines_of(text)) <= 3 * steps(lambda: lines_of(half)) + 10_000
