"""What a chat shows of calls, and how it goes from one conversation and model to another: keys on a real pseudo-terminal."""

import json

import pytest

from evener.testing.servers import Call, FakeServer, Status, turn
from tests.cli.kept import said
from tests.cli.run import Home
from tests.cli.test_chat_terminal import CLAUDE, GPT, GUARDED, Chat, claude, gpt, place  # noqa: F401 - fixtures

TOOLS = '''
def stock(item: str) -> str:
    """Look up an item."""
    return "\\n".join([f"{item}: 3 left", *(f"shelf {number}" for number in range(40))])


def broken(item: str) -> str:
    """Look up an item elsewhere."""
    raise ValueError("the shelf is empty")


both = [stock, broken]
'''
UP, DOWN, ESCAPE, CTRL_O = "\x1b[A", "\x1b[B", "\x1b", "\x0f"


@pytest.fixture
def shop(place: Home) -> Home:  # noqa: F811
    (place.folder / "store.py").write_text(TOOLS, encoding="utf-8")
    (place.folder / "till.py").write_text(GUARDED, encoding="utf-8")
    return place


def test_a_call_shows_a_short_result_and_ctrl_o_all_of_it(shop: Home, claude: FakeServer) -> None:  # noqa: F811
    claude.add(turn(Call("stock", {"item": "tea"})), "There are 3.")
    with Chat(shop, "--tools", "store:both") as chat:
        chat.send(CTRL_O)
        chat.until("There are no calls to expand.")
        chat.say("How much tea?")
        screen = chat.until("There are 3.")
        assert "  = tea: 3 left (+40 lines, Ctrl-O)" in screen
        assert "shelf 39" not in screen
        chat.send(CTRL_O)
        chat.until("| shelf 39")
        assert '|   "item": "tea"' in chat.screen.whole


def test_a_call_that_fails_says_what_and_why_once(shop: Home, claude: FakeServer) -> None:  # noqa: F811
    claude.add(turn(Call("broken", {"item": "tea"})), "It did not work.")
    with Chat(shop, "--tools", "store:both") as chat:
        chat.say("How much tea?")
        screen = chat.until("It did not work.")
        assert "broken failed: " in screen
        assert " ".join(screen.split()).count("the shelf is empty") == 1


def test_the_decision_of_a_person_stays_on_the_screen(shop: Home, claude: FakeServer) -> None:  # noqa: F811
    claude.add(turn(Call("pay", {"amount": 5})), "Paid.", turn(Call("pay", {"amount": 7})), "Not paid.")
    with Chat(shop, "--tools", "till:pay", LOGNAME="ann") as chat:
        chat.say("Pay.")
        chat.until("[y]es")
        chat.send("y")
        assert "Allowed by ann: pay" in chat.until("Paid.")
        chat.say("Again.")
        chat.until(lambda: chat.screen.text.count("pay needs approval") == 2)
        chat.until("[y]es")
        chat.send("n")
        chat.until("Why not?")
        chat.say("too much")
        assert "Rejected by ann: pay (too much)" in chat.until("Not paid.")


def test_new_begins_another_conversation_and_resume_picks_one(shop: Home, claude: FakeServer) -> None:  # noqa: F811
    said(shop, "How much coffee?", "None.", name="chat")
    said(shop, "How much cocoa?", "9 bags.", name="chat")
    claude.add("3 bags.", "Hello.", "Still 9.")
    with Chat(shop) as chat:
        chat.say("How much tea?")
        chat.until("3 bags.")
        chat.say("/new")
        chat.until("This is a new conversation.")
        chat.until("evener chat -r")
        chat.say("Hello?")
        chat.until("Hello.")
        chat.say("/resume")
        chat.until("Which conversation?")
        chat.until("> ")
        chat.send(DOWN + DOWN + UP + DOWN)
        chat.send("cocoa")
        chat.until(lambda: "coffee" not in chat.screen.text.partition("Which conversation?")[0].rpartition("/resume")[2])
        chat.send("\r")
        chat.until("Resuming (2 earlier messages).")
        chat.until("> How much cocoa?")
        chat.say("Sure?")
        chat.until("Still 9.")
        chat.say("/resume")
        chat.until(lambda: chat.screen.text.rstrip().count("Which conversation?") >= 1)
        chat.send(ESCAPE)
        chat.until(lambda: "Which conversation?" not in chat.screen.text)
    sent = [str(message["content"]) for message in claude.requests[-1].json["messages"]]
    assert ["cocoa" in sent[0], "9 bags" in sent[1], "Sure?" in sent[2]] == [True] * 3
    assert len(claude.requests[1].json["messages"]) == 1  # after /new nothing of the other conversation


def test_models_are_picked_from_a_list(shop: Home, claude: FakeServer) -> None:  # noqa: F811
    with Chat(shop) as chat:
        chat.say("/models")
        chat.until("Which model?")
        chat.send("smollm2")
        chat.until("> local:smollm2")
        chat.send("\r")
        chat.until("Switched to local:smollm2.")
        chat.say("/models nothing-like-that")
        chat.until("No model that is known here contains")
    assert claude.requests == []


def test_a_conversation_that_goes_on_pairs_each_question_with_its_own_answer(shop: Home, claude: FakeServer) -> None:  # noqa: F811
    claude.add("The first answer.", Status(400), "The third answer.")
    with Chat(shop) as chat:
        for prompt, shown in (("one", "The first answer."), ("two", "/continue retries"), ("three", "The third answer.")):
            chat.say(prompt)
            chat.until(shown)
        chat.until("were merged\n\n>")
        chat.send("\x04")
        chat.end()
    with Chat(shop, "-c") as chat:
        lines = chat.until("The third answer.").split("\n")
    found = [line for line in lines if line.startswith(("> o", "> t", "The ", "(no"))]
    assert found == ["> one", "The first answer.", "> two", "(no answer)", "> three", "The third answer."]


def test_what_is_typed_before_the_prompt_is_there_is_sent(shop: Home, claude: FakeServer) -> None:  # noqa: F811
    claude.add("Good morning.")
    chat = Chat(shop)
    chat.send("Hello?\r")
    with chat:
        chat.until("Good morning.")


def test_marks_of_another_provider_are_noise_unless_they_are_wanted(
    shop: Home,
    claude: FakeServer,  # noqa: F811
    gpt: FakeServer,  # noqa: F811
) -> None:
    gpt.add(turn(Call("stock", {"item": "tea"})), "There are 3.")
    claude.add("Hi.", "Hi.")
    words = ("run", "--tools", "store:both")
    before = json.loads(shop.run(*words, "-m", GPT, "--json", "How much tea?").stdout)["thread"]
    again = (*words, "-m", CLAUDE, "--thread", before, "Say hi")
    quiet, loud = shop.run(*again), shop.run(*again, "--verbose")
    assert (quiet.returncode, loud.returncode) == (0, 0)
    assert b"loss: dropped fields" not in quiet.stderr
    assert b"loss: dropped fields" in loud.stderr
