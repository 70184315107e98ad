"""`evener run`: one prompt, run to a stop with tools. The answer goes to stdout; what happens meanwhile to stderr.

Ctrl-C asks the run to stop: what is under way is settled, the log stays, and the last line says how to go on. A second
Ctrl-C ends it at once; the log stays all the same.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterable
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Literal

import msgspec

from evener import streaming as st
from evener.cli.activity import Activity
from evener.cli.documents import event_document, result_document
from evener.cli.prompt import conversation
from evener.cli.terminal import Cleaner, escape_json, say
from evener.errors import BadValue, UsageError
from evener.harness import Harness, RunStream
from evener.harness.finding import find_harness
from evener.loop.limits import Limits
from evener.result import RunResult
from evener.tools.tool import Tool
from evener.transcript.message import Message

__all__ = ["Form", "Wish", "run"]

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


def run(wish: Wish, *, form: Form) -> int:
    """Run, print, and say how it ended."""
    harness = _harness(wish)
    limits = _limits(wish)
    if wish.resume and wish.words:
        raise UsageError("A run is resumed as it is, without a prompt. Give the prompt with --thread instead of --resume.")
    prompt = None if wish.resume else _prompt(wish)
    return asyncio.run(_watched(harness, wish, prompt, limits, form))


async def _watched(harness: Harness, wish: Wish, prompt: Message | None, limits: Limits | None, form: Form) -> int:
    thread = harness.thread(wish.resume or wish.thread, limits=limits)
    stream = thread.resume_stream() if prompt is None else thread.stream(prompt)
    stopped = _stop_on_interrupt(stream)
    show = PRINTERS[form]()
    try:
        async with stream:
            async for event in stream:
                show.event(event)
            result = await stream.result()
    except asyncio.CancelledError:
        _how_to_go_on(thread.id, "Stopped at once.")
        return INTERRUPTED
    except BaseException:
        show.close()
        if thread.id:
            _how_to_go_on(thread.id, "The run failed.")
        raise
    show.close()
    show.result(result)
    if result.ok:
        return 0
    _how_to_go_on(thread.id, f"Stopped ({result.stop}): {result.detail}")
    return INTERRUPTED if stopped() else 1


def _how_to_go_on(thread: str, what: str) -> None:
    say(f"evener: {what} Nothing is lost; go on with: evener run --resume {thread}")


def _stop_on_interrupt(stream: RunStream) -> Callable[[], bool]:
    """Ctrl-C asks the run to stop, and a second one insists. What is returned says whether that happened."""
    loop, pressed = asyncio.get_running_loop(), []
    asked: set[asyncio.Task[None]] = set()
    main = asyncio.current_task()

    def interrupt() -> None:
        pressed.append(1)
        if len(pressed) == 1:
            asked.add(asyncio.ensure_future(stream.cancel("Ctrl-C was pressed.")))
        elif main is not None:
            main.cancel()

    loop.add_signal_handler(signal.SIGINT, interrupt)
    return lambda: bool(pressed)


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
            case st.Retracted(why=why):
                self._write(self._cleaner.close())
                self._end_line()
                say(f"evener: What was just shown does not count ({why}) Asking again.")
            case _:
                pass

    def result(self, result: RunResult) -> None:
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


PRINTERS: dict[Form, Callable[[], _Text | _Json | _Lines]] = {"text": _Text, "json": _Json, "stream-json": _Lines}


def _print(document: bytes) -> None:
    sys.stdout.buffer.write(escape_json(document) + b"\n")
    sys.stdout.buffer.flush()


# What is asked for.


def _harness(wish: Wish) -> Harness:
    if wish.harness:
        if wish.model or wish.tools or wish.system or wish.store:
            raise UsageError(
                "A harness brings its own model, tools, system prompt and store. Leave --harness out to set them here."
            )
        return find_harness(wish.harness)
    return Harness(
        wish.model,
        tools=[tool for reference in wish.tools for tool in _tools(reference)],
        system=wish.system or None,
        store=wish.store or None,
        name="run",
    )


def _tools(reference: str) -> Iterable[Tool | Callable[..., object]]:
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
    if not (wish.max_cost or wish.max_turns or wish.max_seconds):
        return None
    try:
        cost = Decimal(wish.max_cost) if wish.max_cost else None
    except ArithmeticError:
        raise BadValue(f"--max-cost is {wish.max_cost!r}; it must be a number of US dollars, as in 0.05.") from None
    return Limits(requests=wish.max_turns or Limits().requests, cost=cost, seconds=wish.max_seconds)


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
