"""The driver's clock: what time it is, how long to wait, and the times and ids that events are written with.

Another clock makes the past happen again: `evener.replay` gives a driver the times and ids of a recording.
"""

import asyncio
from collections.abc import Coroutine
from time import time
from typing import Protocol, TypeVar

from evener.driver.listening import pause
from evener.events import Event

__all__ = ["PRESENT", "Clock", "OutOfTime", "within"]

T = TypeVar("T")


class OutOfTime(Exception):
    """What took too long was given up."""


class Clock(Protocol):
    """Time, for one driver."""

    def now(self) -> float:
        """Seconds since 1970, for the plan."""
        ...

    def dated(self, events: tuple[Event, ...]) -> tuple[Event, ...]:
        """The events as they are written."""
        ...

    def pause(self, seconds: float) -> Coroutine[object, object, bool]:
        """Let time pass."""
        ...

    def timeout(self, seconds: float) -> asyncio.Timeout:
        """How long something may take."""
        ...


class _Present:
    """The time that it is. Events were given theirs when they were made."""

    def now(self) -> float:
        return time()

    def dated(self, events: tuple[Event, ...]) -> tuple[Event, ...]:
        return events

    def pause(self, seconds: float) -> Coroutine[object, object, bool]:
        return pause(seconds)

    def timeout(self, seconds: float) -> asyncio.Timeout:
        return asyncio.timeout(seconds)


PRESENT: Clock = _Present()


async def within(work: Coroutine[object, object, T], timeout: asyncio.Timeout) -> T:
    """What it gives. Raises OutOfTime; a TimeoutError of its own passes as it is."""
    try:
        async with timeout:
            return await work
    except TimeoutError:
        if not timeout.expired():
            raise
    raise OutOfTime
