"""The screen of the chat on a real pseudo-terminal, read through an emulator: no process, no keys."""

import fcntl
import os
import pty
import struct
import termios
from types import TracebackType
from typing import TextIO, cast

from prompt_toolkit.application import Application
from prompt_toolkit.application.current import set_app
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.input import DummyInput
from prompt_toolkit.layout import FormattedTextControl, HSplit, Layout, Window
from rich.console import RenderableType

from evener.cli.chat.screen import Screen
from tests.cli.test_chat_emulator import Emulator


class Wire:
    """A terminal's file: what is written goes to the emulator at once; the size is that of a pseudo-terminal."""

    encoding = "utf-8"

    def __init__(self, terminal: Emulator, descriptor: int) -> None:
        self._terminal = terminal
        self._descriptor = descriptor

    def write(self, text: str) -> None:
        self._terminal.feed(text.encode())

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor


class Stage:
    """A screen with a prompt and a status under it. `draw` makes a picture."""

    def __init__(self, columns: int = 20, rows: int = 6) -> None:
        self.terminal = Emulator(columns, rows)
        self._ours, self._theirs = pty.openpty()
        self._size(columns, rows)
        self.screen = Screen(cast(TextIO, Wire(self.terminal, self._theirs)), colour=False)
        self._tail = ""
        live = FormattedTextControl(lambda: ANSI(f"{self._tail}> \nstatus"))
        self.app: Application[int] = Application(
            Layout(HSplit([Window(live, dont_extend_height=True, wrap_lines=True)])),
            input=DummyInput(),
            output=self.screen.output,
            include_default_pygments_style=False,
        )

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._theirs)
        os.close(self._ours)

    def say(self, *parts: RenderableType) -> None:
        self.screen.say(*parts)
        self.draw()

    def draw(self, tail: str = "") -> None:
        self._tail = "\n".join(tail.split("\n")[-6:])
        self.app.render_counter += 1  # what the controls show is kept for one picture
        with set_app(self.app):
            self.screen.begin(self.app)
            self.app.renderer.render(self.app, self.app.layout)
            self.screen.end(self.app)

    def resize(self, columns: int, rows: int) -> None:
        self.terminal.resize(columns, rows)
        self._size(columns, rows)

    def _size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
