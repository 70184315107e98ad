"""All commands together: each is documented, quick to ask for help, and keeps secrets."""

import argparse
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from evener.cli.parser import parser
from evener.providers.keys import store_key
from evener.testing.servers import FakeServer, Status
from tests.cli.run import Home, command
from tests.shape.test_loading import unwanted

DOCS = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
SENTINEL = "sk-sentinel-0123456789abcdef"


def commands(top: argparse.ArgumentParser, path: str = "evener") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command with its words, the innermost ones too."""
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield f"{path} {name}", inner
                yield from commands(inner, f"{path} {name}")


def undocumented(top: argparse.ArgumentParser, page: str) -> list[str]:
    """Commands without a heading, and options that their command's section does not mention."""
    sections = {match[1]: match[2] for match in re.finditer(r"^##+ `([^`]+)`$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)}
    found = []
    for path, one in commands(top):
        if path not in sections and f"### `{path}`" not in page:
            found.append(path)
            continue
        section = sections.get(path, page)
        options = [word for action in one._actions for word in action.option_strings if word not in ("-h", "--help")]
        found += [f"{path} {option}" for option in options if f"`{option}`" not in section and f"`{option} " not in section]
    return found


def test_every_command_and_option_is_documented() -> None:
    assert undocumented(parser(), DOCS) == []


def test_an_undocumented_command_or_option_is_caught() -> None:
    top = argparse.ArgumentParser()
    inner = top.add_subparsers().add_parser("known")
    inner.add_argument("--new")
    inner.add_subparsers().add_parser("deep")
    assert undocumented(top, "## `evener known`\n`--other`\n") == ["evener known --new", "evener known deep"]
    assert undocumented(top, "") == ["evener known", "evener known deep"]


@pytest.mark.parametrize("code", ["0", "1", "2", "3", "4", "5", "130", "141"])
def test_every_exit_code_is_documented(code: str) -> None:
    assert f"| {code} | " in DOCS


@pytest.mark.parametrize("path", ["evener", *(path for path, _ in commands(parser()))])
def test_every_command_has_help(path: str, home: Home) -> None:
    done = home.run(*path.split()[1:], "--help")
    assert (done.returncode, done.stdout[:7], done.stderr) == (0, b"usage: ", b"")


def test_help_of_a_command_loads_nothing_heavy() -> None:
    heavy = (
        "aiohttp asyncio evener.model evener.providers evener.wire genai_prices msgspec pydantic sqlite3 ssl xllamacpp".split()
    )
    code = (
        "import runpy; sys.argv = ['evener', 'complete', '--help']; sys.stdout = sys.stderr\n"
        "try: runpy.run_module('evener', run_name='__main__')\n"
        "except SystemExit as stop: assert not stop.code\n"
        "sys.stdout = sys.__stdout__"
    )
    assert unwanted(code, heavy) == []


EVERY = [
    ("models",),
    ("models", "--json"),
    ("models", "--provider", "anthropic"),
    ("keys", "list"),
    ("keys", "list", "--json"),
    ("keys", "path"),
    ("keys", "set", "openai"),
    ("keys", "remove", "openai"),
    ("doctor", "--offline"),
    ("doctor", "--offline", "--json"),
    ("complete", "Hi"),
    ("complete", "Hi", "--json"),
    ("complete", "Hi", "--raw"),
    ("complete", "-m", "anthropic:claude-opus-4-5", "Hi", "--schema", '{"type":"object"}'),
    ("translate", "--from", "anthropic", "--to", "gemini"),
    ("run", "Hi"),
    ("chat", "-c"),
    ("threads", "--json"),
    ("resume", "abc"),
    ("import", "-"),
]


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_no_command_lets_a_key_out(words: tuple[str, ...], home: Home) -> None:
    with FakeServer("anthropic_messages", lambda _: Status(400, f"bad key {SENTINEL}"), key=SENTINEL) as server:
        home.configure(f'model = "anthropic:claude-opus-4-5"\n[providers.anthropic]\nbase_url = "{server.url}"\n')
        store_key(home.keys, "OPENAI_API_KEY", SENTINEL)
        home.environ["ANTHROPIC_API_KEY"] = SENTINEL
        done = home.run(*words, stdin=SENTINEL.encode() if "set" in words else b"")
    assert b"sentinel" not in done.stdout + done.stderr
    assert b"Traceback" not in done.stderr
    for path in home.folder.rglob("*"):
        if path.is_file() and path != home.keys:
            assert b"sentinel" not in path.read_bytes(), path


@pytest.mark.parametrize("words", [("models",), ("models", "--json"), ("keys", "path")], ids=" ".join)
def test_a_reader_that_has_gone_is_quiet_and_has_its_code(words: tuple[str, ...], home: Home) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    running = home.start(*words, stdout=writer)
    os.close(writer)
    _, said = running.communicate(timeout=120)
    assert (running.returncode, said) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk to write to")
@pytest.mark.parametrize("word", ["models", "--help", "--version"])
def test_a_full_disk_is_an_error_and_no_traceback(word: str, home: Home) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command(word), env=home.environ, cwd=home.folder, stdout=full, stderr=subprocess.PIPE, timeout=120, check=False
        )
    assert (done.returncode, b"No space left" in done.stderr, b"Traceback" in done.stderr) == (1, True, False)


@pytest.mark.parametrize(
    ("closed", "words", "code"), [(">&-", "models --json", 0), ("2>&-", "models", 0), ("<&-", "keys set openai", 2)]
)
def test_a_stream_that_is_closed_is_no_traceback(closed: str, words: str, code: int, home: Home) -> None:
    shell = ["/bin/sh", "-c", f'"$@" {closed}', "sh", *command(*words.split())]
    done = subprocess.run(shell, env=home.environ, cwd=home.folder, capture_output=True, timeout=120, check=False)
    assert (done.returncode, b"Traceback" in done.stderr) == (code, False)
