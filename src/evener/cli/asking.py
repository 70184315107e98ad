"""Who decides about what a run must ask for: whoever sits at the terminal, or `--approval`. Runs nothing and stores nothing."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

import msgspec

from evener.cli.terminal import clean, say
from evener.harness.approvals import Decision, keyed
from evener.result import Approval, RunResult

__all__ = ["Approvals", "Interrupts", "decisions_for", "described"]

Approvals = Literal["ask", "auto", "deny"]
REFUSED = "In this run nobody may be asked, so it is not allowed."
Decisions = Mapping[str, Decision]


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


async def decisions_for(result: RunResult, approvals: Approvals, interrupts: Interrupts) -> Decisions | None:
    """Decisions about all that waits; None to leave it waiting. An answer is never rejected unseen: it would come for ever."""
    waiting = keyed(result.approvals)
    if approvals == "auto":
        return {key: Decision("allow", digest=one.digest, by="--approval auto") for key, one in waiting.items()}
    if approvals == "deny" and all(one.interrupt != "output" for one in waiting.values()):
        return {key: Decision("reject", REFUSED, digest=one.digest, by="--approval deny") for key, one in waiting.items()}
    if approvals == "deny" or not _somebody_there():
        return None
    return await _asked(waiting, lambda question: _line(question, interrupts))


def described(one: Approval) -> str:
    """What is asked about, in lines; what a model wrote cannot pass for a line of ours."""
    why = f" ({_flat(one.why)})" if one.why else ""
    if one.call is None:
        return f"The run wants to go on{why}." if one.interrupt != "output" else f"The answer wants to be accepted{why}."
    lines = _pretty(one.call.raw).split("\n")
    return "\n".join([f"{_flat(one.call.name)} wants to run{why}:", *(f"  | {line}" for line in lines)])


def _pretty(raw: str) -> str:
    try:
        return clean(msgspec.json.format(raw, indent=2))
    except (msgspec.DecodeError, RecursionError):
        return clean(raw)


def _flat(text: str) -> str:
    return " ".join(clean(text).split())


# The terminal.


def _somebody_there() -> bool:
    return sys.platform != "win32" and sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


async def _asked(waiting: Mapping[str, Approval], line: Callable[[str], Awaitable[str | None]]) -> Decisions | None:
    """All or nothing: who leaves in the midst has decided nothing."""
    made: dict[str, Decision] = {}
    for key, one in waiting.items():
        say(described(one))
        answer = await _yes_or_no(line)
        if answer is None:
            return None
        why = "" if answer else await line("Why not? (Enter for no reason) ")
        if why is None:
            return None
        made[key] = Decision("allow" if answer else "reject", clean(why).strip(), digest=one.digest, by="terminal")
    return made


async def _yes_or_no(line: Callable[[str], Awaitable[str | None]]) -> bool | None:
    _forget_typed()
    while True:
        answer = await line("Allow it? [y/n] ")
        if answer is None:
            return None
        word = answer.strip().lower()
        if word in ("y", "yes", "n", "no"):
            return word[0] == "y"


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
