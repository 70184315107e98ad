"""What a store for several machines keeps for its workers, beside the logs: work, schedules, budgets of trees."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Protocol, runtime_checkable

import msgspec

from evener.events import Amount, LimitName, Limits
from evener.loop.state import Spent
from evener.transcript.reply import Usage
from evener.transport.limiter import Rate

__all__ = ["ClusterTables", "Clustered", "Schedule", "TakenWork", "TreeRefusal"]


class TakenWork(msgspec.Struct, frozen=True):
    """A run that a worker took: its log, whose harness performs it, how often it was taken, and which turn of the log it is."""

    log: str
    harness: str
    tries: int
    turn: int


class Schedule(msgspec.Struct, frozen=True):
    """A prompt that is submitted again and again: every so many seconds, or as `cron` says. `due` is when it is next."""

    name: str
    harness: str
    prompt: str
    every: float
    cron: str
    due: float


class TreeRefusal(msgspec.Struct, frozen=True):
    """The limit of a tree of runs that is in the way. `held`: reservations of others may give room when they are settled."""

    name: LimitName
    limit: Amount
    used: Amount
    wanted: Amount = 0
    held: bool = False


class ClusterTables(Protocol):
    """What the workers of several machines share. Work is ids only: what is to be done stands in the log."""

    async def store_id(self) -> str:
        """Return what tells this store from every other one."""
        ...

    async def put_work(self, log: str, harness: str, *, after: float = 0.0) -> None:
        """Have the run of a log performed by a worker of that harness, so many seconds from now."""
        ...

    async def take_work(self, harnesses: Sequence[str], *, seconds: float, most: int = 1) -> list[TakenWork]:
        """Take the runs that have been due longest, for so many seconds."""
        ...

    async def turn_of(self, log: str) -> int:
        """Return the turn of the work that is there for the log; -1 without any."""
        ...

    async def hold_work(self, logs: Sequence[str], *, seconds: float) -> None:
        """Hold on to runs that were taken, for so many seconds from now."""
        ...

    async def park_work(self, log: str, turn: int, waits: Iterable[str], *, seconds: float) -> None:
        """Let a run wait until something is said to one of these logs, or so many seconds."""
        ...

    async def drop_work(self, log: str, turn: int) -> None:
        """Have nothing more done for that turn of the log: its run came to its end. A later turn stays."""
        ...

    async def put_schedule(self, one: Schedule) -> bool:
        """Keep a schedule; False when there is one of that name."""
        ...

    async def schedules(self) -> Sequence[Schedule]:
        """Return all schedules, the next one first."""
        ...

    async def remove_schedule(self, name: str) -> bool:
        """Forget a schedule; False when there is none of that name."""
        ...

    async def take_schedule(self, harnesses: Sequence[str]) -> Schedule | None:
        """Claim a schedule that is due; None when none is."""
        ...

    async def schedule_fired(self, one: Schedule, due: float) -> None:
        """Note when a schedule is due next."""
        ...

    async def begin_tree(self, tree: str, *, log: str, limits: Limits, spent: Spent) -> None:
        """Begin the budget of a tree: `tree` is the run at its root, which has spent so much by now. Begun twice, it is one."""
        ...

    async def join_tree(self, tree: str, *, log: str, run: str) -> None:
        """Let a run belong to a tree."""
        ...

    async def tree_of(self, log: str, run: str) -> tuple[str, bool]:
        """Return the tree that the run belongs to, and whether its cost is limited; empty without one."""
        ...

    async def reserve(self, tree: str, *, log: str, key: str, cost: Decimal) -> TreeRefusal | None:
        """Reserve room for one request of a run of the tree; None when there is."""
        ...

    async def claim_calls(self, tree: str, *, log: str, key: str, count: int) -> TreeRefusal | None:
        """Claim so many tool calls of a run of the tree; None when there is room. The same key is counted once."""
        ...

    async def settle(self, tree: str, *, key: str, usage: Usage, cost: Decimal, made: bool) -> None:
        """Replace a reservation by what the request used. `made`: it was sent; else it does not count."""
        ...

    async def settle_left(self, tree: str, *, log: str) -> None:
        """Settle what an earlier holder of the log had reserved, with the most that it may have cost."""
        ...

    async def renew(self, tree: str) -> None:
        """Start a fresh allowance for the tree."""
        ...

    async def admit(self, key: str, *, id: str, tokens: int, rate: Rate, within: float, minute: float = 60.0) -> float:
        """Begin a call with the key if there is room: 0.0. Else return the seconds after which to ask again."""
        ...

    def leave(self, id: str) -> None:
        """End a call. Does not wait."""
        ...

    def recount(self, id: str, tokens: int) -> None:
        """Replace the estimate of a call by what it used. Does not wait."""
        ...

    def pause(self, key: str, seconds: float) -> None:
        """Begin no call with the key for so many seconds, on any machine. Does not wait."""
        ...


@runtime_checkable
class Clustered(Protocol):
    """A store for several machines. Another one is used by the processes of one."""

    @property
    def cluster(self) -> ClusterTables: ...
