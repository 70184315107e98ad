"""Where the present code runs: in which call of which run. Set around each tool, and seen by whatever runs inside it.

A run that starts inside a tool belongs to the run of that tool: its events say so, it draws on the same budget, and what it
used is counted there.
"""

from collections.abc import Callable
from contextvars import ContextVar
from decimal import Decimal
from threading import Lock

import msgspec

from evener.budget import Budget
from evener.loop.limits import Spent
from evener.streaming import StreamEvent
from evener.transcript.usage import Usage

__all__ = ["DEEPEST", "Site", "Tally", "current_site"]

DEEPEST = 4
"""How deep runs may be nested."""


class Tally:
    """What runs inside a call have used."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.requests = 0
        self.tool_calls = 0
        self.usage = Usage()
        self.cost = Decimal(0)
        self.exact = True

    def add(self, spent: Spent) -> None:
        """Count a run that came to a stop."""
        with self._lock:
            self.requests += spent.requests
            self.tool_calls += spent.tool_calls
            self.usage = self.usage + spent.usage
            self.cost += spent.cost
            self.exact = self.exact and spent.exact


class Site(msgspec.Struct, frozen=True):
    """One call of a run. `show` is where the run's events go, None if nobody looks."""

    run: str
    thread: str
    call: str
    depth: int
    budget: Budget
    tally: Tally
    show: Callable[[StreamEvent], None] | None = None


current_site: ContextVar[Site | None] = ContextVar("evener_site", default=None)
