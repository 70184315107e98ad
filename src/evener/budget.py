"""What a run and the runs inside it may use: reserved before a call, settled after it, so that limits are never exceeded.

Each run has its own budget inside that of the outer run: a call needs room in all of them. Safe from any thread and event
loop of the process.
"""

import asyncio
from decimal import Decimal
from threading import Lock
from typing import TYPE_CHECKING, final

import msgspec

from evener.events import Amount, LimitHit, LimitName, Limits
from evener.loop.state import NoRoom, Spent
from evener.transcript.mint import new_id
from evener.transcript.reply import Usage

if TYPE_CHECKING:
    from evener.store.postgres.cluster import PostgresCluster

__all__ = ["Budget", "Reservation", "TreeBudget"]

OWN, AROUND = "run", "tree of runs"
MARGIN = 2
BEGINNING = 0.01
"""Seconds between two looks at whether the store has the budget of a tree."""
ESTIMATED = (
    "The cost limit was enforced with estimates: each call reserved twice the cost of the most expensive call before it. Set "
    "max_output_tokens for an exact limit."
)


@final
class Reservation(msgspec.Struct, frozen=True):
    """Room that is reserved for a call until it is settled."""

    cost: Decimal = Decimal(0)


NOTHING_HELD = Reservation()


class TreeBudget:
    """The budget of a tree of runs on several machines, in the store. `log` is the log of the run that uses it here.

    `began` is False until the store has it.
    """

    def __init__(self, tables: "PostgresCluster", tree: str, log: str, *, counts_money: bool, began: bool = True) -> None:
        self._tables = tables
        self._log = log
        self._began = began
        self.tree = tree
        self.counts_money = counts_money

    async def begin(self, limits: Limits, spent: Spent) -> None:
        """Write the budget into the store, with what was spent before."""
        await self._tables.begin_tree(self.tree, log=self._log, limits=limits, spent=spent)
        self._began = True

    async def join(self, log: str, run: str) -> None:
        """Add a run to the tree."""
        await self._tables.join_tree(self.tree, log=log, run=run)

    async def is_there(self) -> None:
        """Wait until the budget is in the store. Reservations from before are in it as spent; later ones wait for this."""
        while not self._began:
            await asyncio.sleep(BEGINNING)

    async def reserve(self, key: str, cost: Decimal) -> NoRoom | None:
        """Reserve one model request that costs at most `cost`. Return None if there is room, else the limit that is reached."""
        await self.is_there()
        refused = await self._tables.reserve(self.tree, log=self._log, key=key, cost=cost)
        if refused is None:
            return None
        hit = LimitHit(refused.name, refused.limit, refused.used, refused.wanted, True)
        why = f"The {AROUND} has used or reserved {refused.used} of {refused.limit} for {refused.name}."
        return NoRoom(why, hit, final=not refused.held)

    async def claim_calls(self, key: str, count: int) -> NoRoom | None:
        """Count `count` tool calls. Return None if there is room, else the limit that is reached.

        The same key is counted once.
        """
        await self.is_there()
        refused = await self._tables.claim_calls(self.tree, log=self._log, key=key, count=count)
        if refused is None:
            return None
        hit = LimitHit("tool_calls", refused.limit, refused.used, count, True)
        return NoRoom(
            f"The {AROUND} has used {hit.used} of {hit.limit} tool calls, and {count} more were asked for.", hit, final=True
        )

    async def settle(self, key: str, *, usage: Usage, cost: Decimal, made: bool = True) -> None:
        """Replace a reservation by what the request used. If `made` is false, the request was not sent and does not count."""
        await self._tables.settle(self.tree, key=key, usage=usage, cost=cost, made=made)

    async def settle_left(self) -> None:
        """Settle the open reservations of an earlier holder of the log at their upper bounds."""
        await self._tables.settle_left(self.tree, log=self._log)

    async def renew(self, run: str) -> None:
        """Start a fresh allowance for the tree, if `run` is its root."""
        if self.tree == run:
            await self._tables.renew(self.tree)


