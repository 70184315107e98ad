"""`evener complete`: one model call. The answer goes to stdout as it comes, cleaned; losses and remarks go to stderr."""

import asyncio
import os
import sys
from typing import Literal

import msgspec

from evener.cli.prompt import conversation, output_schema, split_words
from evener.cli.terminal import Cleaner, clean, escape_json, say
from evener.errors import BadValue
from evener.local import LocalTransport, locate_weights
from evener.local.server import check_installed
from evener.model import Answer, Model, Stream, open_model
from evener.providers.config import load_config
from evener.providers.rows import LOCAL
from evener.transcript.ask import Ask, Effort
from evener.transcript.delta import TextDelta
from evener.transport.exchange import Deadlines
from evener.transport.http import HttpTransport

__all__ = [
    "CompleteOptions",
    "Form",
    "run",
]


Form = Literal["text", "json", "raw"]

REMARKS = {
    "length": "The answer was cut: it reached the limit on output tokens. Raise it with --max-tokens.",
    "context_full": "The answer was cut: the model's window is full. Ask with less, or another model.",
    "refusal": "The model declined to answer.",
    "tools": "The model called a tool, and there is none here: see --json.",
    "paused": "The provider has paused; the answer is not complete.",
    "pending": "The answer is not ready yet at the provider.",
}


class CompleteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asked for. `timeout` is in seconds, for the whole call."""

    words: tuple[str, ...] = ()
    model: str = ""
    system: str = ""
    images: tuple[str, ...] = ()
    schema: str = ""
    effort: Effort | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    timeout: float | None = None
    refuse_losses: tuple[str, ...] = ()


def run(wish: CompleteOptions, *, form: Form) -> int:
    """Ask, and print the answer."""
    config = load_config(environ=os.environ)
    name, prompt = split_words(wish.words, wish.model, config)
    model = open_model(
        name,
        config=config,
        environ=os.environ,
        deadlines=_deadlines(wish.timeout),
        effort=wish.effort,
        max_output_tokens=wish.max_tokens,
        temperature=wish.temperature,
        refuse_losses=wish.refuse_losses,
    )
    transcript = conversation(prompt, system=wish.system, images=wish.images)
    ask = model.ask(transcript, output=output_schema(wish.schema))
    _announce(model)
    answer = asyncio.run(_answer(model, ask, form))
    return _print(answer, form, structured=ask.output is not None)


def _announce(model: Model) -> None:
    """Say why it takes long, when weights must be fetched first."""
    facts = model.endpoint.facts
    if facts.provider.vendor == LOCAL:
        check_installed()
        weights = locate_weights(facts.model)
        if weights.bundle and not weights.path.is_file():
            say(f"evener: Fetching the weights of {weights.bundle.title} ({weights.bundle.size / 1e6:.0f} MB), this once.")


def _deadlines(total: float | None) -> Deadlines | None:
    if total is None:
        return None
    if not 0 < total < float("inf"):
        raise BadValue(f"--timeout is {total}; it must be a number of seconds above 0.")
    usual = Deadlines()
    return Deadlines(connect=min(usual.connect, total), idle=min(usual.idle, total), total=total)


async def _answer(model: Model, ask: Ask, form: Form) -> Answer:
    try:
        async with model.stream(ask, keep_raw=form == "raw") as stream:
            if form == "text" and ask.output is None:
                await _show(stream)
            else:
                while await stream.read():
                    pass
            return stream.answer
    finally:
        transport = model.endpoint.transport
        if isinstance(transport, HttpTransport | LocalTransport):
            await transport.aclose()


async def _show(stream: Stream) -> None:
    """The text as it comes, ending in a line end."""
    cleaner, last = Cleaner(), "\n"
    try:
        async for delta in stream:
            if isinstance(delta, TextDelta):
                last = _write(cleaner.feed(delta.text)) or last
    finally:
        last = _write(cleaner.close()) or last
        if last != "\n":
            _write("\n")


def _write(text: str) -> str:
    """Print at once; the last character."""
    if text:
        sys.stdout.write(text)
        sys.stdout.flush()
    return text[-1:]


def _print(answer: Answer, form: Form, *, structured: bool) -> int:
    """What was not yet printed while it came."""
    if form == "raw":
        _print_raw(answer.raw or b"")
        return 0
    output = _parsed(answer.output) if structured else None
    if form == "json":
        _print_json(_document(answer, output))
    elif output is not None:
        sys.stdout.buffer.write(escape_json(output) + b"\n")
    if form == "text":
        for loss in answer.losses:
            say(f"loss: {loss}")
        remark = REMARKS.get(answer.reply.stop.reason)
        if remark:
            say(f"evener: {remark}")
    if structured and output is None:
        say(f"evener: The answer is not JSON, though a schema was given. It was: {answer.output[:500]}")
        return 1
    return 0


def _parsed(output: str) -> bytes | None:
    """The JSON text of the answer, if it is one."""
    try:
        msgspec.json.decode(output)
    except (msgspec.DecodeError, RecursionError):
        return None
    return output.strip().encode()


def _print_raw(raw: bytes) -> None:
    """As it came, but for a terminal."""
    if sys.stdout.isatty():
        print(clean(raw.decode(errors="replace")))
    else:
        sys.stdout.buffer.write(raw)


def _print_json(document: dict[str, object]) -> None:
    sys.stdout.buffer.write(escape_json(msgspec.json.format(msgspec.json.encode(document), indent=2)) + b"\n")


def _document(answer: Answer, output: bytes | None) -> dict[str, object]:
    reply = answer.reply
    document: dict[str, object] = {
        "provider": answer.provider,
        "model": reply.model or answer.model,
        "text": reply.text,
        "reasoning": reply.reasoning_text,
        "calls": [{"id": call.id, "name": call.name, "arguments": call.raw} for call in reply.calls],
        "stop": msgspec.structs.asdict(reply.stop),
        "usage": msgspec.structs.asdict(reply.usage),
        "cost": msgspec.structs.asdict(answer.cost),
        "timing": {**msgspec.structs.asdict(answer.timing), "tries": answer.tries},
        "losses": [msgspec.structs.asdict(loss) for loss in answer.losses],
    }
    return document if output is None else {**document, "output": msgspec.Raw(output)}
