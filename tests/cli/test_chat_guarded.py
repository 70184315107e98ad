"""What must not go wrong in a chat: keys that decide too early, prints of tools on the screen, pictures that get lost.

A real process in a real pseudo-terminal; the providers are strict fakes.
"""

import json
import os
import re
import shlex
from collections.abc import Iterator

import pytest

from evener.testing.servers import Call, FakeServer, Text, Thinking, turn
from tests.cli.run import Home
from tests.cli.test_chat_terminal import CLAUDE, GPT, Chat
from tests.cli.test_complete import PNG, SENTINEL, asked
from tests.patience import at_some_pace

TOOLS = '''
import os
import subprocess
import sys
import time
from decimal import Decimal

from evener import Harness, Limits, tool
from evener.cli.chat import question

question.PAUSE *= float(os.environ.get("PACE", "1"))


@tool(effect="write", approval=True)
def pay(amount: int, note: str = "") -> str:
    """Pay."""
    with open("paid", "a") as file:
        file.write(f"{amount}\\n")
    return f"paid {amount}"


def nap(name: str) -> str:
    """Nap until the test wakes it."""
    while not os.path.exists("awake"):
        time.sleep(0.02)
    return name


def shout(lines: int) -> str:
    """Print."""
    print("\\x1b[2J\\x1b[Hprinted by a tool", flush=True)
    sys.stderr.write("\\x1b[31mwritten by a tool\\x1b[0m\\n")
    os.write(1, b"past the streams\\n")
    subprocess.run([sys.executable, "-c", "print('by a child')"], check=True)
    for number in range(lines):
        print(f"line {number}")
    return "\\x1b[31mred"


async def shout_at_once(lines: int) -> str:
    """Print more than a pipe holds, in the event loop."""
    print("x" * lines)
    return "done"


@tool(effect="write")
def crash(amount: int) -> str:
    """Pay, and die."""
    with open("paid", "a") as file:
        file.write(f"{amount}\\n")
    if not os.path.exists("again"):
        os.kill(os.getpid(), 9)
    return f"paid {amount}"


several = [pay, nap, shout, shout_at_once]
tight = Harness("MODEL", tools=[nap], limits=Limits(requests=1, cost=Decimal("0.5")), store="tight.db", name="tight")
asking = Harness("MODEL", tools=[crash], store="asking.db", name="asking", unknown_outcome="ask")
gated = Harness("MODEL", interrupts=["output"], store="gated.db", name="gated")
'''


@pytest.fixture
def claude() -> Iterator[FakeServer]:
    with FakeServer("anthropic_messages", key=SENTINEL) as server:
        yield server


@pytest.fixture
def place(home: Home, claude: FakeServer) -> Iterator[Home]:
    with FakeServer("openai_responses", key=SENTINEL) as gpt:
        gpt.add("From gpt.", "More from gpt.")
        rows = f'[providers.anthropic]\nbase_url = "{claude.url}"\n[providers.openai]\nbase_url = "{gpt.url}"\n'
        home.configure(f'model = "{CLAUDE}"\n{rows}')
        home.environ |= {"ANTHROPIC_API_KEY": SENTINEL, "OPENAI_API_KEY": SENTINEL}
        (home.folder / "shop.py").write_text(TOOLS.replace("MODEL", CLAUDE), encoding="utf-8")
        yield home
        assert (claude.rejected, gpt.rejected) == ([], [])


def effects(home: Home) -> list[str]:
    paid = home.folder / "paid"
    return paid.read_text().split() if paid.exists() else []


# Keys.


def test_a_key_pressed_twice_does_not_allow_a_second_call_that_nobody_has_read(place: Home) -> None:
    """The keys must come in the pause before a key counts."""

    def attempt(pace: float) -> None:
        (place.folder / "paid").unlink(missing_ok=True)
        calls = turn(Call("pay", {"amount": 1}), Call("pay", {"amount": 1_000_000}))
        with FakeServer("anthropic_messages", [calls, "One of them."], key=SENTINEL) as server:
            place.configure(f'model = "{CLAUDE}"\n[providers.anthropic]\nbase_url = "{server.url}"\n')
            press_twice(place, pace)
            assert server.rejected == []
        assert effects(place) == ["1"]

    at_some_pace(attempt)


