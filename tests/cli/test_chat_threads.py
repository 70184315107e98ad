"""The threads behind a chat: on with the last one or another, branches, undo, export. On a terminal and in lines."""

import json
import re
from collections.abc import Iterator

import pytest

from evener.testing.servers import FakeServer, Text, faults, turn
from tests.cli.kept import said
from tests.cli.run import Home
from tests.cli.test_chat_terminal import CLAUDE, Chat
from tests.cli.test_complete import SENTINEL, asked


@pytest.fixture
def model(home: Home) -> Iterator[FakeServer]:
    with FakeServer("anthropic_messages", key=SENTINEL) as server:
        home.configure(f'model = "{CLAUDE}"\n[providers.anthropic]\nbase_url = "{server.url}"\n')
        home.environ["ANTHROPIC_API_KEY"] = SENTINEL
        yield server


def texts(server: FakeServer) -> list[str]:
    """What the model was sent last, message by message."""
    return [message["content"][0]["text"] for message in asked(server)["messages"]]  # type: ignore[attr-defined]


def test_c_goes_on_with_the_last_conversation_and_shows_its_end(home: Home, model: FakeServer) -> None:
    model.add("One.", "Line\n" * 20, "Three.")
    for prompt in ("first", "second"):
        with Chat(home) as chat:
            chat.say(prompt)
            chat.until("One." if prompt == "first" else "context")
            chat.send("\x04")
            assert chat.end() == 0
    with Chat(home, "-c") as chat:
        screen = chat.until("Resuming (2 earlier messages).")
        screen = chat.until("...")
        assert "> second" in screen
        assert screen.count("Line\n") == 6
        assert "is not finished" not in screen
        chat.say("third")
        chat.until("Three.")
    assert [text[:6] for text in texts(model)] == ["second", "Line\nL", "third"]


def test_r_takes_the_beginning_of_an_id(home: Home, model: FakeServer) -> None:
    thread = said(home, "How much tea?", "3 left.", name="chat")
    said(home, "Other", "Else.", name="chat")
    model.add("Still 3.")
    with Chat(home, "-r", thread[:8]) as chat:
        chat.until("> How much tea?")
        chat.until("3 left.")
        chat.say("Sure?")
        chat.until("Still 3.")
        chat.send("\x04")
        chat.end()
        assert f"evener chat -r {thread}" in chat.screen.text


def test_what_cannot_be_gone_on_with_is_said(home: Home, model: FakeServer) -> None:
    del model
    none = home.run("chat", "-c", stdin=b"Hi\n")
    assert (none.returncode, b"There is no conversation to continue yet" in none.stderr) == (2, True), none.stderr
    both = home.run("chat", "-c", "-r", "abc", stdin=b"Hi\n")
    assert both.returncode == 2
    unknown = home.run("chat", "-r", "abc", stdin=b"Hi\n")
    assert (unknown.returncode, b"There is no thread 'abc'" in unknown.stderr) == (2, True)


def test_a_thread_of_an_agent_inside_is_not_the_last_conversation(home: Home, model: FakeServer) -> None:
    ours = said(home, "Ours", "Yes.", name="chat")
    said(home, "Theirs", "No.", name="clerk")
    model.add("On.")
    done = home.run("chat", "-c", stdin=b"Go on\n")
    assert (done.returncode, done.stdout) == (0, b"On.\n"), done.stderr
    assert b"> Ours\nYes.\n" in done.stderr
    assert texts(model) == ["Ours", "Yes.", "Go on"]
    assert json.loads(home.run("show", ours, "--json").stdout)["used"]["requests"] == 2


def test_an_answer_that_was_left_in_the_middle_can_be_gone_on_with(home: Home, model: FakeServer) -> None:
    model.add(turn(Text("One two three four", pieces=4), faults=[faults.Stall(4)]), "Five.")
    with Chat(home) as chat:
        chat.say("Count.")
        chat.until("One t")
        chat.send("\x03")
        chat.until("Interrupted.")
        chat.send("\x04")
        chat.end()
    with Chat(home, "-c") as chat:
        chat.until("is not finished. Use /continue to resume it.")
        chat.say("/continue")
        chat.until("Five.")


