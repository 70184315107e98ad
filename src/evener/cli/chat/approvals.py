"""Asks the user about what waits to be decided, and hands the decisions on. Runs nothing."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from evener.cli.approvals import described, quoted
from evener.cli.terminal import clean, escaped
from evener.errors import UsageError
from evener.harness.approvals import Decision, keyed
from evener.result import Approval
from evener.transcript.blocks import ToolCall

__all__ = [
    "Asker",
    "Decides",
    "UserQuestion",
    "decide",
]


PAUSE = 0.5
"""Seconds without a key before one answers. What is typed ahead, or pressed twice, must not decide what was not read."""


class UserQuestion:
    """Something the user is asked. With `choices` (name: how it is shown) one key answers it, else a line does.

    The choices are shown as soon as a key counts. `otherwise` is the choice of a user who gives up.
    """

    def __init__(self, text: str, choices: Mapping[str, str] | None = None, *, otherwise: str = "") -> None:
        self._text = text
        self._choices = choices or {}
        self._loop = asyncio.get_running_loop()
        self._quiet = self._loop.time() + PAUSE
        self.letters = {name[0]: name for name in self._choices}
        self.otherwise = otherwise
        self.answer: asyncio.Future[str] = self._loop.create_future()

    @property
    def is_ready(self) -> bool:
        """True if a key counts."""
        return not self.letters or self._loop.time() >= self._quiet

    def choose(self, typed: str) -> bool:
        """Take letters that came together; several answers are none, as early ones are. False if they begin a message."""
        if not self.letters.keys() >= set(typed.lower()):
            return False
        if len(typed) == 1 and self.is_ready:
            self.give(self.letters[typed.lower()])
        else:
            self.wait()
        return True

    def shown(self, *, writing: bool) -> str:
        """Return how it stands before the line. `writing`: there is something in the line, which is no answer."""
        if not self._choices:
            return self._text
        how = "(Ctrl-U, then answer)" if writing else "  ".join(self._choices.values()) if self.is_ready else "..."
        return f"{self._text} {how} "

    def wait(self) -> None:
        """Begin the pause again: a key came too early."""
        self._quiet = self._loop.time() + PAUSE

    def give(self, answer: str, *, empty: bool = False) -> None:
        """Answer it, once."""
        if not self.answer.done() and (answer or empty):
            self.answer.set_result(answer)


class Decides(Protocol):
    """A thread whose run waits."""

    async def decide(self, decisions: Mapping[str, Decision]) -> None: ...


class Asker(Protocol):
    """The front of a chat, as approvals use it."""

    def tell(self, *lines: str, important: bool = False) -> None: ...

    async def choose(self, question: str, choices: Mapping[str, str], *, otherwise: str) -> str:
        """One of the choices, which stand with how they are shown, by its first letter; `otherwise` if the user gives up."""
        ...

    async def line(self, question: str, text: str) -> str:
        """A line, beginning with `text`."""
        ...


async def decide(
    thread: Decides,
    waiting: Sequence[Approval],
    *,
    asker: Asker,
    always: set[str],
    by: str = "",
    answers: Mapping[str, str] | None = None,
) -> None:
    """Ask about each, and decide all at once. Edited arguments that are not taken are asked for again.

    `always` are the tools that are not asked about; `answers`, by thread, those to be accepted that were not shown yet.
    """
    named = keyed(waiting)
    unseen = answers or {}

    async def ask(one: Approval) -> Decision:
        made = await _ask(one, asker, always, unseen.get(one.thread, ""))
        return replace(made, digest=one.digest, by=by)

    made = {name: await ask(one) for name, one in named.items()}
    while True:
        try:
            await thread.decide(made)
            return
        except UsageError as error:
            edited = {name: one for name, one in named.items() if made[name].arguments is not None}
            if not edited:
                raise
            asker.tell(f"Not taken: {error}", important=True)
            made |= {name: await ask(one) for name, one in edited.items()}


async def _ask(one: Approval, asker: Asker, always: set[str], answer: str) -> Decision:
    if one.interrupt == "tool" and one.call and one.call.name in always:
        asker.tell(f"Allowed as before: {escaped(one.call.name)}")
        return Decision("allow")
    asker.tell(*described(one, answer), important=True)
    if one.interrupt == "outcome":
        return await _ask_outcome(asker)
    if one.call is not None:
        return await _ask_call(one.call, asker, always)
    question = "Accept it?" if one.interrupt == "output" else "Go on?"
    if await asker.choose(question, {"yes": "[y]es", "no": "[n]o"}, otherwise="no") == "yes":
        return Decision("allow")
    return await _rejected(asker)


async def _ask_call(call: ToolCall, asker: Asker, always: set[str]) -> Decision:
    name = escaped(call.name)
    choices = {"yes": "[y]es", "no": "[n]o", "edit": "[e]dit", "always": f"[a]lways run {name}"}
    while True:
        match await asker.choose("Run it?", choices, otherwise="no"):
            case "yes":
                return Decision("allow")
            case "always":
                always.add(call.name)
                asker.tell(f"{name} is not asked about again in this chat, whatever its arguments.")
                return Decision("allow")
            case "edit":
                arguments = await _edited(call, asker)
                if arguments is not None:
                    asker.tell("With these arguments instead:", *quoted(msgspec.json.encode(arguments).decode()))
                    return Decision("allow", arguments=arguments)
            case _:
                return await _rejected(asker)


async def _rejected(asker: Asker) -> Decision:
    return Decision("reject", (await asker.line("Why not? ", "")).strip())


async def _ask_outcome(asker: Asker) -> Decision:
    """No key runs it again by habit: neither yes nor no does."""
    choices = {"yes": "[y]es", "unknown": "[u]nknown", "run": "[r]un it again"}
    match await asker.choose("Did it take effect?", choices, otherwise="unknown"):
        case "yes":
            return Decision("reject", result=(await asker.line("What did it give? ", "")).strip())
        case "run":
            return Decision("allow")
        case _:
            return Decision("reject")


async def _edited(call: ToolCall, asker: Asker) -> dict[str, object] | None:
    """New arguments; None when the user gave up."""
    text = escaped(call.raw)
    while True:
        text = await asker.line("Arguments: ", text)
        if not text.strip():
            return None
        try:
            return msgspec.json.decode(text, type=dict[str, object])
        except msgspec.ValidationError:
            why = "it is JSON, but no object"
        except (msgspec.DecodeError, RecursionError) as error:
            why = clean(str(error))
        asker.tell(f"That is not a JSON object: {why}. Mend it, or send an empty line to give up.", important=True)
