"""`evener resume`: go on with a run that was stopped, failed or died, with what the log says of it.

Model and system prompt are read from the log; a harness is found by the name in the log, where evener.toml has that name.
Tools are code, and a log holds none: they are given, or belong to the harness. `module:attribute` is taken from the command
line only, never from a log, for to look there runs what stands there.
"""

import asyncio
import shlex

from msgspec.structs import replace

from evener.cli.commands.run import RunOptions, harness_of, limits_of, same, watched
from evener.cli.names import log_of
from evener.cli.printers import Form
from evener.cli.stores import opened
from evener.cli.terminal import say
from evener.errors import UsageError
from evener.harness import Harness
from evener.harness.finding import find_harness
from evener.harness.opening import NOT_RESUMABLE
from evener.loop.state import RunState
from evener.store.protocol import Store, state_of
from evener.tools.spill import READER

__all__ = [
    "run",
]


OURS = ("", "chat", "run")
"""The names under which the command line itself runs: there is no harness of that name to be found."""


def run(wish: RunOptions, *, form: Form) -> int:
    """Go on, show it, and say how it ended."""
    return asyncio.run(_resumed(wish, form))


async def _resumed(wish: RunOptions, form: Form) -> int:
    named = _named(wish)
    store: Store = named.store if named else opened(wish.store)
    given = await log_of(store, wish.resume)
    state = await state_of(store, await store.head(given))
    _check(given, state, wish)
    harness = named or await _of_log(wish, given, state, store)
    _check_tools(harness, state)
    thread = harness.thread(given, limits=limits_of(wish, harness))
    if wish.force:
        await _warn(given, harness.store)
    return await watched(thread, wish, None, form=form, store=harness.store)


async def _warn(thread: str, store: Store) -> None:
    """Say what it means to take the thread from a process that may be alive."""
    head = await store.head(thread)
    if any(one.held for one in await store.logs() if one.log == head):
        say(
            f"evener: Warning: another process holds thread {thread}, and it is taken over by force. If that process is alive, "
            "it can write nothing more, but a tool that it has started goes on. What it may still change is not done again "
            "here: the model is told that it is not known."
        )


def _named(wish: RunOptions) -> Harness | None:
    """The harness that the words name, on the model that they name."""
    if not wish.harness:
        return None
    if wish.tools or wish.system or wish.store or wish.schema or wish.refuse_losses:
        raise UsageError(
            "A harness brings its own tools, system prompt, schema, store and losses to refuse. "
            "Leave --harness out to set them here."
        )
    return _on_model(find_harness(wish.harness), wish.model)


def _on_model(harness: Harness, model: str) -> Harness:
    return harness.with_model(model) if model else harness


async def _of_log(wish: RunOptions, log: str, state: RunState, store: Store) -> Harness:
    """What the words describe, with the model and the system prompt of the log; or the harness that the log names."""
    if state.harness in OURS or wish.tools or wish.system or wish.schema or wish.refuse_losses:
        config = state.config
        words = replace(wish, model=wish.model or (config.model if config else ""))
        return harness_of(words, store=store, system=config.system if config else ())
    found = _on_model(_by_name(state.harness), wish.model)
    if all(one.log != log for one in await found.store.logs()):
        raise UsageError(
            f"The harness {state.harness!r} keeps its threads in another store, and this one is not there. "
            "Give --model and --tools to go on without that harness."
        )
    return found


def _by_name(name: str) -> Harness:
    if ":" in name:
        raise UsageError(
            f"The log names the harness {name!r}. That is code, which is not run because a log says so: "
            f"give it yourself, with --harness {name}, or go on without it, with --model and --tools."
        )
    try:
        return find_harness(name)
    except UsageError as error:
        raise UsageError(f"{error} Or go on without it: give --model and --tools.") from None


def _check(log: str, state: RunState, wish: RunOptions) -> None:
    """Refuse what there is nothing to go on with, and say what to do instead."""
    run = shlex.join(["evener", "run", *same(wish), "--thread", log, "PROMPT"])
    chat = shlex.join(["evener", "chat", *same(wish, deciding=True), "-r", log])
    instead = f"Say something instead: {run}, or: {chat}"
    if not state.run:
        raise UsageError(f"Nothing was said in thread {log} yet, so there is no run to resume. {instead}")
    if state.finished is not None and state.finished.cause in NOT_RESUMABLE:
        raise UsageError(f"The last run of thread {log} came to its end ({state.finished.cause}). {instead}")


def _check_tools(harness: Harness, state: RunState) -> None:
    """Calls that are still to be run need their tools; without the others one can go on, and is told."""
    had = [tool.name for tool in state.config.tools] if state.config else []
    missing = [name for name in had if name not in harness.tools and name != READER]
    needed = {pending.call.name for pending in state.calls if pending.status != "finished"} & set(missing)
    if needed:
        raise UsageError(
            f"The run has calls to {', '.join(sorted(needed))} still open, and there is no such tool here. "
            "Give the tools that the run had, with --tools module:name, or --harness."
        )
    if missing:
        say(f"evener: The run had tools that are not here: {', '.join(missing)}. It goes on without them.")