def press_twice(place: Home, pace: float) -> None:
    with Chat(place, "--tools", "shop:several", PACE=str(pace)) as chat:
        chat.say("Pay.")
        chat.until("[y]es")
        chat.send("y")
        chat.until(lambda: "1000000" in chat.screen.text)
        chat.send("y")
        chat.send("y")
        chat.until(lambda: "Run it? ..." in chat.screen.text or bool(effects(place)))
        chat.until(lambda: "[y]es" in chat.screen.text or bool(effects(place)))
        assert effects(place) == [], "the whole batch waits"
        chat.send("n")
        chat.until("Why not?")
        chat.say("too much")
        chat.until("One of them.")


def test_letters_of_a_message_are_no_answer(place: Home, claude: FakeServer) -> None:
    """A message may be begun at a question: no letter of it decides, however slowly it is written."""
    claude.add(turn(Call("pay", {"amount": 7})), "As you say.")
    with Chat(place, "--tools", "shop:several") as chat:
        chat.say("Pay.")
        chat.until("[y]es")
        for letter in "/usaye":
            chat.send(letter)
            chat.until(lambda letter=letter: re.search(rf"answer\) /u?s?a?y?e?{letter}?$", chat.screen.text, re.M) is not None)  # type: ignore[misc]
        assert effects(place) == []
        chat.send("\x15")
        chat.until("[y]es")
        chat.say("hm, use cash")
        chat.until("> hm, use cash")
        chat.until("[y]es")
        chat.send("y")
        chat.until("As you say.")
    assert effects(place) == ["7"]
    assert "hm, use cash" in json.dumps(asked(claude))


# Prints.


def test_what_tools_print_is_told_in_plain_lines_and_does_not_touch_the_screen(place: Home, claude: FakeServer) -> None:
    claude.add(turn(Text("First."), Call("shout", {"lines": 200})), turn(Call("shout_at_once", {"lines": 300_000})), "Then.")
    with Chat(place, "--tools", "shop:several", columns=100, rows=60) as chat:
        chat.say("Shout.")
        screen = chat.until("more lines, not shown")
        assert screen.startswith("anthropic:claude-opus-4-5"), "nothing was erased"
        for line in ("printed by a tool", "written by a tool", "past the streams", "by a child", "line 0"):
            assert f"  | {line}\n" in screen
        assert "line 199" not in screen
        assert re.search(r"  \| and \d+ more lines", screen)
        assert screen.index("First.") < screen.index("shout {") < screen.index("printed by a tool") < screen.index("Then.")
        chat.send("\x04")
        assert chat.end() == 0


def test_what_is_printed_outside_the_chat_is_where_it_belongs(place: Home) -> None:
    """The outputs lead to the terminal again when the chat has ended."""
    (place.folder / "sitecustomize.py").write_text("import atexit\natexit.register(print, 'the very end')\n", encoding="utf-8")
    with Chat(place, PYTHONPATH=os.pathsep.join([str(place.folder), place.environ.get("PYTHONPATH", "")])) as chat:
        chat.send("\x04")
        assert chat.end() == 0
        assert "the very end" in chat.screen.text


# Pictures.


def test_a_picture_sent_while_a_tool_runs_reaches_the_model(place: Home, claude: FakeServer) -> None:
    (place.folder / "tea.png").write_bytes(PNG)
    (place.folder / "note.txt").write_text("buy oolong", encoding="utf-8")
    claude.add(turn(Call("nap", {"name": "a"})), "Seen.")
    with Chat(place, "--tools", "shop:several") as chat:
        chat.say("Nap.")
        chat.until("running nap")
        chat.say("look at @tea.png and @note.txt")
        chat.until("Attached note.txt")
        (place.folder / "awake").touch()
        chat.until("Seen.")
    last = asked(claude)["messages"][-1]["content"]  # type: ignore[index]
    assert [part["type"] for part in last] == ["tool_result", "text", "image", "text"]
    assert "buy oolong" in json.dumps(last)


# Going on.


def test_the_last_line_is_a_command_that_goes_on(place: Home, claude: FakeServer) -> None:
    claude.add(turn(Thinking("hm"), Text("One.")))
    with Chat(place, "--tools", "shop:several", "--store", "my chats.db", "-s", "Be brief.") as chat:
        chat.say("first")
        chat.until("One.")
        chat.say(f"/model {GPT}")
        chat.until("Switched to")
        chat.say("second")
        chat.until("From gpt.\n\n>")
        chat.send("\x04")
        chat.end()
        [hint] = re.findall(r"Continue with: evener (.*)", " ".join(chat.screen.text.split("\n")))
    words = shlex.split(hint)
    assert words[:-1] == ["chat", "--tools", "shop:several", "--store", "my chats.db", "-m", GPT, "-r"]
    done = place.run(*words, stdin=b"/tools\nthird\n")
    assert (done.returncode, done.stdout) == (0, b"More from gpt.\n"), done.stderr
    assert b"pay " in done.stderr
    shown = json.loads(place.run("show", words[-1], "--store", "my chats.db", "--json").stdout)
    assert json.dumps(shown).count("Be brief.") == 2, "once for each model: the system prompt is that of the log"


