"""A process that starts, decides or resumes a run: `python -m tests.harness.elsewhere ACT PATH ...`. Says what it came to."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from evener import Harness, SqliteStore, Tool
from evener.errors import ApprovalStale
from evener.events import Verdict
from evener.harness.approvals import Decision
from evener.model import open_model

SECONDS = 120


def shop(path: str, model: str = "", url: str = "", *, unit: str = "EUR") -> Harness:
    """A harness that pays into a file beside the store. Another unit is another schema."""

    def pay(arguments: dict[str, int]) -> str:
        with Path(f"{path}.paid").open("a", encoding="utf-8") as file:
            file.write(f"{arguments['amount']}\n")
        return f"paid {arguments['amount']}"

    schema = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"], "title": unit}
    tools = [Tool.of("pay", schema, function=pay, description="Pay.", approval=True)]
    asked = open_model(model or "local:smollm2", base_url=url, key="sk-loopback")
    return Harness(asked, tools=tools, store=SqliteStore(path), name="shop")


def tell(*words: object) -> None:
    os.write(sys.stdout.fileno(), f"{' '.join(map(str, words))}\n".encode())


async def start(path: str, model: str, url: str) -> None:
    """Run until it waits, and stay: somebody will kill this process."""
    result = await shop(path, model, url).run("Pay 5.")
    tell(result.stop, result.thread, *(f"{one.key} {one.digest}" for one in result.approvals))
    signal.pause()


async def decide(path: str, thread: str, key: str, verdict: Verdict, digest: str = "", unit: str = "EUR") -> None:
    """Decide, bound to a digest if there is one."""
    try:
        await shop(path, unit=unit).decide(thread, {key: Decision(verdict, digest=digest)})
    except ApprovalStale as error:
        tell("stale", error)
    else:
        tell("decided")


async def resume(path: str, thread: str, model: str, url: str) -> None:
    """Go on, with any model."""
    result = await shop(path, model, url).resume(thread)
    tell(result.stop, result.text)


ACTS = {"start": start, "decide": decide, "resume": resume}

if __name__ == "__main__":
    signal.alarm(SECONDS)
    asyncio.run(ACTS[sys.argv[1]](*sys.argv[2:]))  # type: ignore[operator]
