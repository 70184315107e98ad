"""What is under way in a run, as one row with a spinner, and remarks on what goes wrong. Used by `evener run` and the chat."""

import os
import re
import sys
import threading
from time import monotonic

from evener import streaming as st
from evener.cli.terminal import clean, flatten, say
from evener.events import CallFinished
from evener.transcript.blocks import TextBlock

FRAMES = "|/-\\"
PERIOD = 0.1
"""Seconds between two frames of the spinner."""
PATIENCE = 0.3
"""Seconds before the row is shown: what is over sooner needs none."""
WIDEST = 72
LONGEST = 200
"""Characters of a call's arguments that are shown."""
SAID = re.compile(r"^The tool '[^']*' failed with ")
"""How the model is told of an exception; the row has the name of the tool already."""
STATUS = re.compile(r"HTTP [0-9]{3}")
THOUGHT = 60
"""Characters of the reasoning that are shown: its end."""


def remark_on(event: st.StreamEvent) -> str:
    """Return what the user should know about an event beside the answer; empty if nothing."""
    match event:
        case st.ToolFinished(call=call, result=result) if not result.ok:
            outcome = "" if result.outcome == "failed" else f" ({result.outcome})"
            return f"{clean(call.name)} failed{outcome}{_why_failed(result)}"
        case st.RetryScheduled(error=error, wait=wait, model=model):
            status = STATUS.search(error)
            said = f"The model did not answer{f' ({status.group()})' if status else ''}."  # what it said is told at the end
            return f"{said} Asking {model} again{f' in {wait:g} seconds' if wait else ''}."
        case st.NoticeGiven(text=text):
            return f"The model was told: {clean(text)}"
        case _:
            return ""


def result_text(result: CallFinished) -> str:
    """Return what a call gave, as text. Pictures and documents are named by their kind."""
    return "\n".join(block.text if isinstance(block, TextBlock) else f"[{block.kind}]" for block in result.content)


def _why_failed(result: CallFinished) -> str:
    why = SAID.sub("", flatten(result.why or result_text(result), LONGEST))
    return f": {why}" if why else ""


class RunProgress:
    """What a run is doing, told by its events. `text` is empty when there is nothing to wait for."""

    def __init__(self) -> None:
        self.text = ""
        self.since = monotonic()
        self._thought = ""

    def event(self, event: st.StreamEvent) -> None:
        """Follow the run, and the runs of its subagents."""
        match event:
            case st.ReasoningStreamed(text=text) if not event.place.parent_run:
                self._think(text)
            case st.RequestStarted(model=model):
                self._begin(event, f"asking {model}")
            case st.ArgumentsStreamed(tool=tool) if not event.place.parent_run:
                self.text = f"calling {flatten(tool)}"
            case st.ToolStarted(call=call):
                self._begin(event, f"running {flatten(call.name)} {flatten(call.raw, LONGEST)}")
            case st.ToolProgressed(text=text) if text:
                self.text = flatten(text)
            case st.RetryScheduled(model=model):
                self._begin(event, f"waiting to ask {model} again")
            case st.TurnFinished() | st.ToolFinished() if not event.place.parent_run:
                self.text = ""

    def _begin(self, event: st.StreamEvent, text: str) -> None:
        """Show what begins. Inside a subagent the clock of the outer call goes on."""
        self._thought = ""
        if event.place.parent_run:
            self.text = f"{flatten(event.place.agent)}: {text}"
        else:
            self.text, self.since = text, monotonic()

    def _think(self, text: str) -> None:
        if not self._thought:
            self.since = monotonic()
        self._thought = (self._thought + text)[-2000:]
        words = flatten(self._thought)
        self.text = f"thinking: {words[-THOUGHT:]}" if words else "thinking"


class Activity:
    """The progress of a run on stderr, if it is a terminal: a row that a thread redraws until output is printed."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._progress = RunProgress()
        self._lock = threading.Lock()
        self._is_drawn = False
        self._thread: threading.Thread | None = None

    def event(self, event: st.StreamEvent) -> None:
        """Show the activity that an event reports, and a notice about it. Failed tools are shown only on a terminal."""
        if self._live:
            with self._lock:
                self._progress.event(event)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._turn, name="evener-activity", daemon=True)
                    self._thread.start()
        remark = remark_on(event)
        if remark and (self._live or not isinstance(event, st.ToolFinished)):
            with self._lock:
                self._wipe()
            say(f"evener: {remark}")

    def clear(self) -> None:
        """Remove the row."""
        with self._lock:
            self._progress.text = ""
            self._wipe()

    def _turn(self) -> None:
        pause = threading.Event()
        number = 0
        while not pause.wait(PERIOD):
            with self._lock:
                text = self._progress.text
                self._wipe()
                if text and monotonic() - self._progress.since > PATIENCE:
                    sys.stderr.write(f"{FRAMES[number % len(FRAMES)]} {flatten(text, WIDEST)}")
                    sys.stderr.flush()
                    self._is_drawn = True
                    number += 1

    def _wipe(self) -> None:
        if self._is_drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._is_drawn = False
