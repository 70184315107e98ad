"""`evener worker`: performs the runs that other processes submitted, until it is told to stop."""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import partial

from evener.cli.terminal import say
from evener.cluster.worker import Worker
from evener.errors import UsageError
from evener.harness.finding import find_harness
from evener.harness.harness import Harness


def run(*, harness: str, engine: str, slots: int, silence: float, temporal: str, until_idle: bool) -> int:
    """Perform submitted runs, and print the outcome of each."""
    if slots < 1:
        raise UsageError(f"--slots is {slots}; a worker needs at least one.")
    if silence <= 0:
        raise UsageError(f"--silence is {silence:g} seconds; it must be above 0.")
    found = find_harness(harness)
    if engine == "temporal":
        return asyncio.run(_run_and_close(found, _work_with_temporal(found, slots, silence, temporal)))
    worker = Worker({found.name: found}, found.store, slots=slots, seconds=silence, say=_tell)
    return asyncio.run(_run_and_close(found, _until_told(worker.drain, partial(worker.run, until_idle=until_idle))))


async def _work_with_temporal(harness: Harness, slots: int, silence: float, address: str) -> None:
    try:
        from evener.cluster.temporal import TemporalWorker, connect
        from evener.cluster.workflow import Pace
    except ImportError:
        raise UsageError("The engine temporal needs the package temporalio: pip install 'evener[temporal]'.") from None
    worker = TemporalWorker(harness, await connect(address), slots=slots, pace=Pace(heartbeat=silence), say=_tell)
    await _until_told(worker.drain, worker.run)


def _tell(line: str) -> None:
    say(f"evener: {line}")


async def _until_told(drain: Callable[[], None], work: Callable[[], Coroutine[object, object, None]]) -> None:
    """Work until SIGTERM or SIGINT."""
    if sys.platform != "win32":
        for name in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(name, drain)
    await work()


async def _run_and_close(harness: Harness, work: Coroutine[object, object, None]) -> int:
    try:
        await work
    finally:
        await harness.aclose()
    return 0
