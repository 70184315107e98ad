"""The chat without a terminal: a message a line, plain answers on stdout, everything else on stderr."""

import asyncio
import os
import sys
from collections.abc import Mapping

from evener import streaming as st
from evener.cli.activity import Activity
from evener.cli.chat.commands import command_of, perform
from evener.cli.chat.draft import Draft, attach
from evener.cli.chat.runs import ChatRuns
from evener.cli.chat.session import Session
from evener.cli.terminal import Cleaner, say
from evener.errors import EvenerError

__all__ = ["LineChat"]

FAILED = 1
PROMPT = "> "
UNASKED = {"no": "not allowed", "unknown": "it is not run again, and the model is told that its outcome is unknown"}


class LineChat:
    """Lines in, text out. A line that ends in a backslash goes on in the next one."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._turns = ChatRuns(session, self)
        self._activity = Activity()
        self._lines = _Lines()
        self._over = False
        self._failed = False

    async def run(self) -> int:
        """Until standard input ends; 1 if a message failed."""
        self.tell(*await self.session.recap())
        while not self._over and (line := await self._lines.next(PROMPT)) is not None:
            text = line
            while text.endswith("\\") and (more := await self._lines.next("  ")) is not None:
                text = f"{text[:-1]}\n{more}"
            if text.strip():
                await self._take(text)
        return FAILED if self._failed else 0

    async def _take(self, text: str) -> None:
        command = command_of(text) if not text.startswith(" ") else None
        try:
            if command is not None:
                await perform(self, *command)
                return
            attached = attach(Draft((text,)), folder=self.session.folder)
            self.tell(*attached.remarks)
            await self._turns.say(attached.blocks)
            self._failed |= self._turns.failed
        except EvenerError as error:
            self.fail(error, "")

    # What the parts beside it use.

    def tell(self, *lines: str, important: bool = False) -> None:  # noqa: ARG002 - all is said alike
        self._activity.clear()
        for line in lines:
            say(line)

    def event(self, event: st.StreamEvent) -> None:
        """A turn when it counts: what was taken back was never shown."""
        self._activity.event(event)
        if isinstance(event, st.TurnFinished) and event.message.text and not event.place.parent_run:
            self._activity.clear()
            cleaner = Cleaner()
            print(cleaner.feed(event.message.text) + cleaner.close(), flush=True)

    def fail(self, error: EvenerError, advice: str) -> None:
        self._failed = True
        self.tell(f"evener: {error}", *([advice] if advice else []))

    async def go_on(self) -> None:
        await self._turns.go_on()

    def leave(self) -> None:
        self._over = True

    async def choose(self, question: str, choices: Mapping[str, str], *, otherwise: str) -> str:
        """Ask for a line on a terminal; else give up: what is piped in are messages, not answers."""
        if not sys.stdin.isatty():
            self.tell(f"There is no terminal to ask on: {UNASKED.get(otherwise, otherwise)}.")
            return otherwise
        while True:
            answer = await self._lines.next(f"{question} {'  '.join(choices.values())} ")
            found = [choice for choice in choices if answer and choice.startswith(answer.strip().lower()[:1] or "?")]
            if found or answer is None:
                return found[0] if found else otherwise

    async def line(self, question: str, text: str) -> str:
        if not sys.stdin.isatty():
            return "There was no terminal to ask on."
        return await self._lines.next(f"{question}{text} ") or text


class _Lines:
    """Standard input, line by line, without holding up the event loop or a thread that could not be ended."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._held = b""
        self._ended = False

    async def next(self, prompt: str) -> str | None:
        """Return the next line; None at the end. On a terminal that cannot do more, `prompt` asks for it."""
        if sys.stdin.isatty():
            print(prompt, end="", file=sys.stderr, flush=True)
        while b"\n" not in self._held and not self._ended:
            await _readable(self._input)
            read = os.read(self._input, 65536)
            self._ended = not read
            self._held += read
        if not self._held:
            return None
        line, _, self._held = self._held.partition(b"\n")
        return line.decode(errors="replace").rstrip("\r")


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def come() -> None:
        if not ready.done():
            ready.set_result(None)

    try:
        loop.add_reader(descriptor, come)
    except PermissionError:
        return  # a file: it can always be read
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
