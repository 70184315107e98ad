"""Lets one HTTP client talk to the server of `clients.py` and measures its CPU. Run with the Python of its own environment.

Uses the standard library and the client only. Reads one line of JSON from standard input, prints one.
"""

import asyncio
import gc
import json
import ssl
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from time import process_time
from typing import Any
from urllib.parse import urlsplit

BODY = json.dumps(
    {"model": "a-model", "stream": True, "messages": [{"role": "user", "content": "Say something. " * 20}]}
).encode()
HEADERS = {"content-type": "application/json", "authorization": "Bearer none"}

Post = Callable[[str], Awaitable[int]]
"""Posts to an address and gives the number of bytes of the answer, read piece by piece as they come."""


async def aiohttp(authority: str) -> Post:
    """A session as it comes."""
    client = import_module("aiohttp")
    session = client.ClientSession(connector=client.TCPConnector(ssl=ssl.create_default_context(cafile=authority)))

    async def post(url: str) -> int:
        total = 0
        async with session.post(url, data=BODY, headers=HEADERS) as response:
            async for piece in response.content.iter_any():
                total += len(piece)
        return total

    return post


async def httpx2(authority: str) -> Post:
    """A client as it comes."""
    module = import_module("httpx2")
    client = module.AsyncClient(verify=ssl.create_default_context(cafile=authority))

    async def post(url: str) -> int:
        total = 0
        async with client.stream("POST", url, content=BODY, headers=HEADERS) as response:
            async for piece in response.aiter_bytes():
                total += len(piece)
        return total

    return post


async def pyreqwest(authority: str) -> Post:
    """A client as it comes."""
    with open(authority, "rb") as file:
        client = import_module("pyreqwest.client").ClientBuilder().add_root_certificate_pem(file.read()).build()

    async def post(url: str) -> int:
        total = 0
        async with client.post(url).body_bytes(BODY).headers(HEADERS).build_streamed() as response:
            while (piece := await response.body_reader.read_chunk()) is not None:
                total += len(bytes(piece))
        return total

    return post


async def evener(authority: str) -> Post:
    """Our transport."""
    http, exchange = import_module("evener.transport.http"), import_module("evener.transport.exchange")
    transport = http.HttpTransport(ca_file=authority, trust_env=False)
    headers = tuple(HEADERS.items())

    async def post(url: str) -> int:
        total = 0
        response = await transport.send(exchange.Request(url, headers, BODY))
        while piece := await response.read():
            total += len(piece)
        await response.aclose()
        return total

    return post


class Floor(asyncio.Protocol):
    """One connection that does no more than it must: no deadlines, no pool, no limits."""

    def __init__(self) -> None:
        self.parser: Any = None
        self.waiter: asyncio.Future[None] | None = None
        self.pieces: list[bytes] = []
        self.done = False
        self.write: Callable[[bytes], object] = bytes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.write = transport.write

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)
        if self.waiter is not None:
            self.waiter.set_result(None)
            self.waiter = None

    def on_body(self, piece: bytes) -> None:
        self.pieces.append(piece)

    def on_message_complete(self) -> None:
        self.done = True


async def httptools(authority: str) -> Post:
    """The floor: asyncio and a parser in C."""
    parser = import_module("httptools").HttpResponseParser
    connections: dict[str, Floor] = {}
    loop = asyncio.get_running_loop()

    async def connection(url: str) -> Floor:
        parts = urlsplit(url)
        context = ssl.create_default_context(cafile=authority) if parts.scheme == "https" else None
        return (await loop.create_connection(Floor, str(parts.hostname), int(parts.port or 0), ssl=context))[1]

    async def post(url: str) -> int:
        base, _, path = url.partition("//")[2].partition("/")
        found = connections.get(base)
        if found is None:
            found = connections[base] = await connection(url)
        lines = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
        head = f"POST /{path} HTTP/1.1\r\nhost: {base}\r\ncontent-length: {len(BODY)}\r\n{lines}\r\n"
        found.parser, found.done, total = parser(found), False, 0
        found.write(head.encode() + BODY)
        while not found.done or found.pieces:
            if not found.pieces:
                found.waiter = loop.create_future()
                await found.waiter
            total += len(b"".join(found.pieces))
            found.pieces.clear()
        return total

    return post


CLIENTS = {"aiohttp": aiohttp, "evener": evener, "httptools": httptools, "httpx2": httpx2, "pyreqwest": pyreqwest}


async def cost(post: Post, url: str, *, times: int, passes: int) -> float:
    """The least CPU seconds of one post, threads of the client included."""
    await post(url)
    found = []
    for _ in range(passes):
        gc.collect()
        start = process_time()
        for _ in range(times):
            await post(url)
        found.append((process_time() - start) / times)
    return min(found)


async def measured(order: dict[str, Any]) -> dict[str, float]:
    """Microseconds by what was measured. The head of a stream does not count for its deltas."""
    post = await CLIENTS[order["client"]](order["authority"])
    many, few, passes, size = order["deltas"], order["deltas"] // 10, order["passes"], order["delta_bytes"]
    said: dict[str, float] = {}
    for where, base in order["bases"].items():
        if await post(f"{base}/burst/{few}") != few * size:
            raise AssertionError("bytes of the stream are missing")
        whole = await cost(post, f"{base}/small", times=order["requests"], passes=passes)
        head = await cost(post, f"{base}/burst/1", times=10, passes=passes)
        burst = await cost(post, f"{base}/burst/{many}", times=1, passes=passes)
        paced = await cost(post, f"{base}/paced/{few}", times=1, passes=min(passes, 3))
        said[f"request, {where}"] = whole * 1e6
        said[f"burst delta, {where}"] = max(burst - head, 1e-9) / (many - 1) * 1e6
        said[f"paced delta, {where}"] = max(paced - head, 1e-9) / (few - 1) * 1e6
    return said


def main() -> None:
    print(json.dumps(asyncio.run(measured(json.loads(sys.stdin.readline())))), flush=True)


if __name__ == "__main__":
    main()
