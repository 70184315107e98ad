"""Markdown on a terminal: what it looks like, and that any cutting of the text gives the same screen."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console, RenderableType

from evener.cli.chat import markdown as module
from evener.cli.chat.markdown import Markdown, MarkdownPart
from evener.cli.chat.screen import LOOKS, ScreenLine
from tests.cli.stage import Stage
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
        "\u2022 one", "  \u2022 two", "1. three", "\u2022 [x] done", "\u2022 [ ] open",
    ],
    "3. c\n4. d\n\n   more": ["3. c", "4. d", "   more"],
    "- a\n\n  ```py\n  x = 1\n  ```\n- b": ["\u2022 a", "  x = 1", "\u2022 b"],
    "> said\n>> twice": ["\u2502 said", "\u2502 \u2502 twice"],
    "---\ntext": ["\u2500" * 24, "text"],
    "| a | **b** |\n|---|--:|\n| some words | 1 |": ["a            b", "\u2500" * 14, "some words   1"],
    "| not a table |": ["| not a table |"],
    "```py\n# no *title*\n\n  - x\n```\n*it*": ["```py", "# no *title*", "", "  - x", "```", "it"],
    "~~~\n```\n~~~~\n**b**": ["~~~", "```", "~~~~", "b"],
    "````\n```\n````": ["````", "```", "````"],
    "```\nnever closed\n**b**": ["```", "never closed", "**b**"],
    "red \x1b[31mtext\x07 and \u202eback": ["red text and back"],
    "#no title\n\n\nthree": ["#no title", "", "three"],
    "one\ntwo  \nthree": ["one", "two", "three"],
    "<b>x</b> &lt; &#8238; <http://a.b> [j](javascript:x)": ["<b>x</b> &lt; &#8238; http://a.b", "[j](javascript:x)"],
    "a\tb": ["a       b"],
    "Head\n===\ntext": ["Head", "text"],
}  # fmt: skip


PIECES = st.text(alphabet="a *_`~#->|[]()\n\\x1\u6f22\t\x1b", max_size=120)
LINES = st.lists(
    st.sampled_from(
        "a|- a|- b|  - c|1. x|2. y|```|```py|code|    in|> q|/ a / b /|/---/---/|/ 1 / 2 /|---|===|# h|* z|~~~|-||[a]: u".split(
            "|"
        )
    ),
    max_size=30,
).map(lambda lines: "\n".join(lines).replace("/", "|"))
CUTS = st.lists(st.integers(0, 1000), max_size=12)


def pieces(text: str, cuts: list[int]) -> list[str]:
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[start:end] for start, end in pairwise(places)]


@contextmanager
def small_bounds() -> Iterator[None]:
    """Bounds that short texts reach, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TALLEST", 4)
        patch.setattr(module, "LONGEST", 60)
        yield


def parts(text: str, cuts: list[int] | None = None, *, colour: bool = True) -> list[MarkdownPart]:
    markdown, found = Markdown(colour=colour), []
    for piece in pieces(text, cuts or []):
        markdown.feed(piece)
        found += markdown.settle()
    return found + markdown.close()


def rows(*shown: RenderableType, width: int = 40, colour: bool = False) -> list[str]:
    console = Console(
        force_terminal=True, color_system="standard" if colour else None, width=width, theme=LOOKS, legacy_windows=False
    )
    with console.capture() as made:
        for part in shown:
            console.print(part, crop=False, end="")
    return made.get().split("\n")[:-1]


@pytest.mark.parametrize(("text", "shown"), SHOWN.items())
def test_marks_become_looks_and_everything_else_stays(text: str, shown: list[str]) -> None:
    assert [row.rstrip() for row in rows(*parts(text))] == shown


@pytest.mark.parametrize(
    ("text", "style"),
    {
        "**b**": "1",
        "*i*": "3",
        "`c`": "36",
        "~~s~~": "9",
        "**a *b*c**": "1 1;3 1",
        "[w](u)": "4 2",
        "# t": "1;4",
        "```py\ndef f(): pass\n```": "2 94 92 94 2",
        "```nothing\nx\n```": "2 36 2",
    }.items(),
)
def test_each_mark_has_its_look(text: str, style: str) -> None:
    found = re.findall(r"\x1b\[([0-9;]+)m(?=[^\s\x1b])", "\n".join(rows(*parts(text), colour=True)))
    assert " ".join(one.removesuffix(";49") for one in found if one not in ("0", "49")) == style


