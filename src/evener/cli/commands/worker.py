"""`evener worker`: performs the runs that other processes submitted, until it is told to stop."""

import asyncio
import signal
import sys

from evener.cli.terminal import say
from evener.errors import UsageError
from evener.harness.finding import find_harness
from evener.harness.harness import Harness
from evener.harness.remote import Worker

__all__ = ["run"]


def run(*, harness: str, engine: str, slots: int, until_idle: bool) -> int:  # noqa: ARG001
    """Work, and say what came of each run."""
    if slots < 1:
        raise UsageError(f"--slots is {slots}; a worker needs at least one.")
    return asyncio.run(_work(find_harness(harness), slots, until_idle=until_idle))


async def _work(harness: Harness, slots: int, *, until_idle: bool) -> int:
    worker = Worker({harness.name: harness}, harness.store, slots=slots, say=lambda line: say(f"evener: {line}"))
    loop = asyncio.get_running_loop()
    if sys.platform != "win32":
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, worker.drain)
    try:
        await worker.run(until_idle=until_idle)
    finally:
        await harness.aclose()
    return 0
