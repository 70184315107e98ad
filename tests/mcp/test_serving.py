"""`evener mcp` serves tools and an agent; our own client uses them, over pipes and over loopback (S2.77)."""

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from mcp.server.mcpserver import MCPServer

from evener import Harness, tool
from evener.errors import UsageError
from evener.mcp import McpServer, McpServers, find_servers, load_servers, read_servers
from evener.mcp.naming import name_tool
from evener.observe import join_trace
from evener.policy.rules import Policy, Rule
from evener.providers.config import load_config
from evener.store.redaction import Funnel
from evener.testing import ScriptedModel
from evener.tools import Tool, ToolContext, run_call
from evener.tools.call import Threads
from evener.tools.result import Envelope
from evener.transcript import ToolCall
from tests.patience import PATIENCE, wait_until
from tests.ports import reserved_port

MODULE = '''
from evener import Harness, tool
from evener.testing import ScriptedModel

@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

@tool(effect="read")
def trace() -> str:
    """Tell the trace of the caller."""
    from evener.observe import current_trace
    return current_trace.get().header if current_trace.get() else "none"

@tool(approval=True)
def erase(path: str) -> str:
    """Erase a file."""
    return "erased"

shop = Harness(ScriptedModel(["It is done."]), tools=[add, trace, erase], store="memory", name="shop")
'''


def call(one: Tool, **arguments: object) -> Envelope:
    asked = ToolCall("call-1", one.name, json.dumps(arguments))
    return asyncio.run(run_call(one, asked, context=ToolContext(call_id="call-1", deps=None), threads=Threads()))


