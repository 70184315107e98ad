"""MCP in `evener chat`, on a pseudo-terminal: servers are listed, prompts are commands, and a server's question is answered."""

import json
import re
import sys
from pathlib import Path

from evener.testing.servers import Call, FakeServer, turn
from tests.cli.run import Home
from tests.cli.test_chat_terminal import Chat, claude, gpt, place
from tests.cli.test_complete import asked
from tests.patience import PATIENCE

__all__ = ["claude", "gpt", "place"]

SERVER = Path(__file__).parent.parent / "mcp" / "asking_server.py"


def servers(home: Home, protocol: str = "legacy") -> str:
    """Write the file of servers; return its path."""
    entry = {
        "command": sys.executable, "args": [str(SERVER), str(home.folder / "orders")], "elicitation": True, "sampling": True,
        "protocol": protocol, "connectTimeout": PATIENCE,
    }  # fmt: skip
    file = home.folder / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"shop": entry}}), encoding="utf-8")
    home.trust()
    return str(file)


def test_servers_are_listed_prompts_are_commands_and_resources_can_be_sent(place: Home, claude: FakeServer) -> None:
    claude.add("Still water.", "At 6:40.")
    with Chat(place, "--mcp", servers(place), columns=140, rows=40) as chat:
        chat.say("/mcp")
        screen = chat.until("memo://tide")
        assert "shop: 3 tools" in screen
        assert "  order  Order something." in screen
        assert "/mcp__shop__haiku SUBJECT MOOD  Write a haiku." in screen
        chat.say("/mcp__shop__haiku sea very quiet")
        chat.until("Still water.")
        assert "Write a very quiet haiku about sea." in json.dumps(asked(claude))
        chat.say("/mcp read shop memo://tide When is it high?")
        chat.until("At 6:40.")
        said = json.dumps(asked(claude))
        assert "When is it high?" in said
        assert "High tide at 6:40." in said
        chat.say("/mcp__shop__no")
        chat.until("No MCP server has the prompt /mcp__shop__no")


def test_a_question_of_a_server_is_answered_in_the_chat(place: Home, claude: FakeServer) -> None:
    claude.add(turn(Call("mcp__shop__order", {"item": "shoe"})), "It is on its way.")
    with Chat(place, "--mcp", servers(place), columns=120, rows=40) as chat:
        chat.say("Buy shoes.")
        for field, answer in (("size (", "42"), ("colour (", "red"), ("gift (", "yes")):
            screen = chat.until(field)
            assert "The MCP server 'shop' asks: Which shoe?" in screen
            chat.until("Answer:")
            chat.say(answer)
        chat.until("It is on its way.")
        assert "ordered 42 red True" in json.dumps(asked(claude))


def test_a_question_of_a_server_is_answered_by_a_later_command(place: Home, claude: FakeServer) -> None:
    claude.add(turn(Call("mcp__shop__order", {"item": "shoe"})), "It is on its way.")
    file = servers(place, protocol="2026-07-28")
    stopped = place.run("run", "--mcp", file, "Buy shoes.")
    thread = re.search(rb"[0-9a-f]{32}", stopped.stderr)
    assert stopped.returncode == 1, stopped.stderr
    assert thread, stopped.stderr
    id = thread[0].decode()
    few = place.run("approve", "--mcp", file, id, "--answer", "42")
    assert (few.returncode, b"3 questions wait" in few.stderr) == (2, True), few.stderr
    words = ("--answer", "42", "--answer", "red", "--answer", "yes", "--resume")
    done = place.run("approve", "--mcp", file, id, *words)
    assert (done.returncode, done.stdout) == (0, b"It is on its way.\n"), done.stderr
    assert "ordered 42 red True" in json.dumps(asked(claude))
