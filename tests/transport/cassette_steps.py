"""What the tests of cassettes do again and again: ask, read, record."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

from evener.testing.transports import FakeAnswer, FakeTransport
from evener.transport.cassette.recorder import Recorder
from evener.transport.exchange import Request, Response, Transport

SECRET = "sk-sentinel/+42"


def ask(body: object = None, url: str = "http://127.0.0.1:9/v1/messages", *, method: str = "POST") -> Request:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Request(url, (("Content-Type", "application/json"), ("Authorization", f"Bearer {SECRET}")), content, method)


async def pieces_of(response: Response) -> list[bytes]:
    try:
        return [piece async for piece in arriving(response)]
    finally:
        await response.aclose()


async def arriving(response: Response) -> AsyncIterator[bytes]:
    while piece := await response.read():
        yield piece


async def told(transport: Transport, *requests: Request) -> list[list[bytes]]:
    """The pieces of each answer, asked for one after the other."""
    return [await pieces_of(await transport.send(request)) for request in requests]


def recorded(path: Path, *exchanges: tuple[Request, FakeAnswer]) -> Path:
    """A cassette of these exchanges."""
    with Recorder(FakeTransport([answer for _, answer in exchanges]), path) as recorder:
        asyncio.run(told(recorder, *(request for request, _ in exchanges)))
    return path
