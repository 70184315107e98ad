"""What tools print while the chat draws: kept off the terminal, and told as plain lines. Bounded; never holds a tool up.

Standard output and standard error of the process, and of what it starts, lead into a pipe meanwhile. A thread of its own reads
it, for a tool that prints may hold up the event loop. What writes to the terminal by its own path is not caught.
"""

import os
import sys
import threading
from collections.abc import Callable

from evener.cli.terminal import clean

__all__ = ["Overheard"]

OUTPUTS = (1, 2)
MOST = 30
"""Lines that are told of one turn; the others are counted."""
LONGEST = 500
HELD = 64 * 1024


class Overheard:
    """`told` is called, from another thread, when there is something to `take`."""

    def __init__(self, told: Callable[[], object] = lambda: None) -> None:
        self.told = told
        self._lock = threading.Lock()
        self._before: list[int] = []
        self._lines: list[str] = []
        self._held = b""
        self._room = MOST
        self._left_out = 0

    def begin(self) -> None:
        """Lead the outputs here."""
        _flush()
        ours, theirs = os.pipe()
        self._before = [os.dup(output) for output in OUTPUTS]
        for output in OUTPUTS:
            os.dup2(theirs, output)
        os.close(theirs)
        threading.Thread(target=self._listen, args=(ours,), name="evener-overheard", daemon=True).start()

    def end(self) -> None:
        """Lead them where they led before."""
        _flush()
        for output, before in zip(OUTPUTS, self._before, strict=False):
            os.dup2(before, output)
            os.close(before)
        self._before = []

    def take(self) -> list[str]:
        """The lines that came since, without what steers a terminal."""
        with self._lock:
            lines, self._lines = self._lines, []
        return lines

    def close(self) -> list[str]:
        """The same at the end of a turn: a line that has not ended, too, and how many were left out. Then it begins anew."""
        _flush()
        with self._lock:
            held, self._held = self._held, b""
            if held:
                self._add(held)
            lines, self._lines = self._lines, []
            if self._left_out:
                lines.append(f"and {self._left_out:,} more lines, which are not shown")
            self._room, self._left_out = MOST, 0
        return lines

    def _listen(self, ours: int) -> None:
        try:
            while read := os.read(ours, HELD):
                self._hear(read)
                self.told()
        finally:
            os.close(ours)

    def _hear(self, read: bytes) -> None:
        with self._lock:
            *lines, self._held = (self._held + read).split(b"\n")
            for line in lines:
                self._add(line)
            if len(self._held) > HELD:
                self._add(self._held)
                self._held = b""

    def _add(self, line: bytes) -> None:
        """As a terminal would leave it: after a carriage return a line is written anew."""
        shown = clean(line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace"))
        if not shown.strip():
            return
        if not self._room:
            self._left_out += 1
            return
        self._room -= 1
        self._lines.append(shown if len(shown) <= LONGEST else shown[: LONGEST - 3] + "...")


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
