"""Independent prompts in parallel: each entry is a separate run without tools, and leaves no log.

An entry that fails records its error and does not affect the others. Inside a run, entries use the budget of its tree of runs.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Annotated, Generic, cast

import msgspec

from evener.budget import Budget
from evener.call_context import DEEPEST, InnerUsage, Site, current_site
from evener.errors import EvenerError, UsageError
from evener.events import Limits, Nested
from evener.harness.harness import Harness
from evener.harness.opening import Given, Prompt
from evener.model.seam import Askable
from evener.result import Output, RunResult
from evener.tools.result import Envelope
from evener.tools.tool import Tool, tool
from evener.transcript.ask import ModelSettings, OutputForm
from evener.transcript.reply import Usage

if TYPE_CHECKING:
    from evener.harness.harness import OutputLike
    from evener.model.plain import PlainProvider

CONCURRENCY = 8
MOST_PROMPTS = 32
SECONDS = 600.0
UNBOUNDED = Limits(requests=None, tool_calls=None)
DESCRIPTION = (
    "Ask a model several independent questions at once. Each prompt is answered alone, by a model that sees nothing but that "
    "prompt and has no tools: put everything it needs into it. Answers come in the order of the prompts, as JSON: "
    "`text` where there is an answer, `error` where there is none."
)


class Entry(msgspec.Struct, Generic[Output], frozen=True, kw_only=True):
    """The outcome of one prompt. `error` says why there is no answer; empty if there is one.

    `text` is the last text of the model, also if it is not a valid answer; `output` is the structured answer, or the text if no
    type was requested. `usage` and `cost` (US dollars, an estimate unless `exact`) include all tries. `warnings` name limits of
    the whole fan-out that could not be enforced exactly.
    """

    prompt: Prompt
    text: str = ""
    output: Output | None = None
    error: str = ""
    usage: Usage = Usage()
    cost: Decimal = Decimal(0)
    exact: bool = True
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if there is an answer."""
        return not self.error


Progressed = Callable[[int, int], object]
"""Told how many entries are done, and how many there are."""


async def fan_out(
    model: "str | Askable | PlainProvider",
    prompts: Sequence[Prompt],
    *,
    system: Given = None,
    output: "OutputLike[Output]" = None,
    output_form: OutputForm = "",
    concurrency: int = CONCURRENCY,
    retries: int = 1,
    limits: Limits | None = None,
    settings: ModelSettings | None = None,
    progress: Progressed | None = None,
) -> tuple[Entry[Output], ...]:
    """Ask each prompt on its own, at most `concurrency` at once. An entry for each, in the order of the prompts.

    `output` is the type or the JSON Schema of every answer. `retries` is how often an entry is tried again after a failure
    that may pass, and how often an answer of the wrong form is sent back. `limits` count for all entries together: by default
    there are none, and the 50 requests and 200 calls that a single run has by default are none here, either. Inside a run the
    budget of its tree counts in their place, but for `seconds`, which holds in any case. A limit on the cost reserves for each
    entry what the dearest one so far cost, twice, instead of all that it may cost, so that entries do not wait for each other;
    where that could exceed the limit, `Entry.warnings` says so. `progress` is called after each entry.
    """
    _check(prompts, concurrency, retries)
    if progress is not None and not callable(progress):
        raise UsageError(
            f"`progress` takes a function of two numbers, prompts done and prompts in all; not {type(progress).__name__}."
        )
    limits = _of_all(limits)
    harness = Harness(
        model, system=system, store="memory", limits=_of_entry(retries), page_output=False, output=output,
        output_form=output_form, settings=settings,
    )  # fmt: skip
    outer = current_site.get()
    work = _Work(harness, outer, outer.budget if outer else Budget(limits, by_estimate=True), limits.seconds)
    entries: dict[int, Entry] = {}
    done = partial(_tell, progress, entries, len(prompts))
    left = iter(enumerate(prompts))
    async with asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, len(prompts))):
            group.create_task(_worker(work, left, entries, done))
    told = work.warnings
    return cast(
        "tuple[Entry[Output], ...]", tuple(msgspec.structs.replace(entries[n], warnings=told) for n in range(len(prompts)))
    )


def parallel_llm_tool(
    model: str | Askable,
    *,
    name: str = "parallel_llm",
    description: str = DESCRIPTION,
    system: Given = None,
    most: int = MOST_PROMPTS,
    concurrency: int = CONCURRENCY,
    retries: int = 1,
    seconds: float = SECONDS,
) -> Tool:
    """Return a tool that lets a model ask `model` up to `most` prompts at once, in words. Those not answered in time have
    failed.

    For structured answers write a tool of your own around `fan_out`.
    """
    limits = msgspec.structs.replace(UNBOUNDED, seconds=seconds)

    async def parallel_llm(
        prompts: Annotated[list[str], msgspec.Meta(min_length=1, max_length=most, description="the questions, each complete")],
    ) -> Envelope:
        found = await fan_out(model, prompts, system=system, concurrency=concurrency, retries=retries, limits=limits)
        told = [_tell_entry(number, entry) for number, entry in enumerate(found, 1)]
        ok = any(entry.ok for entry in found)
        text = msgspec.json.encode(told).decode()
        return Envelope(ok, text, outcome="done" if ok else "failed")  # type: ignore[arg-type] # takes a str

    return tool(parallel_llm, name=name, description=description, effect="read", timeout=None)


