"""`make cluster-demo`: several machines in small, on this one: PostgreSQL, Temporal and two worker processes, all real.

Orders are submitted here and performed there. One worker is killed in the midst of a payment, and the other goes on; a
signature waits until it is approved with the command line. No Docker; everything is gone at the end.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from evener import Harness, Tool, tool
from evener.harness.thread import Thread
from evener.store.postgres import PostgresStore
from evener.testing.postgres import PostgresServer
from evener.testing.scripted_model import ScriptedModel, calls
from evener.testing.temporal import TemporalServer
from evener.transcript.ask import Ask
from evener.transcript.blocks import ToolCall
from evener.transcript.reply import Reply

ADDRESS = "EVENER_DEMO_ADDRESS"
FOLDER = "EVENER_DEMO_FOLDER"
NAME = "cluster_demo:harness"
ORDERS = ("tea", "coffee", "sugar", "milk")
SILENCE = 2.0


@tool(effect="write")
async def pay(item: str) -> str:
    """Pay for an item: the effect comes first, then a pause in which this process may die."""
    with open(Path(os.environ[FOLDER]) / "paid", "ab", buffering=0) as file:
        file.write(f"{item} {os.getpid()}\n".encode())
    await asyncio.sleep(30.0 if item == ORDERS[0] else 0.2)
    return "paid"


def sign(_: dict[str, object]) -> str:
    """Sign."""
    return "signed"


def answer(ask: Ask) -> Reply | str:
    """Pay for what the prompt names, or sign; then say so. A real harness names a model of a provider instead."""
    item = next(message.text for message in ask.transcript if message.role == "user" and message.text)
    if any(message.calls for message in ask.transcript):
        return f"The order of {item} is done."
    return calls(ToolCall.of("sign", "sign", {}) if item == "contract" else ToolCall.of("pay", "pay", {"item": item}))


def make_harness(address: str) -> Harness:
    """Return the harness that this process and its workers share."""
    form = Tool.of("sign", {"type": "object", "properties": {}}, function=sign, description="Sign.", approval=True)
    return Harness(ScriptedModel(answer), tools=[pay, form], store=PostgresStore(address, lease=SILENCE), name="orders")


if ADDRESS in os.environ:
    harness = make_harness(os.environ[ADDRESS])


def main() -> int:
    """Show it; 1 when something is not as it should be."""
    began = time.monotonic()

    def tell(line: str) -> None:
        print(f"{time.monotonic() - began:5.1f} s  {line}", flush=True)

    with tempfile.TemporaryDirectory() as folder, PostgresServer() as postgres, TemporalServer() as temporal:
        tell(f"PostgreSQL and Temporal ({temporal.address}) are up")
        workers = {one.pid: one for one in (_start(folder, postgres.address, temporal.address) for _ in range(2))}
        try:
            return asyncio.run(_show(Path(folder), postgres.address, workers, tell))
        finally:
            for one in workers.values():
                one.terminate()
            for one in workers.values():
                one.wait(60)


def _start(folder: str, address: str, temporal: str) -> "subprocess.Popen[bytes]":
    words = ["worker", "--engine", "temporal", "--temporal", temporal, "--harness", NAME, "--silence", str(SILENCE)]
    told = os.environ | {ADDRESS: address, FOLDER: folder}
    with open(Path(folder) / "log", "ab") as log:
        return subprocess.Popen([sys.executable, "-m", "evener", *words], cwd=Path(__file__).parent, env=told, stderr=log)


async def _show(folder: Path, address: str, workers: "dict[int, subprocess.Popen[bytes]]", tell: Callable[[str], None]) -> int:
    harness = make_harness(address)
    threads = [await harness.submit(item) for item in ORDERS]
    contract = await harness.submit("contract")
    tell(f"{len(ORDERS)} orders and a contract are submitted; two workers perform them")
    while ORDERS[0] not in _paid(folder):
        await asyncio.sleep(0.05)
    victim = _paid(folder)[ORDERS[0]]
    workers.pop(victim).kill()
    tell(f"worker {victim} is killed in the midst of paying for {ORDERS[0]}")
    for thread in threads:
        tell(f"{(await thread.result()).text}")
    await _approve(contract, address, folder)
    tell(f"approved with the command line: {(await contract.result()).text}")
    count = Counter(line.split()[0] for line in (folder / "paid").read_text().splitlines())
    sound = await harness.store.verify() == [] and set(count.values()) == {1}
    tell(f"each order was paid once: {dict(count)}" if sound else f"something is wrong: {dict(count)}")
    await harness.aclose()
    return 0 if sound else 1


async def _approve(thread: Thread, address: str, folder: Path) -> None:
    """Approve what waits, in a process of its own that knows nothing of Temporal."""
    await thread.result()
    told = os.environ | {ADDRESS: address, FOLDER: str(folder)}
    words = [sys.executable, "-m", "evener", "approve", "--harness", NAME, thread.id]
    await asyncio.to_thread(subprocess.run, words, cwd=Path(__file__).parent, env=told, check=True, capture_output=True)


def _paid(folder: Path) -> dict[str, int]:
    path = folder / "paid"
    lines = path.read_text().splitlines() if path.exists() else []
    return {line.split()[0]: int(line.split()[1]) for line in lines}


if __name__ == "__main__":
    sys.exit(main())
