"""`evener resume`: resumes a run that stopped, failed or crashed.

The model and the system prompt come from the log. A harness is found by its name in the log, if evener.toml has that name.
Tools are code, and a log has none: the user gives them, or the harness has them. `module:attribute` is taken from the command
line only, never from a log, because importing a module runs its code.
"""

import asyncio
import shlex

from msgspec.structs import replace

from evener.cli.commands.run import RunOptions, check_harness_alone, make_harness, make_limits, run_thread, same_words
from evener.cli.names import find_log
from evener.cli.stores import open_store
from evener.cli.terminal import say
from evener.errors import UsageError
from evener.harness import Harness
from evener.harness.finding import find_harness
from evener.harness.opening import NOT_RESUMABLE
from evener.loop.state import RunState
from evener.store.protocol import Store, state_of
from evener.tools.spill import READER

OURS = ("", "chat", "run")
"""Names that the command line gives its own runs: no harness has them."""


def run(options: RunOptions) -> int:
    """Resume the run, show it, and say why it stopped if it is not done."""
    return asyncio.run(_resume(options))


async def _resume(options: RunOptions) -> int:
    named = _find_named(options)
    store: Store = named.store if named else open_store(options.store)
    log = await find_log(store, options.resume)
    state = await state_of(store, await store.head(log))
    _check_resumable(log, state, options)
    harness = named or await _find_by_log(options, log, state, store)
    _check_tools(harness, state)
    thread = harness.thread(log, limits=make_limits(options, harness))
    if options.force:
        await _warn(log, harness.store)
    return await run_thread(thread, options, None, store=harness.store)


async def _warn(thread: str, store: Store) -> None:
    """Say what it means to take over the thread from a process that may be alive."""
    head = await store.head(thread)
    if any(one.held for one in await store.logs() if one.log == head):
        say(
            f"evener: Warning: taking over thread {thread}, which another process holds. If that process is alive, it can "
            "write nothing more to the thread, but its running tools continue. Their calls are not run again: the model "
            "is told that their outcome is unknown."
        )


def _find_named(options: RunOptions) -> Harness | None:
    """Return the harness that --harness names, with the model that --model names."""
    if not options.harness:
        return None
    check_harness_alone(options)
    return _with_model(find_harness(options.harness), options.model)


def _with_model(harness: Harness, model: str) -> Harness:
    return harness.with_model(model) if model else harness


async def _find_by_log(options: RunOptions, log: str, state: RunState, store: Store) -> Harness:
    """Return what the options describe, with the model and system prompt of the log; or the harness that the log names."""
    if state.harness in OURS or options.tools or options.system or options.schema or options.refuse_losses:
        config = state.config
        options = replace(options, model=options.model or (config.model if config else ""))
        return make_harness(options, store=store, system=config.system if config else ())
    found = _with_model(_find_by_name(state.harness), options.model)
    if all(one.log != log for one in await found.store.logs()):
        raise UsageError(
            f"The harness {state.harness!r} uses another store, which does not have this thread. "
            "Give --model and --tools to resume without that harness."
        )
    return found


def _find_by_name(name: str) -> Harness:
    if ":" in name:
        raise UsageError(
            f"The log names the harness {name!r}. Evener does not load it, because loading it would run code that only the "
            f"log names. Give it yourself with --harness {name}, or resume without it, with --model and --tools."
        )
    try:
        return find_harness(name)
    except UsageError as error:
        raise UsageError(f"{error} Or resume without it: give --model and --tools.") from None


def _check_resumable(log: str, state: RunState, options: RunOptions) -> None:
    """Refuse a thread with nothing to resume, and say what to do instead."""
    run = shlex.join(["evener", "run", *same_words(options), "--thread", log, "PROMPT"])
    chat = shlex.join(["evener", "chat", *same_words(options, deciding=True), "-r", log])
    instead = f"Send a new prompt instead: {run}, or: {chat}"
    if not state.run:
        raise UsageError(f"Thread {log} has no run yet, so there is nothing to resume. {instead}")
    if state.finished is not None and state.finished.cause in NOT_RESUMABLE:
        raise UsageError(f"The last run of thread {log} is finished ({state.finished.cause}). {instead}")


def _check_tools(harness: Harness, state: RunState) -> None:
    """Refuse if an open call has no tool; say which other tools of the run are missing."""
    had = [tool.name for tool in state.config.tools] if state.config else []
    missing = [name for name in had if name not in harness.tools and name != READER]
    needed = {pending.call.name for pending in state.calls if pending.status != "finished"} & set(missing)
    if needed:
        raise UsageError(
            f"The run has open calls to {', '.join(sorted(needed))}, and there is no such tool here. "
            "Give the tools of the run with --tools module:name, or --harness."
        )
    if missing:
        say(f"evener: Resuming without these tools of the run: {', '.join(missing)}.")
