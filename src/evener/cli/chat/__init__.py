"""`evener chat`: a conversation on a terminal, or one message per line without a terminal.

`prompt` and `keys` are the input line; `markdown` cuts an answer into parts, and `screen` prints them above that line;
`session` is the conversation, and `runs` runs it; `app` and `linemode` are the two fronts.
"""

import asyncio
import os
import sys
from collections.abc import Collection

from msgspec.structs import replace

from evener.cli.chat.linemode import LineChat
from evener.cli.chat.session import Session
from evener.cli.commands.run import AgentOptions, check_harness_alone, make_harness, same_words
from evener.cli.names import find_log
from evener.cli.outside import Outside, load_outside
from evener.cli.stores import open_store
from evener.errors import UsageError
from evener.events import Configured
from evener.harness import Harness
from evener.harness.finding import find_harness
from evener.store.protocol import Store, state_of
from evener.store.sqlite.file import data_folder

__all__ = ["ChatOptions", "run"]

OURS = {"chat", "run"}
"""Names that the command line gives its own runs, which have no harness."""


class ChatOptions(AgentOptions, frozen=True, kw_only=True):
    """The options of the command."""

    thread: str = ""
    last: bool = False
    max_cost: str = ""
    verbose: bool = False


def run(options: ChatOptions) -> int:
    """Chat; return the exit code."""
    if options.last and options.thread:
        raise UsageError("-c continues the last conversation, -r the conversation that you name. Give only one of them.")
    if options.harness:
        check_harness_alone(options)
    return asyncio.run(_chat(options))


async def _chat(options: ChatOptions) -> int:
    outside = load_outside(options.mcp, skills=options.skills, agents_md=options.agents_md, model=options.model)
    harness, thread, branch = await _open(options, outside)
    try:
        session = Session(
            harness, thread=thread, branch=branch, max_cost=options.max_cost, again=same_words(options, deciding=True),
            chosen=bool(options.model), outside=outside, verbose=options.verbose,
        )  # fmt: skip
        return await (_run_app(session) if _is_terminal() else LineChat(session).run())
    finally:
        await harness.aclose()


async def _open(options: ChatOptions, outside: Outside) -> tuple[Harness, str, str]:
    """Return the harness, and the thread and branch to continue; both are empty for a new conversation."""
    if options.harness:
        found = find_harness(options.harness)
        harness = found.with_model(options.model) if options.model else found
        return harness, *await _find_thread(harness.store, options, {harness.name})
    if not (options.thread or options.last):
        return make_harness(options, name="chat", outside=outside), "", ""
    store = open_store(options.store, make=True)
    try:
        thread, branch = await _find_thread(store, options, OURS)
        config = (await state_of(store, branch or await store.head(thread))).config or Configured(at=0.0, model="")
        again = replace(options, model=options.model or config.model)
        return make_harness(again, store=store, system=config.system, name="chat", outside=outside), thread, branch
    except BaseException:
        await store.aclose()
        raise


async def _find_thread(store: Store, options: ChatOptions, names: Collection[str]) -> tuple[str, str]:
    if options.thread:
        return await find_log(store, options.thread), ""
    if not options.last:
        return "", ""
    for one in await store.logs():
        if one.harness in names and not one.erased:  # a thread of a subagent has another harness
            return one.thread, one.log
    raise UsageError("There is no conversation to continue yet. Start one with: evener chat")


def _is_terminal() -> bool:
    if sys.platform == "win32" or sys.stdin is None:
        return False
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


async def _run_app(session: Session) -> int:
    from evener.cli.chat.app import App
    from evener.cli.chat.history import History

    keys = os.environ.get("EVENER_CHAT_KEYS") or "emacs"
    if keys not in ("emacs", "vi"):
        raise UsageError(f"EVENER_CHAT_KEYS is {keys!r}; it must be emacs or vi.")
    history = History(data_folder() / "chat_history")
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding=sys.stdout.encoding, newline="") as terminal:
        return await App(session, terminal, history=history, colour=not os.environ.get("NO_COLOR"), vi=keys == "vi").run()
