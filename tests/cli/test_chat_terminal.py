"""`evener chat` as a real process in a real pseudo-terminal, read through an emulator; the providers are strict fakes."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Iterator
from types import TracebackType

import pytest

from evener.testing.servers import Call, FakeServer, Status, Text, Thinking, Tokens, faults, turn
from tests.cli.run import Home, command
from tests.cli.test_chat_emulator import Emulator
from tests.cli.test_complete import PNG, SENTINEL, asked
from tests.cli.test_run import TOOLS
from tests.patience import moment

SECONDS = 120.0
READY = "/help for commands"
CLAUDE, GPT = "anthropic:claude-opus-4-5", "openai:gpt-5.1"


class Chat:
    """A chat under way. `until` reads what it writes until the screen shows something."""

    def __init__(self, home: Home, *words: str, columns: int = 80, rows: int = 24, **environ: str) -> None:
        self.screen = Emulator(columns, rows)
        self._ours, theirs = pty.openpty()
        self._size(columns, rows)
        self.process = home.start_on(theirs, "chat", *words, **{"TERM": "xterm-256color", **environ})
        os.close(theirs)

    def __enter__(self) -> "Chat":
        self.until(READY)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(SECONDS)
        os.close(self._ours)

    def send(self, keys: str | bytes) -> None:
        """Type; a terminal takes a few thousand bytes at once, so what it writes is read meanwhile."""
        data = keys.encode() if isinstance(keys, str) else keys
        while data:
            readable, writable, _ = select.select([self._ours], [self._ours], [], SECONDS)
            if readable:
                self._read()
            if writable:
                data = data[os.write(self._ours, data[:1024]) :]

    def say(self, text: str) -> None:
        self.send(text + "\r")

    def until(self, wanted: str | Callable[[], bool], *, seconds: float = SECONDS) -> str:
        """Wait for a text on the screen, or for something to be true; what is on the screen then.

        A picture may come in several reads: the screen is looked at between pictures only.
        """
        shows = wanted if callable(wanted) else lambda: wanted in self.screen.text
        end = moment(seconds)
        while self.screen.modes.get("?2026") == "h" or not shows():
            left = end - moment()
            assert left > 0, f"still waiting for {wanted!r}; the screen is\n{self.screen.whole}"
            if select.select([self._ours], [], [], min(left, 0.2))[0] and not self._read():
                assert shows(), f"it has ended without {wanted!r}; the screen is\n{self.screen.whole}"
                break
        return self.screen.text

    def end(self) -> int:
        """Read to its end; the exit code."""
        while select.select([self._ours], [], [], SECONDS)[0] and self._read():
            pass
        return self.process.wait(SECONDS)

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(columns, rows)
        self._size(columns, rows)
        self.process.send_signal(signal.SIGWINCH)

    def _size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _read(self) -> bool:
        try:
            data = os.read(self._ours, 65536)
        except OSError:
            return False
        self.screen.feed(data)
        return bool(data)


@pytest.fixture
def claude() -> Iterator[FakeServer]:
    with FakeServer("anthropic_messages", key=SENTINEL) as server:
        yield server


@pytest.fixture
def gpt() -> Iterator[FakeServer]:
    with FakeServer("openai_responses", key=SENTINEL) as server:
        yield server


@pytest.fixture
def place(home: Home, claude: FakeServer, gpt: FakeServer) -> Home:
    """A home where two providers' rows lead to the fakes, and a module of tools."""
    home.configure(
        f'model = "{CLAUDE}"\n[providers.anthropic]\nbase_url = "{claude.url}"\n[providers.openai]\nbase_url = "{gpt.url}"\n'
    )
    home.environ |= {"ANTHROPIC_API_KEY": SENTINEL, "OPENAI_API_KEY": SENTINEL}
    (home.folder / "shop.py").write_text(TOOLS, encoding="utf-8")
    return home


SLOW = '''
import os
import time


def nap(name: str) -> str:
    """Nap until the test wakes it."""
    while not os.path.exists("awake"):
        time.sleep(0.02)
    return name
'''
MARKDOWN = "# Tea\n\nIt is **hot** and *good*:\n\n- green, with `leaves`\n- black\n\n```python\nprint('tea')\n```\nSee [it](http://tea.example)."


