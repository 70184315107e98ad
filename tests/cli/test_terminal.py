"""Manners on a terminal: nothing that a model says can steer it."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evener.cli.terminal import ACTIVE, Cleaner, clean, escape_json, style_text

CLEANED = {
    "plain \u00fcn\u00efcode \U0001f40e\n\ttab": "plain \u00fcn\u00efcode \U0001f40e\n\ttab",
    "\x1b[31mred\x1b[0m": "red",
    "\x1b[2J\x1b[1;1Hgone": "gone",
    "\x9b31mred": "red",
    "a\x1b[?1049hb": "ab",
    "\x1b]0;title\x07text": "]0;titletext",
    "\x1b]52;c;cm0gLXJm\x07": "]52;c;cm0gLXJm",
    "\x1bPq#0\x1b\\": "Pq#0\\",
    "line\rover": "lineover",
    "one\r\ntwo": "one\ntwo",
    "ab\x08\x08\x7f": "ab",
    "bell\x07 nul\x00": "bell nul",
    "c1 \x85\x90\x9c": "c1 ",
    "safe\u202egpj.exe": "safegpj.exe",
    "\u2066iso\u2069late": "isolate",
    "\x1b[" + "9" * 40 + "m": "[" + "9" * 40 + "m",
    "ends in \x1b": "ends in ",
    "ends in \x1b[3": "ends in [3",
    "right to left mark \u200f stays": "right to left mark \u200f stays",
}


@pytest.mark.parametrize("text", CLEANED)
def test_what_steers_is_taken_out_and_what_can_be_read_stays(text: str) -> None:
    assert clean(text) == CLEANED[text]


PIECES = st.lists(
    st.sampled_from(["\x1b", "[", "\x1b[", "\x9b", "31", ";", " ", "m", "H", "x", "\n", "\x07", "\u202e", "9" * 33])
)


def in_pieces(pieces: list[str]) -> str:
    cleaner = Cleaner()
    return "".join([*(cleaner.feed(piece) for piece in pieces), cleaner.close()])


@pytest.mark.parametrize("text", CLEANED)
def test_a_text_in_single_characters_is_cleaned_alike(text: str) -> None:
    assert in_pieces(list(text)) == CLEANED[text]


def test_a_sequence_within_another_is_cleaned_alike_wherever_it_is_cut() -> None:
    text = "\x1b[\x1b[31mm"
    assert {in_pieces([text[:cut], text[cut:]]) for cut in range(len(text))} == {clean(text)}


@given(PIECES)
def test_any_cutting_gives_the_same_text(pieces: list[str]) -> None:
    whole = "".join(pieces)
    assert in_pieces(pieces) == in_pieces(list(whole)) == in_pieces([whole])


@given(st.lists(st.text()))
def test_nothing_that_steers_is_left(pieces: list[str]) -> None:
    assert not ACTIVE.search(in_pieces(pieces))


def test_json_keeps_everything_behind_escapes() -> None:
    value = {"text": "\x9b31m \u202e \x7f \x1b[0m \u2069 \u00fc"}
    shown = escape_json(json.dumps(value, ensure_ascii=False).encode())
    assert json.loads(shown) == value
    assert not ACTIVE.search(shown.decode())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environ", "coloured"),
    [
        (Terminal(), {"TERM": "xterm"}, True),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": ""}, True),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (Terminal(), {}, False),
        (io.StringIO(), {"TERM": "xterm"}, False),
    ],
)
def test_colour_appears_only_where_it_is_wanted(stream: io.StringIO, environ: dict[str, str], coloured: bool) -> None:
    assert (style_text("x", "red", stream=stream, environ=environ) != "x") is coloured
