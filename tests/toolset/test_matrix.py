"""Doors and rules: what the fence says holds at every door, in both sandboxes; what a sandbox cannot keep, it refuses."""

from collections.abc import Callable
from pathlib import Path

import pytest

from evener.toolset import Fence, FileTools, SearchTools, ShellTools
from evener.toolset.jsonl import JsonlTools
from evener.toolset.shell.sandbox import bwrap_works, landlock_works
from tests.toolset.calls import Caller

SECRET = '{"planted": "marigold-0123456789"}'
RULES = {
    "denied file": (Fence(deny=("private.txt",), read_only=()), "private.txt", ""),
    "denied folder": (Fence(deny=("vault",), read_only=()), "vault/deep.txt", ""),
    "denied pattern": (Fence(deny=("*.pem",), read_only=()), "vault/a.pem", ""),
    "not allowed": (Fence(deny=(), read_only=(), allow=("open.txt",)), "private.txt", ""),
    "read-only file": (Fence(deny=(), read_only=("private.txt",)), "private.txt", "r"),
    "read-only folder": (Fence(deny=(), read_only=("vault",)), "vault/deep.txt", "r"),
    "nothing writable": (Fence(deny=(), read_only=(), writable=False), "private.txt", "r"),
    "no rule": (Fence(deny=(), read_only=()), "private.txt", "rw"),
}
"""A fence, a path, and what may be done with it."""
Arguments = Callable[[str], dict[str, object]]
READING: dict[str, tuple[str, Arguments]] = {
    "read": ("read", lambda path: {"path": path}),
    "search": ("search", lambda _: {"pattern": "marigold"}),
    "search there": ("search", lambda path: {"pattern": "marigold", "path": path}),
    "search_jsonl": ("search_jsonl", lambda path: {"path": path}),
    "shell reads": (
        "shell",
        lambda path: {"command": f"cat {path}; cp {path} /tmp/c; cat /tmp/c; ln {path} link; cat link"},
    ),
}
WRITING: dict[str, tuple[str, Arguments]] = {
    "edit": ("edit", lambda path: {"path": path, "edits": [{"old": "marigold", "new": "x"}]}),
    "write": ("write", lambda path: {"path": path, "content": "x"}),
    "delete": ("delete", lambda path: {"path": path}),
    "shell writes": ("shell", lambda path: {"command": f"echo x > {path}; rm -f {path}; mv {path} moved; rm -rf vault"}),
}
SANDBOXES = ("landlock", "bwrap", "landlock alone")


@pytest.fixture(params=SANDBOXES)
def sandbox(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    lacking = bwrap_works() if name == "bwrap" else landlock_works()
    if lacking:
        pytest.skip(lacking)
    if name == "landlock alone":
        monkeypatch.setattr("evener.toolset.shell.sandbox.bwrap_works", lambda: "it is not installed.")
    elif bwrap_works():
        pytest.skip(bwrap_works())
    return name


@pytest.mark.parametrize("rule", RULES)
def test_every_door_keeps_to_every_rule(rule: str, sandbox: str, tmp_path: Path) -> None:
    fence, path, may = RULES[rule]
    prefer = "bwrap" if sandbox == "bwrap" else "landlock"
    shell = ShellTools(tmp_path, fence=fence, prefer=prefer)  # type: ignore[arg-type]
    families = (FileTools(tmp_path, fence=fence), SearchTools(tmp_path, fence=fence), JsonlTools(tmp_path, fence=fence), shell)
    caller = Caller(tool for family in families for tool in family.tools)

    def plant() -> None:
        (tmp_path / "vault").mkdir(exist_ok=True)
        for name in ("private.txt", "vault/deep.txt", "vault/a.pem", "open.txt"):
            (tmp_path / name).write_text(f"{SECRET}\n")

    def call(door: str, arguments: dict[str, object]) -> str:
        if door not in caller.box:
            return "there is no such tool"
        caller.call("read", {"path": path})  # what was not read is not overwritten
        return caller.call(door, arguments).text

    refuses = sandbox == "landlock alone" and rule not in ("nothing writable", "no rule")
    wrong = []
    plant()
    for name, (door, arguments) in READING.items():
        told = call(door, arguments(path))
        shown = any("marigold" in line and (path in line or name != "search") for line in told.splitlines())
        expected = "r" in may and not (door == "shell" and refuses)
        wrong += [f"{name}: {told}"] if shown != expected else []
    for name, (door, arguments) in WRITING.items():
        plant()
        told = call(door, arguments(path))
        changed = not (tmp_path / path).exists() or (tmp_path / path).read_text() != f"{SECRET}\n"
        expected = "w" in may and not (door == "shell" and refuses)
        wrong += [f"{name}: {told}"] if changed != expected else []
    assert wrong == []
    if refuses:
        assert "Only bubblewrap can protect them from a command" in call("shell", {"command": "true"})