def test_a_conversation_shows_markdown_and_what_it_used(place: Home, claude: FakeServer) -> None:
    claude.add(turn(Text(MARKDOWN, pieces=17), usage=Tokens(input=1000, output=50, cached=400)), "Bye\x1b[2J!")
    with Chat(place) as chat:
        chat.say("Tell me about tea.")
        chat.until("See it (http://tea.example).")
        screen = chat.until("$0.")
        assert "> Tell me about tea.\nTea\n\nIt is hot and good:\n\n\u2022 green, with leaves\n\u2022 black\n" in screen
        assert "```python\nprint('tea')\n```" in screen
        status = chat.screen.lines[[i for i, line in enumerate(chat.screen.lines) if line][-1]]
        assert re.fullmatch(r"anthropic:claude-opus-4-5 · 1\.1k tokens · 40% cached · \$0\.\d{4} · context 1%", status)
        chat.say("Bye")
        chat.until("Bye!")
        assert "> Tell me about tea." in chat.screen.text
        chat.send("\x04")
        assert chat.end() == 0
        assert "evener chat -r" in chat.screen.text
    assert len(asked(claude)["messages"]) == 3  # type: ignore[arg-type]
    assert claude.rejected == []
    history = place.folder / "evener" / "chat_history"
    assert oct(history.stat().st_mode & 0o777) == "0o600"
    assert [json.loads(line) for line in history.read_text().splitlines()] == ["Tell me about tea.", "Bye"]


def test_a_switch_in_the_middle_shows_what_is_lost_and_goes_on(place: Home, claude: FakeServer, gpt: FakeServer) -> None:
    claude.add(turn(Thinking("Hm, tea."), "Green tea."))
    gpt.add("Oolong.")
    with Chat(place) as chat:
        chat.say("Which tea?")
        chat.until("Green tea.")
        assert "Thought for" in chat.screen.text
        chat.say(f"/model {GPT}")
        chat.until(f"Switched to {GPT}.")
        screen = chat.until("reasoning")
        assert "It gets the conversation with these changes:\n  dropped reasoning" in screen
        chat.say("And another?")
        chat.until("Oolong.")
        chat.until(f"{GPT} \N{MIDDLE DOT}")
        assert gpt.rejected == []
        assert "Green tea." in json.dumps(asked(gpt))
        chat.say("/model nobody:knows")
        chat.until("There is no provider 'nobody'")


def test_escape_interrupts_and_the_next_words_steer(place: Home, claude: FakeServer) -> None:
    claude.add(turn(Text("One two three four", pieces=4), faults=[faults.Stall(4)]), "Five.")
    with Chat(place) as chat:
        chat.say("Count.")
        chat.until("One t")
        chat.send("\x1b")
        screen = chat.until("Interrupted. Write a new message")
        assert "The text above is not part of the conversation" in screen
        chat.say("From five on.")
        chat.until("Five.")
    said = json.dumps(asked(claude)["messages"])
    assert "Count." in said
    assert "From five on." in said
    assert "One t" not in said


def test_what_is_sent_while_the_model_is_busy_steers_it(place: Home, claude: FakeServer) -> None:
    claude.add(turn(Text("Slowly", pieces=2), faults=[faults.Stall(4)]), "In French: oui.")
    with Chat(place) as chat:
        chat.say("Say yes.")
        chat.until("Slo")
        chat.say("In French!")
        chat.until("queued: In French!")
        chat.say("/usage")
        chat.until("tokens in")
        chat.say("/model")
        chat.until("queued: /model")
        chat.send("\x1b")
        chat.until("In French: oui.")
        screen = chat.until(f"The model is {CLAUDE}.")
        assert "queued" not in screen
    said = json.dumps(asked(claude)["messages"])
    assert "Say yes." in said
    assert "In French!" in said


def test_what_is_sent_while_a_tool_runs_is_told_with_its_result(place: Home, claude: FakeServer) -> None:
    (place.folder / "slow.py").write_text(SLOW, encoding="utf-8")
    claude.add(turn(Call("nap", {"name": "tea"})), "Rested, oui.")
    with Chat(place, "--tools", "slow:nap") as chat:
        chat.say("Nap.")
        chat.until("running nap")
        chat.say("In French!")
        chat.until("> In French!")
        (place.folder / "awake").touch()
        chat.until("Rested, oui.")
    last = asked(claude)["messages"][-1]["content"]  # type: ignore[index]
    assert [part["type"] for part in last] == ["tool_result", "text"]


