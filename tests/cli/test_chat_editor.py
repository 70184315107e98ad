"""The line editor: keys to a buffer and to a screen. No terminal is needed."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evener.cli.chat.attachments import as_picture, attach
from evener.cli.chat.completion import complete
from evener.cli.chat.draft import Block, Draft
from evener.cli.chat.editor import Editor
from evener.cli.chat.history import History
from evener.cli.chat.keys import Key, KeyReader, Paste, Press, Typed
from evener.cli.chat.width import columns
from evener.transcript.blocks import ImageBlock, TextBlock
from tests.cli.test_complete import PNG

UP, DOWN, RIGHT, LEFT = "\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D"

PRESSES: dict[bytes, list[Press]] = {
    b"ab": [Typed("ab")],
    "\u00fc\u6f22\U0001f40e".encode(): [Typed("\u00fc"), Typed("\u6f22"), Typed("\U0001f40e")],
    b"\r": [Key("enter")],
    b"\n": [Key("newline")],
    b"\x1b\r": [Key("newline")],
    b"\x1b[13;2u": [Key("newline")],
    b"\x1b[A\x1bOB\x1b[H\x1b[4~\x1b[3~": [Key("up"), Key("down"), Key("home"), Key("end"), Key("delete")],
    b"\x1b[1;5C\x1b[1;3D\x1bb\x1bF": [Key("alt-f"), Key("alt-b"), Key("alt-b"), Key("alt-f")],
    b"\x1b\x7f\x7f\x08": [Key("alt-backspace"), Key("backspace"), Key("backspace")],
    b"\x03\x04\x12\x1a\x00": [Key("ctrl-c"), Key("ctrl-d"), Key("ctrl-r"), Key("ctrl-z"), Key("ctrl-space")],
    b"\x1b[200~a\r\nb\x1b[A\x1b[201~c": [Paste("a\nb\x1b[A"), Typed("c")],
    b"\x1b[?1;2c\x1b[99~x": [Typed("x")],
    b"\xff\xc3(": [Typed("\ufffd"), Typed("\ufffd"), Typed("(")],
    b"\x1b\x1b[A": [Key("escape"), Key("up")],
}


def merged(presses: list[Press]) -> list[Press]:
    """Characters that came one by one and those that came together are the same."""
    found: list[Press] = []
    for press in presses:
        if isinstance(press, Typed) and found and isinstance(last := found[-1], Typed):
            found[-1] = Typed(last.text + press.text)
        else:
            found.append(press)
    return found


@pytest.mark.parametrize(("sent", "presses"), PRESSES.items())
def test_bytes_are_keys_whole_and_one_by_one(sent: bytes, presses: list[Press]) -> None:
    assert merged(KeyReader().feed(sent)) == merged(presses)
    reader = KeyReader()
    assert merged([press for byte in sent for press in reader.feed(bytes([byte]))]) == merged(presses)


BYTES = st.lists(
    st.sampled_from([b"\x1b", b"[", b"O", b"A", b"200~", b"201~", b";5", b"a", b"\r", b"\xc3", b"\x9f", b"\xff", b"\xf0"])
)


@given(data=st.binary(max_size=60) | BYTES.map(b"".join), cut=st.integers(0, 60))
@example(data=b"\x00\x1b\x80\x00", cut=3)
def test_any_bytes_in_any_cutting_are_the_same_keys(data: bytes, cut: int) -> None:
    whole, parted = KeyReader(), KeyReader()
    assert merged(whole.feed(data)) == merged(parted.feed(data[:cut]) + parted.feed(data[cut:]))
    assert whole.flush() == parted.flush()


def test_a_lone_escape_is_one_when_nothing_follows() -> None:
    reader = KeyReader()
    assert reader.feed(b"\x1b") == []
    assert reader.undecided
    assert reader.flush() == [Key("escape")]
    assert not reader.undecided


def test_a_paste_is_bounded() -> None:
    reader = KeyReader()
    reader.feed(b"\x1b[200~")
    for _ in range(34):
        assert reader.feed(b"x" * 1024 * 1024) == []
    (paste,) = reader.feed(b"\x1b[201~")
    assert isinstance(paste, Paste)
    assert 32 * 1024 * 1024 <= len(paste.text) < 34 * 1024 * 1024


def edited(keys: str, history: History | None = None) -> Editor:
    editor, reader = Editor(history), KeyReader()
    for press in (*reader.feed(keys.encode()), *reader.flush()):
        editor.press(press)
    return editor


EDITS = {
    "abc": "abc|",
    f"abc{LEFT}{LEFT}x": "ax|bc",
    f"abc{LEFT * 9}x{RIGHT * 9}y": "xabcy|",
    "abc\x7f\x7f": "a|",
    f"abc{LEFT}\x1b[3~": "ab|",
    "one two\x1b[H1\x1b[F2": "1one two2|",
    "one two three\x1bb\x1bbx": "one x|two three",
    "one two\x01\x1bfx": "onex| two",
    "one two\x1b\x7f": "one |",
    "one a/b-c\x17": "one |",
    "one two\x01\x1bd": "| two",
    "one\ntwo\x15": "one\n|",
    "one two\x01\x0b\x19\x19": "one twoone two|",
    f"one\ntwo{UP}x": "onex|\ntwo",
    f"one\ntw{UP}{LEFT}{DOWN}x": "one\ntx|w",
    "one\\\rtwo": "one\ntwo|",
    "a\x1b\rb": "a\nb|",
    f"\u6f22\u5b57{LEFT}x": "\u6f22x|\u5b57",
    f"e\u0301a{LEFT}\x7f": "|a",
    f"\U0001f469\u200d\U0001f4bb!{LEFT}\x7f": "|!",
    "a\tb": "ab|",
    f"x\x1b[200~short\rpaste\x1b[201~{LEFT}": "xshort\npast|e",
}


@pytest.mark.parametrize(("keys", "line"), EDITS.items())
def test_keys_change_the_line(keys: str, line: str) -> None:
    editor = edited(keys)
    editor.insert("|")
    assert editor.draft.text == line


def test_a_long_paste_is_one_piece() -> None:
    editor = edited("a\x1b[200~" + "line\r" * 10_000 + "\x1b[201~b")
    assert editor.draft.shown == "a[pasted 10,000 lines]b"
    assert editor.draft.text == "a" + "line\n" * 10_000 + "b"
    editor.press(Key("left"))
    editor.press(Key("backspace"))
    assert editor.draft == Draft(("ab",))
    assert Block("x" * 1000).label == "[pasted 1,000 characters]"


@pytest.mark.parametrize(
    ("keys", "action"),
    {"\r": "send", "x\r": "send", "\x03": "interrupt", "\x04": "end", "x\x04": "", "\t": "complete", "\x1a": "suspend"}.items(),
)
def test_some_keys_ask_for_more(keys: str, action: str) -> None:
    editor, asked = Editor(), ""
    for press in KeyReader().feed(keys.encode()):
        asked = editor.press(press)
    assert asked == action


def test_the_history_is_walked_and_the_draft_comes_back() -> None:
    history = History(["one", "two\nlines", "three"])
    assert edited(f"draft{UP}", history).draft.text == "three"
    assert edited(f"{UP}{UP}", history).draft.text == "two\nlines"
    assert edited(f"{UP}{UP}{UP}{UP}{UP}{UP}", history).draft.text == "one"
    history = History(["one", "two"])
    assert edited(f"draft{UP}{UP}{DOWN}{DOWN}", history).draft.text == "draft"


def test_the_history_is_searched_backwards() -> None:
    history = History(["green tea", "coffee", "black tea"])
    assert edited("x\x12tea\r", history).draft.text == "black tea"
    assert edited("x\x12TEA\x12\r", history).draft.text == "green tea"
    assert edited("x\x12tea\x12\x12\x12!", history).draft.text == "x"
    assert edited("x\x12tea\x1b", history).draft.text == "x"
    assert edited("x\x12none\r", history).draft.text == "x"
    assert edited(f"\x12cof{RIGHT}", history).draft.text == "coffee"
    view = edited("\x12gree", history).view(60)
    assert "".join(span.text for span in view.rows[0]) == "search 'gree': green tea"


def test_two_chats_add_to_one_history_file(tmp_path: Path) -> None:
    file = tmp_path / "history"
    one, two = History.load(file), History.load(file)
    one.add("from one")
    two.add("from two")
    one.add("one again")
    assert History.load(file).entries == ("from one", "from two", "one again")
    assert (one.entries, two.entries) == (("from one", "one again"), ("from two",)), "each walks through its own"
    many = [History.load(file) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda chat: [chat.add(f"{many.index(chat)}-{number}") for number in range(10)], many))
    assert len(History.load(file).entries) == 83


def test_the_history_file_is_private_bounded_and_forgiving(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "history"
    history = History.load(file)
    for number in range(1200):
        history.add(f"entry {number}\nof two lines")
    history.add("x" * 20_000)
    history.add("last")
    history.add("last")
    assert oct(file.stat().st_mode & 0o777) == "0o600"
    again = History.load(file).entries
    assert len(again) <= 1000
    assert again[-2:] == ("entry 1199\nof two lines", "last")
    file.write_bytes(b'"good"\n{bad\n\xff\n3\n"better"\n')
    assert History.load(file).entries == ("good", "better")
    nowhere = History.load(tmp_path / "deep" / "history" / "below")
    nowhere.add("it is only not kept")
    assert nowhere.entries == ("it is only not kept",)
    assert [json.loads(line) for line in file.read_bytes().splitlines()[:1]] == ["good"]


@given(
    text=st.text(alphabet="ab \n\u6f22\u0301\t", max_size=60),
    at=st.integers(0, 60),
    width=st.integers(8, 20),
)
def test_the_cursor_stands_where_the_next_character_goes(text: str, at: int, width: int) -> None:
    editor = Editor()
    editor.insert(text)
    for _ in range(at):
        editor.press(Key("left"))
    view = editor.view(width)
    assert all(columns("".join(span.text for span in row)) <= width for row in view.rows)
    assert 0 <= view.column < width
    editor.insert("X")
    after = editor.view(width)
    shown = ["".join(span.text for span in row) for row in after.rows]
    place = next(number for number, row in enumerate(shown) if "X" in row)
    assert abs(place - view.row) <= 1  # at the edge of a row there may be room for a narrow character and not for a wide one
    if place == view.row:
        assert columns(shown[place].partition("X")[0]) == view.column


# What Tab offers, and what @ brings.


def test_tab_completes_commands_models_and_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    (tmp_path / "november").mkdir()
    (tmp_path / "my tea.png").touch()
    (tmp_path / ".hidden").touch()

    def offered(text: str) -> tuple[int, str, tuple[str, ...]] | None:
        found = complete(text, commands=("/model", "/usage", "/undo"), models=("claude", "gpt"), folder=tmp_path)
        return (found.size, found.text, found.choices) if found else None

    assert offered("/mo") == (3, "/model ", ("/model ",))
    assert offered("/u") == (2, "/u", ("/usage ", "/undo "))
    assert offered("/model cl") == (2, "claude", ("claude",))
    assert offered("see @no") == (3, "@no", ("@notes.txt ", "@november/"))
    assert offered("see @not") == (4, "@notes.txt ", ("@notes.txt ",))
    assert offered("@my") == (3, '@"my tea.png" ', ('@"my tea.png" ',))
    assert offered("@.h") == (3, "@.hidden ", ("@.hidden ",))
    assert offered(f"@{tmp_path}/not") == (len(f"@{tmp_path}/not"), f"@{tmp_path}/notes.txt ", (f"@{tmp_path}/notes.txt ",))
    assert offered("plain text") is None
    assert offered("a@b") is None
    assert offered("@zzz") is None
    assert offered("@nowhere/x") is None


def test_files_that_are_named_come_along_and_pastes_are_not_looked_into(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("buy tea", encoding="utf-8")
    (tmp_path / "tea.png").write_bytes(PNG)
    (tmp_path / "long.txt").write_text("x" * 300_000, encoding="utf-8")
    (tmp_path / "binary").write_bytes(b"\x00\xff\x00\xff" * 9)
    found = attach(Draft(("see @notes.txt, @tea.png and @notes.txt.", Block("@long.txt"))), folder=tmp_path)
    assert [type(block) for block in found.blocks] == [TextBlock, TextBlock, ImageBlock]
    assert "buy tea" in "".join(block.text for block in found.blocks if isinstance(block, TextBlock))
    assert found.remarks == ("Attached notes.txt (7 bytes).", f"Attached the picture tea.png ({len(PNG)} bytes).")
    missing = attach(Draft(("see @nots.txt",)), folder=tmp_path)
    assert missing.remarks == ("There is no file nots.txt; it was sent as a word.",)
    stranger = attach(Draft(("see @~nobody-of-this-name/x.txt",)), folder=tmp_path)
    assert stranger.remarks == ("There is no file ~nobody-of-this-name/x.txt; it was sent as a word.",)
    cut = attach(Draft(("@long.txt",)), folder=tmp_path)
    assert sum(len(block.text) for block in cut.blocks if isinstance(block, TextBlock)) < 201_000
    assert "cut after 200,000 characters" in cut.remarks[0]
    assert "neither a text nor a picture" in attach(Draft(("@binary",)), folder=tmp_path).remarks[0]
    assert attach(Draft(("mail me@home @alice",)), folder=tmp_path).remarks == ()


def test_a_pasted_path_of_a_picture_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "my tea.png").write_bytes(PNG)
    path = tmp_path / "my tea.png"
    escaped = str(path).replace(" ", "\\ ")
    for pasted in (str(path), f"'{path}'", f"{escaped}\n", path.as_uri()):
        assert as_picture(pasted, folder=tmp_path) == f'@"{path}" '
    for other in ("my tea.txt", "nowhere.png", "two\nlines.png", "~nobody-of-this-name/x.png", "", "x" * 5000):
        assert as_picture(other, folder=tmp_path) == ""
