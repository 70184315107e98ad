"""The chat without a terminal: one message per line, plain answers on stdout, everything else on stderr."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence

from evener import streaming as st
from evener.cli.activity import Activity
from evener.cli.approvals import choose_by_line
from evener.cli.chat.commands import LINE_KEYS, command_of, perform
from evener.cli.chat.draft import Draft, attach
from evener.cli.chat.runs import ChatRuns
from evener.cli.chat.session import Session
from evener.cli.terminal import clean, say
from evener.errors import EvenerError
from evener.transcript.blocks import Block

FAILED = 1
PROMPT = "> "
UNASKED = {"no": "rejected", "unknown": "it is not run again, and the model is told that its outcome is unknown"}


class LineChat:
    """Reads lines and prints text. A backslash at the end of a line joins the next one to it."""

    keys = LINE_KEYS

    def __init__(self, session: Session) -> None:
        self.session = session
        self._turns = ChatRuns(session, self)
        self._activity = Activity()
        self._lines = _Lines()
        self._over = False
        self._failed = False

    async def run(self) -> int:
        """Chat until standard input ends; return 1 if a message failed. On a (dumb) terminal, greet and say how to continue."""
        if not sys.stdin.isatty():
            return await self._chat()
        self.tell(self.session.greeting)
        try:
            return await self._chat()
        finally:
            self.tell("", *self.session.farewell)  # the cursor is behind the prompt

    async def _chat(self) -> int:
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
            attached = attach(Draft((text,)), folder=self.session.folder, skills=self.session.outside.skills)
            self.tell(*attached.remarks)
            await self.say(attached.blocks)
        except EvenerError as error:
            self.fail(error, "")

    # For commands, runs and approvals.

    def tell(self, *lines: str, important: bool = False) -> None:  # noqa: ARG002 - all is said alike
        self._activity.clear()
        for line in lines:
            say(line)

    def event(self, event: st.StreamEvent) -> None:
        """Print a turn once it is complete: a retracted answer is never shown."""
        self._activity.event(event)
        if isinstance(event, st.TurnFinished) and event.message.text and not event.place.parent_run:
            self._activity.clear()
            print(clean(event.message.text), flush=True)

    def fail(self, error: EvenerError, advice: str) -> None:
        self._failed = True
        self.tell(f"evener: {error}", *([advice] if advice else []))

    async def say(self, blocks: Sequence[Block]) -> None:
        await self._turns.say(blocks)
        self._failed |= self._turns.failed

    async def go_on(self) -> None:
        await self._turns.go_on()

    def leave(self) -> None:
        self._over = True

    async def choose(self, question: str, choices: Mapping[str, str], *, otherwise: str) -> str:
        """Ask for a line on a terminal; without one, return `otherwise`: piped lines are messages, not answers."""
        if not sys.stdin.isatty():
            self.tell(f"There is no terminal to ask on: {UNASKED.get(otherwise, otherwise)}.")
            return otherwise
        return await choose_by_line(self._lines.next, question, choices) or otherwise

    async def pick(self, question: str, items: Sequence[str]) -> int | None:
        """List the items by number, and take one; without a terminal only list them."""
        self.tell(*(f"{number}  {item}" for number, item in enumerate(items, 1)))
        answer = await self._lines.next(question) if sys.stdin.isatty() else None
        chosen = int(answer) if answer and answer.strip().isdecimal() else 0
        return chosen - 1 if 0 < chosen <= len(items) else None

    async def line(self, question: str, text: str) -> str:  # noqa: ARG002 - a line without an editor begins empty
        if not sys.stdin.isatty():
            return "There was no terminal to ask on."
        return await self._lines.next(question) or ""


class _Lines:
    """Reads standard input line by line. Does not block the event loop. Uses no thread, because it could not be ended."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._held = b""
        self._ended = False

    async def next(self, prompt: str) -> str | None:
        """Return the next line; None at the end. `prompt` is printed if standard input is a (dumb) terminal."""
        if sys.stdin.isatty():
            print(prompt, end="", file=sys.stderr, flush=True)
        while b"\n" not in self._held and not self._ended:
            await _wait_readable(self._input)
            read = os.read(self._input, 65536)
            self._ended = not read
            self._held += read
        if not self._held:
            return None
        line, _, self._held = self._held.partition(b"\n")
        return line.decode(errors="replace").rstrip("\r")


async def _wait_readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def come() -> None:
        if not ready.done():
            ready.set_result(None)

    try:
        loop.add_reader(descriptor, come)
    except PermissionError:
        return  # a regular file is always readable
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
