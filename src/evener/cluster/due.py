"""The work that is due for a worker: prompts of schedules are submitted, runs are taken. Both engines use it."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from evener.cluster.schedules import ScheduleWatch
from evener.errors import EvenerError, StoreError
from evener.store.cluster import TakenWork

if TYPE_CHECKING:
    from evener.harness.harness import Harness
    from evener.store.postgres.cluster import PostgresCluster


def describe_error(error: Exception) -> str:
    """Return a line for the operator.

    The text of other libraries' errors is left out, because it may contain conversation text.
    """
    return f"{type(error).__name__}: {error}" if isinstance(error, EvenerError) else type(error).__name__


class DueWork:
    """The due runs of some harnesses, and their schedules. `say` is called when the store is `away` and when it is back."""

    def __init__(self, harnesses: "Mapping[str, Harness]", tables: "PostgresCluster", say: Callable[[str], None]) -> None:
        self._names = list(harnesses)
        self._tables = tables
        self._schedules = ScheduleWatch(harnesses, tables, say)
        self._say = say
        self.away = False

    async def take(self, most: int, *, seconds: float) -> list[TakenWork]:
        """Take at most `most` due runs, for `seconds`. Returns none while the store is unreachable."""
        try:
            await self._schedules.fire()
            taken = await self._tables.take_work(self._names, seconds=seconds, most=most)
        except StoreError as error:
            if not error.retryable:
                raise
            if not self.away:
                self._say(f"waiting: {describe_error(error)}")
            self.away = True
            return []
        if self.away:
            self._say("the store answers again")
        self.away = False
        return taken
