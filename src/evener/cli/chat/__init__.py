"""`evener chat`: a conversation on a terminal, or a message a line where there is none.

Parts: `keys` and `editor` make a line of what is pressed; `markdown` and `layout` make rows of what is said; `screen` draws
them; `session` is the conversation; `turns` runs it; `app` and `linemode` are the two fronts.
"""

import asyncio
import os
import sys

import msgspec

from evener.cli.chat.session import Session
from evener.cli.run import tools_at
from evener.errors import UsageError
from evener.harness import Harness
from evener.harness.finding import find_harness
from evener.providers.config import load_config
from evener.store.folder import data_folder

__all__ = ["Wish", "run"]


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asked for."""

    model: str = ""
    system: str = ""
    tools: tuple[str, ...] = ()
    harness: str = ""
    store: str = ""
    thread: str = ""
    max_cost: str = ""


def run(wish: Wish) -> int:
    """Chat; the exit code."""
    harness = _harness(wish)
    session = Session(harness, thread=wish.thread, max_cost=wish.max_cost)
    return asyncio.run(_chat(session))


def _harness(wish: Wish) -> Harness:
    if not wish.harness:
        tools = [tool for reference in wish.tools for tool in tools_at(reference)]
        return Harness(
            wish.model,
            tools=tools,
            system=wish.system or None,
            store=wish.store or None,
            name="chat",
            policy=load_config(environ=os.environ).policy,
        )
    if wish.model or wish.tools or wish.system or wish.store:
        raise UsageError(
            "A harness brings its own model, tools, system prompt and store. Leave --harness out to set them here."
        )
    return find_harness(wish.harness)


async def _chat(session: Session) -> int:
    try:
        return await (_on_terminal(session) if _is_terminal() else _in_lines(session))
    finally:
        await session.harness.aclose()


def _is_terminal() -> bool:
    if sys.platform == "win32" or sys.stdin is None:
        return False
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


async def _on_terminal(session: Session) -> int:
    from evener.cli.chat.app import App
    from evener.cli.chat.console import Console
    from evener.cli.chat.history import History

    history = History.load(data_folder() / "chat_history")
    with Console() as console:
        return await App(session, console, history=history, colour=not os.environ.get("NO_COLOR")).run()


async def _in_lines(session: Session) -> int:
    from evener.cli.chat.linemode import LineChat

    return await LineChat(session).run()
