"""The slash commands of the chat: which there are, and what they do to the session. Prints through the front."""

import os
import re
from collections.abc import Awaitable, Callable, Sequence
from difflib import get_close_matches
from typing import Protocol

import msgspec

from evener.cli.chat.session import Session
from evener.cli.outside import describe_servers, fetch_prompt, fetch_resource
from evener.cli.terminal import count, escape, flatten
from evener.errors import UsageError
from evener.providers.config import load_config
from evener.providers.rows import LOCAL
from evener.transcript.blocks import Block

WORD = re.compile(r"(/[A-Za-z_-][\w-]*)(?:\s+(.*))?$", re.DOTALL)
MCP_PROMPT = "/mcp__"

SHELL = "!"
SHELL_SECONDS = 120.0

ATTACHING = (("@file", "attach a text file or an image"), ("$name, /skill:name", "attach a skill"))
EDITOR_KEYS: Sequence[tuple[str, str]] = (
    ("Enter", "send; while the model is busy, steer it"),
    ("Alt-Enter, Ctrl-J, or \\ Enter", "insert a new line"),
    ("Esc", "interrupt the answer"),
    ("Tab", "complete a command, a model, or @file"),
    ("Up, Down, Ctrl-R", "walk through the history; search it"),
    *ATTACHING,
    ("Ctrl-O", "show the calls of the last run in full"),
    ("Ctrl-C", "clear the line; twice: exit"),
    ("Ctrl-D", "exit"),
)
LINE_KEYS: Sequence[tuple[str, str]] = (("\\ Enter", "insert a new line"), *ATTACHING, ("Ctrl-C, Ctrl-D", "exit"))
"""On a dumb terminal, which has no line editor."""


class CommandTarget(Protocol):
    """The front of a chat, as commands use it. `keys` are its keys, each with the text that /help shows."""

    session: Session
    keys: Sequence[tuple[str, str]]

    def tell(self, *lines: str, important: bool = False) -> None:
        """Show lines."""
        ...

    async def say(self, blocks: Sequence[Block]) -> None:
        """Send a message, and show its run."""
        ...

    async def go_on(self) -> None:
        """Resume the last run, and show it."""
        ...

    async def pick(self, question: str, items: Sequence[str]) -> int | None:
        """Return the number of the item that the user chooses; None if the user gives up."""
        ...

    def leave(self) -> None:
        """End the chat."""
        ...


class SlashCommand(msgspec.Struct, frozen=True):
    """One command. `quiet` ones can be used while the model is busy."""

    name: str
    words: str
    help: str
    act: Callable[[CommandTarget, str], Awaitable[None]]
    quiet: bool = False


def command_of(text: str) -> tuple[str, str] | None:
    """Return the command and its words; None if the text is no command, such as a path."""
    if len(line := text.strip()) > 1 and line.startswith(SHELL):
        return SHELL, line[1:].strip()
    hit = WORD.match(line)
    return (hit[1].lower(), (hit[2] or "").strip()) if hit else None


def waits(name: str) -> bool:
    """True if a command must wait until the model is idle. An unknown command is refused at once."""
    return name.startswith(MCP_PROMPT) or (name in COMMANDS and not COMMANDS[name].quiet)


async def perform(front: CommandTarget, name: str, words: str) -> None:
    """Run a command. UsageError if there is none with this name."""
    command = COMMANDS.get(name)
    servers = front.session.outside.servers
    if command is None and servers is not None and name.startswith(MCP_PROMPT):
        await front.say(await fetch_prompt(servers, name, words))
        return
    if command is None:
        near = get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
        hint = f"Did you mean {near[0]}?" if near else "/help lists the commands."
        raise UsageError(f"There is no command {name}. {hint} To send it as a message, put a space before it.")
    await command.act(front, words)


def model_names() -> list[str]:
    """Return what can follow /model: aliases and providers."""
    config = load_config(environ=os.environ)
    return sorted({*config.aliases, *(f"{row.name}:" for row in config.rows.providers), f"{LOCAL}:"})