def test_an_answer_that_broke_off_is_taken_off_the_screen(place: Home, claude: FakeServer) -> None:
    claude.add(turn(Text("First line\nsecond half of", pieces=4), faults=[faults.Cut(6)]), "The whole answer.")
    with Chat(place) as chat:
        chat.say("Go")
        screen = chat.until("The whole answer.")
        assert "partial answer was removed" in screen
        assert "First line" not in chat.screen.whole


def test_tools_run_with_their_names_and_failures_shown(place: Home, claude: FakeServer) -> None:
    claude.add(turn(Text("Let me see."), Call("lookup", {"item": "tea"})), "There are 3 left.")
    with Chat(place, "--tools", "shop:several", "-s", "You sell tea.") as chat:
        chat.say("/tools")
        chat.until("Look up an item.")
        chat.say("How much tea?")
        screen = chat.until("There are 3 left.")
        assert '\u2192 lookup {"item":' in screen
        assert asked(claude)["system"]


GUARDED = '''
from evener import tool


@tool(effect="write", approval=True)
def pay(amount: int) -> str:
    """Pay."""
    with open("paid", "a") as file:
        file.write(f"{amount}\\n")
    return f"paid {amount}"
'''


def test_a_tool_that_asks_first_is_decided_inline(place: Home, claude: FakeServer) -> None:
    (place.folder / "till.py").write_text(GUARDED, encoding="utf-8")
    paid = place.folder / "paid"
    for number in range(5):
        claude.add(turn(Call("pay", {"amount": 5})), f"Answer {number}.")
    with Chat(place, "--tools", "till:pay") as chat:
        chat.say("Pay.")
        screen = chat.until("Run it? [y]es  [n]o  [e]dit  [a]lways run pay")
        assert "pay needs approval (the tool 'pay' asks" in screen
        assert '  | {\n  |   "amount": 5\n  | }\nRun it?' in screen
        assert not paid.exists()
        chat.send("y")
        chat.until("Answer 0.")
        assert paid.read_text() == "5\n"
        chat.say("Again.")
        chat.until(lambda: chat.screen.text.count("pay needs approval") == 2)
        chat.until("[y]es")
        chat.send("n")
        chat.until("Why not?")
        chat.say("too much")
        chat.until("Answer 1.")
        assert "too much" in json.dumps(asked(claude))
        chat.say("Edited.")
        chat.until("[y]es")
        chat.send("e")
        chat.until('Arguments: {"amount":')
        chat.send("\x15")
        chat.say('{"amount": "x"}')
        chat.until("Refused:")
        chat.until("[y]es")
        chat.send("e")
        chat.until("Arguments:")
        chat.send("\x15")
        chat.say('{"amount": 3}')
        chat.until("Answer 2.")
        assert paid.read_text() == "5\n3\n"
        chat.say("Always.")
        chat.until("[y]es")
        chat.send("a")
        chat.until("pay runs without a question from now on, whatever its arguments.")
        chat.until("Answer 3.")
        chat.say("And again.")
        chat.until("Answer 4.")
        assert paid.read_text() == "5\n3\n5\n5\n"
    assert claude.rejected == []


def test_a_question_is_not_answered_by_somebody_who_is_writing(place: Home, claude: FakeServer) -> None:
    (place.folder / "till.py").write_text(GUARDED, encoding="utf-8")
    (place.folder / "slow.py").write_text(SLOW, encoding="utf-8")
    claude.add(turn(Call("nap", {"name": "tea"})), turn(Call("pay", {"amount": 5})), "Not paid.")
    with Chat(place, "--tools", "till:pay,slow:nap") as chat:
        chat.say("Pay.")
        chat.until("running nap")
        chat.send("y")
        chat.until("\n> y\n")
        (place.folder / "awake").touch()
        chat.until("Run it? (Ctrl-U, then answer) y\n")
        chat.send("y")
        chat.until("Run it? (Ctrl-U, then answer) yy\n")
        assert not (place.folder / "paid").exists()
        chat.send("\x15")
        chat.until("[y]es")
        chat.send("\x1b")
        chat.until("Why not?")
        chat.send("\r")
        chat.until("Not paid.")
    assert not (place.folder / "paid").exists()


