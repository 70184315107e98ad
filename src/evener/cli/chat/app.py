"""The chat on a terminal: takes keys, prints parts. One event loop; everything that takes time runs as a task beside it.

The user can write while the model is busy: only a suspended process blocks the keys.
"""

import asyncio
import os
import signal
from collections.abc import Coroutine, Mapping, Sequence
from typing import TextIO

from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.formatted_text import StyleAndTextTuples

from evener import streaming as st
from evener.cli.activity import PERIOD
from evener.cli.chat.commands import COMMANDS, EDITOR_KEYS, command_of, model_names, perform, waits
from evener.cli.chat.draft import Draft, as_image, attach
from evener.cli.chat.history import History
from evener.cli.chat.keys import Offers, bind_keys
from evener.cli.chat.overheard import Overheard
from evener.cli.chat.prompt import PROMPT, PromptView
from evener.cli.chat.question import Picker, UserQuestion
from evener.cli.chat.run_view import RunView
from evener.cli.chat.runs import ChatRuns
from evener.cli.chat.screen import Screen, ScreenLine
from evener.cli.chat.session import Session
from evener.cli.terminal import clean, flatten
from evener.errors import EvenerError
from evener.transcript.blocks import Block

LEFT, INTERRUPTED = 0, 130


class App:
    """One chat on one terminal. While it runs, anything else that the process prints is captured."""

    keys = EDITOR_KEYS

    def __init__(self, session: Session, terminal: TextIO, *, history: History, colour: bool, vi: bool) -> None:
        self.session = session
        self._overheard = Overheard()
        self._screen = Screen(terminal, colour=colour)
        self._history = history
        commands = (*COMMANDS, *(f"/skill:{name}" for name in session.outside.skills))
        offers = Offers(commands=commands, models=model_names, folder=session.folder)
        self._prompt = PromptView(self, self._screen, history=history, completer=offers, keys=bind_keys(self), vi=vi)
        self._line, self._app = self._prompt.buffer, self._prompt.app
        self._answer = RunView(self._screen, session.tally)
        self._turns = ChatRuns(session, self)
        self._work: set[asyncio.Task[None]] = set()
        self._queue: list[Draft] = []
        self._calling = self._busy = False
        self._question: UserQuestion | None = None
        self._presses = self._armed = 0

    async def run(self) -> int:
        """Chat until the user leaves; return the exit code."""
        loop = asyncio.get_running_loop()
        self._app.key_processor.before_key_press += self._count
        self._overheard.told = lambda: loop.call_soon_threadsafe(self._app.invalidate)
        for name in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(name, self._finish, INTERRUPTED)
        self.tell(self.session.greeting)
        self.tell(*await self.session.recap())
        self._overheard.begin()
        try:
            with self._app.input.raw_mode():
                self._prompt.take_typeahead()
                return await self._app.run_async(set_exception_handler=False)
        except EOFError:
            return LEFT
        finally:
            await self._wind_up()
            self._overheard.end()

    async def _wind_up(self) -> None:
        """Cancel everything that is running, and leave the cursor on an empty row."""
        for task in self._work:
            task.cancel()
        if self._work:
            await asyncio.wait(self._work)
        self._answer.close()
        self._overheard.told = lambda: None
        self._quote(self._overheard.close())
        self.tell(*self.session.farewell)
        self._screen.leave()

    # For commands, runs and approvals.

    def tell(self, *lines: str, important: bool = False) -> None:
        for line in lines:
            text = line.lstrip()
            blank = " " * (len(line) - len(text))
            self._screen.say(ScreenLine(clean(text), "" if important else "dim", first=blank, lead=blank))
        self._app.invalidate()

    def _quote(self, lines: Sequence[str]) -> None:
        """Show the output of tools."""
        self._screen.say(*(ScreenLine(line, "dim", first="  | ", lead="  | ") for line in lines))

    def event(self, event: st.StreamEvent) -> None:
        if self._answer.is_acting:
            self._quote(self._overheard.take())
        self._answer.event(event)
        if isinstance(event, st.RequestStarted):
            self._calling = False
        elif isinstance(event, st.TurnFinished) and event.message.calls and not event.place.parent_run:
            self._calling = True
            self._steer()
        self._app.invalidate()

    def fail(self, error: EvenerError, advice: str) -> None:
        self._answer.close()
        self._screen.say(ScreenLine(clean(str(error)) or type(error).__name__, "red"))
        if advice:
            self.tell(advice)

    async def go_on(self) -> None:
        await self._turns.go_on()

    async def choose(self, question: str, choices: Mapping[str, str], *, otherwise: str) -> str:
        return await self._ask(UserQuestion(question, choices, otherwise=otherwise))

    async def line(self, question: str, text: str) -> str:
        before = self._line.text
        self._prompt.fill(text)
        try:
            return await self._ask(UserQuestion(question))
        finally:
            self._prompt.fill(before)

    async def say(self, blocks: Sequence[Block]) -> None:
        await self._turns.say(blocks)

    async def pick(self, question: str, items: Sequence[str]) -> int | None:
        before = self._line.text
        self._prompt.fill("")
        try:
            chosen = await self._ask(Picker(question, items))
        finally:
            self._prompt.fill(before)
        return int(chosen) if chosen else None

    def expand(self) -> None:
        self._answer.expand()
        self._app.invalidate()

    def move(self, by: int) -> bool:
        if not isinstance(self._question, Picker):
            return False
        self._question.move(by)
        return True

    async def _ask(self, question: UserQuestion) -> str:
        self._question = question
        self._answer.close()
        self._app.invalidate()
        try:
            return await question.answer
        finally:
            self._question = None
            self._app.invalidate()

    # For the keys.

    def _count(self, _: object) -> None:
        self._presses += 1

    @property
    def asking(self) -> bool:
        return self._question is not None and bool(self._question.letters) and not self._line.text

    def answer(self, letters: str) -> bool:
        return self._question is not None and self._question.choose(letters)

    def paste(self, text: str) -> None:
        self._line.insert_text(as_image(text, folder=self.session.folder) or self._prompt.pastes.fold(text))

    def fold(self) -> None:
        """Show a long entry of the history as one piece."""
        text = self._line.text
        if text in self._history.get_strings() and (folded := self._prompt.pastes.fold(text)) != text:
            self._prompt.fill(folded)

    def send(self) -> None:
        question = self._question
        draft = self._prompt.pastes.draft(self._line.text)
        if isinstance(question, Picker):
            question.filter(draft.text)
            question.take()
            return
        if question is not None and not question.letters:
            question.give(draft.text, empty=True)
            return
        if not draft.text.strip():
            if question is not None and not question.is_ready:
                question.wait()
            return
        self._history.add(draft.text)
        self._line.reset()
        command = _command(draft)
        if self._busy and command is not None and not waits(command[0]):
            self._screen.say(*_echo(draft))
            self._begin(self._guard(perform(self, *command)))
            return
        self._queue.append(draft)
        if not self._busy:
            self._busy = True
            self._begin(self._attend())
        elif self._calling:
            self._steer()

    def clear(self) -> None:
        """Clear the line, or interrupt the answer (Ctrl-C); exit when pressed twice in a row."""
        if self._armed and self._armed == self._presses - 1:
            self._finish(INTERRUPTED)
            return
        self._armed = self._presses
        if self._line.text:
            self._line.reset()
        elif self._busy:
            self.stop()
        self.tell("Press Ctrl-C again to exit.")

    def stop(self) -> None:
        """Interrupt the answer (Escape), or give up on a question. What was queued is sent next."""
        question = self._question
        if question is not None and not question.is_ready:
            question.wait()
        elif question is not None:
            question.give(question.otherwise, empty=True)
        elif self._busy:
            self._begin(self._guard(self._turns.interrupt()))

    def leave(self) -> None:
        self._finish(LEFT)

    def suspend(self) -> None:
        run_in_terminal(self._sleep)

    def _sleep(self) -> None:
        self._overheard.end()
        os.kill(os.getpid(), signal.SIGTSTP)
        self._overheard.begin()
        self.redraw()

    def redraw(self) -> None:
        self._screen.forget_size()
        self._app.invalidate()

    def _finish(self, code: int) -> None:
        if self._app.is_running and not self._app.is_done:
            self._app.exit(result=code)

    # Tasks.

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and self._app.is_running and not self._app.is_done:
            self._app.exit(exception=error)

    async def _attend(self) -> None:
        """Process the messages in the queue, in order, until it is empty. The chat counts as busy meanwhile."""
        self._begin(self._tick())
        try:
            while self._queue:
                self._calling = False
                await self._guard(self._next())
                self._answer.close()
                self._quote(self._overheard.close())
                self._screen.say(ScreenLine())
        finally:
            self._busy = False
            self._app.invalidate()

    async def _next(self) -> None:
        """Process the head of the queue: a command, or all messages up to the next command as one."""
        command = _command(self._queue[0])
        if command is not None:
            self._screen.say(*_echo(self._queue.pop(0)))
            await perform(self, *command)
            return
        attached = attach(self._take(), folder=self.session.folder, skills=self.session.outside.skills)
        self.tell(*attached.remarks)
        await self._turns.say(attached.blocks)

    async def _guard(self, work: Coroutine[object, object, None]) -> None:
        """Do some work. An error is shown, and does not end the chat."""
        try:
            await work
        except EvenerError as error:
            self.fail(error, "")
        self._app.invalidate()

    def _steer(self) -> None:
        """Send the queue to the model with its next request. Only while its calls run: then there will be a next request."""
        if self._queue and _command(self._queue[0]) is None:
            attached = attach(self._take(), folder=self.session.folder, skills=self.session.outside.skills)
            self.tell(*attached.remarks)
            self._begin(self._guard(self.session.thread.steer(attached.blocks)))

    def _take(self) -> Draft:
        """Remove the messages up to the next command from the queue, show them, and return them as one."""
        taken: list[Draft] = []
        while self._queue and _command(self._queue[0]) is None:
            taken.append(self._queue.pop(0))
            self._screen.say(*_echo(taken[-1]))
        parts = [part for draft in taken for part in ("\n\n", *draft.parts)]
        return Draft(tuple(parts[1:]))

    # For the prompt.

    async def _tick(self) -> None:
        """Redraw periodically while the model is busy."""
        while self._busy:
            self._app.invalidate()
            await asyncio.sleep(PERIOD)

    def settle(self) -> None:
        if not self._busy or self._answer.is_acting:
            self._quote(self._overheard.take())
        self._answer.settle()

    def tail(self) -> StyleAndTextTuples:
        return self._answer.tail

    def beside(self) -> StyleAndTextTuples:
        if isinstance(self._question, Picker):
            self._question.filter(self._line.text)
            return [("", "\n".join(clean(row) for row in self._question.rows))]
        activity = self._answer.activity if self._busy else ""
        queued = (f"queued: {flatten(draft.shown)}" for draft in self._queue)
        return [("dim", "\n".join(row for row in (activity, *queued) if row))]

    def prompt(self) -> str:
        return self._question.shown(writing=bool(self._line.text)) if self._question else PROMPT

    def status(self) -> str:
        return self.session.tally.status(self.session.model)


def _command(draft: Draft) -> tuple[str, str] | None:
    return command_of(draft.text) if len(draft.parts) == 1 and not draft.text.startswith(" ") else None


def _echo(draft: Draft) -> list[ScreenLine]:
    """Return a sent message as lines for the screen."""
    first, *more = clean(draft.shown).split("\n")
    lines = [ScreenLine(first, "bold", first=PROMPT, lead="  ", mark="cyan")]
    return [*lines, *(ScreenLine(line, "bold", first="  ", lead="  ") for line in more)]
