"""Five reference servers of MCP, driven by the loop: a strict fake provider asks for their tools, on each wire.

python -m bench mcp-servers
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
from filelock import FileLock

from bench.npm_packages import ENVIRONMENTS, NoNode, npm_environment
from evener import Harness, open_model
from evener.mcp import McpServer, McpServers
from evener.result import RunResult
from evener.testing import Call, FakeServer, turn
from evener.tools import Tool

__all__ = ["MODELS", "SERVERS", "Reference", "main", "npm_alone", "play"]

VERSION = "2026.8.31"
PACKAGES = {f"@modelcontextprotocol/server-{name}": VERSION for name in ("everything", "filesystem", "memory")}
MODELS = {
    "anthropic_messages": "anthropic:claude-opus-4-5",
    "openai_responses": "openai:gpt-5.1",
    "openai_chat": "openai-chat:gpt-4.1",
    "gemini": "google:gemini-3-pro-preview",
}
SECONDS = 120.0


class Wanted(msgspec.Struct, frozen=True):
    """One call: the tool, its arguments, whether it succeeds, and what is in its result."""

    tool: str
    arguments: Mapping[str, object]
    says: str
    ok: bool = True


class Reference(msgspec.Struct, frozen=True):
    """One server: how many tools it has, and the calls to make. `command` and `calls` are given the folder to work in."""

    name: str
    tools: int
    calls: Callable[[Path], tuple[Wanted, ...]]
    words: Callable[[Path], tuple[str, ...]] = lambda folder: ()  # noqa: ARG005
    variables: Callable[[Path], Mapping[str, str]] = lambda folder: {}  # noqa: ARG005
    package: str = ""


def _everything(_: Path) -> tuple[Wanted, ...]:
    return (
        Wanted("echo", {"message": "hello"}, "hello"),
        Wanted("get-sum", {"a": 2, "b": 40}, "42"),
        Wanted("get-tiny-image", {}, "image/png"),
        Wanted("get-structured-content", {"location": "Chicago"}, "temperature"),
        Wanted("get-resource-links", {"count": 2}, "demo://resource"),
        Wanted("get-sum", {"a": "two", "b": 40}, "expected a number", ok=False),
    )


def _filesystem(folder: Path) -> tuple[Wanted, ...]:
    return (
        Wanted("write_file", {"path": str(folder / "a.txt"), "content": "written"}, "Successfully wrote"),
        Wanted("read_text_file", {"path": str(folder / "a.txt")}, "written"),
        Wanted("read_text_file", {"path": "/etc/passwd"}, "denied", ok=False),
    )


def _memory(_: Path) -> tuple[Wanted, ...]:
    entity = {"name": "Evener", "entityType": "harness", "observations": ["pulls one load"]}
    return (Wanted("create_entities", {"entities": [entity]}, "Evener"), Wanted("read_graph", {}, "pulls one load"))


def _git(folder: Path) -> tuple[Wanted, ...]:
    where = {"repo_path": str(folder)}
    return (
        Wanted("git_add", {**where, "files": ["new.txt"]}, "staged"),
        Wanted("git_commit", {**where, "message": "Add a file"}, "committed"),
        Wanted("git_log", {**where, "max_count": 1}, "Add a file"),
        Wanted("git_show", {**where, "revision": "no-such"}, "no-such", ok=False),
    )


def _time(_: Path) -> tuple[Wanted, ...]:
    given = {"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    return (
        Wanted("get_current_time", {"timezone": "UTC"}, "UTC"),
        Wanted("convert_time", given, "Asia/Tokyo"),
        Wanted("convert_time", {**given, "target_timezone": "No/Where"}, "No/Where", ok=False),
    )


SERVERS = {
    one.name: one
    for one in (
        Reference("everything", 13, _everything, lambda _: ("stdio",), package="server-everything"),
        Reference("filesystem", 14, _filesystem, lambda folder: (str(folder),), package="server-filesystem"),
        Reference(
            "memory", 9, _memory, variables=lambda folder: {"MEMORY_FILE_PATH": str(folder / "graph")}, package="server-memory"
        ),
        Reference("git", 12, _git, lambda folder: ("--repository", str(folder))),
        Reference("time", 2, _time),
    )
}


def main() -> int:
    """Print a table: each server on each wire; 1 if a call went wrong, 2 if the servers cannot be had."""
    wrong = 0
    for one in SERVERS.values():
        for wire in MODELS:
            try:
                found = play(one, wire, own=True)
            except NoNode as why:
                print(f"not run: {one.name} cannot be had: {why}")
                return 2
            wrong += len(found)
            told = "; ".join(found) or "ok"
            print(f"{one.name:12}{wire:20}{one.tools:3} tools  {len(one.calls(Path()))} calls  {told}", flush=True)
    return int(bool(wrong))


def play(one: Reference, wire: str, *, own: bool) -> list[str]:
    """Start a server in a folder of its own, and run its calls on one wire; return what was not as expected."""
    with tempfile.TemporaryDirectory() as name:
        folder = make_folder(Path(name).resolve(), one)
        with McpServers([open_server(one, folder, own=own)]) as servers:
            tools = servers.load_sync()
            return [*servers.problems, *drive(one, tools, wire, folder)]


def open_server(one: Reference, folder: Path, *, own: bool) -> McpServer:
    """Return the server for a folder. Raises NoNode if it cannot be had."""
    command, words = str(Path(sys.executable).with_name(f"mcp-server-{one.name}")), one.words(folder)
    if one.package:
        place, programs = npm_alone("mcp-servers", PACKAGES, least=20, own=own)
        command = str(programs / "node")
        words = (str(place / "node_modules" / "@modelcontextprotocol" / one.package / "dist" / "index.js"), *words)
    return McpServer(
        name=one.name, command=command, args=words, env=one.variables(folder), trusted=True, timeout=SECONDS,
        connect_timeout=SECONDS,
    )  # fmt: skip


def npm_alone(name: str, packages: Mapping[str, str], *, least: int, own: bool) -> tuple[Path, Path]:
    """Return what `npm_environment` does. Of several processes, one installs and the others wait."""
    ENVIRONMENTS.mkdir(exist_ok=True)
    with FileLock(ENVIRONMENTS / f"npm-{name}.lock", timeout=2 * SECONDS):
        return npm_environment(name, packages, least=least, own=own)


def make_folder(folder: Path, one: Reference) -> Path:
    """Prepare a folder for a server: for git, a repository with a file that is not committed yet."""
    if one.name == "git":
        for words in (("init", "-q"), ("config", "user.email", "a@example.org"), ("config", "user.name", "A")):
            subprocess.run(("git", "-C", str(folder), *words), check=True, timeout=SECONDS)
        (folder / "new.txt").write_text("new", encoding="utf-8")
    return folder


def drive(one: Reference, tools: tuple[Tool, ...], wire: str, folder: Path) -> list[str]:
    """Run the calls on one wire, each in a turn of its own; return what was not as expected."""
    wanted = one.calls(folder)
    script = [*(turn(Call(f"mcp__{one.name}__{call.tool}", call.arguments)) for call in wanted), "All done."]
    with _fake(wire, script) as server:
        model = open_model(MODELS[wire], base_url=server.url, key="k", environ={})
        result = Harness(model, tools=tools, store="memory").run_sync("Go on.")
        found = [f"refused by the provider: {refused.violations[0]}" for refused in server.rejected]
        last = server.requests[-1].body.decode()
    found += [] if len(tools) == one.tools else [f"{len(tools)} tools instead of {one.tools}"]
    found += [] if result.text == "All done." else [f"it ended with {result.stop}: {result.text}"]
    if f"mcp__{one.name}__{wanted[0].tool}" not in last:
        found.append("the history has another name for the tool")
    return [*found, *_check(wanted, result)]


@contextmanager
def _fake(wire: str, script: list[object]) -> Iterator[FakeServer]:
    with FakeServer(wire, script) as server:  # type: ignore[arg-type] # entries of a script
        yield server


def _check(wanted: tuple[Wanted, ...], result: RunResult) -> Iterator[str]:
    if len(result.records) != len(wanted):
        yield f"{len(result.records)} calls instead of {len(wanted)}"
    for call, record in zip(wanted, result.records, strict=False):
        said = "" if record.result is None else f"{record.result.content}"
        if record.ok != call.ok or call.says not in said:
            yield f"{call.tool}: ok is {record.ok}: {said[:300]}"
