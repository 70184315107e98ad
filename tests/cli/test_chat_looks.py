"""How a chat looks, and its keys: tables, code, the menu, vi, small and plain terminals. Real processes on real terminals."""

import json
import os
import re
import signal

from evener.testing.servers import Call, FakeServer, Text, faults, turn
from tests.cli.run import Home
from tests.cli.test_chat_terminal import GUARDED, Chat, claude, gpt, place
from tests.cli.test_complete import asked
from tests.patience import PATIENCE

__all__ = ["claude", "gpt", "place"]

TABLE = "| tea | cups |\n|:----|-----:|\n| green | 3 |\n| \u70cf\u9f8d | **14** |\n"
CODE = "```python\ndef brew(tea):\n    return f'{tea}!'\n```\n"


def sent(server: FakeServer) -> str:
    """What the user said last."""
    return asked(server)["messages"][-1]["content"][0]["text"]  # type: ignore[index, no-any-return]


def colours(data: bytes) -> set[str]:
    """The styles that were asked for, but for those that set everything back."""
    return {found for found in re.findall(r"\x1b\[([0-9;]*)m", data.decode()) if found not in ("", "0")}


class Recorded(Chat):
    """A chat whose bytes are kept."""

    data = b""

    def __enter__(self) -> "Recorded":
        super().__enter__()
        return self

    def _read(self) -> bool:
        before = self.screen.feed

        def feed(data: bytes) -> None:
            self.data += data
            before(data)

        self.screen.feed = feed  # type: ignore[method-assign]
        try:
            return super()._read()
        finally:
            del self.screen.feed


# Markdown.


def test_a_table_and_code_grow_in_place_and_are_printed_once(place: Home, claude: FakeServer) -> None:
    claude.add(turn(Text(f"Here:\n\n{TABLE}\n{CODE}\nDone.", pieces=40), faults=[faults.Slow(between=0.02)]))
    with Recorded(place) as chat:
        chat.say("Which tea?")
        chat.until("green")
        assert "|" not in chat.screen.text.replace("| tea | cups |", ""), "an open table is a table"
        chat.until("Done.")
        screen = chat.until("$0.")
        assert "Here:\n\ntea     cups\n" in screen
        assert (
            "\ngreen      3\n\u70cf\u9f8d      14\n\n```python\ndef brew(tea):\n    return f'{tea}!'\n```\n\nDone.\n" in screen
        )
        for once in ("Here:", "cups", "green", "def brew", "Done."):
            assert chat.screen.whole.count(once) == 1
    assert "94" in {code for style in colours(chat.data) for code in style.split(";")}, "keywords have a colour"


def test_a_picture_reaches_the_terminal_as_one(place: Home, claude: FakeServer) -> None:
    """Between two pictures nothing is erased: a row is not blank before it is written again."""
    claude.add(turn(Text("\n\n".join(f"Paragraph {number}." for number in range(30)), pieces=60)))
    with Recorded(place) as chat:
        chat.say("Go")
        chat.until("Paragraph 29.")
        chat.until("$0.")
    pictures = chat.data.decode().split("\x1b[?2026l")
    assert len(pictures) > 2, "on a busy machine there are few"
    for picture in pictures[1:-1]:
        assert picture.startswith("\x1b[?2026h")
        assert "\x1b[J" not in picture or "\x1b[?25h" in picture, "what is erased is drawn again in the same picture"


def test_code_that_is_longer_than_the_screen_scrolls_while_it_comes(place: Home, claude: FakeServer) -> None:
    code = "".join(f"line_{number} = {number}\n" for number in range(120))
    claude.add(turn(Text(f"```python\n{code}```\nEnd.", pieces=50), faults=[faults.Slow(between=0.02)]))
    with Chat(place) as chat:
        chat.say("Go")
        chat.until("End.")
        chat.until("$0.")
        shown = re.findall(r"line_(\d+) = ", chat.screen.whole)
        assert shown == [str(number) for number in range(120)]
        assert chat.screen.whole.count("```") == 2


def test_code_that_has_not_ended_is_shown_as_far_as_it_has_come(place: Home, claude: FakeServer) -> None:
    code = "".join(f"line_{number} = {number}\n" for number in range(120))
    claude.add(turn(Text(f"```python\n{code}```\nEnd.", pieces=50), faults=[faults.Stall(40)]))
    with Chat(place) as chat:
        chat.say("Go")
        chat.until(lambda: "line_70 " in chat.screen.whole)
        assert "End." not in chat.screen.whole


def test_tags_and_characters_by_number_stay_as_they_were_written(place: Home, claude: FakeServer) -> None:
    claude.add("Use List<String> &amp; &#8238; <b>not</b> bold\nnext line")
    with Chat(place) as chat:
        chat.say("Go")
        chat.until("Use List<String> &amp; &#8238; <b>not</b> bold\nnext line")


