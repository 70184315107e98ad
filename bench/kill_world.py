"""Conversations made from a number, and the agent that has them: tools of every effect leave a durable mark of each start.

The same number gives the same turns, calls and answers in every process. Nothing here decides what is right: see kill_check.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec

from evener.harness import Harness
from evener.store.protocol import Store
from evener.testing.scripted_model import Line, ScriptedModel, calls, says
from evener.tools.context import ToolContext
from evener.tools.tool import Effect, Tool, tool
from evener.transcript.ask import Ask
from evener.transcript.blocks import ToolCall

__all__ = ["TOOLS", "Kind", "Mark", "Saga", "Tell", "World", "agent", "marks"]

Tell = Callable[[str], None]


class Kind(msgspec.Struct, frozen=True):
    """What the checks must know of a tool."""

    effect: Effect
    verifies: bool = False
    sequential: bool = False
    awaits: bool = False

    @property
    def once(self) -> bool:
        """Whether it may be started once only."""
        return self.effect == "write" and not self.verifies


TOOLS = {
    "look": Kind("read", awaits=True),
    "peek": Kind("read"),
    "book": Kind("idempotent"),
    "pay": Kind("write"),
    "send": Kind("write", awaits=True),
    "post": Kind("write", verifies=True, awaits=True),
    "move": Kind("write", verifies=True),
    "step": Kind("write", sequential=True),
}


class World(msgspec.Struct, frozen=True):
    """The turns of one conversation: tool and call id of each call."""

    name: str
    turns: tuple[tuple[tuple[str, str], ...], ...]

    @classmethod
    def of(cls, seed: int, name: str = "") -> "World":
        """Two to four turns of one to four calls; about every third has a sequential tool in it."""
        random = Random(seed)
        made = []
        for turn in range(random.randint(2, 4)):
            names = [tool for tool in TOOLS if tool != "step"] if random.random() < 0.7 else list(TOOLS)
            made.append(tuple((random.choice(names), f"{name}c{turn}-{place}") for place in range(random.randint(1, 4))))
        return cls(f"{name}world-{seed}", tuple(made))

    @property
    def prompt(self) -> str:
        return f"Go through {self.name}."

    @property
    def ending(self) -> str:
        return f"{self.name} ends after {sum(map(len, self.turns))} calls."

    def answer(self, past: int) -> Line:
        """What the model says: a function of how many turns it has had, whoever asks."""
        if past >= len(self.turns):
            return says(self.ending)
        return calls(*(ToolCall.of(call, name, {"x": call}) for name, call in self.turns[past]), text=f"turn {past}")


class Saga(msgspec.Struct, frozen=True):
    """A conversation and what becomes of it: one more prompt on a fork, another in place of the first after a rollback.

    `together`: both at the same time.
    """

    name: str
    root: World
    fork: World | None = None
    back: World | None = None
    together: bool = False

    @classmethod
    def of(cls, seed: int) -> "Saga":
        """Every second has a fork, every second a rollback."""
        random = Random(seed)
        fork, back = (World.of(random.randrange(1 << 30), name) if random.random() < 0.5 else None for name in ("f:", "b:"))
        return cls(f"saga-{seed}", World.of(seed), fork, back, random.random() < 0.5)

    @property
    def worlds(self) -> tuple[World, ...]:
        return tuple(world for world in (self.root, self.fork, self.back) if world is not None)

    def answer(self, ask: Ask) -> Line:
        """What the model says: it goes through the world that it was last asked to."""
        past = 0
        for message in reversed(ask.transcript.messages):
            past += message.role == "assistant"
            for world in self.worlds:
                if message.role == "user" and message.text == world.prompt:
                    return world.answer(past)
        raise AssertionError(f"{self.name}: nobody asked for anything")


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """One effect of a tool."""

    tool: str
    call: str
    key: str


def marks(file: Path) -> list[Mark]:
    """All effects so far, in order."""
    if not file.exists():
        return []
    return [msgspec.json.decode(line, type=Mark) for line in file.read_bytes().splitlines()]


def agent(saga: Saga, *, store: Store, side: Path, tell: Tell) -> Harness:
    """The harness. `side` is the file of effects; `tell` hears when a tool has begun and when it has taken effect."""
    tools = [_tool(name, kind, side, tell) for name, kind in TOOLS.items()]
    model = ScriptedModel(saga.answer)
    return Harness(model, tools=tools, store=store, name=saga.name, page_output=False)


def _tool(name: str, kind: Kind, side: Path, tell: Tell) -> Tool:
    def act(x: str, context: ToolContext[object]) -> str:
        tell(f"begun {x}")
        _mark(side, Mark(name, x, context.key))
        tell(f"acted {x}")
        return f"{name} {x}"

    async def act_on_the_loop(x: str, context: ToolContext[object]) -> str:
        return act(x, context)

    def took_effect(x: str, context: ToolContext[object]) -> bool:
        tell(f"checked {x}")
        return any(mark.key == context.key for mark in marks(side))

    return tool(
        act_on_the_loop if kind.awaits else act,
        name=name,
        description=f"{name}s.",
        effect=kind.effect,
        sequential=kind.sequential,
        verify=took_effect if kind.verifies else None,
    )


def _mark(side: Path, mark: Mark) -> None:
    """Durable when this returns, as an effect on the world is."""
    file = os.open(side, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, json.dumps([mark.tool, mark.call, mark.key]).encode() + b"\n")
        os.fsync(file)
    finally:
        os.close(file)
