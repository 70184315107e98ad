"""`evener probe PROVIDER:MODEL`: finds out what an endpoint can do, with a handful of small requests, and prints a TOML row."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from evener.cli.terminal import clean, print_json, say
from evener.errors import EvenerError
from evener.model import Model, open_model
from evener.transcript.ask import Choice, OutputSchema, Settings, ToolSpec
from evener.transcript.blocks import ImageBlock, Inline, ReasoningBlock, TextBlock
from evener.transcript.message import Message
from evener.transcript.reply import Reply
from evener.transcript.transcript import Transcript
from evener.transport.exchange import Deadlines, Retries

SECONDS = 60.0
SHORT = Settings(max_output_tokens=512)
TOOL = ToolSpec("look_up", "Look up a word.", '{"type":"object","properties":{"word":{"type":"string"}},"required":["word"]}')
SHAPE = OutputSchema('{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}')
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

Verdict = Literal["yes", "no", "refused"]


class Trial(msgspec.Struct, frozen=True):
    """One thing that was tried. `refused`: the provider refused the request; `no`: it accepted it without effect."""

    what: str
    verdict: Verdict
    detail: str = ""


def run(model: str, *, as_json: bool, base_url: str) -> int:
    """Probe one model; print a row for a config file, and what was found on stderr."""
    opened = open_model(
        model, base_url=base_url, encoding="native", deadlines=Deadlines(total=SECONDS), retries=Retries(attempts=1)
    )
    found = asyncio.run(probe(opened))
    if as_json:
        print_json(found)
    else:
        for trial in found:
            say(f"{trial.what}: {trial.verdict}{f' ({trial.detail})' if trial.detail else ''}")
        print(clean(row_of(opened, found)))
    return 0 if found[0].verdict == "yes" else 1


async def probe(model: Model) -> tuple[Trial, ...]:
    """Try each ability once, with at most one request each. Without a plain answer nothing else is tried."""
    first = await _try("answers", lambda: _says(model, "Say yes."), lambda reply: bool(reply.text))
    if first.verdict != "yes":
        return (first,)
    rest = [
        await _try("system role", lambda: _says(model, "Say yes.", system="Be brief."), lambda reply: bool(reply.text)),
        await _try("tools", lambda: _calls(model), lambda reply: bool(reply.calls)),
        await _try("json schema", lambda: _ask_with_schema(model), lambda reply: reply.text.strip().startswith("{")),
        await _try("images", lambda: _looks(model), lambda reply: bool(reply.text)),
        await _try("reasoning", lambda: _says(model, "Think: what is 3 * 4?"), _thinks),
    ]
    return (first, *rest)


async def _try(what: str, ask: Callable[[], Awaitable[Reply]], worked: Callable[[Reply], bool]) -> Trial:
    try:
        return Trial(what, "yes" if worked(await ask()) else "no")
    except EvenerError as error:
        return Trial(what, "refused", " ".join(str(error).split())[:200])


def _thinks(reply: Reply) -> bool:
    return any(isinstance(block, ReasoningBlock) for block in reply.blocks)


async def _says(model: Model, text: str, system: str | None = None) -> Reply:
    ask = model.ask(Transcript([Message.user_text(text)], system=system), settings=SHORT)
    return (await model.complete(ask)).reply


async def _calls(model: Model) -> Reply:
    said = Transcript([Message.user_text("Look up the word tree.")])
    return (await model.complete(model.ask(said, [TOOL], choice=Choice("required"), settings=SHORT))).reply


async def _ask_with_schema(model: Model) -> Reply:
    said = Transcript([Message.user_text("Give n = 3 as JSON.")])
    return (await model.complete(model.ask(said, output=msgspec.structs.replace(SHAPE, form="native"), settings=SHORT))).reply


async def _looks(model: Model) -> Reply:
    picture = ImageBlock(Inline(PIXEL), "image/png")
    said = Transcript([Message("user", (TextBlock("What colour is it?"), picture))])
    return (await model.complete(model.ask(said, settings=SHORT))).reply


FIELDS = {"tools": "tools", "json schema": "output_schema", "images": "images"}


def row_of(model: Model, found: tuple[Trial, ...]) -> str:
    """Return a row for `[[models]]` of a config file: only what differs from what is assumed anyway."""
    facts = model.endpoint.facts
    lines = ["[[models]]", f'match = ["{facts.model}"]', f'providers = ["{facts.provider.name}"]']
    missing = [FIELDS[trial.what] for trial in found if trial.what in FIELDS and trial.verdict != "yes"]
    lines += [f"quirks.{name} = false" for name in missing]
    return "\n".join(lines)
