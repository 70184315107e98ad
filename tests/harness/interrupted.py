"""A process that is killed while its tool pays: `python -m tests.harness.interrupted ACT PATH ...`. Says what it came to.

A tool that stands still says so and waits to be killed: before it has paid, or after. Another process asks what became of it.
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from evener import Harness, SqliteStore, ToolContext, tool
from evener.errors import ApprovalStale
from evener.events import Verdict
from evener.harness.approvals import Decision
from evener.model import open_model

SECONDS = 120


def tell(*words: object) -> None:
    os.write(sys.stdout.fileno(), f"{' '.join(map(str, words))}\n".encode())


def shop(path: str, model: str = "", url: str = "", *, stands: str = "") -> Harness:
    """A harness that pays into a file beside the store; with `stands`, it stands still `before` or `after` that."""

    def stand(when: str) -> None:
        if stands == when:
            tell("begun")
            time.sleep(SECONDS)

    @tool
    def pay(amount: int, context: ToolContext[object]) -> str:
        """Pay."""
        stand("before")
        with Path(f"{path}.paid").open("a", encoding="utf-8") as file:
            file.write(f"{amount} {context.key}\n")
        stand("after")
        return f"paid {amount}"

    asked = open_model(model or "local:smollm2", base_url=url, key="sk-loopback")
    return Harness(asked, tools=[pay], store=SqliteStore(path), name="shop", unknown_outcome="ask")


async def start(path: str, model: str, url: str, stands: str) -> None:
    """Run until the tool stands still: somebody will kill this process."""
    await shop(path, model, url, stands=stands).run("Pay 5.")


async def resume(path: str, thread: str, model: str, url: str, stands: str = "") -> None:
    """Go on, until it asks or ends."""
    result = await shop(path, model, url, stands=stands).resume(thread)
    tell(result.stop, *(f"{one.interrupt} {one.key}" for one in result.approvals), result.text)


async def decide(path: str, thread: str, key: str, verdict: Verdict, result: str = "") -> None:
    """Decide what became of the call."""
    try:
        await shop(path).decide(thread, {key: Decision(verdict, result=result or None)})
    except ApprovalStale as error:
        tell("stale", error)
    else:
        tell("decided")


ACTS = {"start": start, "decide": decide, "resume": resume}

if __name__ == "__main__":
    signal.alarm(SECONDS)
    asyncio.run(ACTS[sys.argv[1]](*sys.argv[2:]))  # type: ignore[operator]
