"""What a run and the runs inside it may use: reserved before a call, settled after it. Nothing is spent that is not there.

Each run has a budget of its own, within that of the run around it: a call needs room in all of them. Safe from any thread and
loop of the process.
"""

from decimal import Decimal
from threading import Lock
from typing import final

import msgspec

from evener.events import Amount, LimitHit, LimitName, Limits
from evener.loop.state import NoRoom, Spent
from evener.transcript.reply import Usage

__all__ = ["Budget", "Reservation"]

OWN, AROUND = "run", "tree of runs"
MARGIN = 2
ESTIMATED = (
    "The limit on the cost was held by estimates: each call reserved twice what the dearest one before it had cost. Set "
    "max_output_tokens for a limit that holds exactly."
)


@final
class Reservation(msgspec.Struct, frozen=True):
    """Room that a call holds until it is settled."""

    cost: Decimal = Decimal(0)


class Budget:
    """Starts with what the limits allow beyond what was used already. `outer` is that of the run around this one.

    `by_estimate`: once a call was settled, the next reserve twice what the dearest one cost, not all that they may cost. Then
    calls need not wait for each other, and those under way may exceed the limit; its warnings say so.
    """

    def __init__(
        self, limits: Limits, used: Spent | None = None, *, outer: "Budget | None" = None, by_estimate: bool = False
    ) -> None:
        self._limits = limits
        self._by_estimate = by_estimate
        self._dearest = Decimal(0)
        self._outer = outer
        self._around: tuple[Budget, ...] = (self,) if outer is None else (self, *outer._around)
        self._lock = Lock()
        used = used or Spent()
        self._requests = used.requests
        self._tool_calls = used.tool_calls
        self._usage = used.usage
        self._cost = used.cost
        self._held = Decimal(0)
        self._warned: dict[str, None] = {}
        self.counts_money: bool = limits.cost is not None or (outer is not None and outer.counts_money)
        """Whether the cost is limited, here or around: only then it matters what a call may cost at most."""

    @property
    def spent(self) -> Spent:
        """What was used, without what is reserved."""
        with self._lock:
            return Spent(self._requests, self._tool_calls, self._usage, self._cost)

    @property
    def left(self) -> Decimal:
        """What may still be spent, without what is reserved; meant for budgets that count money."""
        left = [budget._left for budget in self._around if budget._limits.cost is not None]
        return min(left, default=Decimal(0))

    @property
    def holds(self) -> bool:
        """Whether calls under way hold money that they may not need."""
        return any(budget._held > 0 for budget in self._around)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What there was to say about this budget."""
        return tuple(self._warned)

    def warn(self, text: str) -> bool:
        """Say something about the budgets that count money, to all of them. Whether it is the first time, for any of them."""
        counting = [budget for budget in self._around if budget._limits.cost is not None]
        new = not any(text in budget._warned for budget in counting)
        for budget in counting:
            budget._warned[text] = None
        return new

    def renew(self) -> None:
        """Start a fresh allowance, as the limits say: a user allowed it. The budgets around have no more than before."""
        with self._lock:
            self._requests = self._tool_calls = 0
            self._usage, self._cost = Usage(), Decimal(0)

    def charge(self, spent: Spent) -> None:
        """What was used without being reserved here."""
        for budget in self._around:
            with budget._lock:
                budget._requests += spent.requests
                budget._tool_calls += spent.tool_calls
                budget._usage = budget._usage + spent.usage
                budget._cost += spent.cost

    def reserve(self, *, cost: Decimal) -> Reservation | NoRoom:
        """Room for one model request that costs at most so much; or the limit that is in the way."""
        cost = self._estimated(cost) if cost and self.counts_money else cost
        refused = self._reserve(cost, OWN)
        return Reservation(cost) if refused is None else refused

    def _estimated(self, most: Decimal) -> Decimal:
        """Return what to hold for a call that may cost so much."""
        for budget in self._around:
            if budget._by_estimate and budget._dearest and budget._dearest * MARGIN < most:
                budget._warned[ESTIMATED] = None
                most = budget._dearest * MARGIN
        return most

    def settle(self, reservation: Reservation, *, usage: Usage, cost: Decimal) -> None:
        """The call is over, and this is what it used."""
        for budget in self._around:
            with budget._lock:
                if reservation.cost:
                    budget._held -= budget._holdable(reservation.cost)
                budget._usage = budget._usage + usage
                budget._cost += cost
                budget._dearest = max(budget._dearest, cost)

    def return_request(self) -> None:
        """Count one request less: a call that was reserved is not made. What it holds is settled as ever."""
        for budget in self._around:
            with budget._lock:
                budget._requests -= 1

    def claim_calls(self, count: int) -> NoRoom | None:
        """Room for so many tool calls; None when there is."""
        return self._claim(count, OWN)

    @property
    def _left(self) -> Decimal:
        with self._lock:
            return (self._limits.cost or Decimal(0)) - self._cost - self._held

    def _holdable(self, cost: Decimal) -> Decimal:
        return cost if self._limits.cost is not None else Decimal(0)

    def _reserve(self, cost: Decimal, whose: str) -> NoRoom | None:
        with self._lock:
            refused = self._full(cost, whose)
            if refused is not None:
                return refused
            self._requests += 1
            if cost:
                self._held += self._holdable(cost)
        refused = self._outer._reserve(cost, AROUND) if self._outer is not None else None
        if refused is not None:
            with self._lock:
                self._requests -= 1
                self._held -= self._holdable(cost)
        return refused

    def _claim(self, count: int, whose: str) -> NoRoom | None:
        limit = self._limits.tool_calls
        with self._lock:
            if limit is not None and self._tool_calls + count > limit:
                hit = LimitHit("tool_calls", limit, self._tool_calls, count, whose == AROUND)
                why = f"The {whose} has used {hit.used} of {limit} tool calls, and {count} more were asked for."
                return NoRoom(why, hit, final=hit.around)
            self._tool_calls += count
        refused = self._outer._claim(count, AROUND) if self._outer is not None else None
        if refused is not None:
            with self._lock:
                self._tool_calls -= count
        return refused

    def _full(self, cost: Decimal, whose: str) -> NoRoom | None:
        limits, usage = self._limits, self._usage
        if limits.requests is not None and self._requests >= limits.requests:
            return _used_up("requests", "model requests", limits.requests, self._requests, whose)
        if limits.input_tokens is not None and usage.input_total >= limits.input_tokens:
            return _used_up("input_tokens", "input tokens", limits.input_tokens, usage.input_total, whose)
        if limits.output_tokens is not None and usage.output_total >= limits.output_tokens:
            return _used_up("output_tokens", "output tokens", limits.output_tokens, usage.output_total, whose)
        if limits.cost is not None and self._cost + self._held + cost > limits.cost:
            hit = LimitHit("cost", limits.cost, self._cost + self._held, cost, whose == AROUND)
            left = limits.cost - self._cost - self._held
            why = f"The next request may cost ${cost:f}, and ${left:f} of ${limits.cost:f} are left for the {whose}."
            return NoRoom(why, hit, final=hit.around)
        return None


def _used_up(name: LimitName, shown: str, limit: Amount, used: Amount, whose: str) -> NoRoom:
    hit = LimitHit(name, limit, used, around=whose == AROUND)
    return NoRoom(f"The {whose} has used {used} of {limit} {shown}.", hit, final=hit.around)