def test_without_a_terminal_nothing_that_asks_first_is_run(place: Home, claude: FakeServer) -> None:
    (place.folder / "till.py").write_text(GUARDED, encoding="utf-8")
    claude.add(turn(Call("pay", {"amount": 5})), "Not paid.")
    done = place.run("chat", "--tools", "till:pay", stdin=b"Pay.\n")
    assert (done.returncode, done.stdout) == (0, b"Not paid.\n"), done.stderr
    assert not (place.folder / "paid").exists()
    assert b"There is no terminal to ask on: rejected." in done.stderr


def test_a_resize_draws_everything_again(place: Home, claude: FakeServer) -> None:
    words = " ".join(f"word{number}" for number in range(40))
    claude.add(words)
    with Chat(place) as chat:
        chat.say("Go")
        chat.until("word39")
        chat.send("half a line")
        chat.until("half a line")
        for columns, rows in ((40, 12), (100, 30), (30, 10)):
            chat.resize(columns, rows)
            chat.until(lambda columns=columns: _is_drawn(chat.screen, columns))  # type: ignore[misc]
            joined = " ".join(chat.screen.text.split())
            assert joined.count("word39") == 1
            assert joined.count("half a line") == 1
        chat.send(" here")
        chat.until(lambda: "half a line here" in " ".join(chat.screen.text.split()))


def _is_drawn(screen: Emulator, columns: int) -> bool:
    """Whether the rows end where words of this width end, and the input and the status stand at the bottom."""
    lines = screen.text.splitlines()
    words = " ".join(screen.text.split())
    return (
        bool(lines)
        and lines[-1].startswith("anthropic")
        and "word39" in words
        and "half a line" in words
        and any(columns - 8 < len(line) <= columns for line in lines)
    )


def test_bytes_that_are_no_text_are_replaced(place: Home, claude: FakeServer) -> None:
    claude.add("Read.", "Read again.")
    with Chat(place) as chat:
        chat.send(b"caf\xe9\r")
        chat.until("Read.")
        chat.send(b"\x1b[200~" + b"\xff\xfe\r" * 10 + b"\x1b[201~\r")
        chat.until("Read again.")
    sent = [message["content"][0]["text"] for message in asked(claude)["messages"]]  # type: ignore[attr-defined]
    assert sent == ["caf\ufffd", "Read.", "\n".join(["\ufffd\ufffd"] * 10)]


def test_ten_thousand_pasted_lines_are_one_block_and_sent_whole(place: Home, claude: FakeServer) -> None:
    pasted = "\n".join(f"line {number} @shop.py" for number in range(10_000))
    claude.add("Long.")
    with Chat(place) as chat:
        chat.send("Read: ")
        chat.send(b"\x1b[200~" + pasted.replace("\n", "\r").encode() + b"\x1b[201~")
        screen = chat.until("[pasted 10,000 lines]")
        assert "line 9999" not in screen
        chat.say(" Now what?")
        screen = chat.until("Long.")
        assert "> Read: [pasted 10,000 lines] Now what?" in screen
    sent = asked(claude)["messages"][0]["content"][0]["text"]  # type: ignore[index]
    assert sent == f"Read: {pasted} Now what?"


def test_ctrl_c_clears_the_line_and_twice_leaves(place: Home) -> None:
    with Chat(place) as chat:
        chat.send("never sent")
        chat.until("never sent")
        chat.send("\x03")
        chat.until(lambda: "never sent" not in chat.screen.text and "Press Ctrl-C again" in chat.screen.text)
        chat.send("x\x7f")
        chat.send("\x03")
        chat.until(lambda: chat.screen.text.count("Press Ctrl-C again") == 2)
        chat.send("\x03")
        assert chat.end() == 130
        assert chat.screen.modes["?2004"] == "l"


