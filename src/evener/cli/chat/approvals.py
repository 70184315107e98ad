"""Asks the user about what waits to be decided, and hands the decisions on. Runs nothing."""

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from evener.cli.terminal import clean
from evener.errors import UsageError
from evener.harness.approvals import Decision, keyed
from evener.result import Approval
from evener.transcript.blocks import ToolCall

__all__ = ["Asker", "Choice", "Decides", "decide"]

Choice = Literal["yes", "no", "edit", "always"]
CHOICES: tuple[Choice, ...] = ("yes", "no", "edit", "always")
QUESTION = "Run it? [y]es  [n]o  [e]dit  [a]lways"


class Decides(Protocol):
    """A thread whose run waits."""

    async def decide(self, decisions: Mapping[str, Decision]) -> None: ...


class Asker(Protocol):
    """Whoever asks the user."""

    def tell(self, *lines: str, important: bool = False) -> None: ...

    async def choose(self, question: str, choices: Sequence[str]) -> str:
        """One of the choices, by its first letter."""
        ...

    async def line(self, question: str, text: str) -> str:
        """A line, beginning with `text`."""
        ...


class Made(msgspec.Struct, frozen=True):
    """A decision, before it is handed on."""

    allowed: bool
    why: str = ""
    arguments: dict[str, object] | None = None


async def decide(thread: Decides, waiting: Sequence[Approval], *, asker: Asker, always: set[str]) -> None:
    """Ask about each, and decide all at once. Edited arguments that are not taken are asked for again."""
    named = keyed(waiting)
    made = {name: await _ask(one, asker, always) for name, one in named.items()}
    while True:
        try:
            await _hand_on(thread, named, made)
            return
        except UsageError as error:
            edited = {name: one for name, one in named.items() if made[name].arguments is not None}
            if not edited:
                raise
            asker.tell(f"Not taken: {error}", important=True)
            made |= {name: await _ask(one, asker, always) for name, one in edited.items()}


async def _ask(one: Approval, asker: Asker, always: set[str]) -> Made:
    name = one.call.name if one.call else ""
    if name and name in always:
        asker.tell(f"Allowed as before: {name}")
        return Made(allowed=True)
    asker.tell(*described(one), important=True)
    while True:
        choices = CHOICES if one.call else CHOICES[:2]
        match await asker.choose(QUESTION if one.call else "Go on? [y]es  [n]o", choices):
            case "yes":
                return Made(allowed=True)
            case "always":
                always.add(name)
                return Made(allowed=True)
            case "edit" if one.call:
                arguments = await _edited(one.call, asker)
                if arguments is not None:
                    return Made(allowed=True, arguments=arguments)
            case _:
                return Made(allowed=False, why=(await asker.line("Why not? ", "")).strip())


async def _edited(call: ToolCall, asker: Asker) -> dict[str, object] | None:
    """New arguments; None when the user gave up."""
    text = clean(call.raw)
    while True:
        text = await asker.line("Arguments: ", text)
        if not text.strip():
            return None
        try:
            return msgspec.json.decode(text, type=dict[str, object])
        except (msgspec.DecodeError, RecursionError) as error:
            asker.tell(f"That is not a JSON object: {error}. Mend it, or send an empty line to give up.", important=True)


def described(one: Approval) -> list[str]:
    """What is asked about, in lines."""
    if one.call is None:
        return [clean(one.why) or "The run waits for a decision."]
    why = f" ({clean(one.why)})" if one.why else ""
    return [f"{clean(one.call.name)} wants to run{why}:", *(f"  {line}" for line in _pretty(one.call.raw).split("\n"))]


def _pretty(raw: str) -> str:
    try:
        return clean(msgspec.json.format(raw, indent=2))
    except (msgspec.DecodeError, RecursionError):
        return clean(raw)


async def _hand_on(thread: Decides, named: Mapping[str, Approval], made: Mapping[str, Made]) -> None:
    decisions = {
        name: Decision(
            verdict="allow" if made[name].allowed else "reject",
            why=made[name].why,
            arguments=made[name].arguments,
            digest=one.digest,
        )
        for name, one in named.items()
    }
    await thread.decide(decisions)