def _check(prompts: Sequence[Prompt], concurrency: int, retries: int) -> None:
    if isinstance(prompts, str):
        raise UsageError("A fan-out takes several prompts, not one text. Give a list: fan_out(model, [prompt]).")
    if not isinstance(prompts, Sequence):
        raise UsageError(f"A fan-out takes a list of prompts; not {type(prompts).__name__}.")
    if type(concurrency) is not int or type(retries) is not int:
        raise UsageError(f"`concurrency` and `retries` are whole numbers; not {concurrency!r}, {retries!r}.")
    if concurrency < 1 or retries < 0:
        raise UsageError(f"A fan-out needs a concurrency of 1 or more and retries of 0 or more, not {concurrency}, {retries}.")


def _of_entry(retries: int) -> Limits:
    """Return limits for one answer, with its retries and corrections. A call of an unknown tool is answered once."""
    return Limits(requests=(1 + retries) ** 2 + 1, tool_calls=1, retries=retries, corrections=retries, warn_at=1.0)


class _Work:
    """What the entries of one fan-out share. `seconds` is for all of them; None means no deadline."""

    def __init__(self, harness: Harness, outer: Site | None, budget: Budget, seconds: float | None) -> None:
        self._harness = harness
        self._outer = outer
        self._budget = budget
        self._seconds = seconds
        self._clock: Callable[[], float] = asyncio.get_running_loop().time
        self._ends = None if seconds is None else self._clock() + seconds

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about limits of the fan-out that could not be enforced exactly."""
        return self._budget.warnings if self._outer is None else ()

    async def entry(self, prompt: Prompt) -> Entry:
        """Return the entry of this prompt. All errors are stored in the entry."""
        if self._ends is not None and self._clock() >= self._ends:
            return Entry(prompt=prompt, error=self._late("begun"))
        tally = InnerUsage(self._outer.tally if self._outer else None)
        result, error = None, ""
        try:
            async with asyncio.timeout_at(self._ends):
                result = await self._ask_entry(prompt, tally)
        except TimeoutError:
            error = self._late("answered")
        except EvenerError as failure:
            error = str(failure) or type(failure).__name__
        except Exception as failure:  # of a model or a prompt that is not ours: the other entries have nothing to do with it
            error = f"{type(failure).__name__}: {failure}"
        return _entry(prompt, result, error, tally)

    async def _ask_entry(self, prompt: Prompt, tally: InnerUsage) -> RunResult:
        outer = self._outer

        def total() -> Nested:
            return tally.total

        if outer is not None:
            outer.tally.begin(total)
        token = current_site.set(
            Site(
                run=outer.run if outer else "", thread=outer.thread if outer else "", call=outer.call if outer else "",
                depth=min(outer.depth, DEEPEST) if outer else 0,  # without tools it cannot go deeper
                budget=self._budget, tally=tally, show=outer.show if outer else None, path=outer.path if outer else "",
                policy=outer.policy if outer else None, models=outer.models if outer else (),
            )
        )  # fmt: skip
        try:
            return await self._harness.run(prompt)
        finally:
            current_site.reset(token)
            if outer is not None:
                outer.tally.end(total)

    def _late(self, what: str) -> str:
        return f"The prompt was not {what} within the {self._seconds:g} seconds that all of them had. Ask fewer at once."


async def _worker(work: _Work, left: Iterator[tuple[int, Prompt]], entries: dict[int, Entry], done: Callable[[], None]) -> None:
    for number, prompt in left:
        entries[number] = await work.entry(prompt)
        done()


def _tell(progress: Progressed | None, entries: dict[int, Entry], of: int) -> None:
    if progress is not None:
        progress(len(entries), of)


def _of_all(limits: Limits | None) -> Limits:
    """Return the limits of the whole fan-out. The default limits of a single run do not apply to it."""
    if limits is None:
        return UNBOUNDED
    if not isinstance(limits, Limits):
        raise UsageError(f"`limits` takes Limits(...), or None; not {type(limits).__name__}.")
    usual = Limits()
    requests = None if limits.requests == usual.requests else limits.requests
    tool_calls = None if limits.tool_calls == usual.tool_calls else limits.tool_calls
    return msgspec.structs.replace(limits, requests=requests, tool_calls=tool_calls)


def _entry(prompt: Prompt, result: RunResult | None, error: str, tally: InnerUsage) -> Entry:
    if result is not None and not result.ok:
        error = f"There is no answer ({result.stop}). {result.detail}".strip()
    used = tally.total
    return Entry(
        prompt=prompt, text=result.text if result else "", output=result.output if result and not error else None,
        error=error, usage=used.usage, cost=used.cost, exact=used.exact,
    )  # fmt: skip


def _tell_entry(number: int, entry: Entry) -> dict[str, object]:
    return {"number": number, "text": entry.text} if entry.ok else {"number": number, "error": entry.error}
