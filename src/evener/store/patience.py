"""Waiting for a lease that somebody holds. The wait is bounded by the caller's patience; never a busy loop."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeVar

from evener.store.log import LeaseHeld

__all__ = ["persist"]

FIRST_PAUSE = 0.01
LONGEST_PAUSE = 0.25

T = TypeVar("T")


async def persist(attempt: Callable[[], Awaitable[T]], patience: float) -> T:
    """Try until the lease is free or `patience` seconds have passed."""
    deadline = monotonic() + patience
    pause = FIRST_PAUSE
    while True:
        try:
            return await attempt()
        except LeaseHeld:
            left = deadline - monotonic()
            if left <= 0:
                raise
        await asyncio.sleep(min(pause, left))
        pause = min(pause * 2, LONGEST_PAUSE)
