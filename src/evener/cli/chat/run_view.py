"""A run as it looks: events in, parts on the screen, and what is under way. Keeps nothing that the run would need."""

from time import monotonic
from typing import TYPE_CHECKING

from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from rich.text import Text

from evener import streaming as st
from evener.cli.chat.screen import Screen, ScreenLine
from evener.cli.chat.session import Tally
from evener.cli.terminal import clean

if TYPE_CHECKING:
    from evener.cli.chat.markdown import Markdown

__all__ = [
    "RunView",
]


FRAMES = "\u280b\u2819\u2839\u2838\u283c\u2834\u2826\u2827\u2807\u280f"
PERIOD = 0.1
LAST = 2000
SHARE = 4
"""How many times as long as reading and drawing the growing part takes it then stays as it is."""


class RunView:
    """One run after the other, on one screen."""

    def __init__(self, screen: Screen, tally: Tally) -> None:
        self._screen = screen
        self._tally = tally
        self._text: Markdown | None = None
        self.tail: StyleAndTextTuples = []
        self._until = 0.0
        self._thought = ""
        self._thinking = 0.0
        self._doing = ""
        self._since = monotonic()

    @property
    def activity(self) -> str:
        """What is under way, as one row; nothing while text comes."""
        if not self._doing:
            return ""
        seconds = monotonic() - self._since
        first, last = f"{FRAMES[int(seconds / PERIOD) % len(FRAMES)]} ", f" {seconds:.0f}s \u00b7 Esc interrupts"
        middle = Text(self._doing)
        middle.truncate(max(4, self._screen.width - len(first) - len(last) - 1), overflow="ellipsis")
        return f"{first}{middle.plain}{last}"

    def settle(self) -> None:
        """Say what will not change any more; the rest is `tail`, as it looks so far."""
        begin = monotonic()
        if self._text is not None and begin >= self._until:
            self._screen.say(*self._text.settle())
            rest = self._text.tail
            rows = self._screen.render(rest).removesuffix("\n").split("\n") if rest else []
            self.tail = to_formatted_text(ANSI("\n".join(rows[-self._screen.height :])))
            self._until = monotonic() + SHARE * (monotonic() - begin)

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
        """End what is shown of a run."""
        self._close()
        self._do("")

    def _beside(self, event: st.StreamEvent) -> None:
        """Show what happens beside the text of the model."""
        match event:
            case st.ArgumentsStreamed(tool=tool):
                self._do(f"calling {clean(tool)}", anew=False)
            case st.ToolStarted(call=call):
                self._close()
                name, arguments = clean(call.name), " ".join(clean(call.raw).split())
                shown = arguments if len(arguments) <= 200 else arguments[:197] + "..."
                self._screen.say(ScreenLine(f"{name} {shown}", "dim", first="\u2192 ", lead="  ", mark="cyan"))
                self._do(f"running {name}")
            case st.ToolProgressed(text=text) if text:
                self._do(" ".join(clean(text).split()), anew=False)
            case st.ToolFinished(call=call, result=result):
                if not result.ok:
                    self._screen.say(ScreenLine(f"  {clean(call.name)} failed ({result.outcome})", "yellow"))
                self._do("")
            case st.RetryScheduled(error=error, wait=wait, model=model):
                self._close()
                again = f" Asking {model} again" + (f" in {wait:g} seconds." if wait else ".")
                self._screen.say(ScreenLine(f"{clean(error)}{again}", "yellow"))
                self._do(f"waiting to ask {model} again")
            case st.NoticeGiven(text=text):
                self._screen.say(ScreenLine(f"The model was told: {clean(text)}", "dim"))
            case _:
                pass

    def _nested(self, event: st.StreamEvent) -> None:
        """Show that a run inside a call goes on."""
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
            from evener.cli.chat.markdown import Markdown  # with the parser and the colours of languages, which take time

            self._text = Markdown(colour=self._screen.colour)
        self._text.feed(text)

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
            self._screen.say(ScreenLine(f"Thought for {seconds:.0f} s.", "dim"))
        self._thinking, self._thought = 0.0, ""

    def _take_back(self, why: str, *, wished: bool) -> None:
        if wished:  # it stays to be read, and is marked
            self._close()
            self._screen.say(ScreenLine("Interrupted: what stands above is not part of the conversation.", "yellow"))
            return
        self._text, self.tail, self._thinking, self._thought = None, [], 0.0, ""
        taken = self._screen.take_back()
        what = "A part of an answer was taken back" if taken else "What stands above does not count"
        self._screen.say(ScreenLine(f"{what}: {clean(why)}", "yellow"))

    def _close(self) -> None:
        self._end_thought()
        if self._text is not None:
            self._screen.say(*self._text.close())
        self._text, self.tail, self._until = None, [], 0.0

    def _do(self, what: str, *, anew: bool = True) -> None:
        self._doing = what
        if anew:
            self._since = monotonic()
