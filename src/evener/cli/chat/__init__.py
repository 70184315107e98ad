"""`evener chat`: a conversation on a terminal, or a message a line where there is none.

Parts: `prompt` and `keys` are the line that is being written; `markdown` makes parts of an answer, `screen` prints them above
that line; `session` is the conversation; `turns` runs it; `app` and `linemode` are the two fronts.
"""

import asyncio
import os
import sys
from collections.abc import Collection, Sequence

import msgspec

from evener.cli.chat.session import Session
from evener.cli.commands.run import tools_at
from evener.cli.names import log_of
from evener.cli.stores import opened
from evener.errors import UsageError
from evener.events import Configured
from evener.harness import Harness
from evener.harness.finding import find_harness
from evener.providers.config import load_config
from evener.store.protocol import Store, state_of
from evener.store.sqlite.file import data_folder
from evener.transcript.blocks import TextBlock

__all__ = ["ChatOptions", "run"]

OURS = {"chat", "run"}
"""The names under which the command line runs without a harness."""


class ChatOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asked for."""

    model: str = ""
    system: str = ""
    tools: tuple[str, ...] = ()
    harness: str = ""
    store: str = ""
    thread: str = ""
    last: bool = False
    max_cost: str = ""


def run(wish: ChatOptions) -> int:
    """Chat; the exit code."""
    if wish.last and wish.thread:
        raise UsageError("-c goes on with the last conversation, -r with the one that is named. Give one of them.")
    if wish.harness and (wish.tools or wish.system or wish.store):
        raise UsageError("A harness brings its own tools, system prompt and store. Leave --harness out to set them here.")
    return asyncio.run(_chat(wish))


async def _chat(wish: ChatOptions) -> int:
    harness, thread, branch = await _begun(wish)
    try:
        session = Session(
            harness, thread=thread, branch=branch, max_cost=wish.max_cost, again=_again(wish), chosen=bool(wish.model)
        )
        return await (_on_terminal(session) if _is_terminal() else _in_lines(session))
    finally:
        await harness.aclose()


async def _begun(wish: ChatOptions) -> tuple[Harness, str, str]:
    """The harness, and the thread and the branch to go on with; neither for a new conversation."""
    if wish.harness:
        found = find_harness(wish.harness)
        harness = found.with_model(wish.model) if wish.model else found
        return harness, *await _where(harness.store, wish, {harness.name})
    if not (wish.thread or wish.last):
        return _harness(wish, wish.store or None), "", ""
    store = opened(wish.store, make=True)
    try:
        thread, branch = await _where(store, wish, OURS)
        config = (await state_of(store, branch or await store.head(thread))).config or Configured(at=0.0, model="")
        return _harness(wish, store, model=config.model, system=config.system), thread, branch
    except BaseException:
        await store.aclose()
        raise


def _harness(wish: ChatOptions, store: Store | str | None, *, model: str = "", system: Sequence[TextBlock] = ()) -> Harness:
    """What the words describe; `model` and `system` are those of the log, where the words name none."""
    return Harness(
        wish.model or model,
        tools=[tool for reference in wish.tools for tool in tools_at(reference)],
        system=wish.system or system or None,
        store=store,
        name="chat",
        policy=load_config(environ=os.environ).policy,
    )


async def _where(store: Store, wish: ChatOptions, names: Collection[str]) -> tuple[str, str]:
    if wish.thread:
        return await log_of(store, wish.thread), ""
    if not wish.last:
        return "", ""
    for one in await store.logs():
        if one.harness in names and not one.erased:  # and not a thread of an agent inside another one
            return one.thread, one.log
    raise UsageError("There is no conversation to go on with yet. Begin one with: evener chat")


def _again(wish: ChatOptions) -> list[str]:
    words = [("--harness", wish.harness), *(("--tools", tools) for tools in wish.tools), ("--store", wish.store)]
    return [part for option, value in words if value for part in (option, value)]


def _is_terminal() -> bool:
    if sys.platform == "win32" or sys.stdin is None:
        return False
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


async def _on_terminal(session: Session) -> int:
    from evener.cli.chat.app import App
    from evener.cli.chat.history import History

    keys = os.environ.get("EVENER_CHAT_KEYS") or "emacs"
    if keys not in ("emacs", "vi"):
        raise UsageError(f"EVENER_CHAT_KEYS is {keys!r}; it must be emacs or vi.")
    history = History(data_folder() / "chat_history")
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding=sys.stdout.encoding, newline="") as terminal:
        return await App(session, terminal, history=history, colour=not os.environ.get("NO_COLOR"), vi=keys == "vi").run()


async def _in_lines(session: Session) -> int:
    from evener.cli.chat.linemode import LineChat

    return await LineChat(session).run()