def test_undo_is_a_new_branch_and_deletes_nothing(home: Home, model: FakeServer) -> None:
    """S3.4, S3.6."""
    model.add("One.", "Two.", "Three.")
    done = home.run("chat", stdin=b"first\nsecond\n/undo\nother\n/tree\n")
    assert done.returncode == 0, done.stderr
    assert texts(model) == ["first", "One.", "other"]
    said_there = done.stderr.decode()
    assert "Undone: 'second' and what followed. 2 messages left." in said_there
    [thread] = json.loads(home.run("threads", "--json").stdout)
    assert (thread["branches"], thread["log"] != thread["thread"]) == (2, True), "the thread stands on the new branch"
    old = home.run("show", str(thread["thread"]), "--branch", str(thread["thread"])).stdout.decode()
    assert "second" in old
    assert "other" not in old
    shown = home.run("show", str(thread["thread"])).stdout.decode()
    assert "other" in shown
    assert "second" not in shown
    assert re.search(r"`- \w{8}  after \d+  \d+ events  now  other  <- head  <- here", said_there)
    model.add("Four.")
    on = home.run("chat", "-r", str(thread["thread"]), stdin=b"more\n")
    assert on.returncode == 0, on.stderr
    assert texts(model) == ["first", "One.", "other", "Three.", "more"]


def test_fork_goes_on_elsewhere_and_c_finds_where_it_was_left(home: Home, model: FakeServer) -> None:
    """S3.6."""
    model.add("One.", "Two.", "Three.", "Four.", "Five.")
    done = home.run("chat", stdin=b"first\nsecond\n/fork 1\nother\n/fork\nthen\n")
    assert done.returncode == 0, done.stderr
    assert texts(model) == ["first", "One.", "other", "Three.", "then"]
    [thread] = json.loads(home.run("threads", "--json").stdout)
    assert (thread["branches"], thread["log"]) == (3, thread["thread"]), "the thread stays where it was"
    on = home.run("chat", "-c", stdin=b"more\n")
    assert on.returncode == 0, on.stderr
    assert texts(model) == ["first", "One.", "other", "Three.", "then", "Four.", "more"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("/fork", "nothing to fork yet"),
        ("/fork x", "takes the number"),
        ("/tree", "no branches yet"),
        ("/export", "nothing to export yet"),
    ],
)
def test_in_an_empty_chat_there_are_no_branches(line: str, why: str, home: Home, model: FakeServer) -> None:
    del model
    done = home.run("chat", stdin=f"{line}\n".encode())
    assert (done.returncode, why in done.stderr.decode()) == (1, True), done.stderr


def test_too_many_exchanges_cannot_be_left_out(home: Home, model: FakeServer) -> None:
    model.add("One.", "Two.")
    done = home.run("chat", stdin=b"first\n/fork 2\nsecond\n")
    assert b"has 1. Give a smaller number" in done.stderr
    assert texts(model) == ["first", "One.", "second"]


def test_a_chat_in_memory_can_be_undone_and_forked_too(home: Home, model: FakeServer) -> None:
    model.add("One.", "Two.", "Three.")
    done = home.run("chat", "--store", "memory", stdin=b"first\n/undo\nsecond\n/fork\nthird\n/tree\n")
    assert (done.returncode, done.stdout) == (0, b"One.\nTwo.\nThree.\n"), done.stderr
    assert texts(model) == ["second", "Two.", "third"]


def test_export_writes_a_private_file_and_never_over_another(home: Home, model: FakeServer) -> None:
    model.add("One.")
    done = home.run("chat", stdin=b"first\n/export\n/export mine.jsonl\n/export mine.jsonl\n")
    assert (done.returncode, b"mine.jsonl exists already" in done.stderr) == (1, True), done.stderr
    written = sorted(home.folder.glob("*.jsonl"))
    assert len(written) == 2
    assert {oct(path.stat().st_mode & 0o777) for path in written} == {"0o600"}
    assert all(json.loads(line) for path in written for line in path.read_text().splitlines())
    [thread] = json.loads(home.run("threads", "--json").stdout)
    assert written[0].name == f"{str(thread['thread'])[:8]}.jsonl" or written[1].name == f"{str(thread['thread'])[:8]}.jsonl"