def test_without_colour_there_is_none(place: Home, claude: FakeServer) -> None:
    claude.add(f"It is **hot**.\n\n{CODE}")
    with Recorded(place, NO_COLOR="1") as chat:
        chat.say("Tea?")
        screen = chat.until("return")
        assert "It is **hot**.\n\n```python\ndef brew(tea):" in screen
        chat.send("/u\t")
        chat.until("/undo")
    codes = {code for style in colours(chat.data) for code in style.split(";")}
    assert codes <= {"0", "1", "2", "4", "7"}, "weight and reverse, and no colour"


# Keys.


def test_tab_opens_a_menu_and_enter_takes_from_it(place: Home, claude: FakeServer) -> None:
    for name in ("notes.txt", "november.txt", "north"):
        (place.folder / name).write_text("x", encoding="utf-8")
    claude.add("Read.")
    with Chat(place) as chat:
        chat.send("see @n\t")
        screen = chat.until("@notes.txt\n")
        assert "> see @no\n" in screen, "what all share is written"
        assert re.search(r"@north\n +@notes\.txt\n +@november\.txt", screen)
        chat.send("\t\t")
        chat.until("> see @notes.txt\n")
        chat.send("\r")
        chat.until(lambda: "@november" not in chat.screen.text)
        chat.say("now")
        chat.until("Read.")
    assert sent(claude) == "see @notes.txt now"


def test_escape_closes_the_menu_and_the_line_stays(place: Home) -> None:
    with Chat(place) as chat:
        chat.send("/u\t")
        chat.until("/usage")
        chat.send("\x1b")
        chat.until(lambda: "/usage" not in chat.screen.text)
        assert chat.screen.text.splitlines()[-2] == "> /u"


def test_vi_keys_edit_the_line_and_escape_twice_interrupts(place: Home, claude: FakeServer) -> None:
    claude.add("Done.", turn(Text("One two three four", pieces=4), faults=[faults.Stall(4)]))
    with Chat(place, EVENER_CHAT_KEYS="vi") as chat:
        chat.send("one two three\x1b")
        chat.send("0dwx")
        chat.until("> wo three")
        chat.send("A four\r")
        chat.until("Done.")
        assert sent(claude) == "wo three four"
        chat.say("Count.")
        chat.until("One t")
        chat.send("\x1b")
        chat.send("\x1b")
        chat.until("Interrupted. Write a new message")


def test_keys_that_do_not_exist_are_refused(place: Home) -> None:
    chat = Chat(place, EVENER_CHAT_KEYS="joe")
    try:
        assert chat.end() == 2
        assert "it must be emacs or vi" in " ".join(chat.screen.text.split())
    finally:
        chat.__exit__(None, None, None)


def test_a_question_is_answered_in_vi_keys_too(place: Home, claude: FakeServer) -> None:
    (place.folder / "till.py").write_text(GUARDED, encoding="utf-8")
    claude.add(turn(Call("pay", {"amount": 5})), "Paid.")
    with Chat(place, "--tools", "till:pay", EVENER_CHAT_KEYS="vi") as chat:
        chat.say("Pay.")
        chat.until("[y]es")
        chat.send("y")
        chat.until("Paid.")
    assert (place.folder / "paid").read_text() == "5\n"


def test_what_the_search_found_is_taken_by_the_keys_that_move(place: Home, claude: FakeServer) -> None:
    claude.add("ok", "ok", "Fine.")
    with Chat(place) as chat:
        for text in ("green tea", "black tea"):
            chat.say(text)
            chat.until(f"> {text}\nok\n\n>")
        chat.send("draft\x12TEA")
        chat.until("search 'TEA': black tea")
        chat.send("\x12")
        chat.until("search 'TEA': green tea")
        chat.send("\x1b")
        chat.until("\n> draft\n")
        chat.send("\x12gree\x1b[C!\r")
        chat.until("Fine.")
    assert sent(claude) == "green tea!"


def test_a_long_entry_of_the_history_is_one_piece(place: Home, claude: FakeServer) -> None:
    pasted = "\n".join(f"row {number}" for number in range(20))
    claude.add("One.", "Two.")
    with Chat(place) as chat:
        chat.send(b"\x1b[200~" + pasted.encode() + b"\x1b[201~\r")
        chat.until("One.\n\n>")
        chat.send("\x1b[A")
        chat.until(lambda: chat.screen.text.splitlines()[-2] == "> [pasted 20 lines]")
        chat.say("!")
        chat.until("Two.")
    assert sent(claude) == f"{pasted}!"


