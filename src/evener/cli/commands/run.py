"""`evener run`: runs a prompt with tools until it is done. The answer goes to stdout, progress and remarks to stderr.

Ctrl-C asks the run to stop: what is under way is settled, the log is kept, and the last line says how to resume. A second
Ctrl-C ends the run at once; the log is kept all the same.
"""

import asyncio
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from evener.cli.approvals import (
    ApprovalMode,
    Interrupts,
    TerminalAsker,
    Undecided,
    ask_decisions,
    decide_unasked,
    describe,
    read_answers,
    user_name,
)
from evener.cli.names import find_log
from evener.cli.outside import Outside, load_outside
from evener.cli.printers import Form, Printer, TextPrinter, make_printer
from evener.cli.prompt import make_conversation, output_schema
from evener.cli.stores import without_password
from evener.cli.terminal import say
from evener.errors import ApprovalStale, BadValue, EvenerError, UsageError
from evener.harness import Harness, RunStream, Thread
from evener.harness.finding import blame, find_harness
from evener.loop.state import Limits
from evener.providers.config import load_config
from evener.providers.rows import parse_model
from evener.result import RunResult
from evener.store.protocol import NoLog, Store
from evener.tools.tool import Tool
from evener.transcript.ask import HostedTool
from evener.transcript.blocks import TextBlock
from evener.transcript.message import Message

if TYPE_CHECKING:
    from evener.model.plain import PlainProvider

AnyTool = Tool | Callable[..., object] | HostedTool


