"""The chat in tmux, from the first key to the last: every item of its surface once, in a terminal that is not ours."""

import pytest

from evener.testing.servers import Call, FakeServer, turn
from tests.cli.kept import said
from tests.cli.run import Home, command
from tests.cli.test_chat_items import shop  # noqa: F401 - fixtures
from tests.cli.test_chat_terminal import claude, gpt, place  # noqa: F401 - fixtures
from tests.cli.tmux import PROGRAM, Tmux

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="tmux is not installed: `make browser` installs it")
WORDS = command("chat", "--tools", "store:both,till:pay")


def test_calls_decisions_and_results(shop: Home, claude: FakeServer) -> None:  # noqa: F811
    claude.add(turn(Call("stock", {"item": "tea"}), Call("broken", {"item": "tea"})), "There are **3**.")
    claude.add(turn(Call("pay", {"amount": 5})), "Paid.")
    with Tmux(shop, WORDS, rows=40) as pane:
        pane.until("/help for commands")
        pane.say("How much tea?")
        screen = pane.until("There are 3.")
        assert "= tea: 3 left (+40 lines, Ctrl-O)" in screen
        assert "broken failed: " in screen
        pane.keys("C-o")
        pane.until("| shelf 39")
        pane.say("Pay.")
        pane.until("[y]es")
        pane.keys("y")
        pane.until(lambda screen: "Paid." in screen and "Allowed" in screen and "= paid 5" in screen)
        pane.say("!echo of the sandbox")
        pane.until(
            lambda screen: "\n  of the sandbox" in screen or "of the sandbox\n" in screen.replace("!echo of the sandbox\n", "")
        )
        pane.resize(60, 20)
        pane.until(lambda screen: max(map(len, screen.split("\n"))) <= 60 and "Paid." in screen)


def test_conversations_and_models(shop: Home, claude: FakeServer) -> None:  # noqa: F811
    said(shop, "How much cocoa?", "9 bags.", name="chat")
    claude.add("3 bags.", "Still 9.")
    with Tmux(shop, WORDS) as pane:
        pane.until("/help for commands")
        pane.say("How much tea?")
        pane.until("3 bags.")
        pane.say("/new")
        pane.until("This is a new conversation.")
        pane.say("/resume")
        pane.until("Which conversation?")
        pane.keys("Down", "Up")
        pane.keys("c", "o", "c", "o", "a")
        pane.until(lambda screen: "Which conversation? cocoa" in screen)
        pane.keys("Enter")
        pane.until("Resuming (2 earlier messages).")
        pane.say("Sure?")
        pane.until("Still 9.")
        pane.say("/continue")
        pane.until("there is nothing to continue")
        pane.say("/models smollm2")
        pane.until("Which model?")
        pane.keys("Enter")
        pane.until("Switched to local:smollm2.")
        pane.keys("C-d")
        pane.until("Continue with: evener chat")
