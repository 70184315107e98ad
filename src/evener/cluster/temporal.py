"""Performs submitted runs with Temporal: it distributes the work, watches workers and keeps timers.

Submitting and deciding need no Temporal: both write to the store, and mark the log's row in its table of work as due. A
worker takes due rows and signals their workflows, which start if they do not exist. A row stays until its run ends, so even
a Temporal server that lost everything gets it again.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from temporalio import activity
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy
from temporalio.envconfig import ClientConfig
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.worker import UnsandboxedWorkflowRunner
from temporalio.worker import Worker as EngineWorker

from evener.cluster.advance import LOOK_AGAIN, AdvancedLog, Advancer, is_passing
from evener.cluster.due import DueWork, describe_error
from evener.cluster.worker import GRACE, LONGEST_WAIT, SLICE
from evener.cluster.workflow import ADVANCE, Pace, RunLog
from evener.driver.slice import RunSlice
from evener.errors import StoreError, UsageError
from evener.harness.remote import PAUSES, tables_of
from evener.store.cluster import TakenWork
from evener.store.protocol import LeaseHeld

if TYPE_CHECKING:
    from evener.harness.harness import Harness


LOCAL = "127.0.0.1:7233"
HANDED_OVER = 600.0
"""Seconds after which a log that was passed on is passed on again, if its run has not ended: Temporal may have lost it."""
GROUP = 16
"""How many logs are passed on at once."""
HELD_PAUSE = 0.1
"""Seconds between two attempts to take a log whose last holder may be alive."""


def queue_of(harness: str, store: str) -> str:
    """Return the name of the task queue for workers of this harness and store.

    The store is part of it: a log is in one store only.
    """
    return f"evener.{harness}.{store[:16]}"


async def connect(address: str = "") -> Client:
    """Return a client of the Temporal server at `address`. UsageError when none answers, or none that has our namespace.

    What is not given comes from where Temporal's own tools look: TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY, the
    variables for TLS, and the file temporal.toml. Without any of these it is the server of this machine.
    """
    try:
        told = ClientConfig.load_client_connect_config()
    except Exception as error:  # its class is not exported
        raise UsageError(
            f"Temporal's settings cannot be read ({error}). Correct the variables that begin with TEMPORAL_, or temporal.toml."
        ) from None
    host = address or told.get("target_host") or LOCAL
    try:
        told["target_host"] = host
        client = await Client.connect(**told)
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    except (RuntimeError, ValueError):  # a ValueError: it is no address
        raise UsageError(
            f"No Temporal server answers at {host}. Start one (for trying it out: `temporal server start-dev`), give its "
            "address as host:port, check whether it wants TLS or an API key, or use --engine postgres."
        ) from None
    except RPCError as error:
        raise UsageError(
            f"The Temporal server at {host} refuses the namespace {client.namespace!r} ({error.status.name}). Create "
            "the namespace, or name another one in TEMPORAL_NAMESPACE."
        ) from None
    return client


class TemporalWorker:
    """Performs the runs of one harness, `slots` at a time, as a worker of a Temporal server.

    `pace` says how logs are advanced; the lease of the store should be as long as its heartbeat. `slice`, `grace` and `say`
    are those of `Worker`.
    """

    def __init__(
        self,
        harness: "Harness",
        client: Client,
        *,
        slots: int = 8,
        pace: Pace | None = None,
        grace: float = GRACE,
        slice: float = SLICE,
        look_again: float = LOOK_AGAIN,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._name = harness.name
        self._queue = ""
        self._tables = tables_of(harness.store)
        harnesses: Mapping[str, Harness] = {harness.name: harness}
        self._advancer = Advancer(harnesses, harness.store, look_again=look_again)
        self._due = DueWork(harnesses, self._tables, say)
        self._client = client
        self._slots = slots
        self._pace = pace or Pace()
        self._grace = grace
        self._slice = slice
        self._say = say
        self._slices: set[RunSlice] = set()
        self._draining = asyncio.Event()

    def drain(self) -> None:
        """Take no more runs. Running runs finish their current step, and other workers continue them."""
        self._draining.set()
        for slice in self._slices:
            slice.end()

    async def run(self) -> None:
        """Work until `drain` is called."""
        self._queue = queue_of(self._name, await self._tables.store_id())
        engine = EngineWorker(
            self._client,
            task_queue=self._queue,
            workflows=[RunLog],
            activities=[self._activity()],
            max_concurrent_activities=self._slots,
            max_cached_workflows=0,  # a workflow that is cached by a dead worker is not moved for 10 seconds
            workflow_runner=UnsandboxedWorkflowRunner(),  # the workflow uses nothing that differs between two runs
            graceful_shutdown_timeout=timedelta(seconds=self._grace),
        )
        async with engine:
            self._say(f"ready: runs of {self._name!r}, {self._slots} at a time, handed out by Temporal")
            while not self._draining.is_set():
                if not await self._pass_on():
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._draining.wait(), PAUSES[1] / 2)

    # Passing on what is due.

    async def _pass_on(self) -> bool:
        """Signal the workflows of due logs. False if no log was due, or the store or the server could not be reached."""
        taken = await self._due.take(GROUP, seconds=HANDED_OVER)
        return all(await asyncio.gather(*map(self._nudge, taken))) and bool(taken)

    async def _nudge(self, one: TakenWork) -> bool:
        """Signal the log's workflow, and start it if it does not exist. The signal contains only ids. True if it was
        delivered.
        """
        try:
            await self._client.start_workflow(
                RunLog.run,
                args=[one.log, self._pace],
                id=one.log,
                task_queue=self._queue,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                start_signal="nudge",
                task_timeout=timedelta(seconds=max(self._pace.heartbeat, 1.0)),  # a worker may die with a task of it, too
            )
        except RPCError as error:
            self._say(f"{one.log}: Temporal could not be notified ({error.status.name}); trying again")
            with suppress(StoreError):  # if this fails, it is passed on when its row comes due
                await self._advancer.give_back(one, after=1.0)
            return False
        return True

    # Advancing.

    def _activity(self) -> Callable[..., object]:
        @activity.defn(name=ADVANCE)
        async def advance(log: str) -> AdvancedLog:
            return await self._advance(log)

        return advance

    async def _advance(self, log: str) -> AdvancedLog:
        """Advance a log and send heartbeats meanwhile.

        Errors are reported without their text, which may contain conversation text.
        """
        beating = asyncio.create_task(self._beat())
        slice = RunSlice(self._slice, longest_wait=LONGEST_WAIT)
        self._slices.add(slice)
        if self._draining.is_set():
            slice.end()
        failed, turn = "", -1
        try:
            turn = await self._tables.turn_of(log)
            done = await self._take_and_advance(TakenWork(log, self._name, 0, turn), slice)
            if done.kind == "finished":
                self._say(f"{log}: {done.stop}")
            return done
        except Exception as error:
            self._say(f"{log}: {describe_error(error)}")
            if not is_passing(error):  # the run failed; its log says how
                with suppress(StoreError):
                    await self._tables.drop_work(log, turn)
                return AdvancedLog("finished", type(error).__name__)
            failed = type(error).__name__
        finally:
            self._slices.discard(slice)
            beating.cancel()
        raise ApplicationError(failed, type=failed)

    async def _take_and_advance(self, work: TakenWork, slice: RunSlice) -> AdvancedLog:
        while True:
            try:
                return await self._advancer.advance(work, slice)
            except LeaseHeld:  # by a worker that was replaced and may be alive: until its lease is over
                if self._draining.is_set():
                    return AdvancedLog("more")
                await asyncio.sleep(HELD_PAUSE)

    async def _beat(self) -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(self._pace.heartbeat / 4)
