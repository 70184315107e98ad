"""JSON-RPC by lines: requests and notifications in both directions, with a deadline for each of ours.

The output of tools and their programs must not mix with the frames: the protocol uses its own copies of the pipe
descriptors.
"""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from select import PIPE_BUF, select
from threading import Event
from typing import BinaryIO

import msgspec

from evener.acp.calls import Frame
from evener.errors import EvenerError, UsageError

MOST_LINE = 16 << 20
POLL = 0.2
"""Seconds between two looks at whether a write that cannot go on is still wanted."""
INVALID, NOT_FOUND, INTERNAL, NOT_JSON = -32602, -32601, -32603, -32700

Send = Callable[[Frame], Awaitable[None]]
Perform = Callable[[str, Frame], Awaitable[Frame]]


class RequestRefused(EvenerError):
    """An error to or from the other side: a code of JSON-RPC and a text."""

    def __init__(self, text: str, *, code: int = INVALID) -> None:
        super().__init__(text)
        self.code = code


class AcpConnection:
    """One connection. `perform` answers a request of the other side; `receive` takes a frame and returns at once."""

    def __init__(self, send: Send, perform: Perform) -> None:
        self._send = send
        self._perform = perform
        self._asked: dict[object, asyncio.Future[Frame]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._number = 0

    async def ask(self, method: str, params: Frame, *, seconds: float) -> Frame:
        """Send a request and return its answer. Raises RequestRefused for an error, or if no answer arrives in time."""
        self._number += 1
        number = f"evener-{self._number}"
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            return await asyncio.wait_for(answer, seconds)
        except TimeoutError:
            raise RequestRefused(f"The editor did not answer {method} within {seconds:g} seconds.", code=INTERNAL) from None
        finally:
            self._asked.pop(number, None)

    async def tell(self, method: str, params: Frame) -> None:
        """Send a notification."""
        await self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def receive(self, frame: Frame) -> None:
        """Handle a message from the editor: a request, a notification, or the answer to a request of ours."""
        if "method" in frame:
            task = asyncio.get_running_loop().create_task(self._answer(frame))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        waiting = self._asked.get(frame.get("id"))
        if waiting is None or waiting.done():
            return
        match frame:
            case {"result": dict(result)}:
                waiting.set_result(result)
            case {"error": {"message": str(text)}}:
                waiting.set_exception(RequestRefused(f"The editor refused: {text}", code=INTERNAL))
            case _:
                waiting.set_result({})

    async def _answer(self, frame: Frame) -> None:
        id, params = frame.get("id"), frame.get("params")
        try:
            result = await self._perform(str(frame["method"]), params if isinstance(params, dict) else {})
            answer: Frame = {"result": result}
        except RequestRefused as error:
            answer = {"error": {"code": error.code, "message": str(error)}}
        except EvenerError as error:
            answer = {"error": {"code": INTERNAL, "message": str(error), "data": {"kind": type(error).__name__}}}
        except Exception as error:  # a tool or a hook of the user: the editor must not wait for ever
            answer = {"error": {"code": INTERNAL, "message": f"{type(error).__name__}: {error}"}}
        if id is not None:
            await self._send({"jsonrpc": "2.0", "id": id, **answer})

    async def aclose(self) -> None:
        """Cancel everything that is in progress."""
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


@asynccontextmanager
async def open_pipes() -> AsyncIterator[tuple[AsyncIterator[Frame | None], Send]]:
    """Yield the frames of standard input (None for an invalid line), and the function that sends a frame.

    Until the end, child processes get an empty standard input, and their output goes to standard error.
    """
    kind = os.fstat(0).st_mode
    if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) or os.isatty(0)):  # a file, or /dev/null: no end of it would be noticed
        raise UsageError(
            "Standard input is not a pipe, so no editor is connected. Enter `evener acp` as the agent command of the editor."
        )
    source, target = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(2, 1)
    os.close(empty)
    reader = asyncio.StreamReader(limit=MOST_LINE)
    with os.fdopen(source, "rb", 0) as incoming, os.fdopen(target, "wb", 0) as outgoing:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), incoming)
        turn, ended = asyncio.Lock(), Event()

        async def send(frame: Frame) -> None:
            data = msgspec.json.encode(frame) + b"\n"
            async with turn:
                try:
                    await asyncio.to_thread(_write, outgoing, data, ended)
                except OSError:  # the editor reads no more: as if it had ended our input
                    transport.close()

        try:
            yield _frames(reader), send
        finally:
            ended.set()
            transport.close()


def _write(file: BinaryIO, data: bytes, ended: Event) -> None:
    """Write all bytes, even if the editor reads slowly. Stop after the end, because a full pipe would block the process."""
    view = memoryview(data)
    while view and not ended.is_set():
        if select((), (file,), (), POLL)[1]:
            view = view[file.write(view[:PIPE_BUF]) or 0 :]


async def _frames(reader: asyncio.StreamReader) -> AsyncIterator[Frame | None]:
    while True:
        try:
            line = await reader.readline()
        except ValueError:  # longer than the limit
            yield None
            continue
        if not line:
            return
        try:
            yield msgspec.json.decode(line, type=dict[str, object])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            yield None
