"""The harness of the cluster benchmarks, for worker processes: it writes a line per effect, and waits where its prompt says so.

A prompt that begins with `hold` waits in mid-tool until its process is killed; any other waits for I/O for a moment.
"""

import asyncio
import os
from pathlib import Path

from evener import Harness, tool
from evener.store.postgres import PostgresStore
from evener.testing.scripted_model import ScriptedModel, calls
from evener.transcript.ask import Ask
from evener.transcript.blocks import ToolCall
from evener.transcript.reply import Reply

__all__ = ["ADDRESS", "FOLDER", "effects", "make_harness"]

FOLDER = "EVENER_BENCH_FOLDER"
ADDRESS = "EVENER_BENCH_ADDRESS"
LEASE = "EVENER_BENCH_LEASE"
HELD = 600.0
IO = 1.0
"""Seconds that the tool waits."""


def effects(folder: Path) -> list[tuple[str, int]]:
    """Return the effects so far: what was paid for, and the process that did it."""
    path = folder / "effects"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [(line.rpartition(" ")[0], int(line.rpartition(" ")[2])) for line in lines]


@tool(effect="write")
async def pay(name: str) -> str:
    """Pay: the effect comes first, then a pause in which the worker may die."""
    with open(Path(os.environ[FOLDER]) / "effects", "ab", buffering=0) as file:
        file.write(f"{name} {os.getpid()}\n".encode())
    await asyncio.sleep(HELD if name.startswith("hold") else IO)
    return "paid"


def _answer(ask: Ask) -> Reply | str:
    said = ask.transcript.messages
    prompt = next(message.text for message in said if message.role == "user" and message.text)
    made = sum(len(message.calls) for message in said)
    return f"done {prompt}" if made else calls(ToolCall.of("c1", "pay", {"name": prompt}))


def make_harness(address: str, lease: float = 2.0) -> Harness:
    """Return the harness on a store."""
    return Harness(ScriptedModel(_answer), tools=[pay], store=PostgresStore(address, lease=lease, busy=60.0), name="site")


if ADDRESS in os.environ:
    harness = make_harness(os.environ[ADDRESS], float(os.environ.get(LEASE, "2")))
