"""A chat in tmux: a terminal that other people wrote. Each has a server of its own, which ends with it."""

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from tests.cli.run import Home
from tests.patience import PATIENCE, moment

PROGRAM = shutil.which("tmux")


class Tmux:
    """One pane of 80 by 24, in which a command runs."""

    def __init__(self, home: Home, command: list[str], *, columns: int = 80, rows: int = 24) -> None:
        self._home = home
        self._socket = Path(home.folder) / "tmux.sock"
        words = [f"{name}={value}" for name, value in home.environ.items()]
        self._tmux(
            "-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows), "-c", str(home.folder),
            "env", *words, "TERM=screen-256color", *command, ";", "set-option", "remain-on-exit", "on",
        )  # fmt: skip

    def __enter__(self) -> "Tmux":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._tmux("kill-server")

    def keys(self, *names: str) -> None:
        """Press keys by their names, as in `Enter`, `C-o`, `Down`."""
        self._tmux("send-keys", *names)

    def say(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)
        self.keys("Enter")

    def screen(self, *, colours: bool = False) -> str:
        """What the pane shows."""
        return self._tmux("capture-pane", "-p", *(["-e"] if colours else []))

    def until(self, wanted: str | Callable[[str], bool]) -> str:
        """Wait for a text on the screen; what is on it then."""
        shows = wanted if callable(wanted) else lambda screen: wanted in screen
        end = moment(PATIENCE)
        while not shows(screen := self.screen()):
            assert moment() < end, f"still waiting for {wanted!r}; the screen is\n{screen}"
            time.sleep(0.05)  # tmux tells nobody that its screen has changed
        return screen

    def resize(self, columns: int, rows: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def _tmux(self, *words: str) -> str:
        assert PROGRAM is not None
        done = subprocess.run(
            [PROGRAM, "-S", str(self._socket), *words], capture_output=True, text=True, timeout=PATIENCE, check=False,
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(self._home.folder)},
        )  # fmt: skip
        return done.stdout
