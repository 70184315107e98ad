"""Faults that a campaign of kills must find, each put in place by a function. For the tests of the tests."""

import asyncio
from collections.abc import Callable

from bench import kill_life
from bench.kill_store import TellingLog
from bench.kill_world import World
from evener.events import Event
from evener.harness import Thread
from evener.loop import plan
from evener.loop.plan import RunTool, Step
from evener.loop.state import Pending, RunState

__all__ = ["FAULTS"]


def _forget_starts() -> None:
    """The loop does not look whether a call was started: what was interrupted counts as never begun."""

    def start(pending: Pending, state: RunState, setup: plan.Setup) -> tuple[Step, ...]:
        del state, setup
        return () if pending.status in ("started", "finished") else (RunTool(pending.call),)

    plan._start = start


def _tell_too_soon() -> None:
    """An append is told before it is done."""

    async def append(self: TellingLog, *events: Event) -> tuple[Event, ...]:
        self.told(events)
        await asyncio.sleep(0.001)
        return await self._log.append(*events)

    TellingLog.append = append  # type: ignore[method-assign]


def _hang_when_resumed() -> None:
    """Whoever finds something begun waits for ever."""
    through = kill_life.through

    async def stuck(thread: Thread, world: World) -> None:
        if thread.id:
            await asyncio.Event().wait()
        await through(thread, world)

    kill_life.through = stuck
    kill_life.SECONDS = 1.0


FAULTS: dict[str, Callable[[], None]] = {
    "forgetful": _forget_starts,
    "hasty": _tell_too_soon,
    "hanging": _hang_when_resumed,
}
