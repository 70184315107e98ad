"""Captures what tools print while the chat draws, and returns it as plain lines. Bounded; never blocks a tool.

Meanwhile stdout and stderr of the process and its children are a pipe. A thread reads it, because a tool that prints may block
the event loop. Output written to the terminal device directly is not captured.
"""

import os
import sys
import threading
from collections.abc import Callable

from evener.cli.terminal import clean, count

OUTPUTS = (1, 2)
MOST = 30
"""Lines that are kept per turn; the others are counted."""
LONGEST = 500
HELD = 64 * 1024


class Overheard:
    """Captured output. `told` is called, from another thread, when there is something to `take`."""

    def __init__(self) -> None:
        self.told: Callable[[], object] = lambda: None
        self._lock = threading.Lock()
        self._before: list[int] = []
        self._lines: list[str] = []
        self._held = b""
        self._room = MOST
        self._left_out = 0

    def begin(self) -> None:
        """Start capturing."""
        _flush()
        ours, theirs = os.pipe()
        self._before = [os.dup(output) for output in OUTPUTS]
        for output in OUTPUTS:
            os.dup2(theirs, output)
        os.close(theirs)
        threading.Thread(target=self._listen, args=(ours,), name="evener-overheard", daemon=True).start()

    def end(self) -> None:
        """Stop capturing, and restore the outputs."""
        _flush()
        for output, before in zip(OUTPUTS, self._before, strict=False):
            os.dup2(before, output)
            os.close(before)
        self._before = []

    def take(self) -> list[str]:
        """Return the lines since the last call, cleaned."""
        with self._lock:
            lines, self._lines = self._lines, []
        return lines

    def close(self) -> list[str]:
        """Return the same at the end of a turn, with an unfinished line and the number of dropped lines; reset the counts."""
        _flush()
        with self._lock:
            held, self._held = self._held, b""
            if held:
                self._add(held)
            lines, self._lines = self._lines, []
            if self._left_out:
                lines.append(f"and {count(self._left_out, 'more line')}, not shown")
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
        """Add a line as a terminal would leave it: a carriage return overwrites what was before it."""
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
