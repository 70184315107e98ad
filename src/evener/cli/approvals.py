"""Approvals: how they are described, who decides them (the user, or `--approval`), and the questions that the user is asked.

Runs nothing and stores nothing.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from getpass import getuser
from typing import Literal, Protocol

import msgspec
from msgspec.structs import replace

from evener.cli.terminal import clean, escape, say
from evener.errors import UsageError
from evener.events import Verdict
from evener.harness.approvals import Decision, keyed
from evener.result import Approval, RunResult
from evener.store.protocol import Store, state_of
from evener.transcript.blocks import ToolCall

ApprovalMode = Literal["ask", "auto", "deny"]
ASK_USER = "ask_user"
"""The tool that puts a question to the user: what it waits for is an answer, not a permission."""
DENIED = "Rejected without asking: this run was started with --approval deny."


def describe(approval: Approval, answer: str = "") -> list[str]:
    """Return what waits for a decision, in lines. `answer` is the final answer to accept, unless it was shown before."""
    why = f" ({_flatten(approval.why)})" if approval.why else ""
    match approval.interrupt, approval.call:
        case "outcome", ToolCall() as call:
            return [f"{_flatten(call.name)} was interrupted, and it is not known whether it took effect:", *quote(call.raw)]
        case _, ToolCall() as call:
            return [f"{_flatten(call.name)} needs approval{why}:", *quote(call.raw)]
        case "output", _:
            text = f"The final answer needs approval{why}"
            return [f"{text}:", *quote(answer)] if answer else [f"{text}."]
        case _:
            return [f"The run needs approval to continue{why}."]


def quote(text: str) -> list[str]:
    """Return text from outside in lines of its own, each behind a `|`; JSON is indented."""
    with suppress(msgspec.DecodeError, RecursionError):
        text = msgspec.json.format(text, indent=2)
    return [f"  | {line}" for line in escape(text).split("\n")]


def _flatten(text: str) -> str:
    return " ".join(escape(text).split())


async def read_answer(store: Store, approval: Approval) -> str:
    """Return the final answer that needs approval; empty for an approval of another kind."""
    if approval.interrupt != "output":
        return ""
    reply = (await state_of(store, approval.thread)).reply
    return (reply.output or reply.message.text) if reply else ""


async def read_answers(store: Store, result: RunResult, *, shown: bool) -> Mapping[str, str]:
    """Return the final answers that need approval, by thread. `shown`: the text of the run itself was printed before."""
    found = {one.thread: await read_answer(store, one) for one in result.approvals}
    if shown and found.get(result.thread, "").strip() == result.text.strip():
        found.pop(result.thread, None)
    return found


def user_name() -> str:
    """Return the login name, for the log; empty if there is none."""
    try:
        return getuser()
    except (OSError, KeyError, ImportError):
        return ""


def decide_unasked(result: RunResult, verdict: Verdict) -> Mapping[str, Decision] | None:
    """Decide everything that waits as `--approval auto` or `deny` says; None if it must stay undecided.

    A final answer is never rejected here, because the model would give it again and again. The outcome of an interrupted call
    is never guessed: the model is told that it is unknown.
    """
    waiting = keyed(result.approvals)
    if verdict == "reject" and any(one.interrupt == "output" for one in waiting.values()):
        return None
    by, why = ("--approval auto", "") if verdict == "allow" else ("--approval deny", DENIED)
    return {
        key: Decision("reject", digest=one.digest, by=by)
        if one.interrupt == "outcome"
        else Decision(verdict, why, digest=one.digest, by=by)
        for key, one in waiting.items()
    }


# The questions.


class Undecided(Exception):
    """The user left without an answer, so nothing is decided."""


class Decides(Protocol):
    """A thread whose run waits."""

    async def decide(self, decisions: Mapping[str, Decision]) -> None: ...


class Asker(Protocol):
    """Where the user is asked: `evener run`, or one of the two fronts of a chat."""

    def tell(self, *lines: str, important: bool = False) -> None: ...

    async def choose(self, question: str, choices: Mapping[str, str], *, otherwise: str) -> str:
        """Return the user's choice among `choices` (name: displayed text); `otherwise` if the user gives up."""
        ...

    async def line(self, question: str, text: str) -> str:
        """Return a line that the user writes. Where a line can be edited, it begins with `text`."""
        ...


