"""The completion of each shell, loaded as docs/cli.md says, and asked with a real Tab."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.run import Home
from tests.cli.tmux import PROGRAM, Tmux
from tests.shape.tree import ROOT

INSTALL = "`make browser` installs it"
PROMPT = "say>"
SHELLS = {
    "bash": (["bash", "--noprofile", "--norc", "-i"], "PS1='say''> '"),
    "zsh": (["zsh", "-f", "-i"], "PROMPT='say''> '"),
    "fish": (["fish", "--no-config", "-i"], "function fish_prompt; echo -n 'say''> '; end"),
}
"""How a shell is started without files of the user's, and what sets its prompt."""
TYPED = {
    "evener th": "evener threads",
    "evener threads --se": "evener threads --search",
    "evener keys s": "evener keys set",
    "evener export --store tea.db --ht": "evener export --store tea.db --html",
    "evener completion z": "evener completion zsh",
    "evener import boil": "evener import boiled.jsonl",
}
"""What is typed before the Tab, and what the line is after it."""

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason=f"tmux is not installed: {INSTALL}"),
    pytest.mark.parametrize(
        "shell",
        [
            pytest.param(one, marks=pytest.mark.skipif(shutil.which(one) is None, reason=f"{one} is not installed: {INSTALL}"))
            for one in SHELLS
        ],
    ),
]


def documented(shell: str) -> str:
    """The line that docs/cli.md wants in the shell's start-up file."""
    rows = (ROOT / "docs" / "cli.md").read_text("utf-8").split("\n")
    [row] = [row for row in rows if row.startswith(f"| {shell} |")]
    return row.split("`")[-2].replace("\\|", "|")


@contextmanager
def started(home: Home, shell: str) -> Iterator[Tmux]:
    """The shell on a terminal, after it has run the line that loads the completion."""
    program = Path(home.folder) / "bin" / "evener"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m evener "$@"\n', "utf-8")
    program.chmod(0o755)
    home.environ["PATH"] = f"{program.parent}:{home.environ['PATH']}"
    (home.folder / "boiled.jsonl").touch()
    words, prompt = SHELLS[shell]
    with Tmux(home, words, columns=120, rows=50) as pane:
        pane.say(documented(shell))
        pane.say(prompt)
        pane.until(PROMPT)
        yield pane


def last_line(screen: str) -> str:
    """What is on the line of the newest prompt."""
    return screen.rpartition(PROMPT)[2].split("\n")[0].strip()


def test_a_tab_completes_commands_options_choices_and_files(home: Home, shell: str) -> None:
    with started(home, shell) as pane:
        for typed, completed in TYPED.items():
            pane.keys("-l", typed)
            pane.until(lambda screen, typed=typed: last_line(screen).startswith(typed))  # type: ignore[misc]
            pane.keys("Tab")
            pane.until(lambda screen, completed=completed: last_line(screen) == completed)  # type: ignore[misc]
            pane.keys("C-u")
            pane.until(lambda screen: last_line(screen) == "")


@pytest.mark.parametrize(
    ("typed", "offered", "other"),
    [("evener keys ", ("remove", "path"), "boiled.jsonl"), ("evener keys list --", ("--json", "--help"), "remove")],
    ids=["commands", "options"],
)
def test_only_what_can_follow_is_offered(home: Home, shell: str, typed: str, offered: tuple[str, ...], other: str) -> None:
    """After `keys` its own commands, and no files; after a command of it no other one."""
    with started(home, shell) as pane:
        pane.keys("-l", typed)
        pane.keys("Tab", "Tab")
        screen = pane.until(lambda screen: all(word in screen for word in offered))
        assert other not in screen