class Budget:
    """Starts with the limits minus the usage so far. `outer` is the budget of the outer run.

    `by_estimate`: once a call was settled, later calls reserve twice the cost of the most expensive one instead of their
    upper bound. Then calls need not wait for each other, and calls in flight may exceed the limit; the warnings say so.
    `tree` is the budget of the tree on several machines to which the run belongs. `owner` is the log and the run of this
    budget.
    """

    def __init__(
        self,
        limits: Limits,
        used: Spent | None = None,
        *,
        outer: "Budget | None" = None,
        by_estimate: bool = False,
        tree: TreeBudget | None = None,
        owner: tuple[str, str] = ("", ""),
    ) -> None:
        self.tree = tree
        self._owner = owner
        self._limits = limits
        self._by_estimate = by_estimate
        self._dearest = Decimal(0)
        self._outer = outer
        self._around: tuple[Budget, ...] = (self,) if outer is None else (self, *outer._around)
        self.root: Budget = self._around[-1]
        """The budget of the outermost run. Its `tree` is the one in the store that the run's tree has on several machines."""
        self._lock = Lock()
        used = used or Spent()
        self._requests = used.requests
        self._tool_calls = used.tool_calls
        self._usage = used.usage
        self._unsummed: list[Usage] = []  # of settled calls: added up when the sum is asked for
        self._cost = used.cost
        self._held = Decimal(0)
        self._warned: dict[str, None] = {}
        around = tree or outer
        self.counts_money: bool = limits.cost is not None or (around is not None and around.counts_money)
        """Whether the cost is limited, here or around: only then it matters what a call may cost at most."""

    async def share(self, tables: "PostgresCluster") -> TreeBudget:
        """Move the budget of the whole tree into the store, because another process is about to perform a run of the tree.

        Open reservations count as spent.
        """
        root = self.root
        log, run = root._owner
        with root._lock:
            known = root.tree
            tree = root.tree = known or TreeBudget(
                tables, run or new_id(), log, counts_money=root._limits.cost is not None, began=False
            )
            spent = Spent(root._requests, root._tool_calls, root._sum_usage(), root._cost + root._held)
        if known is None:
            await tree.begin(root._limits, spent)
        await tree.is_there()
        return tree

    @property
    def spent(self) -> Spent:
        """The usage so far, without reservations."""
        with self._lock:
            return Spent(self._requests, self._tool_calls, self._sum_usage(), self._cost)

    @property
    def left(self) -> Decimal:
        """The money that is neither spent nor reserved: the minimum over this budget and those around it. 0 if none limits
        the cost.
        """
        left = [budget._left for budget in self._around if budget._limits.cost is not None]
        return min(left, default=Decimal(0))

    @property
    def holds(self) -> bool:
        """True if open calls have reserved money, a part of which may become free."""
        return any(budget._held > 0 for budget in self._around)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings about this budget."""
        return tuple(self._warned)

    def warn(self, text: str) -> bool:
        """Add a warning to all budgets that limit the cost. True if none of them had it before."""
        counting = [budget for budget in self._around if budget._limits.cost is not None]
        new = not any(text in budget._warned for budget in counting)
        for budget in counting:
            budget._warned[text] = None
        return new

    def renew(self) -> None:
        """Reset the usage, because a user allowed more. The budgets around this one are not reset."""
        with self._lock:
            self._requests = self._tool_calls = 0
            self._usage, self._cost = Usage(), Decimal(0)
            self._unsummed.clear()

    def charge(self, spent: Spent) -> None:
        """Add usage that was not reserved here."""
        for budget in self._around:
            with budget._lock:
                budget._requests += spent.requests
                budget._tool_calls += spent.tool_calls
                budget._unsummed.append(spent.usage)
                budget._cost += spent.cost

    def reserve(self, *, cost: Decimal) -> Reservation | NoRoom:
        """Reserve one model request that costs at most `cost`. Return the reservation, or the limit that is reached."""
        cost = self._estimate(cost) if cost and self.counts_money else cost
        refused = self._reserve(cost, OWN)
        if refused is not None:
            return refused
        return Reservation(cost) if cost else NOTHING_HELD

    def _estimate(self, most: Decimal) -> Decimal:
        """Return the amount to reserve for a call that costs at most `most`."""
        for budget in self._around:
            if budget._by_estimate and budget._dearest and budget._dearest * MARGIN < most:
                budget._warned[ESTIMATED] = None
                most = budget._dearest * MARGIN
        return most

    def settle(self, reservation: Reservation, *, usage: Usage, cost: Decimal) -> None:
        """Replace the reservation of a finished call by what it used."""
        for budget in self._around:
            with budget._lock:
                if reservation.cost:
                    budget._held -= budget._holdable(reservation.cost)
                budget._unsummed.append(usage)
                budget._cost += cost
                budget._dearest = max(budget._dearest, cost)

    def return_request(self) -> None:
        """Count one request less: a reserved call is not made. Its reserved money is settled as usual."""
        for budget in self._around:
            with budget._lock:
                budget._requests -= 1

    def claim_calls(self, count: int) -> NoRoom | None:
        """Count `count` tool calls. Return None if there is room, else the limit that is reached."""
        return self._claim(count, OWN)

    @property
    def _left(self) -> Decimal:
        with self._lock:
            return (self._limits.cost or Decimal(0)) - self._cost - self._held

    def _sum_usage(self) -> Usage:
        while self._unsummed:
            self._usage += self._unsummed.pop()
        return self._usage

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
        limits = self._limits
        if limits.requests is not None and self._requests >= limits.requests:
            return _refuse_used_up("requests", "model requests", limits.requests, self._requests, whose)
        if limits.input_tokens is not None and (used := self._sum_usage().input_total) >= limits.input_tokens:
            return _refuse_used_up("input_tokens", "input tokens", limits.input_tokens, used, whose)
        if limits.output_tokens is not None and (used := self._sum_usage().output_total) >= limits.output_tokens:
            return _refuse_used_up("output_tokens", "output tokens", limits.output_tokens, used, whose)
        if limits.cost is not None and self._cost + self._held + cost > limits.cost:
            hit = LimitHit("cost", limits.cost, self._cost + self._held, cost, whose == AROUND)
            left = limits.cost - self._cost - self._held
            why = f"The next request may cost ${cost:f}, and ${left:f} of ${limits.cost:f} are left for the {whose}."
            return NoRoom(why, hit, final=hit.around)
        return None


def _refuse_used_up(name: LimitName, shown: str, limit: Amount, used: Amount, whose: str) -> NoRoom:
    hit = LimitHit(name, limit, used, around=whose == AROUND)
    return NoRoom(f"The {whose} has used {used} of {limit} {shown}.", hit, final=hit.around)
