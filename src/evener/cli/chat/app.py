"""The chat on a terminal: keys in, rows out. One event loop; whatever takes time is a task beside the keys.

Writing goes on while the model is busy. Nothing blocks the keys but a suspended process.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Mapping, Sequence

from evener import streaming as st
from evener.cli.chat.answer import PERIOD, Answer, failure_lines
from evener.cli.chat.attachments import as_picture, attach
from evener.cli.chat.commands import COMMANDS, command_of, model_names, perform, waits
from evener.cli.chat.completion import complete
from evener.cli.chat.console import Console
from evener.cli.chat.draft import Draft
from evener.cli.chat.editor import Action, Editor
from evener.cli.chat.history import History
from evener.cli.chat.keys import Key, KeyReader, Paste, Press, Typed
from evener.cli.chat.layout import BOLD, DIM, Line, Span, rows, text_line
from evener.cli.chat.question import Question
from evener.cli.chat.screen import Live, Screen
from evener.cli.chat.session import Session
from evener.cli.chat.turns import Turns
from evener.cli.chat.width import clipped
from evener.cli.terminal import clean
from evener.errors import EvenerError

__all__ = ["App"]

ESCAPE_WAIT = 0.05
"""Seconds after which an Escape was the key, and not the beginning of another one."""
FRAME = 1 / 60
LEFT, INTERRUPTED = 0, 130
PROMPT = "> "


class App:
    """One chat on one terminal."""

    def __init__(self, session: Session, console: Console, *, history: History, colour: bool) -> None:
        self.session = session
        self._console = console
        self._screen = Screen(console.write, size=console.size, colour=colour)
        self._editor = Editor(history)
        self._answer = Answer(self._screen, session.tally)
        self._turns = Turns(session, self)
        self._keys = KeyReader()
        self._work: set[asyncio.Task[None]] = set()
        self._queue: list[Draft] = []
        self._calling = False
        self._question: Question | None = None
        self._armed = False
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None
        self._escape: asyncio.TimerHandle | None = None
        self._done: asyncio.Future[int] | None = None

    async def run(self) -> int:
        """Until the user leaves; the exit code."""
        loop = asyncio.get_running_loop()
        self._done = loop.create_future()
        self._console.overheard.told = lambda: loop.call_soon_threadsafe(self._soon)
        await self._greet()
        loop.add_reader(self._console.input, self._readable)
        loop.add_signal_handler(signal.SIGWINCH, self._redraw)
        for name in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(name, self._finish, INTERRUPTED)
        loop.add_signal_handler(signal.SIGINT, self._press, Key("ctrl-c"))
        self._draw()
        try:
            return await self._done
        finally:
            loop.remove_reader(self._console.input)
            await self._wind_up()

    async def _greet(self) -> None:
        self.tell(f"{self.session.model} \u00b7 /help says what there is, Ctrl-D leaves.")
        self.tell(*await self.session.recap())

    async def _wind_up(self) -> None:
        """End what is under way, and leave the cursor on a row of its own."""
        for handle in (self._timer, self._escape):
            if handle is not None:
                handle.cancel()
        for task in self._work:
            task.cancel()
        if self._work:
            await asyncio.wait(self._work)
        self._answer.close()
        self._console.overheard.told = lambda: None
        self._quote(self._console.overheard.close())
        if again := self.session.again:
            self.tell(f"Go on with: {again}")
        self._screen.leave()

    # What the parts beside it use.

    def tell(self, *lines: str, important: bool = False) -> None:
        style = "" if important else DIM
        self._screen.say([text_line(clean(line), style, lead=" " * (len(line) - len(line.lstrip()))) for line in lines])
        self._soon()

    def _quote(self, lines: Sequence[str]) -> None:
        """What tools printed."""
        self._screen.say([Line((Span("  | ", DIM), Span(line, DIM)), lead="  | ") for line in lines])

    def event(self, event: st.StreamEvent) -> None:
        self._answer.event(event)
        self._quote(self._console.overheard.take())
        if isinstance(event, st.RequestStarted):
            self._calling = False
        elif isinstance(event, st.TurnFinished) and event.message.calls and not event.place.parent_run:
            self._calling = True
            self._steer()
        self._soon()

    def fail(self, error: EvenerError, advice: str) -> None:
        self._answer.close()
        self._screen.say(failure_lines(error))
        if advice:
            self.tell(advice)

    async def go_on(self) -> None:
        await self._turns.go_on()

    def leave(self) -> None:
        self._finish(LEFT)

    async def choose(self, question: str, choices: Mapping[str, str], *, otherwise: str) -> str:
        return await self._asked(Question(question, choices, otherwise=otherwise))

    async def line(self, question: str, text: str) -> str:
        before = self._editor.draft.text
        self._editor.fill(text)
        try:
            return await self._asked(Question(question))
        finally:
            self._editor.fill(before)

    async def _asked(self, question: Question) -> str:
        self._question = question
        self._answer.close()
        self._soon()
        try:
            return await question.answer
        finally:
            self._question = None
            self._soon()

    # Keys.

    def _readable(self) -> None:
        data = self._console.read()
        if not data:
            self._finish(LEFT)
            return
        if self._escape is not None:
            self._escape.cancel()
            self._escape = None
        for press in self._keys.feed(data):
            self._press(press)
        if self._keys.undecided:
            self._escape = asyncio.get_running_loop().call_later(ESCAPE_WAIT, self._flush)
        self._draw()

    def _flush(self) -> None:
        self._escape = None
        for press in self._keys.flush():
            self._press(press)
        self._draw()

    def _press(self, press: Press) -> None:
        if self._done is None or self._done.done():
            return
        if press != Key("ctrl-c"):
            self._armed = False
        question = self._question
        if question is not None and self._editor.empty and question.takes(press):
            self._choice(press, question)
            return
        if isinstance(press, Paste) and (written := as_picture(press.text, folder=self.session.folder)):
            press = Typed(written)
        asked = self._editor.press(press)
        if asked:
            ACTS[asked](self)

    def _choice(self, press: Press, question: Question) -> None:
        """A key that answers a question, once there was time to read it. Escape gives up; Ctrl-C twice leaves."""
        match press:
            case Key("ctrl-c"):
                self._interrupted()
            case Key("ctrl-d"):
                self._finish(LEFT)
            case Typed(text) if question.is_ready and len(text) == 1:
                question.give(question.letters[text.lower()])
            case _ if not question.is_ready or isinstance(press, Typed):
                question.wait()
            case Key("escape"):
                question.give(question.otherwise)
            case _:
                pass

    def _send(self) -> None:
        if self._question is not None and not self._question.letters:
            self._question.give(self._editor.draft.text, empty=True)
            return
        if self._editor.empty or not self._editor.draft.text.strip():
            return
        draft = self._editor.take()
        command = _command(draft)
        if self._busy and command is not None and not waits(command[0]):
            self._screen.say(_echo(draft))
            self._begin(self._shown(perform(self, *command)))
            return
        self._queue.append(draft)
        if not self._busy:
            self._busy = True
            self._begin(self._attend())
        elif self._calling:
            self._steer()

    def _interrupted(self) -> None:
        """Ctrl-C: clear the line, stop the answer; twice in a row: leave."""
        if self._armed:
            self._finish(INTERRUPTED)
            return
        self._armed = True
        cleared = not self._editor.empty
        self._editor.clear()
        if self._busy and not cleared:
            self._stop()
        self.tell("Press Ctrl-C again to leave.")

    def _stop(self) -> None:
        """Escape: stop the answer under way. What was queued is said to the model then."""
        question = self._question
        if question is not None and not question.is_ready:
            question.wait()
        elif question is not None:
            question.give(question.otherwise, empty=True)
        elif self._busy:
            self._begin(self._shown(self._turns.interrupt()))

    def _complete(self) -> None:
        names = tuple(COMMANDS)
        models = model_names() if self._editor.before.lstrip().startswith("/model") else []
        offer = complete(self._editor.before, commands=names, models=models, folder=self.session.folder)
        if offer is None:
            return
        if offer.text == self._editor.before[len(self._editor.before) - offer.size :] and len(offer.choices) > 1:
            shown = "  ".join(choice.strip() for choice in offer.choices[:40])
            self.tell(shown + (" ..." if len(offer.choices) > 40 else ""))
            return
        self._editor.drop(offer.size)
        self._editor.insert(offer.text)

    def _suspend(self) -> None:
        self._screen.leave()
        self._console.leave()
        os.kill(os.getpid(), signal.SIGTSTP)
        self._console.enter()
        self._screen.redraw(self._live())

    def _redraw(self) -> None:
        self._screen.redraw(self._live())

    def _finish(self, code: int) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(code)

    # What takes time.

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and self._done and not self._done.done():
            self._done.set_exception(error)

    async def _attend(self) -> None:
        """What was sent, one after the other, until nothing waits. The keys know meanwhile that the model is busy."""
        try:
            while self._queue:
                self._calling = False
                await self._shown(self._next())
                self._answer.close()
                self._quote(self._console.overheard.close())
                self._screen.say([Line()])
        finally:
            self._busy = False
            self._soon()

    async def _next(self) -> None:
        """The first that waits: a command, or all messages up to the next command as one."""
        command = _command(self._queue[0])
        if command is not None:
            self._screen.say(_echo(self._queue.pop(0)))
            await perform(self, *command)
            return
        attached = attach(self._taken(), folder=self.session.folder)
        self.tell(*attached.remarks)
        await self._turns.say(attached.blocks)

    async def _shown(self, work: Coroutine[object, object, None]) -> None:
        """What goes wrong is shown, and the chat goes on."""
        try:
            await work
        except EvenerError as error:
            self.fail(error, "")
        self._soon()

    def _steer(self) -> None:
        """Tell the model with its next request. Only while its calls run: then there is a next one for sure."""
        if self._queue and _command(self._queue[0]) is None:
            attached = attach(self._taken(), folder=self.session.folder)
            self.tell(*attached.remarks)
            self._begin(self._shown(self.session.thread.steer(attached.blocks)))

    def _taken(self) -> Draft:
        """The messages that wait, up to the next command, as one; they are on the screen then."""
        taken: list[Draft] = []
        while self._queue and _command(self._queue[0]) is None:
            taken.append(self._queue.pop(0))
            self._screen.say(_echo(taken[-1]))
        parts = [part for draft in taken for part in ("\n\n", *draft.parts)]
        return Draft(tuple(parts[1:]))

    # What is seen.

    def _soon(self) -> None:
        """Draw, a little later: many changes make one picture."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FRAME, self._draw)

    def _draw(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._done is not None and self._done.done():
            return
        self._quote(self._console.overheard.take())
        self._screen.draw(self._live())
        if self._busy:
            self._timer = asyncio.get_running_loop().call_later(PERIOD, self._draw)

    def _live(self) -> Live:
        """The rows under what was said: the line that is coming, what is under way, the input, the status."""
        screen, width = self._screen, self._screen.width
        above = rows(tail, width, colour=screen.colour) if (tail := self._answer.tail) else []
        if self._busy and (activity := self._answer.activity):
            above.append(screen.row(*_fitted(activity, width)))
        above += [screen.row(Span(clipped(f"queued: {clean(draft.shown)}", width - 1), DIM)) for draft in self._queue]
        question = self._question
        prompt = question.shown(writing=not self._editor.empty) if question else PROMPT
        view = self._editor.view(
            width, prompt=prompt if len(prompt) < width // 2 or (question and question.letters) else PROMPT
        )
        below = screen.row(Span(clipped(self.session.tally.status(self.session.model), width - 1), DIM))
        room = max(1, screen.height - 1)
        first = max(0, min(view.row - room + 1, len(view.rows) - room)) if len(view.rows) > room else 0
        written = [screen.row(*spans) for spans in view.rows[first : first + room]]
        above = above[len(above) - max(0, room - len(written)) :] if len(above) + len(written) > room else above
        return Live((*above, *written, below), len(above) + view.row - first, view.column)


ACTS: dict[Action, Callable[[App], None]] = {
    "send": App._send,
    "interrupt": App._interrupted,
    "end": App.leave,
    "escape": App._stop,
    "complete": App._complete,
    "suspend": App._suspend,
    "redraw": App._redraw,
}


def _command(draft: Draft) -> tuple[str, str] | None:
    return command_of(draft.text) if len(draft.parts) == 1 and not draft.text.startswith(" ") else None


def _echo(draft: Draft) -> list[Line]:
    """What was sent, as it stays on the screen."""
    first, *more = clean(draft.shown).split("\n")
    lines = [Line((Span(PROMPT, "36"), Span(first, BOLD)), lead="  ")]
    return [*lines, *(Line((Span("  "), Span(line, BOLD)), lead="  ") for line in more)]


def _fitted(spans: tuple[Span, ...], width: int) -> tuple[Span, ...]:
    """The middle one is cut, so that all fit."""
    first, middle, last = spans
    room = width - 1 - len(first.text) - len(last.text)
    return (first, Span(clipped(middle.text, max(room, 4)), middle.style), last)
