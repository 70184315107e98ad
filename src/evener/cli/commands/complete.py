"""`evener complete`: one model call. The answer is streamed to stdout, cleaned; losses and remarks go to stderr."""

import asyncio
import os
import sys
from typing import Literal

import msgspec

from evener.cli.printers import print_losses
from evener.cli.prompt import make_conversation, output_schema, split_words
from evener.cli.terminal import CleanOutput, clean, print_bytes, print_json, say
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

Form = Literal["text", "json", "raw"]

REMARKS = {
    "length": "The answer was cut at the output token limit. Raise it with --max-tokens.",
    "context_full": "The answer was cut because the context window is full. Send less, or use another model.",
    "refusal": "The model declined to answer.",
    "tools": "The model called a tool, and there are none here. --json shows the call.",
    "paused": "The provider paused; the answer is not complete.",
    "pending": "The provider has not finished the answer yet.",
}


class CompleteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command. `timeout` is in seconds, for the whole call."""

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
    verbose: bool = False
    form: Form = "text"


def run(options: CompleteOptions) -> int:
    """Ask the model, and print the answer."""
    config = load_config(environ=os.environ)
    name, prompt = split_words(options.words, options.model, config)
    model = open_model(
        name,
        config=config,
        environ=os.environ,
        deadlines=_deadlines(options.timeout),
        effort=options.effort,
        max_output_tokens=options.max_tokens,
        temperature=options.temperature,
        refuse_losses=options.refuse_losses,
    )
    system = options.system or model.endpoint.facts.quirks.usual_system
    transcript = make_conversation(prompt, system=system, images=options.images)
    ask = model.ask(transcript, output=output_schema(options.schema))
    _announce(model)
    answer = asyncio.run(_ask(model, ask, options.form))
    return _print(answer, options.form, structured=ask.output is not None, verbose=options.verbose)


def _announce(model: Model) -> None:
    """Say why it takes long, if weights must be downloaded first."""
    facts = model.endpoint.facts
    if facts.provider.vendor == LOCAL:
        check_installed()
        weights = locate_weights(facts.model)
        if weights.bundle and not weights.path.is_file():
            say(f"evener: Downloading the weights of {weights.bundle.title} once ({weights.bundle.size / 1e6:.0f} MB).")


def _deadlines(total: float | None) -> Deadlines | None:
    if total is None:
        return None
    if not 0 < total < float("inf"):
        raise BadValue(f"--timeout is {total}; it must be a number of seconds above 0.")
    usual = Deadlines()
    return Deadlines(connect=min(usual.connect, total), idle=min(usual.idle, total), total=total)


async def _ask(model: Model, ask: Ask, form: Form) -> Answer:
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
    """Print the text as it arrives, with a newline at its end."""
    output = CleanOutput()
    try:
        async for delta in stream:
            if isinstance(delta, TextDelta):
                output.write(delta.text)
    finally:
        output.end()


def _print(answer: Answer, form: Form, *, structured: bool, verbose: bool) -> int:
    """Print what was not printed while it arrived; return the exit code."""
    if form == "raw":
        _print_raw(answer.raw or b"")
        return 0
    output = _parse_json(answer.output) if structured else None
    if form == "json":
        print_json(_document(answer, output))
    elif output is not None:
        print_bytes(output)
    if form == "text":
        print_losses(answer.losses, verbose=verbose)
        remark = REMARKS.get(answer.reply.stop.reason)
        if remark:
            say(f"evener: {remark}")
    if structured and output is None:
        say(f"evener: The answer is not JSON, although a schema was given: {answer.output[:500]}")
        return 1
    return 0


def _parse_json(output: str) -> bytes | None:
    """Return the answer as bytes if it is valid JSON, else None."""
    try:
        msgspec.json.decode(output)
    except (msgspec.DecodeError, RecursionError):
        return None
    return output.strip().encode()


def _print_raw(raw: bytes) -> None:
    """Print the response unchanged; on a terminal, cleaned."""
    if sys.stdout.isatty():
        print(clean(raw.decode(errors="replace")))
    else:
        sys.stdout.buffer.write(raw)


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
