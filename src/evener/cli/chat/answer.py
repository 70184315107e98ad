"""A run as it looks: events in, lines on the screen, and what is under way. Keeps nothing that the run would need."""

from time import monotonic

from evener import streaming as st
from evener.cli.chat.layout import BOLD, CYAN, DIM, RED, YELLOW, Line, Span, text_line
from evener.cli.chat.markdown import Markdown
from evener.cli.chat.screen import Screen
from evener.cli.chat.tally import Tally
from evener.cli.terminal import clean

__all__ = ["Answer"]

FRAMES = "\u280b\u2819\u2839\u2838\u283c\u2834\u2826\u2827\u2807\u280f"
PERIOD = 0.1
LAST = 2000


class Answer:
    """One run after the other, on one screen."""

    def __init__(self, screen: Screen, tally: Tally) -> None:
        self._screen = screen
        self._tally = tally
        self._text: Markdown | None = None
        self._thought = ""
        self._thinking = 0.0
        self._doing = ""
        self._since = monotonic()

    @property
    def tail(self) -> Line | None:
        """The line that has not ended yet."""
        return self._text.tail if self._text else None

    @property
    def activity(self) -> tuple[Span, ...]:
        """What is under way, as one row; nothing while text comes."""
        if not self._doing:
            return ()
        seconds = monotonic() - self._since
        frame = FRAMES[int(seconds / PERIOD) % len(FRAMES)]
        return (Span(f"{frame} ", CYAN), Span(self._doing, DIM), Span(f" {seconds:.0f}s \u00b7 Esc interrupts", DIM))

    def event(self, event: st.StreamEvent) -> None:
        """Show what happened."""
        if event.place.parent_run:
            self._nested(event)
            return
        match event:
            case st.TextStreamed(text=text):
                self._say_text(text)
            case st.ReasoningStreamed(text=text):
                self._think(text)
            case st.RequestStarted(model=model):
                self._close()
                self._screen.mark()
                self._do(f"asking {model}")
            case st.TurnFinished(usage=usage):
                self._close()
                self._tally.turn(usage)
                self._do("")
            case st.Retracted(why=why, wished=wished):
                self._take_back(why, wished=wished)
            case _:
                self._beside(event)

    def close(self) -> None:
        """The run has ended, one way or another."""
        self._close()
        self._do("")

    def _beside(self, event: st.StreamEvent) -> None:
        """What is not said by the model."""
        match event:
            case st.ArgumentsStreamed(tool=tool):
                self._do(f"calling {clean(tool)}", anew=False)
            case st.ToolStarted(call=call):
                self._close()
                name, arguments = clean(call.name), " ".join(clean(call.raw).split())
                shown = arguments if len(arguments) <= 200 else arguments[:197] + "..."
                self._screen.say([Line((Span("\u2192 ", CYAN), Span(name, BOLD), Span(f" {shown}", DIM)), lead="  ")])
                self._do(f"running {name}")
            case st.ToolProgressed(text=text) if text:
                self._do(" ".join(clean(text).split()), anew=False)
            case st.ToolFinished(call=call, result=result):
                if not result.ok:
                    self._screen.say([text_line(f"  {clean(call.name)} failed ({result.outcome})", YELLOW)])
                self._do("")
            case st.RetryScheduled(error=error, wait=wait, model=model):
                self._close()
                again = f" Asking {model} again" + (f" in {wait:g} seconds." if wait else ".")
                self._screen.say([text_line(f"{clean(error)}{again}", YELLOW)])
                self._do(f"waiting to ask {model} again")
            case st.NoticeGiven(text=text):
                self._screen.say([text_line(f"The model was told: {clean(text)}", DIM)])
            case _:
                pass

    def _nested(self, event: st.StreamEvent) -> None:
        """A run inside a call: only that it goes on."""
        match event:
            case st.RequestStarted(model=model):
                self._do(f"{clean(event.place.agent)}: asking {model}", anew=False)
            case st.ToolStarted(call=call):
                self._do(f"{clean(event.place.agent)}: running {clean(call.name)}", anew=False)
            case _:
                pass

    def _say_text(self, text: str) -> None:
        self._end_thought()
        self._doing = ""
        if self._text is None:
            self._text = Markdown(colour=self._screen.colour)
        self._screen.say(self._text.feed(text))

    def _think(self, text: str) -> None:
        if not self._thinking:
            self._thinking = monotonic()
            self._do("thinking")
        self._thought = (self._thought + text)[-LAST:]
        words = " ".join(clean(self._thought).split())
        self._doing = f"thinking: {words[-60:]}" if words else "thinking"

    def _end_thought(self) -> None:
        if self._thinking:
            seconds = monotonic() - self._thinking
            self._screen.say([text_line(f"Thought for {seconds:.0f} s.", DIM)])
        self._thinking, self._thought = 0.0, ""

    def _take_back(self, why: str, *, wished: bool) -> None:
        if wished:  # it stays to be read, and is marked
            self._close()
            self._screen.say([text_line("Interrupted: what stands above is not part of the conversation.", YELLOW)])
            return
        self._text, self._thinking, self._thought = None, 0.0, ""
        taken = self._screen.take_back()
        what = "A part of an answer was taken back" if taken else "What stands above does not count"
        self._screen.say([text_line(f"{what}: {clean(why)}", YELLOW)])

    def _close(self) -> None:
        self._end_thought()
        if self._text is not None:
            self._screen.say(self._text.close())
        self._text = None

    def _do(self, what: str, *, anew: bool = True) -> None:
        self._doing = what
        if anew:
            self._since = monotonic()


def failure_lines(error: Exception) -> list[Line]:
    """An error, and that the chat goes on."""
    return [text_line(clean(str(error)) or type(error).__name__, RED)]
