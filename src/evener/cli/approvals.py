"""Who decides about what a run must ask for: whoever sits at the terminal, or `--approval`. Runs nothing and stores nothing."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from getpass import getuser
from typing import Literal

import msgspec
from msgspec.structs import replace

from evener.cli.terminal import clean, escaped, say
from evener.events import Verdict
from evener.harness.approvals import Decision, keyed
from evener.result import Approval, RunResult
from evener.store.memory import MemoryStore
from evener.store.protocol import Store, state_of
from evener.store.sqlite.store import SqliteStore
from evener.transcript.blocks import ToolCall

__all__ = [
    "Approvals",
    "Interrupts",
    "answer_of",
    "answers_of",
    "decisions_for",
    "described",
    "is_decided",
    "quoted",
    "who",
]


def described(one: Approval, answer: str = "") -> list[str]:
    """What is asked about, in lines. `answer` is the one that wants to be accepted, unless it was shown before."""
    why = f" ({_flat(one.why)})" if one.why else ""
    match one.interrupt, one.call:
        case "outcome", ToolCall() as call:
            return [f"{_flat(call.name)} was interrupted, and nobody knows whether it took effect:", *quoted(call.raw)]
        case _, ToolCall() as call:
            return [f"{_flat(call.name)} wants to run{why}:", *quoted(call.raw)]
        case "output", _:
            asked = f"The answer wants to be accepted{why}"
            return [f"{asked}:", *quoted(answer)] if answer else [f"{asked}."]
        case _:
            return [f"The run wants to go on{why}."]


def quoted(text: str) -> list[str]:
    """Somebody else's text in lines of its own, marked; JSON with its parts apart."""
    return [f"  | {line}" for line in _pretty(text).split("\n")]


def _pretty(raw: str) -> str:
    try:
        return escaped(msgspec.json.format(raw, indent=2))
    except (msgspec.DecodeError, RecursionError):
        return escaped(raw)


def _flat(text: str) -> str:
    return " ".join(escaped(text).split())


async def answer_of(store: Store, one: Approval) -> str:
    """The answer that wants to be accepted; empty where something else is asked."""
    if one.interrupt != "output":
        return ""
    reply = (await state_of(store, one.thread)).reply
    return (reply.output or reply.message.text) if reply else ""


async def answers_of(store: Store, result: RunResult, *, spoken: bool) -> Mapping[str, str]:
    """The answers that want to be accepted, by thread. `spoken`: the words of the run itself were shown before."""
    found = {one.thread: await answer_of(store, one) for one in result.approvals}
    if spoken and found.get(result.thread, "").strip() == result.text.strip():
        found.pop(result.thread, None)
    return found


async def is_decided(store: Store, one: Approval) -> bool:
    """Whether somebody has decided this, and the run only has to go on to know of it."""
    return isinstance(store, SqliteStore | MemoryStore) and await store.has_note(one.thread, f"decide:{one.id}")


def who() -> str:
    """Who is logged in, for the record."""
    try:
        return getuser()
    except (OSError, KeyError, ImportError):
        return ""


Approvals = Literal["ask", "auto", "deny"]
REFUSED = "In this run nobody may be asked, so it is not allowed."
Decisions = Mapping[str, Decision]
Line = Callable[[str], Awaitable[str | None]]


class Interrupts:
    """Ctrl-C asks what is under way to stop, as `stop` says; a second one ends the task that made this."""

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


async def decisions_for(
    result: RunResult, approvals: Approvals, interrupts: Interrupts, answers: Mapping[str, str]
) -> Decisions | None:
    """Decisions about all that waits; None to leave it waiting. `answers` are those to be accepted that nobody has seen yet.

    An answer is never rejected unseen: it would come for ever. What an interrupted call did is never guessed: the model is
    told that nobody knows.
    """
    waiting = keyed(result.approvals)
    if approvals == "auto":
        return {key: _unasked(one, "allow") for key, one in waiting.items()}
    if approvals == "deny" and all(one.interrupt != "output" for one in waiting.values()):
        return {key: _unasked(one, "reject") for key, one in waiting.items()}
    if approvals == "deny" or not _somebody_there():
        return None
    return await _asked(waiting, answers, lambda question: _line(question, interrupts))


def _unasked(one: Approval, verdict: Verdict) -> Decision:
    by = f"--approval {'auto' if verdict == 'allow' else 'deny'}"
    if one.interrupt == "outcome":
        return Decision("reject", digest=one.digest, by=by)
    return Decision(verdict, "" if verdict == "allow" else REFUSED, digest=one.digest, by=by)


# The terminal.


def _somebody_there() -> bool:
    return sys.platform != "win32" and sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


async def _asked(waiting: Mapping[str, Approval], answers: Mapping[str, str], line: Line) -> Decisions | None:
    """All or nothing: who leaves in the midst has decided nothing."""
    made: dict[str, Decision] = {}
    by = who() or "terminal"
    for key, one in waiting.items():
        say("\n".join(described(one, answers.get(one.thread, ""))))
        ask = _outcome if one.interrupt == "outcome" else _allowed
        found = await ask(line)
        if found is None:
            return None
        made[key] = replace(found, digest=one.digest, by=by)
    return made


async def _allowed(line: Line) -> Decision | None:
    answer = await _one_of(line, "Allow it? [y/n] ", ("yes", "no"))
    if answer != "no":
        return Decision("allow") if answer else None
    why = await line("Why not? (Enter for no reason) ")
    return None if why is None else Decision("reject", clean(why).strip())


async def _outcome(line: Line) -> Decision | None:
    """About a call that was interrupted. No answer runs it again by mistake: that has a word of its own."""
    match await _one_of(line, "Did it take effect? [y]es, [u]nknown, [r]un it again: ", ("yes", "unknown", "run")):
        case "yes":
            result = await line("What did it give? (Enter for nothing) ")
            return None if result is None else Decision("reject", result=clean(result).strip())
        case "unknown":
            return Decision("reject")
        case "run":
            return Decision("allow")
        case _:
            return None


async def _one_of(line: Line, question: str, words: Sequence[str]) -> str | None:
    """One of the words, by itself or by its first letter; None when nobody answers."""
    _forget_typed()
    while True:
        answer = await line(question)
        if answer is None:
            return None
        word = answer.strip().lower()
        found = next((one for one in words if word in (one, one[0])), "")
        if found:
            return found


def _forget_typed() -> None:
    """What was typed before the question is no answer to it."""
    import termios

    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


async def _line(question: str, interrupts: Interrupts) -> str | None:
    """A line from the terminal; None at its end, or when Ctrl-C was pressed."""
    sys.stderr.write(question)
    sys.stderr.flush()
    loop, keyboard = asyncio.get_running_loop(), sys.stdin.fileno()
    typed: asyncio.Future[bytes] = loop.create_future()

    def take(line: bytes) -> None:
        if not typed.done():
            typed.set_result(line)

    loop.add_reader(keyboard, lambda: take(os.read(keyboard, 1 << 16)))
    interrupts.stop = lambda: take(b"")
    try:
        line = await typed
    finally:
        loop.remove_reader(keyboard)
        interrupts.stop = None
    if not line:
        sys.stderr.write("\n")
    return line.decode(errors="replace") or None