def served(folder: Path, *more: str) -> McpServer:
    (folder / "goods.py").write_text(MODULE, encoding="utf-8")
    command = ("-m", "evener", "mcp", "--harness", "goods:shop", *more)
    env = {"PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(folder)}
    return McpServer(
        name="shop", command=sys.executable, args=command, cwd=str(folder), env=env, trusted=True,
        timeout=PATIENCE, connect_timeout=PATIENCE,
    )  # fmt: skip


def test_a_harness_is_served_over_pipes_with_its_tools_and_as_a_tool(tmp_path: Path) -> None:
    with McpServers([served(tmp_path)]) as servers:
        tools = {one.name: one for one in servers.load_sync()}
        assert servers.problems == ()
        assert [(name, one.effect) for name, one in tools.items()] == [
            ("mcp__shop__add", "read"),
            ("mcp__shop__trace", "read"),
            ("mcp__shop__erase", "write"),
            ("mcp__shop__ask_shop", "write"),
        ]
        assert call(tools["mcp__shop__add"], a=2, b=3).text == "5"
        refused = call(tools["mcp__shop__erase"], path="/")
        assert (refused.ok, "needs the user's approval" in refused.text) == (False, True)
        answer = call(tools["mcp__shop__ask_shop"], prompt="Do it.")
        assert answer.text == "It is done."
        assert answer.metadata["structured"] == {"thread": answer.metadata["structured"]["thread"], "stop": "done"}  # type: ignore[index]


def test_a_callers_trace_reaches_a_server_and_its_tools(tmp_path: Path) -> None:
    """MCP has the `traceparent` in `_meta`: our client puts it there, and our server joins it."""
    caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with McpServers([served(tmp_path)]) as servers:
        tools = {one.name: one for one in servers.load_sync()}
        found = next(one for name, one in tools.items() if name.endswith("trace"))
        assert "none" in str(call(found).content)
        with join_trace(caller):
            assert caller in str(call(found).content)


def is_open(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def test_a_harness_is_served_over_http_on_loopback(tmp_path: Path) -> None:
    with reserved_port() as port:
        like = served(tmp_path, "--http", str(port), "--approve")
        env = {**os.environ, **like.env}
        process = subprocess.Popen([like.command, *like.args], cwd=like.cwd, env=env, stdin=subprocess.DEVNULL)
        try:
            wait_until(lambda: is_open(port) or process.poll() is not None)
            server = McpServer(name="shop", url=f"http://127.0.0.1:{port}/mcp", timeout=PATIENCE, connect_timeout=PATIENCE)
            with McpServers([server]) as servers:
                tools = {one.name: one for one in servers.load_sync()}
                assert call(tools["mcp__shop__erase"], path="/").text == "erased"
        finally:
            process.terminate()
            process.wait(PATIENCE)


def test_a_free_port_is_told_and_ctrl_c_ends_the_server(tmp_path: Path) -> None:
    like = served(tmp_path, "--http", "0")
    process = subprocess.Popen(
        [like.command, *like.args], cwd=like.cwd, env={**os.environ, **like.env}, stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    with process, process.stderr:
        try:
            told = process.stderr.readline() if select.select([process.stderr], [], [], PATIENCE)[0] else "nothing"
            url = told.removeprefix("evener: Serving MCP at ").partition(". ")[0]
            with McpServers([McpServer(name="shop", url=url, timeout=PATIENCE, connect_timeout=PATIENCE)]) as servers:
                assert {one.name for one in servers.load_sync()} >= {"mcp__shop__add"}, told
            process.send_signal(signal.SIGINT)
            assert (process.stderr.read(), process.wait(PATIENCE)) == ("", 0)
        finally:
            process.kill()


def test_a_port_that_is_taken_or_none_is_wrong_usage(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        none = (("80000", "'80000' is not a port"), ("x", "'x' is not a port"))
        for given, why in ((port, f"Port {port} cannot be used"), *none):
            like = served(tmp_path, "--http", given)
            done = subprocess.run(
                [like.command, *like.args], cwd=like.cwd, env={**os.environ, **like.env}, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, timeout=PATIENCE, check=False,
            )  # fmt: skip
            assert (done.returncode, why in done.stderr) == (2, True), done.stderr
            assert "Traceback" not in done.stderr


def test_the_policy_holds_for_calls_from_outside() -> None:
    @tool
    def send(to: str) -> str:
        """Send."""
        return f"to {to}"

    policy = Policy((Rule(verdict="deny", tool="send", reason="not today"),))
    harness = Harness(ScriptedModel([]), tools=[send], store="memory", policy=policy)
    denied = asyncio.run(harness.call(ToolCall("c", "send", '{"to":"Ann"}'), approve=True))
    assert denied.text == "The call is denied: not today"
    assert not asyncio.run(harness.call(ToolCall("c", "sent", "{}"))).ok


# Where servers are named.


def test_the_usual_file_is_read_and_variables_come_from_the_given_environment_only(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    entries = {
        "git": {"command": "git-server", "args": ["--at", "${WHERE:-/src}"], "env": {"API_TOKEN": "${TOKEN}"}, "x": 1},
        "far": {"type": "http", "url": "https://example.org/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
        "off": {"command": "x", "disabled": True},
    }
    file.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
    git, far = load_servers(file, environ={"TOKEN": "hush-hush-1234"})
    assert (git.args, git.env, far.headers["Authorization"]) == (
        ("--at", "/src"), {"API_TOKEN": "hush-hush-1234"}, "Bearer hush-hush-1234",
    )  # fmt: skip
    assert "hush" not in f"{git!r}{far!r}"
    with pytest.raises(UsageError, match="needs the environment variable TOKEN"):
        load_servers(file, environ={})


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"url": "https://example.org", "type": "sse"}, "the transport 'sse' is not supported"),
        ({"command": 3}, "is not understood"),
        ({}, "needs a command, or a url"),
        ({"url": "file:///etc/passwd"}, "must begin with http"),
        ({"command": "x", "timeout": 0}, "above 0"),
    ],
)
def test_an_entry_that_cannot_be_used_says_why(entry: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_servers({"one": entry}, environ={})


def test_the_secrets_of_a_server_are_known_wherever_they_are_written() -> None:
    """A server may repeat what it was given, a part of a header alone included: none of it is stored."""
    entry = {
        "command": "x",
        "args": ["--key", "${SHOP_API_KEY}"],
        "env": {"AUTHORIZATION": "Bearer ${LOGIN}", "DATABASE": "postgresql://me:${DATABASE_PASSWD}@host/shop"},
    }
    environ = {"SHOP_API_KEY": "in-the-arguments-71", "LOGIN": "after-the-scheme-72", "DATABASE_PASSWD": "in-an-address-73"}
    read_servers({"shop": entry}, environ=environ)
    assert Funnel().text(" ".join(environ.values())) == "[secret] [secret] [secret]"


@pytest.mark.parametrize("entry", [{"args": "${TOKEN}"}, {"type": "sse"}, {"url": "http://x/?${TOKEN}"}, {"cwd": "${MORE}"}])
def test_an_error_shows_no_secret_even_with_its_locals(entry: dict[str, object]) -> None:
    environ = {"TOKEN": "hush-hush-1234", "OTHER": "not-named-5678"}
    with pytest.raises(UsageError) as caught:
        read_servers({"one": {"command": "x", "env": {"NOTE": "${TOKEN}"}, **entry}}, environ=environ)
    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    ours = "".join(line for line in shown.format() if Path(__file__).name not in line)
    assert "read_servers" in ours
    assert "hush" not in ours
    assert "not-named" not in ours


def test_a_server_does_not_show_the_login_of_its_address() -> None:
    assert "hush" not in repr(McpServer(name="far", url="https://me:hush-hush@example.org/mcp?key=hush"))


def test_a_server_of_a_project_needs_trust_in_its_folder(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    (home / ".config" / "evener").mkdir(parents=True)
    project.mkdir()
    (project / "evener.toml").write_text('[mcp.time]\ncommand = "time-server"\n', encoding="utf-8")
    environ = {"HOME": str(home)}
    with pytest.raises(UsageError, match="may have come with a cloned project"):
        find_servers(["time"], load_config(project, environ=environ), environ=environ)
    (home / ".config" / "evener" / "config.toml").write_text(f'trusted = ["{project}"]\n', encoding="utf-8")
    (found,) = find_servers(["time"], load_config(project, environ=environ), environ=environ)
    assert found.command == "time-server"


@pytest.mark.parametrize("way", ["../clone", "link"])
def test_a_file_that_is_named_by_way_of_a_trusted_folder_is_not_inside_it(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, project, clone = tmp_path / "home", tmp_path / "work" / "project", tmp_path / "work" / "clone"
    for folder in (home / ".config" / "evener", project, clone):
        folder.mkdir(parents=True)
    (home / ".config" / "evener" / "config.toml").write_text(f'trusted = ["{project}"]\n', encoding="utf-8")
    (project / "link").symlink_to(clone)
    entry = {"command": "x", "args": ["${MY_KEY:-none}"], "trusted": True}
    for folder in (clone, project):
        (folder / "servers.json").write_text(json.dumps({"mcpServers": {"one": entry}}), encoding="utf-8")
    environ = {"HOME": str(home), "MY_KEY": "hush-hush-4321"}
    config = load_config(project, environ=environ)
    monkeypatch.chdir(project)
    (one,) = find_servers([f"{way}/servers.json"], config, environ=environ)
    assert (one.args, one.trusted) == (("none",), False)
    (one,) = find_servers(["servers.json"], config, environ=environ)
    assert (one.args, one.trusted) == (("hush-hush-4321",), True)


def test_names_fit_every_provider_and_do_not_collide() -> None:
    """C9: one name policy, the same everywhere."""
    assert name_tool("git", "git_log") == "mcp__git__git_log"
    odd, other = name_tool("my.server", "a tool"), name_tool("my_server", "a_tool")
    assert odd != other
    assert len({name_tool("s", "x" * 100 + end) for end in "abc"}) == 3
    assert all(len(name_tool("s", "x" * size)) <= 64 for size in range(1, 200))
    assert name_tool("a", "b__go") != name_tool("a__b", "go")
    assert name_tool("a", "_go") != name_tool("a_", "go")


def test_a_server_that_takes_the_name_of_another_servers_tool_loses_that_tool_alone() -> None:
    first, second = MCPServer("first"), MCPServer("second")
    name = name_tool("a__b", "go")
    for server, listed in ((first, "go"), (second, name.removeprefix("mcp__a__")), (second, "stay")):
        server.tool(name=listed)(lambda: "done")
    with McpServers([McpServer(name="a__b", inside=first), McpServer(name="a", inside=second)]) as servers:
        tools = servers.load_sync()
        assert [one.name for one in tools] == [name, "mcp__a__stay"]
        assert name in Harness(ScriptedModel([]), tools=tools, store="memory").tools
        assert [f"another tool has its name, '{name}'" in one for one in servers.problems] == [True]
