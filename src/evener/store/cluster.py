"""What a store for several machines keeps for its workers, beside the logs: work, schedules, budgets of trees."""

import msgspec

from evener.events import Amount, LimitName


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