INTERRUPTED = 130


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of every command that makes an agent."""

    model: str = ""
    system: str = ""
    tools: tuple[str, ...] = ()
    mcp: tuple[str, ...] = ()
    skills: bool = False
    agents_md: bool = False
    harness: str = ""
    store: str = ""
    schema: str = ""
    refuse_losses: tuple[str, ...] = ()

    @property
    def is_in_memory(self) -> bool:
        return self.store == "memory"


class RunOptions(AgentOptions, frozen=True, kw_only=True):
    """The options of `evener run` and `evener resume`."""

    words: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    thread: str = ""
    resume: str = ""
    max_cost: str = ""
    max_turns: int | None = None
    max_seconds: float | None = None
    approval: ApprovalMode = "ask"
    force: bool = False
    verbose: bool = False
    form: Form = "text"


def run(options: RunOptions) -> int:
    """Run the prompt, print the answer, and say why the run stopped if it is not done."""
    harness = make_harness(options)
    limits = make_limits(options, harness)
    if options.resume and options.words:
        raise UsageError("--resume takes no prompt. Use --thread to send a prompt to this thread.")
    prompt = None if options.resume else _make_prompt(options)
    return asyncio.run(_start(harness, options, prompt, limits))


async def _start(harness: Harness, options: RunOptions, prompt: Message | None, limits: Limits | None) -> int:
    given = options.resume or options.thread
    thread = harness.thread(await find_log(harness.store, given) if given else "", limits=limits)
    return await run_thread(thread, options, prompt, store=harness.store)


async def run_thread(thread: Thread, options: RunOptions, prompt: Message | None, *, store: Store) -> int:
    """Send the prompt, or resume if there is none, and show the run until it stops; return the exit code."""
    stream = thread.resume_stream(force=options.force) if prompt is None else thread.stream(prompt)
    interrupts = Interrupts()
    printer = make_printer(options.form, structured=bool(options.schema), verbose=options.verbose)
    try:
        first = await _show(stream, printer, interrupts)
        result = await _decide(thread, first, options.approval, printer=printer, interrupts=interrupts, store=store)
    except asyncio.CancelledError:
        _say_how_to_resume(options, thread.id, "Stopped at once.")
        return INTERRUPTED
    except BaseException as error:
        printer.close()
        if thread.id and not isinstance(error, NoLog):
            error.add_note(_tell_how_to_resume(options, thread.id))
        raise
    printer.result(result)
    if result.ok:
        return 0
    if result.stop == "approval":
        _say_how_to_decide(options, result, await read_answers(store, result, shown=isinstance(printer, TextPrinter)))
    else:
        _say_how_to_resume(options, thread.id, f"Stopped ({result.stop}): {result.detail}")
    return INTERRUPTED if interrupts.pressed else 1


async def _show(stream: RunStream, printer: Printer, interrupts: Interrupts) -> RunResult:
    """Print the run until it stops."""
    cancelling: set[asyncio.Future[None]] = set()
    interrupts.stop = lambda: cancelling.add(asyncio.ensure_future(stream.cancel("Ctrl-C was pressed.")))
    async with stream:
        async for event in stream:
            printer.event(event)
        result = await stream.result()
    interrupts.stop = None
    printer.close()
    return result


async def _decide(
    thread: Thread, result: RunResult, mode: ApprovalMode, *, printer: Printer, interrupts: Interrupts, store: Store
) -> RunResult:
    """Decide what the run waits for and resume it, until nothing waits or no decision is made."""
    always: set[str] = set()
    stale: set[str] = set()
    while result.stop == "approval" and not interrupts.pressed:
        try:
            if mode != "ask":
                decisions = decide_unasked(result, "allow" if mode == "auto" else "reject")
                if decisions is None:
                    return result
                await thread.decide(decisions)
            elif TerminalAsker.is_possible():
                answers = await read_answers(store, result, shown=isinstance(printer, TextPrinter))
                asker = TerminalAsker(interrupts)
                by = user_name() or "terminal"
                await ask_decisions(thread, result.approvals, asker=asker, always=always, by=by, answers=answers)
            else:
                return result
        except Undecided:
            return result
        except ApprovalStale as error:
            known = {one.id for one in result.approvals}
            if known <= stale:
                raise
            stale |= known
            say(f"evener: {error}")  # another process decided first, or it took too long: the log says how to continue
        result = await _show(thread.resume_stream(), printer, interrupts)
    return result


LOST = "The run is lost, because --store memory ends with this command."


def _say_how_to_resume(options: RunOptions, thread: str, what: str) -> None:
    say(f"evener: {what} {_tell_how_to_resume(options, thread)}")


def _tell_how_to_resume(options: RunOptions, thread: str) -> str:
    if options.is_in_memory:
        return LOST
    return f"The log is kept. Resume with: {shlex.join(['evener', 'resume', *same_words(options), thread])}"


def _say_how_to_decide(options: RunOptions, result: RunResult, answers: Mapping[str, str]) -> None:
    for one in result.approvals:
        say("evener: " + "\n".join(describe(one, answers.get(one.thread, ""))))
    if options.is_in_memory:
        say(f"evener: Stopped: there is no terminal to ask on. {LOST}")
        return
    words = [*same_words(options, deciding=True), result.thread]
    allow, reject = shlex.join(["evener", "approve", *words]), shlex.join(["evener", "reject", *words])
    if all(one.interrupt == "outcome" for one in result.approvals):
        say(f"evener: Stopped until the outcome is known. If the call took effect: {reject} --result RESULT")
        say(f"evener: If the outcome is unknown: {reject}")
        say(f"evener: To run it again: {allow}")
    else:
        say(f"evener: Stopped until it is decided. The log is kept. To allow it: {allow}")
        say(f"evener: To reject it: {reject} --why REASON")
    say(f"evener: Then resume with: {shlex.join(['evener', 'resume', *same_words(options), result.thread])}")


def same_words(options: AgentOptions, *, deciding: bool = False) -> list[str]:
    """Return the command-line words that make the same harness in another process. Model and system prompt are in the log."""
    words = [
        ("--harness", options.harness),
        *(("--tools", tools) for tools in options.tools),
        *(("--mcp", one) for one in options.mcp),
        ("--store", without_password(options.store)),
    ]
    if not deciding:
        words = [("--schema", options.schema), *words, ("--refuse-losses", ",".join(options.refuse_losses))]
    flags = ["--skills"] if options.skills else []
    return [*flags, *(part for option, value in words if value for part in (option, value))]


def check_harness_alone(options: AgentOptions, *, model: bool = False) -> None:
    """Refuse options that a harness brings itself; `model`: its model, too."""
    own = {
        "model": options.model if model else "",
        "tools": options.tools or options.mcp or options.skills,
        "system prompt": options.system or options.agents_md,
        "schema": options.schema,
        "store": options.store,
        "losses to refuse": options.refuse_losses,
    }
    if given := [name for name, value in own.items() if value]:
        raise UsageError(f"A harness brings its own {', '.join(given)}. Leave out --harness to set them here.")


def make_harness(
    options: AgentOptions,
    *,
    model: "PlainProvider | None" = None,
    store: Store | None = None,
    system: Sequence[TextBlock] = (),
    root: str = "",
    name: str = "run",
    outside: Outside | None = None,
) -> Harness:
    """Return the harness that the options describe, with the configured policy; or the one that they name, with its own.

    `store` and `system` are used where the options give none. `root` is where tool sets work, and the folder whose policy
    holds; the working directory if empty.
    `outside` is what the options take from outside, if that is loaded already.
    """
    if options.harness:
        check_harness_alone(options, model=True)
        return find_harness(options.harness)
    schema = output_schema(options.schema)
    outside = outside or load_outside(options.mcp, skills=options.skills, agents_md=options.agents_md, model=options.model)
    small = usual_system(options.model)
    usual = default_prompt(options.tools) or small or None
    return Harness(
        model or options.model,
        output=schema.schema if schema else None,
        policy=load_config(Path(root) if root else None, environ=os.environ).policy,
        tools=guard_tools([*load_tools(options.tools, root=root), *outside.tools]),
        system=outside.extend(options.system or usual) if options.system or not system else system,
        page_output=not small,
        store=store or options.store or None,
        name=name,
        refuse_losses=options.refuse_losses,
    )


def usual_system(model: str) -> str:
    """Return the system prompt that the row of a very small model asks for; empty for others.

    Without one such a model writes stories. A tool that pages through output confuses it, too.
    """
    config = load_config(environ=os.environ)
    try:
        chosen = parse_model(model or config.model, rows=config.rows, aliases=config.aliases)
    except EvenerError:
        return ""  # what is wrong with the name is said where the model is opened
    return config.rows.facts(chosen.provider, chosen.model).quirks.usual_system


def load_tools(references: Iterable[str], *, root: str = "") -> list[AnyTool]:
    """Return the tools of all references: names of tool sets, or `module:name` of a tool, a function, or a list of them.

    Several stand in one reference with commas between them. All sets share one root, by default the working directory, and
    one fence.
    """
    own, sets = split_references(references)
    found: list[AnyTool] = [tool for reference in own for tool in _load(reference)]
    if sets:
        from evener.toolset.hosted import NAMED, hosted_named
        from evener.toolset.sets import tools_named

        here = tools_named([name for name in sets if name not in NAMED], root=root or os.getcwd())
        found = [*here, *hosted_named(name for name in sets if name in NAMED), *found]
    return found


def guard_tools(tools: Sequence[AnyTool]) -> Sequence[AnyTool]:
    """Return the tools of a run. Tools that could send the user's data out, beside untrusted text, ask first."""
    if not any(isinstance(one, Tool) and "label" in one.metadata for one in tools):
        return tools
    from evener.tools.tool import tool
    from evener.toolset.labels import guard_mixing

    hosted = [one for one in tools if isinstance(one, HostedTool)]
    made = (one if isinstance(one, Tool) else tool(one) for one in tools if not isinstance(one, HostedTool))
    return [*guard_mixing(made, hosted), *hosted]


