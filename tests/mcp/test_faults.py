"""Servers that misbehave, as processes: no call hangs, no list is lost to one bad tool, a call connects again (S2.77)."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from evener.mcp import McpServer, McpServers
from evener.mcp.pins import FilePins
from evener.tools import Tool, ToolContext, run_call
from evener.tools.call import Threads
from evener.tools.result import Envelope
from evener.transcript import ToolCall
from tests.patience import PATIENCE, at_some_pace, wait_until

NOT_MCP = "The MCP server 'bad' gave an answer that is not MCP"
UNSURE = "It is not known whether the call took effect."
SCRIPT = Path(__file__).parent / "bad_server.py"


def bad(fault: str, folder: Path, **options: object) -> McpServer:
    settings: dict[str, object] = {"timeout": PATIENCE, "connect_timeout": PATIENCE, "trusted": True, **options}
    return McpServer(name="bad", command=sys.executable, args=(str(SCRIPT), fault, str(folder)), **settings)  # type: ignore[arg-type]


def by_name(tools: tuple[Tool, ...]) -> dict[str, Tool]:
    return {tool.name.removeprefix("mcp__bad__"): tool for tool in tools}


def use(tool: Tool, text: str = "hello") -> Envelope:
    asked = ToolCall("call-1", tool.name, f'{{"text":"{text}"}}')
    return asyncio.run(run_call(tool, asked, context=ToolContext(call_id="call-1", deps=None), threads=Threads()))


def lines(folder: Path, file: str) -> list[str]:
    path = folder / file
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def is_alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    return True


def test_a_server_that_dies_in_a_call_is_started_again_and_a_read_is_repeated(tmp_path: Path) -> None:
    with McpServers([bad("dies", tmp_path)]) as servers:
        echo = by_name(servers.load_sync())["echo"]
        assert (use(echo)).text == "hello"
    assert (len(lines(tmp_path, "starts")), lines(tmp_path, "calls")) == (2, ["echo", "echo"])


def test_a_write_is_not_repeated_when_the_server_dies_in_it(tmp_path: Path) -> None:
    with McpServers([bad("dies", tmp_path)]) as servers:
        keep = by_name(servers.load_sync())["keep"]
        failed = use(keep)
        assert (failed.ok, failed.outcome) == (False, "unknown")  # it may have died after it did it
        assert "ended the connection before it answered. Its last output: I cannot go on" in failed.text
        assert failed.text.endswith(UNSURE)
        assert (use(keep)).ok  # the next call connects again
    assert (len(lines(tmp_path, "starts")), lines(tmp_path, "calls")) == (2, ["keep", "keep"])


def test_a_server_that_ends_between_calls_is_started_again(tmp_path: Path) -> None:
    with McpServers([bad("dies_after", tmp_path)]) as servers:
        echo = by_name(servers.load_sync())["echo"]
        assert [use(echo, text).text for text in "abc"] == ["a", "b", "c"]
    assert len(lines(tmp_path, "starts")) == 3


def test_a_server_that_hangs_is_given_up_and_replaced(tmp_path: Path) -> None:
    def attempt(pace: float) -> None:
        """The server must start, say what it has and take the call within the timeout that the call then exceeds."""
        folder, seconds = tmp_path / str(pace), 0.5 * pace
        folder.mkdir()
        with McpServers([bad("hangs", folder, timeout=seconds)]) as servers:
            tools = by_name(servers.load_sync())
            assert "keep" in tools, servers.problems
            lost = use(tools["keep"])
            assert (lost.ok, lost.outcome) == (False, "unknown")
            assert f"did not answer within {seconds:g} seconds" in lost.text
        assert lines(folder, "calls") == ["keep"], "it was given up before it had the call"
        with McpServers([bad("hangs", folder)]) as servers:
            assert (use(by_name(servers.load_sync())["keep"])).ok
        wait_until(lambda: not any(map(is_alive, lines(folder, "starts"))))

    at_some_pace(attempt)


def test_a_server_that_says_nothing_at_all_is_a_problem_and_no_hang(tmp_path: Path) -> None:
    with McpServers([bad("mute", tmp_path, connect_timeout=0.5), bad_twin(tmp_path)]) as servers:
        assert [tool.name for tool in servers.load_sync()] == ["mcp__twin__echo", "mcp__twin__keep"]
        assert servers.problems == ("The MCP server 'bad' did not answer within 0.5 seconds of its start.",)


def bad_twin(folder: Path) -> McpServer:
    args = (str(SCRIPT), "none", str(folder))
    return McpServer(name="twin", command=sys.executable, args=args, timeout=PATIENCE, connect_timeout=PATIENCE)


def test_a_server_that_ends_at_once_is_quoted(tmp_path: Path) -> None:
    with McpServers([bad("dead", tmp_path)]) as servers:
        assert servers.load_sync() == ()
        (problem,) = servers.problems
    assert problem.endswith("Its last output: no licence")


@pytest.mark.parametrize(
    ("fault", "ok", "text"),
    [
        ("noise", True, "hello"),
        ("null_error", False, "The MCP server 'bad' answered with an error: an error without a message (None)"),
        (
            "no_text",
            True,
            "[text without text]\n[image without mimeType]\n[content of the unknown type 'strange']\n7",
        ),
        ("no_result", False, "The MCP server 'bad' answered with an error: an answer without a result"),
        ("text_result", False, "The MCP server 'bad' answered with an error: a result that is no object ('done')"),
        ("deep_answer", False, "The MCP server 'bad' answered with an error: an answer that is not JSON, or nested too deep"),
        ("null_beside_result", True, "hello"),
        ("no_version", True, "hello"),
        ("byte_order_mark", True, "hello"),
        ("half_a_character", True, "a?b"),
        ("log_with_ids", True, "hello"),
        ("text_content", True, "hello"),
        ("odd_blocks", True, "kept\n[a resource without content]"),
        ("structured_only", True, '{"n":1}'),
        (
            "breaks_its_schema",
            False,
            f"{NOT_MCP}: Invalid structured content returned by tool keep: 'no' is not of type 'integer'. {UNSURE}",
        ),
        ("storm", True, "hello"),
    ],
)
def test_what_a_server_gets_wrong_in_an_answer_is_told(fault: str, ok: bool, text: str, tmp_path: Path) -> None:
    with McpServers([bad(fault, tmp_path)]) as servers:
        found = use(by_name(servers.load_sync())["keep"])
        assert (found.ok, found.text) == (ok, text)


def test_a_line_of_a_hundred_megabytes_ends_the_connection_and_the_next_call_makes_another(tmp_path: Path) -> None:
    with McpServers([bad("long_line", tmp_path)]) as servers:
        keep = by_name(servers.load_sync())["keep"]
        failed = use(keep)
        assert "It sent a line of more than 16,777,216 bytes." in failed.text
        assert (use(keep)).ok


def test_one_sloppy_tool_does_not_lose_the_others(tmp_path: Path) -> None:
    with McpServers([bad("sloppy", tmp_path)]) as servers:
        assert list(by_name(servers.load_sync())) == ["echo", "keep"]
        problems = servers.problems
    assert problems[:3] == (
        "MCP server 'bad': the tool 'no_schema' was left out: it has no schema of its arguments.",
        "MCP server 'bad': the tool 'null_schema' was left out: it has no schema of its arguments.",
        "MCP server 'bad': a tool without a name was left out.",
    )
    assert problems[3].startswith("MCP server 'bad': the tool 'odd' was left out: ")


def test_a_tool_that_the_sdk_cannot_hold_does_not_lose_the_others(tmp_path: Path) -> None:
    with McpServers([bad("strange", tmp_path)]) as servers:
        assert list(by_name(servers.load_sync())) == ["echo", "half", "keep"]
        assert servers.problems == ("MCP server 'bad': the tool 'deep' was left out: it is nested too deep.",)


@pytest.mark.parametrize(("fault", "count", "problems"), [("pages", 150, 0), ("endless_pages", 7, 2)])
def test_all_pages_of_a_list_are_read_and_one_without_end_is_told(
    fault: str, count: int, problems: int, tmp_path: Path
) -> None:
    with McpServers([bad(fault, tmp_path)]) as servers:
        assert len(servers.load_sync()) == count
        assert len(servers.problems) == problems
        assert all("or no end" in one or "is empty or taken" in one for one in servers.problems)


def test_arguments_are_checked_before_they_are_sent(tmp_path: Path) -> None:
    with McpServers([bad("none", tmp_path)]) as servers:
        echo = by_name(servers.load_sync())["echo"]
        asked = ToolCall("call-1", echo.name, '{"words":"x"}')
        wrong = asyncio.run(run_call(echo, asked, context=ToolContext(call_id="call-1", deps=None), threads=Threads()))
    assert wrong.retry
    assert lines(tmp_path, "calls") == []


def test_a_tool_that_has_changed_asks_again_and_is_not_called_as_it_was(tmp_path: Path) -> None:
    pins = FilePins(tmp_path / "deep" / "pins.json")
    with McpServers([bad("none", tmp_path)], pins=pins) as servers:
        assert not by_name(servers.load_sync())["echo"].approval
    assert (tmp_path / "deep" / "pins.json").stat().st_mode & 0o777 == 0o600
    with McpServers([bad("changes", tmp_path)], pins=pins) as servers:
        tools = by_name(servers.load_sync())
        assert (tools["echo"].approval, tools["keep"].approval) == (True, False)
        assert "has changed since it was first used" in servers.problems[0]
        servers.accept("bad")
    with McpServers([bad("changes", tmp_path)], pins=pins) as servers:
        assert not by_name(servers.load_sync())["echo"].approval


def test_a_tool_that_changes_while_it_is_in_use_is_not_called(tmp_path: Path) -> None:
    with McpServers([bad("changes", tmp_path)]) as servers:
        echo = by_name(servers.load_sync())["echo"]
        assert (use(echo)).ok
        os.kill(int(lines(tmp_path, "starts")[0]), 9)
        changed = use(echo)
        while changed.ok:  # the end of the process has not been seen yet
            changed = use(echo)
    assert "is no longer as it was shown to you" in changed.text
    assert "send it to me" not in changed.text
