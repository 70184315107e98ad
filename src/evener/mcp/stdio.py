"""A server as a child process: JSON-RPC by lines over its pipes. Ends the process with the connection.

The SDK has such a transport, but without a limit for a line (100 MB in one line block it), and its parser drops an answer
that it cannot read, so that its caller waits without end. Here a line has a limit, and a bad answer reaches the caller.
"""

import asyncio
import json
import os
import re
import signal
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

import anyio
import msgspec
from mcp.client._transport import TransportStreams
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from pydantic import ValidationError

from evener.mcp.config import McpServer
from evener.mcp.repair import mend_message

MOST_LINE = 16 << 20
"""Bytes of one message. A longer one ends the connection."""
MOST_TAIL = 2_000
ID = re.compile(r'"id"\s*:\s*(\d{1,18})\s*[,}]')
GRACE = 2.0
"""Seconds between closing the server's input, asking it to end, and killing it."""


@asynccontextmanager
async def open_process(server: McpServer, tail: list[str]) -> AsyncIterator[TransportStreams]:
    """Start the server's process. `tail` collects the end of its standard error, and the reason if it was terminated."""
    process = await asyncio.create_subprocess_exec(
        server.command,
        *server.args,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=_environment(server.env),
        cwd=server.cwd or None,
        limit=MOST_LINE,
        start_new_session=True,
    )
    read_in, read_out = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write_in, write_out = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        assert process.stdout
        async with read_in:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):
                while (line := await _line(process.stdout, tail)) is not None:
                    if (message := _parse(line)) is not None:
                        await read_in.send(message)

    async def write() -> None:
        assert process.stdin
        async with write_out:
            with suppress(ConnectionError, OSError):
                async for sent in write_out:
                    process.stdin.write(sent.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                    await process.stdin.drain()
        await read_in.aclose()

    async def drain() -> None:
        assert process.stderr
        while chunk := await process.stderr.read(1 << 16):
            tail[:] = [("".join(tail) + chunk.decode(errors="replace"))[-MOST_TAIL:]]

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            tasks.start_soon(write)
            tasks.start_soon(drain)
            try:
                yield read_out, write_in
            finally:
                tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
            for stream in (read_in, read_out, write_in, write_out):
                stream.close()


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return a few of our variables (no keys), and those configured for the server."""
    return {**get_default_environment(), **given}


async def _line(pipe: asyncio.StreamReader, tail: list[str]) -> bytes | None:
    """Return the next line; None at the end, or when the line is too long."""
    try:
        return await pipe.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        return error.partial or None
    except asyncio.LimitOverrunError:
        tail.append(f" It sent a line of more than {MOST_LINE:,} bytes.")
        return None


def _parse(line: bytes) -> SessionMessage | None:
    """Return the message of a line; None for other output."""
    raw = _decode(line.removeprefix(BOM_UTF8))
    if not isinstance(raw, dict):
        return None
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_python(mend_message(raw), by_name=False))
    except ValidationError:
        return None


def _decode(line: bytes) -> object:
    """Return the JSON value of a line; None if it is not JSON. A lone surrogate becomes a question mark."""
    with suppress(msgspec.DecodeError, RecursionError):
        return msgspec.json.decode(line)
    text = line.decode(errors="replace")
    with suppress(ValueError, RecursionError):  # the parser of Python takes half of a character
        return msgspec.json.decode(json.dumps(json.loads(text), ensure_ascii=False).encode(errors="replace"))
    number = ID.search(text) if text.startswith("{") and '"jsonrpc"' in text and '"method"' not in text else None
    return (
        {"jsonrpc": "2.0", "id": int(number[1]), "error": "an answer that is not JSON, or nested too deep"} if number else None
    )


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close its input, then ask its group to end, then kill it. Each wait is bounded."""
    if process.stdin is not None:
        process.stdin.close()
    for step in (None, signal.SIGTERM, signal.SIGKILL):
        if step is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, step)
        with suppress(TimeoutError):
            await asyncio.wait_for(_drain(process), GRACE)
            break
    with suppress(AttributeError):
        process._transport.close()  # type: ignore[attr-defined]  # pipes that a grandchild holds open stay else


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Wait until the process has ended, and discard its output: a full pipe would keep it from ending."""
    pipes = (pipe for pipe in (process.stdout, process.stderr) if pipe is not None)
    await asyncio.gather(process.wait(), *map(_discard, pipes))


async def _discard(pipe: asyncio.StreamReader) -> None:
    while await pipe.read(1 << 16):
        pass