def split_references(references: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the references to code, and the names of tool sets."""
    parts = [part.strip() for reference in references for part in reference.split(",") if part.strip()]
    return [part for part in parts if ":" in part], [part for part in parts if ":" not in part]


def default_prompt(references: Iterable[str]) -> str | None:
    """Return the system prompt for an agent that works on files, if its tools are among those asked for."""
    if "files" not in split_references(references)[1]:
        return None
    from evener.toolset.sets import FILE_AGENT

    return FILE_AGENT


def _load(reference: str) -> Iterable[Tool | Callable[..., object]]:
    """Import a reference. Modules are searched in the working directory first."""
    module, _, name = reference.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        loaded = import_module(module) if module else None
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise UsageError(f"Cannot load tools from {reference!r}: {error}. Write --tools module:name.") from error
        raise UsageError(
            f"Cannot load tools from {reference!r}: {blame(error)}. Correct the module, then try again."
        ) from error
    finally:
        sys.path.remove(os.getcwd())
    if not hasattr(loaded, name):
        raise UsageError(f"Cannot load tools from {reference!r}: it has no {name!r}. Write --tools module:name.")
    found: object = getattr(loaded, name)
    if isinstance(found, Tool) or callable(found):
        return (found,)
    if isinstance(found, list | tuple):
        return found
    raise UsageError(f"{reference!r} is a {type(found).__name__}; expected a tool, a function, or a list of them.")


def make_limits(options: RunOptions, harness: Harness) -> Limits | None:
    """Return the limits of the harness with those that the options replace; None if they replace none."""
    given = {
        "cost": parse_dollars(options.max_cost) if options.max_cost else None,
        "requests": options.max_turns,
        "seconds": options.max_seconds,
    }
    changed = {name: value for name, value in given.items() if value is not None}
    return replace(harness.thread().agent.setup.limits, **changed) if changed else None


def parse_dollars(text: str) -> Decimal:
    """Return the value of --max-cost."""
    try:
        return Decimal(text)
    except ArithmeticError:
        raise BadValue(f"--max-cost is {text!r}; it must be a number of US dollars, as in 0.05.") from None


def _make_prompt(options: RunOptions) -> Message:
    """Return the prompt: the words, with the text of the files that they name as `@path`, and the images."""
    words = " ".join(word if not word.startswith("@") else _read_file(word[1:]) for word in options.words)
    found = make_conversation(words, system="", images=options.images).first
    if found is None:
        raise UsageError('There is no prompt. Write one, as in: evener run "What is in this folder?"')
    return found


def _read_file(path: str) -> str:
    try:
        return f"\n\n--- {path} ---\n{Path(path).read_text(encoding='utf-8')}\n---\n"
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"Cannot read @{path} as text: {error}. Name a text file after the @, or use --image.") from None
