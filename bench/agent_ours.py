"""Our side of `agents.py`: the whole stack, and what it is held against: a bare HTTP client, alone and with parsing.

All of it runs in one process, measured by the same code as the peers.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Semaphore
from typing import Any

import aiohttp

from bench.agent_driver import KEY, PROMPT, SYSTEM, Action, Make, obey
from bench.agent_speech import MODELS, RESULT
from bench.floor import PARSERS, split_and_parse
from evener.events import Effect
from evener.harness import Harness
from evener.loop.state import Limits
from evener.model import Model, open_model
from evener.observe import recorder
from evener.store import MemoryStore, SqliteStore, Store
from evener.store.sqlite import rows
from evener.store.sqlite.rows import AppendedRows, EventRow, HeldLog
from evener.tools import tool
from evener.transcript import Message, Transcript
from evener.transcript.delta import ArgumentsDelta, TextDelta
from evener.transport.exchange import Request, Response, Transport
from evener.transport.http import shared_transport

__all__ = ["SIZES", "makes"]

PLACES = {
    "anthropic_messages": ("anthropic", ""),
    "openai_chat": ("openai-chat", "/v1"),
    "openai_responses": ("openai", "/v1"),
    "gemini": ("google", ""),
}
"""The provider of each wire, and what its address has behind the server's."""
SIZES = (20, 200, 2000)
"""Messages of history."""
MANY = 1_000_000
"""The number of the first row that we write ourselves."""
PATIENCE = 30.0
"""Seconds."""
INSERT = "INSERT INTO events (log, seq, version, at, kind, digest, chain, payload) VALUES (1, ?, 1, ?, ?, ?, ?, ?)"
UPDATE = "UPDATE logs SET length = ?, head = ?, changed = ?, lease_until = ? WHERE number = 1"


def model_of(wire: str, base: str, transport: Transport | None = None) -> Model:
    """The model that the server plays."""
    provider, tail = PLACES[wire]
    return open_model(f"{provider}:{MODELS[wire]}", key=KEY, base_url=base + tail, transport=transport)


def asked() -> Transcript:
    """The conversation that everybody begins."""
    return Transcript([Message.user_text(PROMPT)])


async def text(wire: str, base: str) -> Action:
    """One call from the ask to the answer. Counts text deltas, or argument fragments, once."""
    model, transcript = model_of(wire, base), asked()
    async with model.stream(model.ask(transcript)) as stream:
        pieces = sum([isinstance(delta, TextDelta | ArgumentsDelta) and bool(delta.text) async for delta in stream])
        blocks = stream.answer.reply.blocks

    async def act() -> int:
        answer = await model.complete(model.ask(transcript))
        return pieces if len(answer.reply.blocks) == len(blocks) else 0

    return act


# The bare HTTP client, with the bytes that we send.


async def _recorded(wire: str, base: str) -> Request:
    """The request that our stack makes."""
    sent: list[Request] = []

    class Recorder:
        async def send(self, request: Request) -> Response:
            sent.append(request)
            return await shared_transport().send(request)

    model = model_of(wire, base, Recorder())
    await model.complete(model.ask(asked()))
    return sent[0]


Read = Callable[[], Awaitable[bytes]]
Client = Callable[[Request], Awaitable[Read]]
"""Sends a request; what it gives reads the answer, piece by piece as it comes, and gives no bytes at its end."""


def with_aiohttp(session: aiohttp.ClientSession) -> Client:
    """The cheapest client that is mature."""

    async def send(request: Request) -> Read:
        return (await session.post(request.url, data=request.body, headers=request.headers)).content.readany

    return send


async def with_ours(request: Request) -> Read:
    """Our transport alone."""
    return (await shared_transport().send(request)).read


async def bare(send: Client, wire: str, base: str) -> Action:
    """Send the same bytes, read the answer."""
    request = await _recorded(wire, base)

    async def act() -> int:
        size, read = 0, await send(request)
        while piece := await read():
            size += len(piece)
        return size

    return act


async def floor(send: Client, number: int, wire: str, base: str) -> Action:
    """Send the same bytes, split and parse what comes as it comes. `number` chooses the parser."""
    request = await _recorded(wire, base)
    parse = PARSERS[wire][number]
    blank = b"\r\n\r\n" if wire == "gemini" else b"\n\n"

    async def act() -> int:
        size, rest, read = 0, b"", await send(request)
        while piece := await read():
            whole, mark, rest = (rest + piece).rpartition(blank)
            split_and_parse((whole + mark,), parse, blank)
            size += len(piece)
        return size

    return act


# The loop.


def _harness(
    model: Model, store: Store, done: list[str], effect: Effect = "read", first: Callable[[], object] = lambda: None
) -> Harness:
    """A harness whose tool does `first` before anything else."""

    @tool(effect=effect)
    async def lookup(item: str) -> str:
        """Look an item up."""
        first()
        done.append(item)
        return RESULT

    limits = Limits(requests=None, tool_calls=None)
    return Harness(model, tools=[lookup], system=SYSTEM, store=store, limits=limits, page_output=False)


async def loop(effect: Effect, wire: str, base: str) -> Action:
    """A run on a memory log, to its end. Counts tool calls."""
    done: list[str] = []
    harness = _harness(model_of(wire, base), MemoryStore(), done, effect)

    async def act() -> int:
        done.clear()
        await harness.run(PROMPT)
        return len(done)

    return act


