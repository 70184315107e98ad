"""What a store for several machines keeps for its workers, beside the logs: work, schedules, budgets of trees."""

import msgspec

from evener.events import Amount, LimitName


class TakenWork(msgspec.Struct, frozen=True):
    """A run that a worker took: its log, the harness that performs it, how often it was taken, and the number of its turn."""

    log: str
    harness: str
    tries: int
    turn: int


class Schedule(msgspec.Struct, frozen=True):
    """A prompt that is submitted repeatedly: every so many seconds, or by `cron`. `due` is the next time."""

    name: str
    harness: str
    prompt: str
    every: float
    cron: str
    due: float


class TreeRefusal(msgspec.Struct, frozen=True):
    """The limit of a tree of runs that was reached. `held`: there may be room when the reservations of other runs are
    settled.
    """

    name: LimitName
    limit: Amount
    used: Amount
    wanted: Amount = 0
    held: bool = False
