"""One process that holds a conversation for a while: it does what it is told, line by line, until it is done or killed.

    python -m bench.thread_life <store> <folder>

Commands come as JSON lines, answers go out as JSON lines. It knows nothing but the store: whoever comes after it goes on.
"""

import asyncio
import base64
import os
import sys
from pathlib import Path
from random import Random
from typing import Literal

import msgspec

from evener import Harness, Limits, tool
from evener.errors import EvenerError
from evener.harness import Thread
from evener.local.transport import LocalTransport
from evener.loop.state import RunState
from evener.model import Model, open_model
from evener.result import RunResult
from evener.store.sqlite.store import SqliteStore
from evener.transcript.ask import StateMode
from evener.transcript.blocks import Block, ImageBlock, Inline, TextBlock
from evener.transport.exchange import Request, Response, Retries
from evener.transport.http import HttpTransport

__all__ = ["LOCAL", "SYSTEM", "Command", "Told", "live", "picture"]

LOCAL = "local:smollm2"
SYSTEM = "You are asked by many, and you are one of many."
BRIEF = 24
"""Tokens that the embedded model may answer with."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """`log` is a branch; empty begins a thread. `at` is where to fork, `turns` how many to take back, `requests` a limit."""

    do: Literal["run", "resume", "fork", "rollback", "stand"]
    log: str = ""
    model: str = ""
    url: str = ""
    mode: StateMode = "replay"
    prompt: str = ""
    image: int = 0
    steer: str = ""
    at: int | str | None = None
    turns: int = 1
    requests: int = 50


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a command. `busy`: a run was begun and is not finished. `error`: it could not be done."""

    log: str = ""
    stop: str = ""
    error: str = ""
    busy: bool = False
    events: int = 0
    letters: int = 0


def picture(seed: int) -> ImageBlock:
    """An image; every twentieth is large enough to lie in the blobs. Nobody looks at it but us."""
    size = 16_000 if seed % 20 == 0 else 60
    content = b"\x89PNG\r\n\x1a\n" + Random(seed).randbytes(size)
    return ImageBlock(Inline(base64.b64encode(content).decode()), "image/png")


@tool(effect="read")
async def look(x: int) -> str:
    """Look something up."""
    await asyncio.sleep(0.001 * (x % 3))
    return f"seen {x}"


@tool(effect="read")
async def draw(x: int) -> object:
    """Draw something."""
    return [TextBlock(f"drawn {x}"), picture(x)]


@tool(effect="idempotent")
async def book(x: int) -> str:
    """Book something."""
    await asyncio.sleep(0.002)
    return f"booked {x}"


@tool(effect="write")
async def pay(x: int) -> str:
    """Pay for something."""
    await asyncio.sleep(0.002)
    if x % 5 == 0:
        raise ValueError(f"no money for {x}")
    return f"paid {x}"


class _Kept:
    """A transport to the embedded model that keeps what was sent."""

    def __init__(self, inner: LocalTransport, folder: Path) -> None:
        self._inner = inner
        self._folder = folder

    async def send(self, request: Request) -> Response:
        if request.body:
            number = sum(1 for _ in self._folder.glob("local-*"))
            (self._folder / f"local-{number:04d}.json").write_bytes(request.body)
        return await self._inner.send(request)


class _Life:
    """What the process has: a store, connections, and an agent for each model and mode."""

    def __init__(self, store: SqliteStore, http: HttpTransport, folder: Path) -> None:
        self._store = store
        self._http = http
        self._folder = folder
        self._models: dict[tuple[str, str], Model] = {}

    async def obey(self, command: Command) -> Told:
        match command.do:
            case "run" | "resume":
                return await self._run(command)
            case "fork":
                made = await self._thread(command).fork(command.at)
                return await self._standing(made)
            case "rollback":
                thread = self._thread(command)
                await thread.rollback(command.turns)
                return await self._standing(thread)
            case "stand":
                return await self._standing(self._thread(command))

    async def _run(self, command: Command) -> Told:
        thread = self._thread(command)
        stream = thread.resume_stream() if command.do == "resume" else thread.stream(_prompt(command))
        if command.steer:
            await stream.steer(command.steer)
        result = await stream.result()
        return await self._standing(thread, result)

    async def _standing(self, thread: Thread, result: RunResult | None = None) -> Told:
        state = await thread.state()
        return Told(
            log=thread.log,
            stop=result.stop if result else state.finished.cause if state.finished else "",
            busy=bool(state.run) and state.finished is None,
            events=(await self._store.link(thread.log)).seq,
            letters=_letters(state),
        )

    def _thread(self, command: Command) -> Thread:
        harness = Harness(
            self._model(command),
            tools=[look, draw, book, pay],
            system=SYSTEM,
            name="hopping",
            store=self._store,
            state=command.mode,
            limits=Limits(requests=command.requests, repeats=ENDLESS, repeats_stop=ENDLESS),
        )
        return harness.thread(command.log, branch=command.log) if command.log else harness.thread()

    def _model(self, command: Command) -> Model:
        key = (command.model or LOCAL, command.url)
        if key not in self._models:
            self._models[key] = self._opened(*key)
        return self._models[key]

    def _opened(self, name: str, url: str) -> Model:
        if name == LOCAL:
            kept = _Kept(LocalTransport(name.partition(":")[2]), self._folder)
            return open_model(name, transport=kept, max_output_tokens=BRIEF, temperature=0.0)
        return open_model(
            name, environ={}, transport=self._http, key="sk-loopback", base_url=url, effort="low", retries=Retries(attempts=1)
        )


ENDLESS = 10**9


def _letters(state: RunState) -> int:
    return sum(len(msgspec.json.encode(message.blocks)) for message in state.transcript)


def _prompt(command: Command) -> tuple[Block, ...]:
    shown = (picture(command.image),) if command.image else ()
    return (TextBlock(command.prompt), *shown)


async def live(path: Path, folder: Path) -> None:
    """Read commands until there are no more."""
    lines = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    store = SqliteStore(path)
    async with HttpTransport(trust_env=False) as http:
        life = _Life(store, http, folder)
        while line := await lines.readline():
            try:
                told = await life.obey(msgspec.json.decode(line, type=Command))
            except EvenerError as error:
                told = Told(error=f"{type(error).__name__}: {error}")
            os.write(1, msgspec.json.encode(told) + b"\n")
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(live(Path(sys.argv[1]), Path(sys.argv[2])))
