"""The workflow that advances one log, for Temporal. Its id is that of the log, so there is at most one for a branch.

It contains ids and numbers only: no prompt, no answer, no error text. It decides only when to check the log again.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError
from temporalio.exceptions import TimeoutError as SilenceError

from evener.cluster.advance import AdvancedLog

WORKFLOW = "evener.run"
ADVANCE = "evener.advance"
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 10.0


@dataclass(frozen=True)
class Pace:
    """How a log is advanced, in seconds. `heartbeat`: a worker that is silent for longer is replaced.

    `stay`: the maximum for one activity; `rounds`: after how many activities the workflow begins a new history.
    """

    heartbeat: float = 10.0
    stay: float = 86_400.0
    rounds: int = 100


@workflow.defn(name=WORKFLOW)
class RunLog:
    """Advance the log until its run is over. `nudge` says that the log has a new note."""

    def __init__(self) -> None:
        self._nudged = False

    @workflow.signal
    def nudge(self) -> None:
        """Check the log again."""
        self._nudged = True

    @workflow.run
    async def run(self, log: str, pace: Pace) -> str:
        """Return the cause of the run's end."""
        failures = 0
        for _ in range(pace.rounds):
            self._nudged = False
            try:
                done = await self._advance(log, pace)
            except ActivityError as error:
                if isinstance(error.cause, SilenceError):
                    continue  # the worker died, or was stopped: another one goes on at once
                failures += 1
                await workflow.sleep(min(FIRST_PAUSE * 2**failures, LONGEST_PAUSE))
                continue
            failures = 0
            if done.kind == "finished" and not self._nudged:
                return done.stop
            if done.kind == "waiting":
                with suppress(asyncio.TimeoutError):  # the timer: a signal that was lost does no harm
                    await workflow.wait_condition(lambda: self._nudged, timeout=timedelta(seconds=done.seconds))
        return workflow.continue_as_new(args=[log, pace])

    async def _advance(self, log: str, pace: Pace) -> AdvancedLog:
        done: AdvancedLog = await workflow.execute_activity(
            ADVANCE,
            log,
            result_type=AdvancedLog,
            start_to_close_timeout=timedelta(seconds=pace.stay),
            heartbeat_timeout=timedelta(seconds=pace.heartbeat),
            retry_policy=RetryPolicy(maximum_attempts=1),  # the server's own retries wait for a timer of theirs: a second more
        )
        return done