async def ask_decisions(
    thread: Decides,
    waiting: Sequence[Approval],
    *,
    asker: Asker,
    always: set[str],
    by: str = "",
    answers: Mapping[str, str] | None = None,
) -> None:
    """Ask about each approval, then decide all at once. If edited arguments are refused, ask for them again.

    `always` are the tools that need no question; `answers`, by thread, the final answers that were not shown yet.
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
            asker.tell(*(line for name, one in named.items() if (line := _tell_decision(one, made[name], always))))
            return
        except UsageError as error:
            edited = {name: one for name, one in named.items() if made[name].arguments is not None}
            if not edited:
                raise
            asker.tell(f"Refused: {error}", important=True)
            made |= {name: await ask(one) for name, one in edited.items()}


def _tell_decision(one: Approval, made: Decision, always: set[str]) -> str:
    """Return what was decided about a call, for the record on the screen; nothing if it was not a question."""
    call = one.call
    if call is None or one.interrupt != "tool" or call.name == ASK_USER or (call.name in always and made.arguments is None):
        return ""
    word = "Allowed" if made.verdict == "allow" else "Rejected"
    by = f" by {escape(made.by)}" if made.by else ""
    return f"{word}{by}: {escape(call.name)}{f' ({escape(made.why)})' if made.why else ''}"


async def _ask(one: Approval, asker: Asker, always: set[str], answer: str) -> Decision:
    if one.interrupt == "tool" and one.call and one.call.name == ASK_USER:
        return await _ask_user(one.call, asker)
    if one.interrupt == "tool" and one.call and one.call.name in always:
        asker.tell(f"Allowed, as chosen before: {escape(one.call.name)}")
        return Decision("allow")
    asker.tell(*describe(one, answer), important=True)
    if one.interrupt == "outcome":
        return await _ask_outcome(asker)
    if one.call is not None:
        return await _ask_call(one.call, asker, always)
    question = "Accept it?" if one.interrupt == "output" else "Continue?"
    if await asker.choose(question, {"yes": "[y]es", "no": "[n]o"}, otherwise="no") == "yes":
        return Decision("allow")
    return await _ask_reason(asker)


async def _ask_call(call: ToolCall, asker: Asker, always: set[str]) -> Decision:
    name = escape(call.name)
    choices = {"yes": "[y]es", "no": "[n]o", "edit": "[e]dit", "always": f"[a]lways run {name}"}
    while True:
        match await asker.choose("Run it?", choices, otherwise="no"):
            case "yes":
                return Decision("allow")
            case "always":
                always.add(call.name)
                asker.tell(f"{name} runs without a question from now on, whatever its arguments.")
                return Decision("allow")
            case "edit":
                arguments = await _ask_arguments(call, asker)
                if arguments is not None:
                    asker.tell("With these arguments instead:", *quote(msgspec.json.encode(arguments).decode()))
                    return Decision("allow", arguments=arguments)
            case _:
                return await _ask_reason(asker)


async def _ask_user(call: ToolCall, asker: Asker) -> Decision:
    """Put a question of the model to the user: the answer becomes an argument of the call."""
    arguments = parse_arguments(call.raw)
    if isinstance(arguments, str):
        return Decision("reject", f"The question cannot be read: {arguments}.")
    choices = arguments.get("choices")
    offered = [f"  - {_flatten(str(one))}" for one in choices] if isinstance(choices, list) else []
    asker.tell("The model asks:", *quote(str(arguments.get("question", ""))), *offered, important=True)
    answer = clean(await asker.line("Answer: ", "")).strip()
    return Decision("allow", arguments={**arguments, "answer": answer})


async def _ask_reason(asker: Asker) -> Decision:
    return Decision("reject", clean(await asker.line("Why not? ", "")).strip())


async def _ask_outcome(asker: Asker) -> Decision:
    """Ask about an interrupted call. Neither yes nor no runs it again; a separate key does that."""
    choices = {"yes": "[y]es", "unknown": "[u]nknown", "run": "[r]un it again"}
    match await asker.choose("Did it take effect?", choices, otherwise="unknown"):
        case "yes":
            return Decision("reject", result=clean(await asker.line("What was its result? ", "")).strip())
        case "run":
            return Decision("allow")
        case _:
            return Decision("reject")


async def _ask_arguments(call: ToolCall, asker: Asker) -> dict[str, object] | None:
    """Return new arguments; None when the user gave up."""
    text = escape(call.raw)
    while True:
        text = await asker.line("Arguments: ", text)
        if not text.strip():
            return None
        arguments = parse_arguments(text)
        if not isinstance(arguments, str):
            return arguments
        asker.tell(
            f"The arguments must be a JSON object, but {arguments}. Correct them, or send an empty line to give up.",
            important=True,
        )


def parse_arguments(text: str) -> dict[str, object] | str:
    """Return the JSON object that the text holds, or why it is none."""
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except msgspec.ValidationError:
        return "this is another JSON value"
    except (msgspec.DecodeError, RecursionError) as error:
        return f"this is not valid JSON ({clean(str(error))})"


async def choose_by_line(read: Callable[[str], Awaitable[str | None]], question: str, choices: Mapping[str, str]) -> str | None:
    """Ask until a line is the name of a choice or its first letter; None when the input ends."""
    while (answer := await read(f"{question} {'  '.join(choices.values())} ")) is not None:
        word = answer.strip().lower()
        for choice in choices:
            if word in (choice, choice[0]):
                return choice
    return None


class Interrupts:
    """Handles Ctrl-C: the first calls `stop`, which asks what is under way to stop; the second cancels the current task."""

    def __init__(self) -> None:
        self.pressed = 0
        self.stop: Callable[[], object] | None = None
        self._main = asyncio.current_task()
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._press)

    def _press(self) -> None:
        self.pressed += 1
        if self.pressed == 1 and self.stop is not None:
            self.stop()
        elif self._main is not None:
            self._main.cancel()


class TerminalAsker:
    """Asks on stderr and reads lines of the terminal. Ctrl-D and Ctrl-C raise `Undecided`."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts

    @staticmethod
    def is_possible() -> bool:
        """True if there is a terminal to ask on."""
        return sys.platform != "win32" and sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()

    def tell(self, *lines: str, important: bool = False) -> None:  # noqa: ARG002 - there is one way to print a line
        say("\n".join(lines))

    async def choose(self, question: str, choices: Mapping[str, str], *, otherwise: str) -> str:  # noqa: ARG002 - leaving decides nothing
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)  # what was typed before the question does not answer it
        chosen = await choose_by_line(self._read, question, choices)
        if chosen is None:
            raise Undecided
        return chosen

    async def line(self, question: str, text: str) -> str:  # noqa: ARG002 - a plain terminal has no text to begin with
        answer = await self._read(question)
        if answer is None:
            raise Undecided
        return answer

    async def _read(self, question: str) -> str | None:
        """Return a line; None at the end of the input, or when Ctrl-C was pressed."""
        sys.stderr.write(question)
        sys.stderr.flush()
        loop, keyboard = asyncio.get_running_loop(), sys.stdin.fileno()
        typed: asyncio.Future[bytes] = loop.create_future()

        def take(line: bytes) -> None:
            if not typed.done():
                typed.set_result(line)

        loop.add_reader(keyboard, lambda: take(os.read(keyboard, 1 << 16)))
        self._interrupts.stop = lambda: take(b"")
        try:
            line = await typed
        finally:
            loop.remove_reader(keyboard)
            self._interrupts.stop = None
        if not line:
            sys.stderr.write("\n")
        return line.decode(errors="replace") or None
