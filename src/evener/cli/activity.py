"""What happens while a run goes on, on stderr: a line that turns while a tool or the model works, on a terminal only."""

import os
import sys
import threading
from time import monotonic

from evener import streaming as st
from evener.cli.terminal import clean, say

__all__ = ["Activity"]

FRAMES = "|/-\\"
PERIOD = 0.1
PATIENCE = 0.3
WIDEST = 72


class Activity:
    """One line, redrawn by a thread of its own while something is under way; gone when there is something to read."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._lock = threading.Lock()
        self._text = ""
        self._since = 0.0
        self._drawn = False
        self._turning: threading.Thread | None = None

    def event(self, event: st.StreamEvent) -> None:
        """Show what an event says is under way."""
        match event:
            case st.RequestStarted(model=model):
                self._under_way(f"asking {model}")
            case st.ToolStarted(call=call):
                self._under_way(f"{call.name} {call.raw}")
            case st.ToolProgressed(text=text):
                self._under_way(text)
            case st.ToolFinished(call=call, result=result) if not result.ok:
                self.clear()
                if self._live:
                    say(f"evener: {call.name} failed ({result.outcome})")
            case st.RetryScheduled(error=error, wait=wait):
                self.clear()
                say(f"evener: {error} Trying again in {wait:g} seconds.")
            case st.NoticeGiven(text=text):
                self.clear()
                say(f"evener: told the model: {text}")
            case _:
                pass

    def clear(self) -> None:
        """Take the line away."""
        with self._lock:
            self._text = ""
            self._wipe()

    def _under_way(self, text: str) -> None:
        if not self._live:
            return
        with self._lock:
            line = " ".join(clean(text).split())
            self._text = line if len(line) <= WIDEST else line[: WIDEST - 3] + "..."
            self._since = monotonic()
            if self._turning is None:
                self._turning = threading.Thread(target=self._turn, name="evener-activity", daemon=True)
                self._turning.start()

    def _turn(self) -> None:
        pause = threading.Event()
        number = 0
        while not pause.wait(PERIOD):
            with self._lock:
                if self._text and monotonic() - self._since > PATIENCE:
                    self._wipe()
                    sys.stderr.write(f"{FRAMES[number % len(FRAMES)]} {self._text}")
                    sys.stderr.flush()
                    self._drawn = True
                    number += 1

    def _wipe(self) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._drawn = False
