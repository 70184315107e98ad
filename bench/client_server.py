"""A small HTTP server on loopback for measuring clients, with and without TLS. Ends with its standard input.

The first argument is a folder with `cert.pem` and `key.pem`. Prints one line of JSON with the two addresses.
"""

import asyncio
import json
import ssl
import sys
from pathlib import Path

__all__ = ["DELTA", "main"]

DELTA = b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" of course"}}\n\n'
SMALL = json.dumps(
    {"id": "msg_1", "content": [{"type": "text", "text": "Certainly. " * 20}], "usage": {"output_tokens": 60}}
).encode()
PAUSE = 0.001
"""Seconds between two paced deltas: long enough for every client here to be asleep again."""

WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(SMALL), SMALL)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
CHUNK = b"%x\r\n%b\r\n" % (len(DELTA), DELTA)
END = b"0\r\n\r\n"


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer requests of one connection: `/small`, `/burst/<deltas>`, `/paced/<deltas>`."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ", 2)[1]
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.partition(b":")[2]))
            await answer(path.split(b"/"), writer)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def answer(path: list[bytes], writer: asyncio.StreamWriter) -> None:
    match path:
        case [_, b"burst", count]:
            writer.write(HEAD + CHUNK * int(count) + END)
        case [_, b"paced", count]:
            writer.write(HEAD)
            for _ in range(int(count)):
                await asyncio.sleep(PAUSE)
                writer.write(CHUNK)
            writer.write(END)
        case _:
            writer.write(WHOLE)
    await writer.drain()


async def run(folder: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    plain = await asyncio.start_server(serve, "127.0.0.1", 0)
    secure = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    ports = [server.sockets[0].getsockname()[1] for server in (plain, secure)]
    print(json.dumps({"plain": f"http://127.0.0.1:{ports[0]}", "TLS": f"https://127.0.0.1:{ports[1]}"}), flush=True)
    await asyncio.to_thread(sys.stdin.buffer.read)


def main() -> None:
    asyncio.run(run(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