async def turn(size: int, wire: str, base: str) -> Action:
    """One more turn of a thread that has so many messages, and with each turn two more."""
    thread = _harness(model_of(wire, base), MemoryStore(), []).thread()
    while len((await thread.run(PROMPT)).transcript) < size:
        pass

    async def act() -> int:
        return len((await thread.run(PROMPT)).transcript)

    return act


# The loop on disk, and the cost of its commits alone.


Batch = tuple[tuple[float, str, bytes], ...]
"""The rows of one commit: time, kind and payload."""


async def on_disk(folder: Path, effect: Effect, wire: str, base: str) -> Action:
    """The same run on a file. Counts tool calls."""
    done: list[str] = []
    harness = _harness(model_of(wire, base), SqliteStore(folder / f"{effect}.db"), done, effect)

    async def act() -> int:
        done.clear()
        await harness.run(PROMPT)
        return len(done)

    return act


async def _batches(folder: Path, name: str, effect: Effect, wire: str, base: str) -> list[Batch]:
    """The rows of such a run on a file that is left behind, commit by commit."""
    found: list[Batch] = []
    append = rows.append

    def counted(
        connection: sqlite3.Connection, held: HeldLog, rows: Sequence[EventRow], *more: Any, **named: Any
    ) -> AppendedRows:
        if rows:  # else a lease was renewed
            found.append(tuple((row.at, row.kind, row.payload) for row in rows))
        return append(connection, held, rows, *more, **named)

    rows.append = counted  # a spy for one run
    try:
        store = SqliteStore(folder / name)
        await _harness(model_of(wire, base), store, [], effect).run(PROMPT)
        await store.aclose()
    finally:
        rows.append = append
    return found


def _commit(path: Path) -> Callable[[Batch], None]:
    """Commits rows to such a file by themselves: no check, no hash, no other thread."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    numbers = count(MANY)

    def commit(batch: Batch) -> None:
        connection.execute("BEGIN IMMEDIATE")
        digest = bytes(32)
        added = [(next(numbers), at, kind, digest, digest, payload) for at, kind, payload in batch]
        connection.executemany(INSERT, added)
        connection.execute(UPDATE, (added[-1][0], digest, 1.0, 1.0))
        connection.execute("COMMIT")

    return commit


async def commits(folder: Path, effect: Effect, wire: str, base: str) -> Action:
    """The rows of that run by themselves, committed as they were. Counts commits."""
    name = f"bare-{effect}.db"
    batches = await _batches(folder, name, effect, wire, base)
    commit = _commit(folder / name)

    async def act() -> int:
        for batch in batches:
            commit(batch)
        return len(batches)

    return act


async def between(folder: Path, effect: Effect, wire: str, base: str) -> Action:
    """A run on a memory log, and where one on a file commits, the same rows are committed by themselves. Counts tool calls.

    It shows what waiting for the disk costs what comes after it, whichever code waits.
    """
    name, done = f"between-{effect}.db", list[str]()
    batches = await _batches(folder, name, effect, wire, base)
    commit, left = _commit(folder / name), list[Batch]()

    def go_on() -> None:
        if left:
            commit(left.pop())

    class Committing:
        async def send(self, request: Request) -> Response:
            go_on()
            return await shared_transport().send(request)

    model = model_of(wire, base, Committing())
    harness = _harness(model, MemoryStore(), done, effect, first=go_on if effect == "write" else lambda: None)

    async def act() -> int:
        done.clear()
        left[:] = reversed(batches)
        await harness.run(PROMPT)
        while left:
            go_on()
        return len(done)

    return act


def makes(session: aiohttp.ClientSession, folder: Path) -> dict[str, Make]:
    """All that can be measured here."""
    made: dict[str, Make] = {
        "text": text,
        "loop": partial(loop, "read"),
        "loop-write": partial(loop, "write"),
        "disk": partial(on_disk, folder, "read"),
        "disk-write": partial(on_disk, folder, "write"),
        "commits": partial(commits, folder, "read"),
        "commits-write": partial(commits, folder, "write"),
        "between": partial(between, folder, "read"),
        "between-write": partial(between, folder, "write"),
        **{f"turn-{size}": partial(turn, size) for size in SIZES},
    }
    for name, send in (("aiohttp", with_aiohttp(session)), ("own", with_ours)):
        made[f"bare-{name}"] = partial(bare, send)
        made[f"{name}-plain"] = partial(floor, send, 0)
        made[f"{name}-typed"] = partial(floor, send, 1)
    return made


class Recorder(recorder.TraceRecorder):
    """The recorder of traces as it is, and a way to wait until it has written what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self._given = 0
        self._written = Semaphore(0)

    def record(self, run: recorder.EndedRun) -> None:
        dropped = self.dropped
        super().record(run)
        self._given += self.settings.is_on and self.dropped == dropped

    def _write(self, runs: Sequence[recorder.EndedRun]) -> None:
        super()._write(runs)
        if runs:  # none with the end of the process
            self._written.release(len(runs))

    def settle(self) -> None:
        """Wait until the spans of all runs are in the file: runs gather for a moment before they are written."""
        while self._given and self._written.acquire(timeout=PATIENCE):
            self._given -= 1


async def run() -> None:
    """Carry out orders."""
    traces = recorder.RECORDER = Recorder()
    with TemporaryDirectory(prefix="evener-agents-") as folder:
        async with aiohttp.ClientSession() as session:
            await obey(makes(session, Path(folder)), traces.settle)


if __name__ == "__main__":
    asyncio.run(run())
