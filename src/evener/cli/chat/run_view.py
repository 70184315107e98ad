"""Shows a run on the screen: turns its events into parts, and its progress into a row. Keeps nothing that the run needs."""

from collections import deque
from time import monotonic
from typing import TYPE_CHECKING

from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from rich.text import Text

from evener import streaming as st
from evener.cli.activity import LONGEST, PERIOD, RunProgress, remark_on, result_text
from evener.cli.approvals import quote
from evener.cli.chat.screen import Screen, ScreenLine
from evener.cli.chat.session import Tally
from evener.cli.terminal import clean, count, flatten
from evener.toolset.todo import STEPS

if TYPE_CHECKING:
    from evener.cli.chat.markdown import Markdown


SHORT = 160
"""Characters of a result that are shown at once."""
FRAMES = "\u280b\u2819\u2839\u2838\u283c\u2834\u2826\u2827\u2807\u280f"
EXPANDED = 200
"""Rows of one result that Ctrl-O shows, and as many results."""
SHARE = 4
"""The growing part is redrawn after this many times the time that its last drawing took."""


class RunView:
    """Shows one run after the other, on one screen."""

    def __init__(self, screen: Screen, tally: Tally) -> None:
        self._screen = screen
        self._tally = tally
        self._text: Markdown | None = None
        self.tail: StyleAndTextTuples = []
        self._until = 0.0
        self._thinking = 0.0
        self._progress = RunProgress()
        self._calls: deque[st.ToolFinished] = deque(maxlen=EXPANDED)
        self.is_acting = False
        """True if a call was shown since the last request. Its output is shown only then: it may be read before its event."""

    @property
    def activity(self) -> str:
        """The present activity, as one row; empty while text is streamed."""
        if not self._progress.text:
            return ""
        seconds = monotonic() - self._progress.since
        first, last = f"{FRAMES[int(seconds / PERIOD) % len(FRAMES)]} ", f" {seconds:.0f}s \u00b7 Esc interrupts"
        middle = Text(self._progress.text)
        middle.truncate(max(4, self._screen.width - len(first) - len(last) - 1), overflow="ellipsis")
        return f"{first}{middle.plain}{last}"

    def settle(self) -> None:
        """Print what will not change any more. The rest, as it looks so far, is in `tail`."""
        begin = monotonic()
        if self._text is not None and begin >= self._until:
            self._screen.say(*self._text.settle())
            rest = self._text.tail
            rows = self._screen.render(rest).removesuffix("\n").split("\n") if rest else []
            self.tail = to_formatted_text(ANSI("\n".join(rows[-self._screen.height :])))
            self._until = monotonic() + SHARE * (monotonic() - begin)

    def event(self, event: st.StreamEvent) -> None:
        """Show what happened. Of subagents only the progress is shown."""
        self._progress.event(event)
        if event.place.parent_run:
            return
        match event:
            case st.TextStreamed(text=text):
                self._say_text(text)
            case st.ReasoningStreamed():
                self._thinking = self._thinking or monotonic()
            case st.RequestStarted():
                self.is_acting = False
                self._close()
                self._screen.mark()
            case st.TurnFinished(usage=usage):
                self._close()
                self._tally.turn(usage)
            case st.Retracted(why=why, wished=wished):
                self._take_back(why, wished=wished)
            case st.ToolStarted() | st.ToolFinished():
                self._show_call(event)
            case st.RunStarted(resumed=False):
                self._calls.clear()
            case st.RetryScheduled() | st.NoticeGiven():
                self._close()
                self._screen.say(ScreenLine(remark_on(event), "dim" if isinstance(event, st.NoticeGiven) else "yellow"))

    def _show_call(self, event: st.ToolStarted | st.ToolFinished) -> None:
        """Show a call, then the beginning of its result, or what failed and why."""
        if isinstance(event, st.ToolStarted):
            self.is_acting = True
            self._close()
            text = f"{clean(event.call.name)} {flatten(event.call.raw, LONGEST)}"
            self._screen.say(ScreenLine(text, "dim", first="\u2192 ", lead="  ", mark="cyan"))
            return
        self._calls.append(event)
        if not event.result.ok:
            self._screen.say(ScreenLine(remark_on(event), "red", first="  ", lead="  "))
            return
        first, *more = clean(result_text(event.result)).strip().split("\n")
        if event.call.name == STEPS:  # the list is for the user, too
            self._screen.say(*(ScreenLine(flatten(line, SHORT), first="    ", lead="    ") for line in (first, *more)))
            return
        left = f" (+{count(len(more), 'line')}, Ctrl-O)" if more else ""
        self._screen.say(ScreenLine(f"{flatten(first, SHORT)}{left}", "dim", first="  = ", lead="    "))

    def expand(self) -> None:
        """Show the calls of the last run in full: arguments and results."""
        if not self._calls:
            self._screen.say(ScreenLine("There are no calls to expand.", "dim"))
        for event in self._calls:
            call, result = event.call, event.result
            state = f"{result.outcome}, {result.seconds:.1f} s"
            self._screen.say(ScreenLine(f"{clean(call.name)} ({state})", "bold", first="\u2192 ", lead="  ", mark="cyan"))
            rows = [*quote(call.raw), "  =", *quote(result_text(result))]
            left = [f"  ... {count(len(rows) - EXPANDED, 'line')} more"] if len(rows) > EXPANDED else []
            self._screen.say(*(ScreenLine(row, "" if result.ok else "red") for row in (*rows[:EXPANDED], *left)))

    def close(self) -> None:
        """End what is shown of a run."""
        self._close()
        self._progress.text, self.is_acting = "", False

    def _say_text(self, text: str) -> None:
        self._end_thought()
        self._progress.text = ""
        if self._text is None:
            from evener.cli.chat.markdown import Markdown  # late: the parser and the syntax colours take time to load

            self._text = Markdown(colour=self._screen.colour)
        self._text.feed(text)

    def _end_thought(self) -> None:
        if self._thinking:
            seconds = monotonic() - self._thinking
            self._screen.say(ScreenLine(f"Thought for {seconds:.0f} s.", "dim"))
        self._thinking = 0.0

    def _take_back(self, why: str, *, wished: bool) -> None:
        if wished:  # the user can still read it
            self._close()
            self._screen.say(ScreenLine("Interrupted. The text above is not part of the conversation.", "yellow"))
            return
        self._text, self.tail, self._thinking = None, [], 0.0
        taken = self._screen.take_back()
        what = "A partial answer was removed" if taken else "Ignore the partial answer above"
        self._screen.say(ScreenLine(f"{what}: {clean(why)}", "yellow"))

    def _close(self) -> None:
        self._end_thought()
        if self._text is not None:
            self._screen.say(*self._text.close())
        self._text, self.tail, self._until = None, [], 0.0
