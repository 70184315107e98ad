"""What lists look like on a terminal: they fit its width, in colour, by the local clock, and go through a pager."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
from pathlib import Path

import pytest

from evener import Harness, SqliteStore
from evener.testing import ScriptedModel
from tests.cli.kept import kept, said
from tests.cli.run import Home, command
from tests.patience import PATIENCE

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
LONG = "How much of the very finest first-flush Darjeeling tea is left on the uppermost shelf of the second store room?"


def on_terminal(home: Home, *words: str, columns: int = 80, rows: int = 500, **environ: str) -> str:
    """Return what a command writes on a terminal of this size."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = subprocess.Popen(
        command(*words), stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, cwd=home.folder, start_new_session=True,
        env={**home.environ, "TERM": "xterm-256color", **environ},
    )  # fmt: skip
    os.close(theirs)
    read = b""
    while select.select([ours], [], [], PATIENCE)[0]:
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break
        read += piece
    process.wait(PATIENCE)
    os.close(ours)
    return read.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(
    "words", [("threads",), ("models", "claude"), ("models", "--providers"), ("tree", "THREAD")], ids=" ".join
)
@pytest.mark.parametrize("columns", [80, 60])
def test_a_list_fits_the_terminal_and_a_pipe_gets_it_whole(words: tuple[str, ...], columns: int, home: Home) -> None:
    thread = said(home, LONG)
    given = tuple(thread if word == "THREAD" else word for word in words)
    shown = on_terminal(home, *given, columns=columns)
    assert shown
    assert max(len(COLOUR.sub("", line)) for line in shown.split("\n")) <= columns
    piped = home.run(*given).stdout.decode()
    assert "\x1b" not in piped
    if words == ("threads",):
        assert LONG[:40] in piped
        assert "\x1b[32mdone\x1b[0m" in shown
        assert "\x1b" not in on_terminal(home, *given, NO_COLOR="1")


def test_times_are_local(home: Home) -> None:
    thread = said(home, "Hello?", "Hi.")
    there, here = (home.run("show", thread, TZ=zone).stdout.decode() for zone in ("UTC-5", "UTC+7"))
    first, second = (re.findall(r"\[\d+\] \d{4}-\d\d-\d\d (\d\d):", text)[0] for text in (there, here))
    assert (int(first) - int(second)) % 24 == 12


def test_more_than_a_screen_goes_through_the_pager(home: Home) -> None:
    thread = said(home, "Hello?", "Line\n" * 60)
    pager = home.folder / "pager"
    pager.write_text("#!/bin/sh\ncat > paged\n")
    pager.chmod(0o700)
    shown = on_terminal(home, "show", thread, rows=20, PAGER=str(pager))
    paged = (home.folder / "paged").read_text()
    assert ("Line" in shown, paged.count("Line\n")) == (False, 60)
    assert "\x1b[" in paged
    Path(home.folder / "paged").unlink()
    assert on_terminal(home, "show", thread, rows=20, PAGER="").count("Line\n") == 60
    assert on_terminal(home, "show", thread, rows=500, PAGER=str(pager)).count("Line\n") == 60
    assert not (home.folder / "paged").exists()


def test_the_metadata_of_a_run_is_shown(home: Home) -> None:
    """S2.69: in the list, and with the prompt."""

    async def work(store: SqliteStore) -> str:
        return (await Harness(ScriptedModel(["Hi."]), store=store).run("Hello?", metadata={"ticket": 7})).thread

    thread = kept(home, work)
    assert b'Hello? {"ticket":7}' in home.run("threads").stdout
    assert b'metadata: {"ticket":7}' in home.run("show", thread).stdout
