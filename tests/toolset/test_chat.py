"""The built-in tools in `evener chat` on a pseudo-terminal: an agent fixes a test, the user undoes it."""

import json

import pytest

from evener.testing.servers import Call, FakeServer, turn
from evener.toolset.shell.sandbox import bwrap_works, landlock_works
from tests.cli.conftest import home
from tests.cli.run import Home
from tests.cli.test_chat_terminal import Chat, claude, gpt, place

__all__ = ["claude", "gpt", "home", "place"]

CODE = "def add(a, b):\n    return a - b\n"
TEST = (
    "import unittest\nfrom calc import add\n\n\nclass Adds(unittest.TestCase):\n"
    "    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n"
)
NEITHER = landlock_works() and bwrap_works()


@pytest.mark.skipif(bool(NEITHER), reason=f"no sandbox works here: {NEITHER}")
def test_an_agent_fixes_a_test_and_the_user_brings_the_file_back(place: Home, claude: FakeServer) -> None:
    (place.folder / "calc.py").write_text(CODE)
    (place.folder / "test_calc.py").write_text(TEST)
    tests = {"command": "python3 -B -m unittest 2>&1 | tail -1"}
    change = {"command": "str_replace", "path": "calc.py", "old_str": "a - b", "new_str": "a + b"}
    claude.add(
        turn(Call("bash", tests)),
        turn(Call("str_replace_based_edit_tool", change)),
        turn(Call("bash", tests)),
        "It adds now.",
    )
    with Chat(place, "--tools", "files,search,shell", columns=100, rows=60) as chat:
        chat.say("Fix it.")
        for tool, times in (("shell", 1), ("edit", 1), ("shell", 2)):
            chat.until(lambda: chat.screen.whole.count(f"{tool} needs approval") == times)  # noqa: B023  # used at once
            chat.until("[y]es")
            chat.send("y")
        chat.until("It adds now.")
        assert (place.folder / "calc.py").read_text() == CODE.replace("-", "+")
        chat.say("!cat calc.py; echo $ANTHROPIC_API_KEY.")
        chat.until("return a + b")
        chat.say("/restore")
        chat.until("calc.py: restored")
    assert (place.folder / "calc.py").read_text() == CODE


def test_a_list_of_steps_is_shown_and_a_question_is_answered(place: Home, claude: FakeServer) -> None:
    steps = {"items": [{"text": "Ask for the colour", "status": "doing"}, {"text": "Paint"}]}
    claude.add(
        turn(Call("todo", steps)),
        turn(Call("ask_user", {"question": "Which colour do you want?", "choices": ["red", "blue"]})),
        "Blue it is.",
    )
    with Chat(place, "--tools", "todo,ask_user", columns=100, rows=40) as chat:
        chat.say("Paint it.")
        chat.until("Which colour do you want?")
        assert all(line in chat.screen.text for line in ("[>] Ask for the colour", "[ ] Paint", "- red", "- blue"))
        chat.say("blue")
        chat.until("Blue it is.")
    assert "blue" in json.dumps(claude.requests[-1].json["messages"][-1])