async def _help(front: CommandTarget, _words: str) -> None:
    commands = [(f"{one.name} {one.words}".strip(), one.help) for one in COMMANDS.values()]
    width = max(len(name) for name, _ in (*commands, *front.keys))
    front.tell(*(f"{name.ljust(width)}  {text}" for name, text in (*commands, *front.keys)))


async def _model(front: CommandTarget, words: str) -> None:
    if not words:
        front.tell(f"The model is {front.session.model}. Switch with /model NAME, as in /model claude or /model local:smollm2.")
        return
    lost = await front.session.switch(words)
    told = [f"Switched to {front.session.model}."]
    if lost:
        told += ["It gets the conversation with these changes:", *(f"  {line}" for line in lost)]
    elif front.session.thread.id:
        told.append("It gets the whole conversation; nothing is lost.")
    front.tell(*told, important=True)


async def _models(front: CommandTarget, words: str) -> None:
    from evener.cli.commands.models import find_models

    known = find_models(load_config(environ=os.environ))
    names = [one.name for one in known if all(word in one.name for word in words.split())]
    if not names:
        raise UsageError(f"No model that is known here contains {words!r}. `evener models` lists them; /model takes any name.")
    chosen = await front.pick("Which model? ", names)
    if chosen is not None:
        await _model(front, names[chosen])


async def _new(front: CommandTarget, _words: str) -> None:
    before = front.session.again
    front.session.begin_anew()
    front.tell("This is a new conversation.", *([f"Continue the other one with: {before}"] if before else []), important=True)


async def _resume(front: CommandTarget, words: str) -> None:
    threads = await front.session.list_threads(words)
    if not threads:
        raise UsageError("There is no other conversation here." if not words else f"No conversation matches {words!r}.")
    chosen = 0 if len(threads) == 1 and words else await front.pick("Which conversation? ", [one for _, one in threads])
    if chosen is None:
        return
    await front.session.go_to(threads[chosen][0])
    front.tell(*await front.session.recap(), important=True)


async def _tools(front: CommandTarget, _words: str) -> None:
    tools = front.session.harness.tools
    if not tools:
        front.tell("There are no tools. Start the chat with --tools files,search to add some; `evener tools` lists them.")
        return
    width = max(map(len, tools))
    for name, tool in tools.items():
        first = (tool.spec.description or "").strip().partition("\n")[0]
        asks = ", asks first" if tool.approval else ""
        front.tell(f"{name.ljust(width)}  {tool.effect}{asks}  {first}".rstrip())


async def _mcp(front: CommandTarget, words: str) -> None:
    outside = front.session.outside
    action, _, rest = words.partition(" ")
    if not words or outside.servers is None:
        front.tell(*await describe_servers(outside.servers, outside.tools))
    elif action == "read":
        await front.say(await fetch_resource(outside.servers, rest.strip()))
    elif action == "accept":
        outside.servers.accept(rest.strip())
        front.tell(f"The tools of {rest.strip()} are accepted as they are now. The next chat does not ask about them again.")
    else:
        raise UsageError(f"/mcp takes nothing, `read SERVER URI`, or `accept SERVER`; not {words!r}.")


async def _usage(front: CommandTarget, _words: str) -> None:
    front.tell(*front.session.tally.lines())


async def _context(front: CommandTarget, words: str) -> None:
    if words == "undo":
        undone = await front.session.restore_context()
        front.tell("Undone: requests contain the same messages as before that edit." if undone else "There is nothing to undo.")
        return
    if words:
        raise UsageError(f"/context takes nothing, or `undo`; not {words!r}.")
    front.tell(*await front.session.describe_context())


async def _compact(front: CommandTarget, words: str) -> None:
    front.tell(await front.session.compact(words), important=True)


async def _undo(front: CommandTarget, _words: str) -> None:
    what = flatten(await front.session.undo(), 60)
    left = count(len(await front.session.transcript()), "message")
    front.tell(f"Undone: {what!r} and what followed. {left} left.", important=True)


