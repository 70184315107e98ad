"""Threads in a store, made here and now by a scripted model, for commands that look at them as processes."""

import asyncio
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import TypeVar

from evener import Harness, tool
from evener.errors import EvenerError
from evener.harness import Thread
from evener.loop.state import Limits
from evener.store import SqliteStore
from evener.testing import ScriptedModel, calls, says
from evener.testing.scripted_model import Line
from evener.transcript.blocks import ToolCall
from tests.cli.run import Home

T = TypeVar("T")


@tool(effect="read")
def lookup(item: str) -> str:
    """Look up an item."""
    return f"{item}: 3 left\x1b[2J"


@tool(effect="write", approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def kept(home: Home, work: Callable[[SqliteStore], Awaitable[T]]) -> T:
    """Do something with the store that commands in this home look into."""

    async def done() -> T:
        store = SqliteStore(home.folder / "evener" / "evener.db")
        try:
            return await work(store)
        finally:
            await store.aclose()

    return asyncio.run(done())


def said(home: Home, prompt: str = "How much tea is left?", *lines: Line, name: str = "run", turns: int | None = None) -> str:
    """One run; its thread. Without lines it looks something up and answers."""
    script = lines or (calls(ToolCall.of("c1", "lookup", {"item": "tea"}), text="Let me see."), says("There are 3 left."))

    async def run(store: SqliteStore) -> str:
        thread = agent(store, *script, name=name).thread(limits=Limits(requests=turns) if turns else None)
        return await _id(thread, prompt)

    return kept(home, run)


def more(home: Home, thread: str, prompt: str, answer: str) -> str:
    """Another run in a thread or branch; its log."""

    async def run(store: SqliteStore) -> str:
        here = agent(store, answer).thread(thread)
        await here.run(prompt)
        return here.log

    return kept(home, run)


def agent(store: SqliteStore, *lines: Line, name: str = "run") -> Harness:
    model = ScriptedModel(lines, name="anthropic:claude-opus-4-5", price=Decimal("0.01"))
    return Harness(model, tools=[lookup, pay], system="You sell tea.", store=store, name=name)


async def _id(thread: Thread, prompt: str) -> str:
    try:
        await thread.run(prompt)
    except EvenerError:
        assert thread.id  # a run that failed is kept, too
    return thread.id
