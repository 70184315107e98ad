"""The words that begin with a slash: which there are, and what they do to the session. Prints through the front."""

import os
import re
from collections.abc import Awaitable, Callable
from difflib import get_close_matches
from typing import Protocol

import msgspec

from evener.cli.chat.session import Session
from evener.errors import UsageError
from evener.providers.config import load_config
from evener.providers.rows import LOCAL

__all__ = ["COMMANDS", "Command", "CommandTarget", "command_of", "model_names", "perform", "waits"]

WORD = re.compile(r"(/[A-Za-z_-]+)(?:\s+(.*))?$", re.DOTALL)

KEYS = (
    ("Enter", "send; while the model is busy, steer it"),
    ("Alt-Enter, Ctrl-J, or \\ Enter", "a new line"),
    ("Esc", "interrupt the answer"),
    ("Tab", "complete a command, a model, or @file"),
    ("Up, Down, Ctrl-R", "what was sent before; search in it"),
    ("@file", "attach a text or a picture"),
    ("Ctrl-C", "clear the line; twice: leave"),
    ("Ctrl-D", "leave"),
)


class CommandTarget(Protocol):
    """The front of a chat, as commands use it: it shows lines, and goes on with answers."""

    session: Session

    def tell(self, *lines: str, important: bool = False) -> None:
        """Show lines."""
        ...

    async def go_on(self) -> None:
        """Go on with an answer that was stopped, and show it."""
        ...

    def leave(self) -> None:
        """End the chat."""
        ...


class Command(msgspec.Struct, frozen=True):
    """`quiet` ones may be given while the model is busy."""

    name: str
    words: str
    help: str
    act: Callable[[CommandTarget, str], Awaitable[None]]
    quiet: bool = False


def command_of(text: str) -> tuple[str, str] | None:
    """The command and its words; None for a text that is none, such as a path."""
    hit = WORD.match(text.strip())
    return (hit[1].lower(), (hit[2] or "").strip()) if hit else None


def waits(name: str) -> bool:
    """Whether a command must wait until the model is not busy. One that does not exist need not: it is refused at once."""
    return name in COMMANDS and not COMMANDS[name].quiet


async def perform(front: CommandTarget, name: str, words: str) -> None:
    """Do what a command says. UsageError when there is none of this name."""
    command = COMMANDS.get(name)
    if command is None:
        near = get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
        hint = f"Did you mean {near[0]}?" if near else "/help lists them."
        raise UsageError(f"There is no command {name}. {hint} To send a text that begins so, put a space before it.")
    await command.act(front, words)


def model_names() -> list[str]:
    """What may follow /model: aliases, and providers."""
    config = load_config(environ=os.environ)
    return sorted({*config.aliases, *(f"{row.name}:" for row in config.rows.providers), f"{LOCAL}:"})


async def _help(front: CommandTarget, _words: str) -> None:
    commands = [(f"{one.name} {one.words}".strip(), one.help) for one in COMMANDS.values()]
    width = max(len(name) for name, _ in (*commands, *KEYS))
    front.tell(*(f"{name.ljust(width)}  {text}" for name, text in (*commands, *KEYS)))


async def _model(front: CommandTarget, words: str) -> None:
    if not words:
        front.tell(f"The model is {front.session.model}. Switch with /model NAME, as in /model claude or /model local:smollm2.")
        return
    lost = await front.session.switch(words)
    told = [f"From now on {front.session.model} is asked."]
    if lost:
        told += ["What it will not get as it was:", *(f"  {line}" for line in lost)]
    elif front.session.thread.id:
        told.append("It gets all that was said so far; nothing is lost.")
    front.tell(*told, important=True)


async def _tools(front: CommandTarget, _words: str) -> None:
    tools = front.session.harness.tools
    if not tools:
        front.tell("There are no tools. Start the chat with --tools module:name to have some.")
        return
    width = max(map(len, tools))
    for name, tool in tools.items():
        first = (tool.spec.description or "").strip().partition("\n")[0]
        asks = ", asks first" if tool.approval else ""
        front.tell(f"{name.ljust(width)}  {tool.effect}{asks}  {first}".rstrip())


async def _usage(front: CommandTarget, _words: str) -> None:
    front.tell(*front.session.tally.lines())


async def _undo(front: CommandTarget, _words: str) -> None:
    what = " ".join((await front.session.undo()).split())
    what = what if len(what) <= 60 else what[:57] + "..."
    left = len(await front.session.transcript())
    front.tell(f"Taken back: {what!r} and what followed. Messages that are left: {left}.", important=True)


async def _fork(front: CommandTarget, words: str) -> None:
    if words and not words.isdecimal():
        raise UsageError(f"/fork takes a number of exchanges to leave out, as in /fork 2; {words!r} is none.")
    await front.session.fork(int(words or 0))
    left = len(await front.session.transcript())
    front.tell(
        f"From here on it is another branch, with {left} messages. The other stays as it was; /tree shows both.", important=True
    )


async def _tree(front: CommandTarget, _words: str) -> None:
    front.tell(*await front.session.tree())


async def _export(front: CommandTarget, words: str) -> None:
    path = await front.session.export(words)
    front.tell(f"Written to {path}, which only you can read. It holds everything that was said.", important=True)


async def _continue(front: CommandTarget, _words: str) -> None:
    await front.go_on()


async def _exit(front: CommandTarget, _words: str) -> None:
    front.leave()


COMMANDS: dict[str, Command] = {
    one.name: one
    for one in (
        Command("/model", "NAME", "switch to another model, and say what it will not get", _model),
        Command("/tools", "", "what the model can call", _tools, quiet=True),
        Command("/usage", "", "tokens, cache, cost, context", _usage, quiet=True),
        Command("/undo", "", "take the last exchange back", _undo),
        Command("/fork", "N", "go on on another branch, without the last N exchanges", _fork),
        Command("/tree", "", "the branches of this conversation", _tree, quiet=True),
        Command("/export", "FILE", "write the conversation as lines of JSON", _export),
        Command("/continue", "", "go on with an answer that was stopped or failed", _continue),
        Command("/help", "", "this", _help, quiet=True),
        Command("/exit", "", "leave", _exit, quiet=True),
    )
}
