"""What a whole tree of runs may use: reserved before a call, settled after it, so that nothing is spent that is not there.

One budget belongs to the run at the root; the runs inside it share it. Safe from any thread and loop of the process.
"""

from decimal import Decimal
from threading import Lock

import msgspec

from evener.loop.limits import Limits, Spent
from evener.transcript.usage import Usage

__all__ = ["Budget", "Reservation"]


class Reservation(msgspec.Struct, frozen=True):
    """Room that a call holds until it is settled."""

    cost: Decimal = Decimal(0)


class Budget:
    """Starts with what the limits allow beyond what was used already."""

    def __init__(self, limits: Limits, used: Spent | None = None) -> None:
        self._limits = limits
        self._lock = Lock()
        used = used or Spent()
        self._requests = used.requests
        self._tool_calls = used.tool_calls
        self._usage = used.usage
        self._cost = used.cost
        self._held = Decimal(0)

    @property
    def counts_money(self) -> bool:
        """Whether there is a limit on the cost: only then it matters what a call may cost at most."""
        return self._limits.cost is not None

    @property
    def spent(self) -> Spent:
        """What the tree has used, without what is reserved."""
        with self._lock:
            return Spent(self._requests, self._tool_calls, self._usage, self._cost)

    @property
    def left(self) -> Decimal:
        """What may still be spent, without what is reserved; meant for budgets that count money."""
        with self._lock:
            return (self._limits.cost or Decimal(0)) - self._cost - self._held

    @property
    def holds(self) -> bool:
        """Whether calls under way hold money that they may not need."""
        with self._lock:
            return self._held > 0

    def renew(self) -> None:
        """A fresh allowance, as the limits say: somebody allowed it."""
        with self._lock:
            self._requests = self._tool_calls = 0
            self._usage, self._cost = Usage(), Decimal(0)

    def charge(self, spent: Spent) -> None:
        """What a run inside a call had used before this process went on with it: it counts, though it is not ours."""
        with self._lock:
            self._requests += spent.requests
            self._tool_calls += spent.tool_calls
            self._usage = self._usage + spent.usage
            self._cost += spent.cost

    def reserve(self, *, cost: Decimal) -> Reservation | str:
        """Room for one model request that costs at most so much; or the sentence that says which limit is in the way."""
        limits = self._limits
        with self._lock:
            why = self._full(cost)
            if why:
                return why
            self._requests += 1
            self._held += cost if limits.cost is not None else 0
            return Reservation(cost if limits.cost is not None else Decimal(0))

    def settle(self, reservation: Reservation, *, usage: Usage, cost: Decimal) -> None:
        """The call is over, and this is what it used."""
        with self._lock:
            self._held -= reservation.cost
            self._usage = self._usage + usage
            self._cost += cost

    def claim_calls(self, count: int) -> str:
        """Room for so many tool calls; empty when there is."""
        limit = self._limits.tool_calls
        with self._lock:
            if limit is not None and self._tool_calls + count > limit:
                return f"The tree of runs has used {self._tool_calls} of {limit} tool calls, and {count} more were asked for."
            self._tool_calls += count
            return ""

    def _full(self, cost: Decimal) -> str:
        limits = self._limits
        if limits.requests is not None and self._requests >= limits.requests:
            return f"The tree of runs has used {self._requests} of {limits.requests} model requests."
        if limits.cost is not None and self._cost + self._held + cost > limits.cost:
            left = limits.cost - self._cost - self._held
            return f"The next request may cost ${cost:f}, and ${left:f} of ${limits.cost:f} are left for the tree of runs."
        for name, limit, used in (
            ("input", limits.input_tokens, self._usage.input_total),
            ("output", limits.output_tokens, self._usage.output_total),
        ):
            if limit is not None and used >= limit:
                return f"The tree of runs has used {used} of {limit} {name} tokens."
        return ""
