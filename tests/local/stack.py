"""The local model through rows, encodings, codecs and transport, without what `evener.model` adds: retries, limits, cost."""

from collections.abc import Sequence
from typing import Any

from evener.encodings import Prepared, prepare, reader
from evener.local import LocalSettings
from evener.providers import load_rows
from evener.transcript import Ask, Loss, Message, Reply, Settings, Transcript
from evener.translate import origin
from evener.transport.exchange import Deadlines, Request, Response, Transport
from evener.wire import CODECS, Encoded
from evener.wire.stream import assemble

ROWS = load_rows()
MODEL = "smollm2"
WIRES = ("local", "local-responses", "local-anthropic")
SETTINGS = LocalSettings(context=2048)
SECONDS = 120.0


def asked(row: str, messages: Sequence[Message], **more: Any) -> Ask:
    """One call, deterministic and short unless told otherwise."""
    system = more.pop("system", None)
    settings = more.pop("settings", Settings(temperature=0.0, max_output_tokens=8))
    return Ask(Transcript(messages, system=system), origin(ROWS.provider(row), MODEL), settings=settings, **more)


def encoded(row: str, ask: Ask, prior: Encoded | None = None) -> Encoded:
    return CODECS[ROWS.provider(row).wire].encode(ask, ROWS.quirks(row, MODEL), prior)


def request(row: str, written: Encoded) -> Request:
    headers = (*written.headers, ("content-type", "application/json"))
    return Request(ROWS.provider(row).base_url + written.path, headers, written.body, deadlines=Deadlines(total=SECONDS))


async def body_of(response: Response) -> bytes:
    pieces = []
    try:
        while piece := await response.read():
            pieces.append(piece)
    finally:
        await response.aclose()
    return b"".join(pieces)


async def send(transport: Transport, row: str, written: Encoded, *, stream: bool, prepared: Prepared | None = None) -> Reply:
    """What was answered, decoded. Anything but a 200 is raised as the wire's fault."""
    codec, quirks = CODECS[ROWS.provider(row).wire], ROWS.quirks(row, MODEL)
    response = await transport.send(request(row, written))
    body = await body_of(response)
    if response.status != 200:
        raise codec.fault(response.status, response.headers, body)
    if not stream:
        return codec.decode(body, quirks)
    decoder = codec.decoder(quirks)
    deltas = [*decoder.feed(body), *decoder.close()]
    read = reader(prepared) if prepared else None
    return assemble(read.feed(deltas) if read else deltas)


async def answer(transport: Transport, row: str, ask: Ask) -> tuple[Reply, tuple[Loss, ...]]:
    """The reply to one call, and what its encoding lost."""
    prepared = prepare(ask, ROWS.quirks(row, MODEL))
    written = encoded(row, prepared.ask)
    reply = await send(transport, row, written, stream=ask.stream, prepared=prepared)
    return reply, (*prepared.losses, *written.losses)