def test_a_chat_goes_on_with_the_model_and_the_system_prompt_of_its_log(place: Home, claude: FakeServer) -> None:
    claude.add("From claude.")
    assert place.run("chat", "-m", GPT, "-s", "Be brief.", stdin=b"first\n").stdout == b"From gpt.\n"
    assert place.run("chat", "-c", stdin=b"second\n").stdout == b"More from gpt.\n"
    other = place.run("chat", "-c", "-m", CLAUDE, stdin=b"third\n")
    assert (other.returncode, other.stdout) == (0, b"From claude.\n"), other.stderr
    assert "Be brief." in json.dumps(asked(claude)["system"])


def test_what_does_not_outlive_the_chat_is_not_promised(place: Home, claude: FakeServer) -> None:
    claude.add("One.")
    with Chat(place, "--store", "memory") as chat:
        chat.say("first")
        chat.until("One.")
        chat.send("\x04")
        assert chat.end() == 0
        assert "Continue with" not in chat.screen.text


def test_a_chat_that_is_opened_again_says_what_waits(place: Home, claude: FakeServer) -> None:
    claude.add(turn(Call("pay", {"amount": 7, "note": "a\u200bb"})), "Paid.")
    with Chat(place, "--tools", "shop:several") as chat:
        chat.say("Pay.")
        screen = chat.until("[y]es")
        assert '"note": "a\\u200bb"' in screen, "what cannot be seen is written out"
        chat.send("\x03\x03")
        assert chat.end() == 130
    with Chat(place, "--tools", "shop:several", "-c") as chat:
        screen = chat.until("Use /continue to decide.")
        assert "The last run waits for a decision:\npay needs approval" in screen
        chat.send("\x04")
        chat.end()
    [thread] = json.loads(place.run("threads", "--json").stdout)
    assert place.run("approve", "--tools", "shop:several", thread["thread"]).returncode == 0
    with Chat(place, "--tools", "shop:several", "-c") as chat:
        chat.until("which was made. Use /continue to resume it.")
        chat.say("/continue")
        chat.until("Paid.")
    assert effects(place) == ["7"]


def test_who_decided_in_the_chat_is_on_record(place: Home, claude: FakeServer) -> None:
    claude.add(turn(Call("pay", {"amount": 7})), "Paid.")
    with Chat(place, "--tools", "shop:several", LOGNAME="ann") as chat:
        chat.say("Pay.")
        chat.until("[y]es")
        chat.send("y")
        chat.until("Paid.")
        chat.send("\x04")
        chat.end()
    [thread] = json.loads(place.run("threads", "--json").stdout)
    assert "allowed by ann: pay" in place.run("show", thread["thread"]).stdout.decode()


# Limits.


def test_the_allowance_of_a_chat_leaves_the_other_limits_of_its_harness(place: Home, claude: FakeServer) -> None:
    (place.folder / "awake").touch()
    claude.add(turn(Call("nap", {"name": "a"})), "Never asked for.")
    done = place.run("chat", "--harness", "shop:tight", "--max-cost", "5", stdin=b"Nap.\n")
    assert (done.returncode, b"1 of 1 model requests" in done.stderr) == (1, True), done.stderr


# Calls that were interrupted.


def test_in_a_chat_an_interrupted_call_is_not_run_again_by_habit(place: Home, claude: FakeServer) -> None:
    claude.add(turn(Call("crash", {"amount": 7})), "I know.")
    with Chat(place, "--harness", "shop:asking") as chat:
        chat.say("Pay.")
        assert chat.end() == -9
    with Chat(place, "--harness", "shop:asking", "-c") as chat:
        chat.say("/continue")
        screen = chat.until("Did it take effect? [y]es  [u]nknown  [r]un it again")
        assert "crash was interrupted, and it is not known whether it took effect:" in screen
        chat.send("n")
        chat.until("(Ctrl-U, then answer)")
        chat.send("\x15")
        chat.until("[y]es")
        chat.send("y")
        chat.until("What was its result?")
        chat.say("paid 7")
        chat.until("I know.")
    assert effects(place) == ["7"]
    assert "paid 7" in json.dumps(asked(claude))