def test_ctrl_c_stops_an_answer_and_the_terminal_is_as_it_was(place: Home, claude: FakeServer) -> None:
    claude.add(turn(Text("One two three four", pieces=4), faults=[faults.Stall(4)]))
    with Chat(place) as chat:
        before = termios.tcgetattr(chat._ours)
        assert not before[3] & termios.ECHO
        chat.say("Count.")
        chat.until("One t")
        chat.send("\x03")
        chat.until("Interrupted.")
        chat.send("\x04")
        assert chat.end() == 0


def test_undo_takes_the_last_exchange_back(place: Home, claude: FakeServer) -> None:
    claude.add("One.", "Two.", "Three.")
    with Chat(place) as chat:
        chat.say("first")
        chat.until("One.")
        chat.say("second")
        chat.until("Two.")
        chat.say("/undo")
        chat.until("Undone: 'second'")
        chat.send("\x1b[A\x1b[A")  # /undo, then what was taken back
        chat.until(lambda: chat.screen.text.splitlines()[-2] == "> second")
        chat.say(", again")
        chat.until("Three.\n\n>")
        assert [message["content"][0]["text"] for message in asked(claude)["messages"]] == ["first", "One.", "second, again"]  # type: ignore[attr-defined]
        chat.say("/usage")
        chat.until("requests      3")
        for what, left in (("second, again", 2), ("first", 0)):
            chat.say("/undo")
            chat.until(f"Undone: '{what}' and what followed. {left} messages left.")
        chat.say("/undo")
        chat.until("nothing to undo yet")


def test_an_unknown_command_names_the_near_one(place: Home) -> None:
    with Chat(place) as chat:
        chat.say("/modle gpt")
        chat.until("Did you mean /model?")
        chat.say("/help")
        chat.until(lambda: "switch the model" in chat.screen.whole)


def test_errors_are_shown_with_what_to_do_and_the_chat_goes_on(place: Home, claude: FakeServer) -> None:
    claude.add(Status(401), "It works now.", Status(429, retry_after=0.01), Status(429, retry_after=600), "Back.")
    with Chat(place) as chat:
        chat.say("Hi")
        screen = chat.until("evener keys set anthropic")
        assert "HTTP 401" in screen
        chat.say("/continue")
        chat.until("It works now.")
        chat.say("More")
        screen = " ".join(chat.until("/continue retries").split())
        assert "HTTP 429" in screen
        assert SENTINEL not in chat.screen.whole


def test_history_is_searched_and_completed_over_sessions(place: Home, claude: FakeServer) -> None:
    claude.add("ok", "ok2")
    (place.folder / "notes.txt").write_text("buy oolong", encoding="utf-8")
    with Chat(place) as chat:
        chat.say("tell me about green tea")
        chat.until("ok")
        chat.send("\x04")
        assert chat.end() == 0
    with Chat(place) as chat:
        chat.send("\x12green")
        chat.until("search 'green': tell me about green tea")
        chat.send("\r @no\t")
        chat.until("> tell me about green tea @notes.txt")
        chat.send("\r")
        chat.until("ok2")
        assert "Attached notes.txt (10 bytes)." in chat.screen.text
    assert "buy oolong" in json.dumps(asked(claude))


def test_a_pasted_path_of_a_picture_is_attached(place: Home, claude: FakeServer) -> None:
    (place.folder / "my tea.png").write_bytes(PNG)
    claude.add("A cup.")
    with Chat(place) as chat:
        chat.send(b"What is this? \x1b[200~" + str(place.folder / "my tea.png").encode() + b"\x1b[201~\r")
        chat.until("A cup.")
    assert '"media_type": "image/png"' in json.dumps(asked(claude))


def test_wide_characters_and_several_lines_are_written_where_they_belong(place: Home, claude: FakeServer) -> None:
    claude.add("\u597d\u3002")
    with Chat(place, columns=30) as chat:
        chat.send("\u4f60\u597d\nsecond\x1b\rthird\\\rfourth")
        chat.until("fourth")
        lines = chat.screen.text.splitlines()
        assert lines[-5:-1] == ["> \u4f60\u597d", "  second", "  third", "  fourth"]
        chat.send("\x1b[A\x1b[A\x1b[A\x1b[Dx\r")
        chat.until("\u597d\u3002")
    assert asked(claude)["messages"][0]["content"][0]["text"] == "\u4f60x\u597d\nsecond\nthird\nfourth"  # type: ignore[index]


