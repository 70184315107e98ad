"""A process is killed during a payment, and another process resumes the run. The payment is not made twice.

Prints:
    paying 5
    the process was killed
    the model was told: Interrupted: this call was started, and it is not known whether it took effect.
    I will ask the bank before I pay again.
    payments begun: 1
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from evener import Harness, tool
from evener.testing import ScriptedModel, calls
from evener.transcript import ToolCall


@tool(effect="write")
def pay(amount: int) -> str:
    """Pay."""
    print(f"paying {amount}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    return "paid"


def agent(file: Path, *script: object) -> Harness:
    return Harness(ScriptedModel(script), tools=[pay], store=file, name="payer")


def first(file: Path) -> None:
    agent(file, calls(ToolCall.of("call-1", "pay", {"amount": 5}))).run_sync("Pay what we owe.")


async def second(file: Path) -> None:
    harness = agent(file, "I will ask the bank before I pay again.")
    [summary] = await harness.store.logs()
    result = await harness.resume(summary.log)
    [record] = result.records
    [told] = record.result.content
    print(f"the model was told: {told.text.partition('. ')[0]}.")
    print(result.text)
    print("payments begun:", record.starts)
    await harness.aclose()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "log.sqlite"
        done = subprocess.run([sys.executable, __file__, str(file)], check=False)
        print("the process was", "killed" if done.returncode == -signal.SIGKILL else "not killed", flush=True)
        asyncio.run(second(file))


if __name__ == "__main__":
    first(Path(sys.argv[1])) if len(sys.argv) > 1 else main()
