"""The terminal as a device: raw input, its size, and everything put back as it was. The only place that knows termios.

While it is entered the terminal is ours alone: what anybody else in the process prints is overheard, and not on the screen.
"""

import fcntl
import os
import struct
import sys
import termios
from types import TracebackType

from evener.cli.chat.overheard import Overheard

__all__ = ["Console"]

PASTES_ON, PASTES_OFF = "\x1b[?2004h", "\x1b[?2004l"
USUAL = (80, 24)


class Console:
    """Use it in a `with`: inside, keys arrive as they are pressed and nothing is echoed."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._before = termios.tcgetattr(self._input)
        self._output = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding=sys.stdout.encoding, errors="replace", newline="")
        self.overheard = Overheard()

    @property
    def input(self) -> int:
        return self._input

    def __enter__(self) -> "Console":
        self.enter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.leave()
        self._output.close()

    def enter(self) -> None:
        """Take the keys as they come: Enter and Ctrl-J differ, Ctrl-C is a key. Output is left as it is."""
        self._before = termios.tcgetattr(self._input)
        raw = termios.tcgetattr(self._input)
        raw[0] &= ~(termios.ICRNL | termios.INLCR | termios.IGNCR | termios.IXON | termios.ISTRIP)
        raw[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN)
        raw[6][termios.VMIN], raw[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._input, termios.TCSADRAIN, raw)
        self.overheard.begin()
        self.write(PASTES_ON)

    def leave(self) -> None:
        """As it was before."""
        self.write(PASTES_OFF)
        self.overheard.end()
        termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)

    def write(self, text: str) -> None:
        self._output.write(text)
        self._output.flush()

    def read(self) -> bytes:
        """What is there; empty at the end."""
        try:
            return os.read(self._input, 65536)
        except OSError:
            return b""  # the terminal has gone

    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        try:
            height, width, _, _ = struct.unpack("HHHH", fcntl.ioctl(self._output.fileno(), termios.TIOCGWINSZ, b"\0" * 8))
        except OSError:
            return USUAL
        return (width or USUAL[0], height or USUAL[1])
