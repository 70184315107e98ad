"""Prompts that are submitted at fixed times. Each firing has its own thread, named by schedule and time, so it happens once.

The schedules are in the store, with the prompts; any worker of their harness fires one that is due. A time that passed while
no worker was running is caught up once.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from time import monotonic, time
from typing import TYPE_CHECKING

from evener.errors import EvenerError, StoreError, UsageError
from evener.store.cluster import Schedule
from evener.store.protocol import NoLog

if TYPE_CHECKING:
    from evener.harness.harness import Harness
    from evener.store.postgres.cluster import PostgresCluster


SHORTEST, LONGEST = 1.0, 366 * 86_400.0
MOST = 16
"""How many prompts a worker submits before it looks for runs again."""


def make_schedule(name: str, harness: str, prompt: str, *, every: float = 0.0, cron: str = "") -> Schedule:
    """Return a schedule that is next due after the present time. Times of `cron` are UTC."""
    if not prompt.strip():
        raise UsageError("The prompt is empty: there is nothing to ask. Give a text.")
    if not name.strip():
        raise UsageError("The name of the schedule is empty. Give a name: the ids of its threads begin with it.")
    if bool(every) == bool(cron):
        raise UsageError("A schedule has an interval or a cron expression: give one of `every` and `cron`.")
    if every and not SHORTEST <= every <= LONGEST:  # what is not a number is neither
        raise UsageError(
            f"The interval is {every:g} seconds; it must be at least {SHORTEST:g} and at most a year, {LONGEST:g}."
        )
    made = Schedule(name, harness, prompt, every, cron, time())
    return Schedule(name, harness, prompt, every, cron, next_time(made, time()))


def next_time(one: Schedule, now: float) -> float:
    """Return the schedule's first time after `now`."""
    if one.every:
        missed = max(0.0, now - one.due) // one.every
        return one.due + (missed + 1) * one.every
    try:
        from cronsim import CronSim, CronSimError
    except ImportError:
        raise UsageError("Cron expressions need the package cronsim: pip install 'evener[postgres]'.") from None
    try:
        return next(CronSim(one.cron, datetime.fromtimestamp(now, UTC))).timestamp()
    except (CronSimError, StopIteration):
        raise UsageError(
            f"{one.cron!r} is not a cron expression, or no date matches it. Write five fields, as in '0 9 * * 1-5'."
        ) from None


class ScheduleWatch:
    """Fires what is due, for the workers of some harnesses. It checks once a second, however often it is called."""

    def __init__(self, harnesses: "Mapping[str, Harness]", tables: "PostgresCluster", say: Callable[[str], None]) -> None:
        self._harnesses = harnesses
        self._tables = tables
        self._say = say
        self._looked = 0.0

    async def fire(self) -> None:
        """Submit the prompts of due schedules. If a prompt is refused, its schedule continues with its next time."""
        if monotonic() - self._looked < SHORTEST:
            return
        self._looked = monotonic()
        for _ in range(MOST):
            one = await self._tables.take_schedule(list(self._harnesses))
            if one is None:
                return
            await self._fire(one)

    async def _fire(self, one: Schedule) -> None:
        try:
            await self._submit(one)
        except StoreError:
            raise  # its claim ends, and it is fired then
        except EvenerError as error:
            self._say(f"schedule {one.name}: {type(error).__name__}: {error}")
        await self._tables.schedule_fired(one, next_time(one, max(one.due, time())))

    async def _submit(self, one: Schedule) -> None:
        """Submit the prompt, unless a worker that died before recording it has already submitted it."""
        name = f"{one.name}-{datetime.fromtimestamp(one.due, UTC):%Y%m%dT%H%M%S}"
        thread = self._harnesses[one.harness].thread(name, begin=True)
        try:
            begun = bool((await thread.state()).run)
        except NoLog:
            begun = False
        if not begun:
            await thread.submit(one.prompt)