def test_without_colour_the_text_stays_as_it_was_written(place: Home, claude: FakeServer) -> None:
    claude.add("It is **hot**.")
    with Chat(place, NO_COLOR="1") as chat:
        chat.say("Tea?")
        chat.until("It is **hot**.")


def test_a_chat_goes_on_with_a_thread_and_stops_at_its_cost(place: Home, claude: FakeServer) -> None:
    claude.add("One.", turn("Two.", usage=Tokens(input=100_000, output=50_000)))
    with Chat(place) as chat:
        chat.say("first")
        chat.until("One.\n\n>")
        chat.send("\x04")
        chat.end()
        thread = re.findall(r"-r (\w+)", chat.screen.text)[0]
    with Chat(place, "--thread", thread, "--max-cost", "1.7") as chat:
        chat.until("Resuming (2 earlier messages).")
        chat.say("second")
        chat.until("Two.")
        assert len(asked(claude)["messages"]) == 3  # type: ignore[arg-type]
        chat.say("third")
        chat.until("has used up its $1.7")


def test_a_terminal_that_goes_away_ends_the_chat(place: Home) -> None:
    with Chat(place) as chat:
        chat.process.send_signal(signal.SIGTERM)
        assert chat.end() == 130
        assert chat.screen.modes["?2004"] == "l"


# Without a terminal.


def test_piped_lines_are_messages_and_answers_are_plain(place: Home, claude: FakeServer) -> None:
    claude.add("It is **hot**\x1b[2J.", "Two.")
    done = place.run("chat", stdin=b"first \\\nof two lines\n/usage\n/tols\nsecond\n")
    assert (done.returncode, done.stdout) == (1, b"It is **hot**.\nTwo.\n"), done.stderr
    assert b"tokens in" in done.stderr
    assert b"Did you mean /tools?" in done.stderr
    messages = asked(claude)["messages"]
    assert messages[0]["content"][0]["text"] == "first \nof two lines"  # type: ignore[index]


def test_piped_lines_go_on_after_an_error(place: Home, claude: FakeServer) -> None:
    claude.add(Status(401), "Fine.")
    done = place.run("chat", stdin=b"first\nsecond\n")
    assert (done.returncode, done.stdout) == (1, b"Fine.\n"), done.stderr
    assert b"evener keys set anthropic" in done.stderr
    assert place.run("chat", stdin=b"").returncode == 0


def test_a_file_and_nothing_at_all_can_stand_in_for_a_pipe(place: Home, claude: FakeServer) -> None:
    claude.add("Read.")
    (place.folder / "lines").write_text("from a file", encoding="utf-8")
    for name, said in (("lines", b"Read.\n"), (os.devnull, b"")):
        with (place.folder / name).open("rb") as file:
            done = subprocess.run(
                command("chat"), stdin=file, capture_output=True, env=place.environ, cwd=place.folder, timeout=120, check=False
            )
        assert (done.returncode, done.stdout) == (0, said), done.stderr


def test_a_dumb_terminal_gets_lines_and_is_asked_by_lines(place: Home, claude: FakeServer) -> None:
    (place.folder / "till.py").write_text(GUARDED, encoding="utf-8")
    claude.add(turn(Call("pay", {"amount": 5})), "Paid.")
    chat = Chat(place, "--tools", "till:pay", TERM="dumb")
    try:
        chat.send("Pay.\n")
        chat.until("[y]es")
        chat.send("y\n")
        chat.until("Paid.")
        chat.process.send_signal(signal.SIGINT)
        assert chat.end() == 130
        assert "Continue with: evener chat --tools till:pay -r " in chat.screen.whole.replace("\n", "")
    finally:
        chat.__exit__(None, None, None)
    assert (place.folder / "paid").read_text() == "5\n"


def test_a_wrong_call_is_told_before_anything_is_asked(place: Home) -> None:
    for words in (("--max-cost", "nothing"), ("--harness", "nobody"), ("--tools", "nowhere:x"), ("-m", "nobody:x")):
        assert place.run("chat", *words).returncode == 2
