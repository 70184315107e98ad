"""`evener run`: one prompt, run to a stop with tools. The answer goes to stdout; what happens meanwhile to stderr.

Ctrl-C asks the run to stop: what is under way is settled, the log stays, and the last line says how to go on. A second
Ctrl-C ends it at once; the log stays all the same.
"""

import asyncio
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from importlib import import_module
from pathlib import Path

import msgspec
from msgspec.structs import replace

from evener.cli.approvals import Approvals, Interrupts, answers_of, decisions_for, described
from evener.cli.names import log_of
from evener.cli.printers import Form, Printer, TextPrinter, printer
from evener.cli.prompt import conversation, output_schema
from evener.cli.terminal import say
from evener.errors import ApprovalStale, BadValue, UsageError
from evener.harness import Harness, RunStream, Thread
from evener.harness.finding import find_harness
from evener.loop.state import Limits
from evener.model.seam import Askable
from evener.providers.config import load_config
from evener.result import RunResult
from evener.store.protocol import NoLog, Store
from evener.tools.tool import Tool
from evener.transcript.blocks import TextBlock
from evener.transcript.message import Message

__all__ = [
    "RunOptions",
    "harness_of",
    "limits_of",
    "run",
    "same",
    "tools_at",
    "watched",
]


INTERRUPTED = 130


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asked for."""

    words: tuple[str, ...] = ()
    model: str = ""
    harness: str = ""
    system: str = ""
    images: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    thread: str = ""
    resume: str = ""
    store: str = ""
    max_cost: str = ""
    max_turns: int | None = None
    max_seconds: float | None = None
    schema: str = ""
    approval: Approvals = "ask"
    refuse_losses: tuple[str, ...] = ()
    force: bool = False


def run(wish: RunOptions, *, form: Form) -> int:
    """Run, print, and say how it ended."""
    harness = harness_of(wish)
    limits = limits_of(wish, harness)
    if wish.resume and wish.words:
        raise UsageError("A run is resumed as it is, without a prompt. Give the prompt with --thread instead of --resume.")
    prompt = None if wish.resume else _prompt(wish)
    return asyncio.run(_begun(harness, wish, prompt, limits, form))


async def _begun(harness: Harness, wish: RunOptions, prompt: Message | None, limits: Limits | None, form: Form) -> int:
    given = wish.resume or wish.thread
    thread = harness.thread(await log_of(harness.store, given) if given else "", limits=limits)
    return await watched(thread, wish, prompt, form=form, store=harness.store)


async def watched(thread: Thread, wish: RunOptions, prompt: Message | None, *, form: Form, store: Store) -> int:
    """Say the prompt, or go on where there is none, and show it to its stop; the exit code."""
    stream = thread.resume_stream(force=wish.force) if prompt is None else thread.stream(prompt)
    interrupts = Interrupts()
    show = printer(form, structured=bool(wish.schema))
    try:
        first = await _shown(stream, show, interrupts)
        result = await _decided(thread, first, wish.approval, show=show, interrupts=interrupts, store=store)
    except asyncio.CancelledError:
        _how_to_go_on(wish, thread.id, "Stopped at once.")
        return INTERRUPTED
    except BaseException as error:
        show.close()
        if thread.id and not isinstance(error, NoLog):
            _how_to_go_on(wish, thread.id, "The run failed.")
        raise
    show.result(result)
    if result.ok:
        return 0
    if result.stop == "approval":
        _how_to_decide(wish, result, await answers_of(store, result, spoken=isinstance(show, TextPrinter)))
    else:
        _how_to_go_on(wish, thread.id, f"Stopped ({result.stop}): {result.detail}")
    return INTERRUPTED if interrupts.pressed else 1


async def _shown(stream: RunStream, show: Printer, interrupts: Interrupts) -> RunResult:
    """One go of the run, to its stop."""
    asked: set[asyncio.Future[None]] = set()
    interrupts.stop = lambda: asked.add(asyncio.ensure_future(stream.cancel("Ctrl-C was pressed.")))
    async with stream:
        async for event in stream:
            show.event(event)
        result = await stream.result()
    interrupts.stop = None
    show.close()
    return result


async def _decided(
    thread: Thread, result: RunResult, approvals: Approvals, *, show: Printer, interrupts: Interrupts, store: Store
) -> RunResult:
    """Decide what the run waits for, and let it go on, until it waits for nothing or nobody decides."""
    refused: set[str] = set()
    while result.stop == "approval" and not interrupts.pressed:
        answers = await answers_of(store, result, spoken=isinstance(show, TextPrinter))
        decisions = await decisions_for(result, approvals, interrupts, answers)
        if decisions is None:
            return result
        try:
            await thread.decide(decisions)
        except ApprovalStale as error:
            known = {one.id for one in result.approvals}
            if known <= refused:
                raise
            refused |= known
            say(f"evener: {error}")  # somebody else was quicker, or it took too long: the log knows how to go on
        result = await _shown(thread.resume_stream(), show, interrupts)
    return result


def _how_to_go_on(wish: RunOptions, thread: str, what: str) -> None:
    if wish.store == "memory":
        say(f"evener: {what} The run is lost, for --store memory ends with this command.")
        return
    say(f"evener: {what} Nothing is lost; go on with: {shlex.join(['evener', 'resume', *same(wish), thread])}")


def _how_to_decide(wish: RunOptions, result: RunResult, answers: Mapping[str, str]) -> None:
    for one in result.approvals:
        say("evener: " + "\n".join(described(one, answers.get(one.thread, ""))))
    if wish.store == "memory":
        say("evener: Stopped, for nobody is there to ask. The run is lost, for --store memory ends with this command.")
        return
    words = [*same(wish, deciding=True), result.thread]
    allow, reject = shlex.join(["evener", "approve", *words]), shlex.join(["evener", "reject", *words])
    if all(one.interrupt == "outcome" for one in result.approvals):
        say(f"evener: Stopped until somebody says what became of it. If it took effect: {reject} --result 'WHAT IT GAVE'")
        say(f"evener: or if nobody knows: {reject}")
        say(f"evener: or to run it again: {allow}")
    else:
        say(f"evener: Stopped until it is decided. Nothing is lost; allow it with: {allow}")
        say(f"evener: or reject it with: {reject} --why REASON")
    say(f"evener: then go on with: {shlex.join(['evener', 'resume', *same(wish), result.thread])}")


def same(wish: RunOptions, *, deciding: bool = False) -> list[str]:
    """The words that make the same harness in another process. The log knows its model and its system prompt."""
    words = [("--harness", wish.harness), *(("--tools", tools) for tools in wish.tools), ("--store", wish.store)]
    if not deciding:
        words = [("--schema", wish.schema), *words, ("--refuse-losses", ",".join(wish.refuse_losses))]
    return [part for option, value in words if value for part in (option, value)]


# What is asked for.


def harness_of(
    wish: RunOptions, *, model: Askable | None = None, store: Store | None = None, system: Sequence[TextBlock] = ()
) -> Harness:
    """The harness that the words describe, with the configured policy; or the one that they name, which has its own.

    `store` and `system` stand in for words that are not there.
    """
    if wish.harness:
        if wish.model or wish.tools or wish.system or wish.store or wish.schema or wish.refuse_losses:
            raise UsageError(
                "A harness brings its own model, tools, system prompt, schema, store and losses to refuse. "
                "Leave --harness out to set them here."
            )
        return find_harness(wish.harness)
    schema = output_schema(wish.schema)
    return Harness(
        model or wish.model,
        output=schema.schema if schema else None,
        policy=load_config(environ=os.environ).policy,
        tools=[tool for reference in wish.tools for tool in tools_at(reference)],
        system=wish.system or system or None,
        store=store or wish.store or None,
        name="run",
        refuse_losses=wish.refuse_losses,
    )


def tools_at(reference: str) -> Iterable[Tool | Callable[..., object]]:
    """A tool, a function, or several, as `module:name`; modules are looked for in the working folder first."""
    module, _, name = reference.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        found: object = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"There are no tools at {reference!r}: {error}. Write --tools module:name.") from error
    finally:
        sys.path.remove(os.getcwd())
    if isinstance(found, Tool) or callable(found):
        return (found,)
    if isinstance(found, list | tuple):
        return found
    raise UsageError(f"{reference!r} is a {type(found).__name__}; expected a tool, a function, or a list of them.")


def limits_of(wish: RunOptions, harness: Harness) -> Limits | None:
    """The limits of the harness, with those that the words give in their place; None where they give none."""
    given: dict[str, object] = {}
    if wish.max_cost:
        given["cost"] = _dollars(wish.max_cost)
    if wish.max_turns is not None:
        given["requests"] = wish.max_turns
    if wish.max_seconds is not None:
        given["seconds"] = wish.max_seconds
    return replace(harness.thread().agent.setup.limits, **given) if given else None


def _dollars(text: str) -> Decimal:
    try:
        return Decimal(text)
    except ArithmeticError:
        raise BadValue(f"--max-cost is {text!r}; it must be a number of US dollars, as in 0.05.") from None


def _prompt(wish: RunOptions) -> Message:
    """The words, with the files that they name by `@path`, and the pictures."""
    words = " ".join(word if not word.startswith("@") else _file(word[1:]) for word in wish.words)
    found = conversation(words, system="", images=wish.images).first
    if found is None:
        raise UsageError('There is nothing to ask. Write a prompt, as in: evener run "What is in this folder?"')
    return found


def _file(path: str) -> str:
    try:
        return f"\n\n--- {path} ---\n{Path(path).read_text(encoding='utf-8')}\n---\n"
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"@{path} cannot be read as a text: {error}. Name a text file after the @, or use --image.") from None