async def _restore(front: CommandTarget, words: str) -> None:
    if words and not (words.isdecimal() and int(words)):
        raise UsageError(f"/restore takes the number of runs whose changes to undo, as in /restore 2; not {words!r}.")
    lines = await front.session.restore(int(words or 1))
    front.tell(*(lines or [f"The last {f'{words} runs' if words else 'run'} changed no files."]), important=True)


async def _shell(front: CommandTarget, words: str) -> None:
    """Run a command of the user's under the same fence as the model's. The model does not see it."""
    import asyncio

    from evener.tools.result import envelope_of
    from evener.toolset.shell.command import RunningCommand
    from evener.toolset.shell.sandbox import SandboxRefused
    from evener.toolset.shell.tools import ShellTools, report_end

    sandbox = ShellTools(front.session.folder).sandbox
    try:
        running = RunningCommand(sandbox, ["/bin/sh", "-c", words], seconds=SHELL_SECONDS)
    except SandboxRefused as error:
        raise UsageError(f"The command was not started. {error}") from None
    try:
        while not running.wait(0):
            await asyncio.sleep(0.02)
    finally:
        if running.end is None:
            running.stop()
    front.tell(*escape(envelope_of(report_end(running, SHELL_SECONDS)).text.rstrip("\n")).split("\n"))


async def _fork(front: CommandTarget, words: str) -> None:
    if words and not words.isdecimal():
        raise UsageError(f"/fork takes the number of exchanges to leave out, as in /fork 2; {words!r} is not a number.")
    await front.session.fork(int(words or 0))
    left = count(len(await front.session.transcript()), "message")
    front.tell(f"Now on a new branch with {left}. The old branch is unchanged; /tree shows both.", important=True)


async def _tree(front: CommandTarget, _words: str) -> None:
    front.tell(*await front.session.tree())


async def _export(front: CommandTarget, words: str) -> None:
    path = await front.session.export(words)
    front.tell(f"Exported to {path}. The file holds the whole conversation; only you can read it.", important=True)


async def _continue(front: CommandTarget, _words: str) -> None:
    await front.go_on()


async def _exit(front: CommandTarget, _words: str) -> None:
    front.leave()


COMMANDS: dict[str, SlashCommand] = {
    one.name: one
    for one in (
        SlashCommand("/model", "NAME", "switch the model, and show what would be lost", _model),
        SlashCommand("/models", "WORD", "choose a model from a list", _models),
        SlashCommand("/new", "", "begin a new conversation", _new),
        SlashCommand("/resume", "WORD", "go to another conversation, chosen from a list", _resume),
        SlashCommand("/tools", "", "list the tools", _tools, quiet=True),
        SlashCommand("/mcp", "read|accept", "list MCP servers, their prompts and resources; send a resource", _mcp),
        SlashCommand("/usage", "", "show tokens, cache, cost and context", _usage, quiet=True),
        SlashCommand("/context", "undo", "show how full the window is, or undo the last compaction", _context),
        SlashCommand("/compact", "FOCUS", "replace older messages in requests with a summary", _compact),
        SlashCommand("/undo", "", "undo the last exchange", _undo),
        SlashCommand("/restore", "N", "restore the files that the last run, or the last N, changed", _restore),
        SlashCommand(SHELL, "COMMAND", "run a command in the sandbox; the model does not see it", _shell),
        SlashCommand("/fork", "N", "continue on a new branch, without the last N exchanges", _fork),
        SlashCommand("/tree", "", "draw the branches of this conversation", _tree, quiet=True),
        SlashCommand("/export", "FILE", "write the conversation as JSON Lines", _export),
        SlashCommand("/continue", "", "resume a run that stopped or failed", _continue),
        SlashCommand("/help", "", "show this help", _help, quiet=True),
        SlashCommand("/exit", "", "exit", _exit, quiet=True),
    )
}
