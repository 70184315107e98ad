"""A mock model on loopback for `agents.py`: fast, scripted, four wires, whole and streamed. Ends with its standard input.

The first part of the path is the script, `calls-deltas-fragments-pace`: it answers with a call of so many argument fragments
until the request holds `calls` results, then with so many pieces of text; `burst` writes a stream at once, `paced` with a
pause before each event. Prints its address. A connection has one request at a time.
"""

import asyncio
import re
import sys
from functools import lru_cache
from itertools import count

import msgspec

from bench.agent_speech import answer, events, fill

__all__ = ["main"]

PAUSE = 0.001
"""Seconds between two paced events: long enough for every client here to be asleep again."""
TAILS = {
    b"/chat/completions": "openai_chat",
    b"/messages": "anthropic_messages",
    b"/responses": "openai_responses",
    b":streamGenerateContent": "gemini",
    b":generateContent": "gemini",
}
RESULTS = {
    "anthropic_messages": b'"tool_use_id"',
    "openai_chat": b'"tool_call_id"',
    "openai_responses": b'"function_call_output"',
    "gemini": b'"functionResponse"',
}
STREAMED = re.compile(rb'"stream":\s*true')
PREVIOUS = re.compile(rb'"previous_response_id":\s*"resp_([0-9a-f]{16})')
LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
USUAL = (
    b"date: Thu, 01 Jan 2026 00:00:00 GMT\r\nserver: a-server\r\nrequest-id: req_011CTXabcdefghijklmnopqr\r\n"
    b"x-ratelimit-limit-requests: 10000\r\nx-ratelimit-remaining-requests: 9999\r\nx-ratelimit-reset-requests: 6ms\r\n"
    b"strict-transport-security: max-age=31536000; includeSubDomains; preload\r\nvia: 1.1 a-proxy\r\n"
)
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n" + USUAL + b"content-length: %d\r\n\r\n"
STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n" + USUAL + b"transfer-encoding: chunked\r\n\r\n"
)
END = b"0\r\n\r\n"

_numbers = count(1)
_known: dict[bytes, int] = {}
"""How many results had come when the reply of this id was given, for clients that name it and do not send the past again."""


class Script(msgspec.Struct, frozen=True):
    """What a path asks for."""

    wire: str
    calls: int
    deltas: int
    fragments: int
    paced: bool
    streamed: bool


@lru_cache(256)
def script_of(path: bytes) -> Script:
    """The script of a path; a ValueError for one that is none."""
    _, first, _ = path.split(b"/", 2)
    calls, deltas, fragments, pace = first.split(b"-")
    bare = path.partition(b"?")[0]
    tail = next((tail for tail in TAILS if bare.endswith(tail)), None)
    if tail is None:
        raise ValueError(f"no wire has the path {path!r}")
    return Script(TAILS[tail], int(calls), int(deltas), int(fragments), pace == b"paced", tail.startswith(b":stream"))


@lru_cache(256)
def spoken(wire: str, deltas: int, fragments: int, streamed: bool) -> tuple[bytes, ...]:
    """The pieces that are written, the ids still to be put in."""
    if not streamed:
        return (answer(wire, deltas=deltas, fragments=fragments),)
    return tuple(b"%x\r\n%b\r\n" % (len(event), event) for event in events(wire, deltas=deltas, fragments=fragments))


class Connection(asyncio.Protocol):
    """One client."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._write: asyncio.Transport | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._write = transport

    def data_received(self, data: bytes) -> None:
        held = self._held
        held += data
        end = held.find(b"\r\n\r\n")
        if end < 0:
            return
        found = LENGTH.search(held, 0, end + 2)
        size = end + 4 + (int(found[1]) if found else 0)
        if len(held) >= size:
            body = bytes(held[end + 4 : size])
            path = bytes(held[: held.find(b"\r\n")]).split(b" ")[1]
            del held[:size]
            self._answer(path, body)

    def _answer(self, path: bytes, body: bytes) -> None:
        assert self._write is not None
        try:
            script = script_of(path)
        except ValueError as error:
            text = str(error).encode()
            self._write.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: %d\r\n\r\n%b" % (len(text), text))
            return
        streamed = script.streamed or STREAMED.search(body) is not None
        done = body.count(RESULTS[script.wire]) + self._before(body)
        id = b"%016x" % next(_numbers)
        _known[id] = done
        pieces = spoken(script.wire, script.deltas, script.fragments if done < script.calls else 0, streamed)
        if not streamed:
            self._write.write(WHOLE % len(pieces[0]) + fill(pieces[0], id, body))
        elif script.paced:
            task = asyncio.ensure_future(self._paced(pieces, id, body))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._write.write(STREAM + fill(b"".join(pieces), id, body) + END)

    def _before(self, body: bytes) -> int:
        named = PREVIOUS.search(body)
        return _known.get(named[1], 0) if named else 0

    async def _paced(self, pieces: tuple[bytes, ...], id: bytes, body: bytes) -> None:
        assert self._write is not None
        self._write.write(STREAM)
        for piece in pieces:
            await asyncio.sleep(PAUSE)
            self._write.write(fill(piece, id, body))
        self._write.write(END)


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.to_thread(sys.stdin.buffer.read)


def main() -> None:
    """Serve until standard input ends."""
    asyncio.run(serve())


if __name__ == "__main__":
    main()