EDITS = {
    "abc\x1b[D\x1b[Dx": "axbc",
    "one two\x1b[H1\x1b[F2": "1one two2",
    "one two three\x1bb\x1bbx": "one xtwo three",
    "one two\x01\x1bfx": "onex two",
    "one two\x1b\x7fx": "one x",
    "one a/b-c\x17x": "one x",
    "one two\x01\x0b\x19\x19": "one twoone two",
    "one\ntwo\x1b[Ax": "onex\ntwo",
    "one\ntwo\x1b[D\x1b[D\x1b[D\x1b[Dx": "onex\ntwo",
    "a\x1b[13;2ub": "a\nb",
    "e\u0301a\x1b[D\x7f": "a",
    "\U0001f469\u200d\U0001f4bb!\x1b[D\x7f": "!",
    "x\x1b[200~short\r\npaste\x1b[2J\x1b[201~y": "xshort\npastey",
    "one\x04two\x01\x04\x04": "etwo",
}


def test_keys_change_the_line(place: Home, claude: FakeServer) -> None:
    claude.add(*(f"Answer {number}." for number in range(len(EDITS))))
    with Chat(place, rows=50) as chat:
        for number, (keys, line) in enumerate(EDITS.items()):
            chat.send(f"{keys}\r")
            chat.until(f"Answer {number}.\n\n>")
            assert sent(claude) == line, keys


def test_ctrl_z_and_ctrl_l_draw_everything_again(place: Home, claude: FakeServer) -> None:
    """The process has no shell to go back to here, so the system lets it go on at once."""
    claude.add("One.")
    with Chat(place) as chat:
        chat.say("first")
        chat.until("One.\n\n>")
        chat.send("half")
        for key in ("\x1a", "\x0c"):
            chat.screen.feed(b"\x1b[H\x1b[2J")
            chat.send(key)
            chat.until("One.\n\n> half\n")
        chat.process.send_signal(signal.SIGCONT)
        chat.send("\x03\x04")
        assert chat.end() == 0
        assert chat.screen.modes["?2004"] == "l"


# Terminals.


def test_a_chat_fits_a_terminal_of_20_by_6(place: Home, claude: FakeServer) -> None:
    (place.folder / "till.py").write_text(GUARDED, encoding="utf-8")
    claude.add(f"A few words of tea.\n\n{TABLE}", turn(Call("pay", {"amount": 5})), "Paid.")
    chat = Chat(place, "--tools", "till:pay", columns=20, rows=6)
    try:
        chat.until("exit.")
        chat.say("Which tea?")
        chat.until("green")
        chat.until(lambda: chat.screen.text.splitlines()[-2] == ">")
        assert "A few words of tea." in chat.screen.whole
        chat.say("Pay.")
        chat.until("[y]es")
        chat.until("[a]lways")
        chat.send("y")
        chat.until("Paid.")
        chat.send("a line that is longer than the terminal is wide")
        chat.until("is wide")
        chat.send("\x15/mod\t")
        chat.until("> /model")
        chat.send("\x15/u\t")
        chat.until("/undo")
        chat.send("\x03\x04")
        assert chat.end() == 0
    finally:
        chat.__exit__(None, None, None)


def test_in_the_lowest_terminals_the_line_is_shown_whole(place: Home, claude: FakeServer) -> None:
    claude.add("A few words of tea.")
    chat = Chat(place, columns=30, rows=1)
    try:
        for columns, rows, shown in (
            (30, 1, "> what is tea"),
            (9, 2, "> what is\n   tea"),
            (9, 3, "> what is\n   tea\nanthropic"),
        ):
            chat.resize(columns, rows)
            chat.until(">")
            chat.send("what is tea")
            chat.until(shown)
            assert chat.screen.text.rstrip() == shown
            chat.send("\x15")
            chat.until(">")
            chat.until(lambda: "tea" not in chat.screen.text)
        chat.resize(30, 1)
        chat.say("Tea?")
        chat.until(lambda: "words of tea" in chat.screen.whole and chat.screen.text.strip() == ">")
        chat.send("/mod\t")
        chat.until("> /model")
        chat.send("\x03\x04")
        assert chat.end() == 0
    finally:
        chat.__exit__(None, None, None)


def test_a_dumb_terminal_shows_a_prompt(place: Home, claude: FakeServer) -> None:
    claude.add("Hello.")
    chat = Chat(place, TERM="dumb")
    try:
        chat.until("> ".rstrip())
        assert "/help for commands" in chat.screen.whole
        chat.send("Hi\n")
        chat.until("Hello.\n>")
        chat.send("/help\n")
        chat.until("Ctrl-C, Ctrl-D")
        assert "Ctrl-R" not in chat.screen.whole, "there is no line editor"
        chat.send("\x04")
        assert chat.end() == 0
        assert "\nContinue with: evener chat -r " in chat.screen.whole
        assert os.isatty(chat._ours)
    finally:
        chat.__exit__(None, None, None)
    assert json.dumps(asked(claude)).count("Hi") == 1


def test_a_terminal_that_is_closed_ends_the_chat(place: Home) -> None:
    with Chat(place) as chat:
        os.close(chat._ours)
        assert chat.process.wait(PATIENCE) >= 0, "it ends by itself"
        chat._ours = os.open(os.devnull, os.O_RDONLY)
