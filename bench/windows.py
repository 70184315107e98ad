"""A long run in a small window: many turns with screenshots and large results, every request checked on all four wires.

A model without a wire calls tools over and over, and now and then says something. Before it answers, each request is written
for every wire and judged: it must be legal, must have every prompt verbatim, and must fit the window. A window that is smaller
than what can never be taken out must end the run at once, with one error.
"""

import asyncio
from collections.abc import Iterable
from time import process_time

import msgspec
from msgspec.structs import replace

from evener import Harness, tool
from evener.context.accounting import count_frame, rates_of, size_messages
from evener.context.gate import ContextRules
from evener.errors import ContextTooLong, UsageError
from evener.events import Compacted, Evicted, Limits
from evener.harness.preview import open_offline
from evener.model import Model
from evener.model.stream import prepare_request
from evener.testing import ScriptedModel, calls, check_request, says
from evener.transcript.ask import Ask
from evener.transcript.blocks import ImageBlock, Inline, TextBlock, ToolCall
from evener.transcript.reply import Reply, Usage

__all__ = ["LongRun", "main", "run_long", "run_too_small"]

MODELS = ("anthropic:claude-opus-4-5", "openai:gpt-5.5", "openai-chat:gpt-4.1", "google:gemini-3-flash-preview")
WINDOW = 32_000
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
LARGE = "The quick brown fox jumps over the lazy dog. " * 1_100
"""About 50 kB."""


class LongRun(msgspec.Struct):
    """What came of it."""

    requests: int = 0
    summaries: int = 0
    checked: int = 0
    violations: list[str] = []
    missing: int = 0
    largest: int = 0
    evictions: int = 0
    compactions: int = 0
    cpu: list[float] = []

    @property
    def growth(self) -> float:
        """How much more CPU time a turn of the last quarter took than one of the second."""
        quarter = max(len(self.cpu) // 4, 1)
        second, last = self.cpu[quarter : 2 * quarter], self.cpu[-quarter:]
        return (sum(last) / len(last)) / (sum(second) / len(second)) if second and sum(second) else 1.0


@tool(effect="read", output_limit=200_000)
def fetch(n: int) -> str:
    """Fetch something large."""
    return f"{n}: {LARGE}"


@tool(effect="read")
def screenshot(n: int) -> list[TextBlock | ImageBlock]:
    """Take a picture of the screen."""
    return [TextBlock(f"screen {n}"), ImageBlock(Inline(PIXEL), "image/png")]


class _Speaker:
    """What the model says. `every`: how many requests there are between two that are checked."""

    def __init__(self, turns: int, every: int, prompts: list[str]) -> None:
        self.found = LongRun()
        self.prompts = prompts
        self.said = 0
        self._turns = turns
        self._every = every
        self._models = [open_offline(name) for name in MODELS]
        self._began = process_time()

    def __call__(self, ask: Ask) -> Reply:
        rates = rates_of(ask.target.wire)
        tokens = round(count_frame(ask.transcript, ask.tools, None, rates).total + size_messages(ask.transcript, rates))
        usage = Usage(tokens, tokens, 0, 0, 60, 0)
        if not ask.tools:
            self.found.summaries += 1
            return says("<summary>So far this and that was fetched, and nothing was found.</summary>", usage=usage)
        now = process_time()
        self.found.cpu.append(now - self._began)
        self.found.requests += 1
        self.found.largest = max(self.found.largest, tokens)
        if self.found.requests % self._every == 0:
            self._check(ask)
        self._began = process_time()
        self.said += 1
        number = self.found.requests
        if self.said >= self._turns:
            return says("Enough.", usage=usage)
        name = "screenshot" if number % 3 else "fetch"
        return calls(ToolCall(f"call_{number}", name, f'{{"n":{number}}}'), text=f"Step {number}.", usage=usage)

    def _check(self, ask: Ask) -> None:
        for model in self._models:
            body = _body(model, ask)
            self.found.checked += 1
            wire = model.origin.wire
            self.found.violations += [f"{wire}: {one}" for one in check_request(wire, body, model=model.origin.model)]
            text = body.decode()
            self.found.missing += sum(prompt not in text for prompt in self.prompts)


def _body(model: Model, ask: Ask) -> bytes:
    return prepare_request(replace(model.ask(ask.transcript, ask.tools), target=model.origin), model.endpoint).encoded.body


def run_long(turns: int, prompts: int, *, every: int = 1, window: int = WINDOW) -> LongRun:
    """Run so many turns under so many prompts, and check every so many-th request."""
    return asyncio.run(_run_long(turns, prompts, every, window))


async def _run_long(turns: int, prompts: int, every: int, window: int) -> LongRun:
    said: list[str] = []
    speaker = _Speaker(turns // prompts, every, said)
    harness = Harness(
        ScriptedModel(speaker), tools=[fetch, screenshot], system="You look at things.", store="memory",
        context=ContextRules(window=window), limits=Limits(requests=None, tool_calls=None),
    )  # fmt: skip
    thread = harness.thread()
    for number in range(prompts):
        said.append(f"Prompt number {number}: look again, from {number * 100} on, and do not stop before you have it.")
        speaker.said = 0
        result = await thread.run(said[-1])
        if result.stop != "done":
            speaker.found.violations.append(f"the run ended with {result.stop}: {result.detail}")
    events = await harness.store.read(thread.log)
    speaker.found.evictions = sum(isinstance(event, Evicted) for event in events)
    speaker.found.compactions = sum(isinstance(event, Compacted) for event in events)
    return speaker.found


def run_too_small(window: int = 1200) -> tuple[int, str]:
    """Return how many requests were made where the floor is above the window, and the error."""
    model = ScriptedModel(lambda _: says("no"))
    harness = Harness(
        model, tools=[fetch, screenshot], system="Rules. " * 1000, store="memory", context=ContextRules(window=window)
    )
    try:
        harness.run_sync("Look.")
    except (ContextTooLong, UsageError) as error:
        return len(model.asks), str(error)
    return len(model.asks), ""


def main(turns: int = 2000, prompts: int = 20) -> int:
    """Print what came of it; 1 when something is wrong."""
    found = run_long(turns, prompts)
    asked, error = run_too_small()
    wrong = len(found.violations) + found.missing + (asked or not error) + (found.largest > WINDOW)
    print(f"{found.requests} requests and {found.summaries} summaries in a window of {WINDOW:,} tokens")
    print(
        f"{found.checked} bodies checked on {len(MODELS)} wires: {len(found.violations)} violations, "
        f"{found.missing} prompts missing"
    )
    print(f"largest prompt {found.largest:,} tokens; {found.evictions} evictions, {found.compactions} compactions")
    print(
        f"CPU of a turn, last quarter against the second: {found.growth:.2f} times; the most {_most(found.cpu) * 1000:.1f} ms"
    )
    print(f"window below the floor: {asked} requests, error: {error[:120]}")
    for line in list(dict.fromkeys(found.violations))[:5]:
        print(f"  {line}")
    return 1 if wrong else 0


def _most(times: Iterable[float]) -> float:
    return max(times, default=0.0)
