"""`evener run`: one prompt, run to a stop with tools. The answer goes to stdout; what happens meanwhile to stderr.

Ctrl-C asks the run to stop: what is under way is settled, the log stays, and the last line says how to go on. A second
Ctrl-C ends it at once; the log stays all the same.
"""

import asyncio
import os
import shlex
import sys
from collections.abc import Callable, Iterable
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Literal

import msgspec

from evener import streaming as st
from evener.cli.activity import Activity
from evener.cli.asking import Approvals, Interrupts, decisions_for, described
from evener.cli.documents import event_document, result_document
from evener.cli.prompt import conversation, output_schema
from evener.cli.terminal import Cleaner, escape_json, say
from evener.errors import ApprovalStale, BadValue, UsageError
from evener.harness import Harness, RunStream, Thread
from evener.harness.finding import find_harness
from evener.loop.limits import Limits
from evener.model.seam import Askable
from evener.providers.config import load_config
from evener.result import RunResult
from evener.store.log import NoLog
from evener.tools.tool import Tool
from evener.transcript.message import Message

__all__ = ["Form", "Wish", "harness_of", "run", "same", "tools_at"]

Form = Literal["text", "json", "stream-json"]
INTERRUPTED = 130


class Wish(msgspec.Struct, frozen=True, kw_only=True):
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


def run(wish: Wish, *, form: Form) -> int:
    """Run, print, and say how it ended."""
    harness = harness_of(wish)
    limits = _limits(wish)
    if wish.resume and wish.words:
        raise UsageError("A run is resumed as it is, without a prompt. Give the prompt with --thread instead of --resume.")
    prompt = None if wish.resume else _prompt(wish)
    return asyncio.run(_watched(harness, wish, prompt, limits, form))


async def _watched(harness: Harness, wish: Wish, prompt: Message | None, limits: Limits | None, form: Form) -> int:
    thread = harness.thread(wish.resume or wish.thread, limits=limits)
    stream = thread.resume_stream() if prompt is None else thread.stream(prompt)
    interrupts = Interrupts()
    show = _Value() if wish.schema and form == "text" else PRINTERS[form]()
    try:
        result = await _decided(thread, await _shown(stream, show, interrupts), wish.approval, show, interrupts)
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
        _how_to_decide(wish, result)
    else:
        _how_to_go_on(wish, thread.id, f"Stopped ({result.stop}): {result.detail}")
    return INTERRUPTED if interrupts.pressed else 1


async def _shown(stream: RunStream, show: "Printer", interrupts: Interrupts) -> RunResult:
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
    thread: Thread, result: RunResult, approvals: Approvals, show: "Printer", interrupts: Interrupts
) -> RunResult:
    """Decide what the run waits for, and let it go on, until it waits for nothing or nobody decides."""
    refused: set[str] = set()
    while result.stop == "approval" and not interrupts.pressed:
        decisions = await decisions_for(result, approvals, interrupts)
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


def _how_to_go_on(wish: Wish, thread: str, what: str) -> None:
    say(f"evener: {what} Nothing is lost; go on with: {shlex.join(['evener', 'run', *same(wish), '--resume', thread])}")


def _how_to_decide(wish: Wish, result: RunResult) -> None:
    for one in result.approvals:
        say(f"evener: {described(one)}")
    if wish.store == "memory":
        say("evener: Stopped, for nobody is there to ask. The run is lost, for --store memory ends with this command.")
        return
    words = [*same(wish, deciding=True), result.thread]
    say(f"evener: Stopped until it is decided. Nothing is lost; allow it with: {shlex.join(['evener', 'approve', *words])}")
    say(f"evener: or reject it with: {shlex.join(['evener', 'reject', *words, '--why', 'REASON'])}")
    say(f"evener: then go on with: {shlex.join(['evener', 'run', *same(wish), '--resume', result.thread])}")


def same(wish: Wish, *, deciding: bool = False) -> list[str]:
    """The words that make the same harness in another process; fewer are enough to decide about its calls."""
    words = [("--harness", wish.harness), *(("--tools", tools) for tools in wish.tools), ("--store", wish.store)]
    if not deciding:
        words = [("-m", wish.model), ("-s", wish.system), ("--schema", wish.schema), *words]
    return [part for option, value in words if value for part in (option, value)]


# What is printed.