def test_without_colour_it_is_the_text_as_written() -> None:
    text = "# T\n- **b** `c`\n\n\n```\nx\n```\n"
    assert rows(*parts(text, colour=False)) == text.splitlines()


@given(text=PIECES | LINES, cuts=CUTS)
def test_any_cutting_gives_the_same_parts(text: str, cuts: list[int]) -> None:
    assert parts(text, cuts) == parts(text)
    assert parts(text, cuts, colour=False) == parts(text, colour=False)
    with small_bounds():
        assert parts(text, cuts) == parts(text)


@given(text=PIECES | LINES, cuts=CUTS, width=st.integers(8, 30))
def test_any_cutting_gives_the_same_screen(text: str, cuts: list[int], width: int) -> None:
    with small_bounds():
        assert painted(text, cuts, width) == painted(text, [], width)


def painted(text: str, cuts: list[int], width: int) -> str:
    """Return what a terminal shows when the text comes in these pieces, with a line under it that is always drawn again."""
    with Stage(width, 10) as stage:
        markdown = Markdown(colour=True)
        for piece in pieces(text, cuts):
            markdown.feed(piece)
            stage.screen.say(*markdown.settle())
            stage.draw(stage.screen.render(markdown.tail) if markdown.tail else "")
        stage.screen.say(*markdown.close())
        stage.draw()
        assert stage.terminal.text.endswith(">\nstatus")
        return stage.terminal.whole


def test_the_part_that_grows_is_shown_as_what_it_is() -> None:
    markdown = Markdown(colour=True)
    markdown.feed("Tea:\n\n| a | b |\n|---|---|\n| 1 |")
    assert rows(*markdown.settle()) == ["Tea:"]
    assert markdown.tail is not None
    assert [row.rstrip() for row in rows(markdown.tail)] == ["", "a   b", "\u2500" * 5, "1"]
    markdown.feed(" 2 |\n\n```py\nx = ")
    assert len(markdown.settle()) == 1
    assert rows(markdown.tail) == ["", "```py", "x ="]


@given(text=st.text(alphabet="ab *`\t\u6f22\u0301->1.\n", max_size=80), width=st.integers(8, 20))
def test_no_word_is_lost(text: str, width: int) -> None:
    made = "".join(rows(*parts(text), width=width))
    assert re.sub(r"[^ab\u6f22]", "", made) == re.sub(r"[^ab\u6f22]", "", text)


@given(text=st.text(alphabet="ab *`\t\u6f22\u0301", max_size=80), width=st.integers(8, 20))
def test_no_row_is_wider_than_the_screen(text: str, width: int) -> None:
    made = rows(ScreenLine(text, first="> ", lead="  "), width=width)
    assert all(cell_len(row) <= width for row in made)
    assert re.sub(r"\s", "", "".join(made)) == ">" + re.sub(r"\s", "", text)


def test_words_are_kept_whole_and_lists_hang() -> None:
    assert rows(*parts("- one two three four"), width=11) == ["\u2022 one two ", "  three ", "  four"]
    assert rows(ScreenLine("abcdefghijklm"), width=8) == ["abcdefgh", "ijklm"]
    assert rows(ScreenLine()) == [""]


def test_code_is_left_to_the_terminal_to_break() -> None:
    """Then the terminal knows that it is one line, and copies it as one."""
    assert rows(*parts(f"```\n{'x' * 30}\n```"), width=8) == ["```", "x" * 30, "```"]
    assert rows(*parts(f"- ```\n  {'x' * 14}\n"), width=10) == ["\u2022 xxxxxxxx", "  xxxxxx"]


@pytest.mark.parametrize("text", ["*" * 3999, "*a " * 1300, "[" * 999, "`" * 1000 + "a" * 2000, "_a*b" * 400, "a" * 100_000])
def test_a_line_costs_steps_in_proportion_to_its_length(text: str) -> None:
    half = text[: len(text) // 2]
    assert steps(lambda: parts(text)) <= 3 * steps(lambda: parts(half)) + 10_000


def test_a_long_block_costs_steps_in_proportion_to_its_length() -> None:
    def cost(lines: int) -> int:
        text = "```py\n" + "x = 1\n" * lines
        return steps(lambda: parts(text, list(range(0, len(text), 7))))

    assert cost(400) <= 3 * cost(200)
