"""Reports: a thread as a page, a thread against every wire, an endpoint tried out, a shell that completes."""

import json
import shutil
import subprocess
import tomllib
from html.parser import HTMLParser

import pytest

from evener import Harness, tool
from evener.cli.reports.completion import words_of
from evener.testing import Call, FakeServer, ScriptedModel, Status, Text, calls, turn
from evener.testing.scripted_model import Line
from evener.testing.servers.provider import Entry
from evener.transcript import ToolCall
from tests.cli.run import Home

HOSTILE = '<script>alert(1)</script>\x1b[2J" onload="x'


@tool(effect="read")
def look(item: str) -> str:
    """Look."""
    return f"{item}: {HOSTILE}"


def thread(home: Home) -> str:
    """A thread with a call, in the store that the command line uses."""
    script: list[Line] = [calls(ToolCall.of("a", "look", {"item": "x"})), f"Done {HOSTILE}"]
    store = home.folder / "t.db"
    return Harness(ScriptedModel(script), tools=[look], store=store).run_sync(f"Hello {HOSTILE}").thread


class Page(HTMLParser):
    """The tags of a page, and what they carry."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.names: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_thread_is_one_page_and_hostile_content_is_text(home: Home) -> None:
    id = thread(home)
    done = home.run("export", "--html", id, "--store", "t.db", "-o", "page.html")
    assert (done.returncode, done.stdout) == (0, b"")
    path = home.folder / "page.html"
    assert path.stat().st_mode & 0o777 == 0o600
    page = Page()
    page.feed(path.read_text("utf-8"))
    assert page.tags & {"script", "img", "link", "iframe", "object", "form"} == set()
    assert page.names & {"onload", "onerror", "src"} == set()
    assert "<script>alert(1)</script>" in page.text
    assert "2 answers, 30 tokens" in page.text
    assert "prefers-color-scheme" in path.read_text("utf-8") or "color-scheme: light dark" in path.read_text("utf-8")
    assert "\x1b" not in path.read_text("utf-8")
    again = home.run("export", "--html", id, "--store", "t.db", "-o", "page.html")
    assert (again.returncode, b"exists already" in again.stderr) == (2, True)


def test_a_thread_is_held_against_every_wire(home: Home) -> None:
    id = thread(home)
    shown = home.run("doctor", id, "--store", "t.db").stdout.decode()
    assert [line.partition(":")[0] for line in shown.splitlines() if not line.startswith(" ")] == [
        "anthropic_messages", "openai_responses", "openai_chat", "gemini",
    ]  # fmt: skip
    reports = json.loads(home.run("doctor", id, "--store", "t.db", "--json").stdout)
    [gemini] = [report for report in reports if report["wire"] == "gemini"]
    assert [loss["kind"] for loss in gemini["lost"]] == ["added"]


def test_an_endpoint_is_tried_out(home: Home) -> None:
    script: list[Entry] = [
        turn(Text("yes")), turn(Text("yes")), turn(Call("look_up", {"word": "tree"})), turn(Text('{"n": 3}')),
        Status(400, "no images here"), turn(Text("12")),
    ]  # fmt: skip
    with FakeServer("openai_chat", script) as server:
        words = ("probe", "openai-chat:gpt-4.1", "--base-url", server.url)
        done = home.run(*words, OPENAI_API_KEY="sk-test")
        assert len(server.requests) == 6
    assert done.returncode == 0, done.stderr
    assert b"tools: yes" in done.stderr
    assert b"images: refused" in done.stderr
    [row] = tomllib.loads(done.stdout.decode())["models"]
    assert row == {"match": ["gpt-4.1"], "providers": ["openai-chat"], "quirks": {"images": False}}
    assert b"sk-test" not in done.stdout + done.stderr


def test_an_endpoint_that_does_not_answer_is_asked_once(home: Home) -> None:
    with FakeServer("openai_chat", [Status(401, "no such key")]) as server:
        done = home.run("probe", "openai-chat:gpt-4.1", "--base-url", server.url, "--json", OPENAI_API_KEY="sk-test")
        assert len(server.requests) == 1
    assert (done.returncode, [one["verdict"] for one in json.loads(done.stdout)]) == (1, ["refused"])


def test_every_command_is_completed() -> None:
    found = dict(words_of())
    assert {"run", "chat", "doctor", "completion"} <= set(found[()])
    assert "set" in found[("keys",)]
    assert "--store" in found[("export",)]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_takes_the_script(home: Home, shell: str) -> None:
    done = home.run("completion", shell)
    assert done.returncode == 0
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=done.stdout, check=True, timeout=60)


def test_bash_completes_commands_and_options(home: Home) -> None:
    script = home.run("completion", "bash").stdout.decode()
    ask = 'COMP_WORDS=(evener {}); COMP_CWORD={}; _evener; echo "${{COMPREPLY[@]}}"'
    for words, place, wanted in (("do", 1, "doctor"), ("export --ht", 2, "--html"), ("keys s", 2, "set")):
        done = subprocess.run(["bash", "-c", script + ask.format(words, place)], capture_output=True, timeout=60, check=True)
        assert done.stdout.decode().split() == [wanted]


def test_a_broken_module_of_tools_shows_the_users_own_error(home: Home) -> None:
    (home.folder / "mytools.py").write_text("import json\n\nVALUE = json.loads('{')\n", "utf-8")
    done = home.run("run", "-m", "local:smollm2", "--tools", "mytools:look", "hi")
    assert done.returncode == 2
    assert b"JSONDecodeError" in done.stderr
    (home.folder / "wrong.py").write_text("def look(:\n", "utf-8")
    done = home.run("run", "-m", "local:smollm2", "--tools", "wrong:look", "hi")
    assert b"wrong.py, line 1: SyntaxError" in done.stderr