class _Text:
    """The model's words. A terminal gets them as they come; a file or a pipe gets a turn when it counts."""

    def __init__(self) -> None:
        self._cleaner = Cleaner()
        self._live = sys.stdout.isatty()
        self._last = "\n"
        self._activity = Activity()

    def event(self, event: st.StreamEvent) -> None:
        self._activity.event(event)
        match event:
            case st.TextStreamed(text=text) if self._live:
                self._activity.clear()
                self._write(self._cleaner.feed(text))
            case st.TurnFinished(message=message):
                self._write(self._cleaner.close() if self._live else self._cleaner.feed(message.text) + self._cleaner.close())
                self._end_line()
            case st.Retracted(why=why, wished=wished):
                self._write(self._cleaner.close())
                self._end_line()
                say(f"evener: What was just shown does not count ({why}){'' if wished else ' Asking again.'}")
            case _:
                pass

    def result(self, result: RunResult) -> None:
        if result.ok and result.output_text.strip() != result.text.strip() and result.output_text:
            _print(result.output_text.encode())  # a structured answer that came by another way than words
        for loss in result.losses:
            say(f"loss: {loss}")

    def close(self) -> None:
        self._activity.clear()
        self._end_line()

    def _write(self, text: str) -> None:
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
            self._last = text[-1]

    def _end_line(self) -> None:
        if self._last != "\n":
            self._write("\n")


class _Value:
    """The structured answer as JSON, at the end. What the model says on the way to it is not part of it."""

    def __init__(self) -> None:
        self._activity = Activity()

    def event(self, event: st.StreamEvent) -> None:
        self._activity.event(event)

    def result(self, result: RunResult) -> None:
        if result.ok:
            _print(msgspec.json.format(msgspec.json.encode(result.output), indent=2))
        elif result.text and result.stop == "output_retries":
            say(f"evener: What the model said last: {result.text[:500]}")
        for loss in result.losses:
            say(f"loss: {loss}")

    def close(self) -> None:
        self._activity.clear()


class _Json:
    """One object, at the end."""

    def event(self, event: st.StreamEvent) -> None:
        """Nothing is shown before the end."""

    def result(self, result: RunResult) -> None:
        _print(msgspec.json.format(msgspec.json.encode(result_document(result)), indent=2))

    def close(self) -> None:
        """Nothing is open."""


class _Lines:
    """Each event as a line of JSON; the last one has the result."""

    def event(self, event: st.StreamEvent) -> None:
        _print(msgspec.json.encode(event_document(event)))

    def result(self, result: RunResult) -> None:
        """The last event had it."""

    def close(self) -> None:
        """Nothing is open."""


Printer = _Text | _Value | _Json | _Lines
PRINTERS: dict[Form, Callable[[], Printer]] = {"text": _Text, "json": _Json, "stream-json": _Lines}


def _print(document: bytes) -> None:
    sys.stdout.buffer.write(escape_json(document) + b"\n")
    sys.stdout.buffer.flush()


# What is asked for.


def harness_of(wish: Wish, *, model: Askable | None = None) -> Harness:
    """The harness that the words describe, with the configured policy; or the one that they name, which has its own."""
    if wish.harness:
        if wish.model or wish.tools or wish.system or wish.store or wish.schema:
            raise UsageError(
                "A harness brings its own model, tools, system prompt, schema and store. Leave --harness out to set them here."
            )
        return find_harness(wish.harness)
    schema = output_schema(wish.schema)
    return Harness(
        model or wish.model,
        output=schema.schema if schema else None,
        policy=load_config(environ=os.environ).policy,
        tools=[tool for reference in wish.tools for tool in tools_at(reference)],
        system=wish.system or None,
        store=wish.store or None,
        name="run",
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


def _limits(wish: Wish) -> Limits | None:
    if not wish.max_cost and wish.max_turns is None and wish.max_seconds is None:
        return None
    try:
        cost = Decimal(wish.max_cost) if wish.max_cost else None
    except ArithmeticError:
        raise BadValue(f"--max-cost is {wish.max_cost!r}; it must be a number of US dollars, as in 0.05.") from None
    return Limits(requests=Limits().requests if wish.max_turns is None else wish.max_turns, cost=cost, seconds=wish.max_seconds)


def _prompt(wish: Wish) -> Message:
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
