"""`python -m bench worker-kills` and `worker-scale`: several worker processes on one PostgreSQL server, also with Temporal.

Real servers, real processes, SIGKILL and SIGSTOP. What is promised: an effect happens once, a run goes on soon after its worker
died, a worker that was replaced writes nothing, and a second worker process nearly doubles the throughput of runs that wait.
"""

import asyncio
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import msgspec

from bench import campaigns
from bench.cluster_site import ADDRESS, FOLDER, effects, make_harness
from bench.worker_parent import WorkerParent, send
from evener import Harness
from evener import events as ev
from evener.harness.thread import Thread
from evener.testing.postgres import PostgresServer

__all__ = ["ENGINES", "KillReport", "Site", "kill_workers", "main_kills", "main_scale", "open_site"]

ENGINES = ("temporal", "postgres")
SILENCE = 2.0
"""Seconds after which a silent worker is replaced: the heartbeat timeout, and the lease."""
LATER = 2.0
SECONDS = 300.0
READY = b"ready: "
LEAST_GAIN = 1.7


class Site:
    """A PostgreSQL server, maybe a Temporal server, a folder of effects, and worker processes."""

    def __init__(self, folder: Path, postgres: PostgresServer, temporal: str, harness: str) -> None:
        self._harness = harness
        self.folder = folder
        self.postgres = postgres
        self.temporal = temporal
        self._parent = WorkerParent()
        self._workers: dict[int, Path] = {}
        self._born = 0

    @property
    def engine(self) -> str:
        return "temporal" if self.temporal else "postgres"

    @property
    def workers(self) -> tuple[int, ...]:
        """The ids of the worker processes."""
        return tuple(self._workers)

    def start_worker(self, slots: int = 4) -> int:
        """Start a worker process; its id."""
        words = ["worker", "--harness", self._harness, "--slots", str(slots), "--silence", str(SILENCE)]
        engine = ["--engine", "temporal", "--temporal", self.temporal] if self.temporal else []
        told = {FOLDER: str(self.folder), ADDRESS: self.postgres.address}
        self._born += 1
        log = self.folder / f"worker-{self._born}.log"
        pid = self._parent.start([*words, *engine], told, log)
        self._workers[pid] = log
        return pid

    async def await_ready(self) -> None:
        """Wait until every worker takes work: where there is one only, its death is followed by the start of another."""
        async with asyncio.timeout(SECONDS):
            while not all(log.exists() and READY in log.read_bytes() for log in self._workers.values()):
                await asyncio.sleep(0.02)

    def kill_worker(self, pid: int) -> float:
        """End a worker without a word; the time of its death."""
        died = time.time()
        self._parent.end(pid, how=signal.SIGKILL)
        del self._workers[pid]
        return died

    def signal_worker(self, pid: int, how: signal.Signals) -> None:
        """Stop or wake a worker."""
        send(pid, how)

    def end_workers(self) -> None:
        """Have all workers drain, and wait for that."""
        for pid in self._workers:
            send(pid, signal.SIGCONT)
            send(pid, signal.SIGTERM)
        for pid in self._workers:
            self._parent.end(pid, how=signal.SIGTERM)
        self._workers.clear()

    def close(self) -> None:
        """End all workers, and their parent."""
        self.end_workers()
        self._parent.close()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Harness]:
        """Return the harness, as a process that only submits."""
        harness = make_harness(self.postgres.address)
        try:
            yield harness
        finally:
            await harness.aclose()


@contextmanager
def open_site(
    engine: str, *, within: str | None = None, temporal: str = "", harness: str = "bench.cluster_site:harness"
) -> Iterator[Site]:
    """A site with servers of its own. `within` is where the database lies; `temporal` is a server that runs already."""
    with ExitStack() as stack:
        if engine == "temporal" and not temporal:
            from evener.testing.temporal import TemporalServer

            temporal = stack.enter_context(TemporalServer()).address
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="evener-cluster-")))
        server = stack.enter_context(PostgresServer(within=within))
        site = Site(folder, server, temporal, harness)
        stack.callback(site.close)
        yield site


# Deaths.


class Takeover(msgspec.Struct, frozen=True):
    """What happened after a death, in seconds since the stage before, and at the plain start of the same run.

    `silence`: until Temporal's timer saw it. `handed`: until another worker had the activity. `first`: until its first event,
    under a lease of its own.
    """

    silence: float
    handed: float
    first: float
    plain: float

    @property
    def steps(self) -> float:
        """What a worker and the servers do after the timer. At the plain start they do as much."""
        return self.handed + self.first


class KillReport(campaigns.Tally):
    """What a campaign of kills came to. `gaps`: seconds from each death to the next event of its run."""

    kills: int = 0
    gaps: list[float] = msgspec.field(default_factory=list)
    twice: int = 0
    missing: int = 0
    stuck: int = 0
    takeovers: list[Takeover] = msgspec.field(default_factory=list)

    @property
    def waits(self) -> float:
        """What the mechanism waits for, p99: its timer, and what the steps after that take longer than at a plain start."""
        silence, steps, plain = zip(*((one.silence, one.steps, one.plain) for one in self.takeovers), strict=True)
        return quantile(silence, 99) + max(0.0, quantile(steps, 99) - quantile(plain, 99))


def quantile(values: Sequence[float], percent: int) -> float:
    """Return what so many percent of the values do not exceed."""
    return sorted(values)[max(0, -(-len(values) * percent // 100) - 1)] if values else 0.0


async def kill_workers(site: Site, kills: int, journal: Path | None = None) -> KillReport:
    """Kill so many workers in mid-tool, one after the other; another takes over each time. What the journal has counts."""
    report = campaigns.read(journal, KillReport)
    for _ in range(2):
        site.start_worker()
    async with site.client() as harness:
        while report.kills < kills:
            one = await _kill_one(site, harness, f"hold {report.kills}")
            report.add(one)
            campaigns.note(journal, one)
    return report


async def _kill_one(site: Site, harness: Harness, name: str) -> KillReport:
    """Kill the worker that performs the run of this prompt, when both of them take work."""
    await site.await_ready()
    thread = await harness.submit(name)
    died = site.kill_worker(await _holder(site, name))
    site.start_worker()
    try:
        result = await asyncio.wait_for(thread.result(), SECONDS)
        stuck = result.stop != "done"
    except TimeoutError:
        stuck = True
    events = await harness.store.read(thread.log)
    first = min((event.at for event in events if event.at > died), default=died + SECONDS)
    paid = Counter(name for name, _ in effects(site.folder))[name]
    report = KillReport(kills=1, gaps=[first - died], twice=int(paid > 1), missing=int(not paid), stuck=int(stuck))
    if site.temporal:
        asked = next(event.at for event in events if isinstance(event, ev.ModelCalled))
        report.takeovers.append(await _takeover(site, thread.log, died, asked, first))
    return report


async def _takeover(site: Site, log: str, died: float, asked: float, first: float) -> Takeover:
    """Read from Temporal's history when each stage was reached."""
    from evener.cluster.temporal import connect

    workflow = (await connect(site.temporal)).get_workflow_handle(log)
    await workflow.result()  # until then, its history lacks the last activity
    history = await workflow.fetch_history()
    times = [(event.WhichOneof("attributes"), event.event_time.ToMicroseconds() / 1e6) for event in history.events]
    begun = next(at for kind, at in times if kind == "workflow_execution_started_event_attributes")
    timed_out = next(at for kind, at in times if kind == "activity_task_timed_out_event_attributes")
    started = next(at for kind, at in times if kind == "activity_task_started_event_attributes" and at > timed_out)
    return Takeover(timed_out - died, started - timed_out, first - started, asked - begun)


async def _holder(site: Site, name: str) -> int:
    """Return the process that is in the tool of this prompt."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        found = [pid for paid, pid in effects(site.folder) if paid == name]
        if found:
            return found[-1]
        await asyncio.sleep(0.01)
    raise TimeoutError(f"no worker took {name!r}; see {site.folder}")


def main_kills(kills: int, engine: str, journal: Path | None = None) -> int:
    """Print what the kills came to; 1 when something was wrong."""
    with open_site(engine) as site:
        report = asyncio.run(kill_workers(site, kills, journal))
    most = SILENCE + LATER
    print(
        f"engine {engine}: {report.kills} workers killed in mid-tool; {report.twice} effects twice, {report.missing} missing, "
        f"{report.stuck} runs stuck. From death to the next step: {_shown(report.gaps)} "
        f"(at most {most:g} s: a silence of {SILENCE:g} s and {LATER:g} s)."
    )
    if report.takeovers:
        _print_stages(report.takeovers)
        print(f"  p99 of the timer, and of what the steps after it take longer than a plain start: {report.waits:.2f} s")
    late = report.takeovers and min(quantile(report.gaps, 99), report.waits) > most
    return 1 if report.twice or report.missing or report.stuck or late else 0


def _print_stages(takeovers: Sequence[Takeover]) -> None:
    stages = {
        "the heartbeat's timer fired after": [one.silence for one in takeovers],
        "another worker had the activity after": [one.handed for one in takeovers],
        "and its first event in the log after": [one.first for one in takeovers],
        "both of these, at the plain start of the same runs": [one.plain for one in takeovers],
    }
    for what, seconds in stages.items():
        print(f"  {what}: {_shown(seconds)}")


def _shown(seconds: Sequence[float]) -> str:
    return f"median {quantile(seconds, 50):.2f} s, p99 {quantile(seconds, 99):.2f} s"


# Throughput.


async def _finish_all(site: Site, threads: int) -> float:
    """Submit so many runs, wait for all of them, and return the runs a second."""
    async with site.client() as harness:
        warm = [await harness.submit(f"warm {one}") for one in range(len(site.workers) * 4)]
        await asyncio.gather(*map(_done, warm))
        began = time.monotonic()
        made: list[Thread] = []
        for start in range(0, threads, 100):
            names = (f"wait {one}" for one in range(start, min(start + 100, threads)))
            made += await asyncio.gather(*(harness.submit(name) for name in names))
        unfinished = sum([not await _done(one) for one in made])
        seconds = time.monotonic() - began
        if unfinished:
            raise RuntimeError(f"{unfinished} of {threads} runs did not finish")
        return threads / seconds


async def _done(thread: Thread) -> bool:
    return isinstance([event async for event in thread.follow()][-1], ev.Finished)


def main_scale(threads: int, engine: str, slots: int = 4) -> int:
    """Print the table of worker processes and runs a second; 1 when two are not nearly twice as quick as one."""
    rates: dict[int, float] = {}
    print(f"engine {engine}, {slots} slots a worker, each run waits for I/O; {os.cpu_count()} cores, {threads} runs")
    print("workers  slots  runs/s  gain")
    for workers in (1, 2, 4):
        with open_site(engine) as site:
            for _ in range(workers):
                site.start_worker(slots)
            many = threads if workers == 4 else max(threads * workers // 8, 1)
            rates[workers] = asyncio.run(_finish_all(site, many))
            paid = Counter(name for name, _ in effects(site.folder))
        print(f"{workers:7}  {slots * workers:5}  {rates[workers]:6.2f}  {rates[workers] / rates[1]:4.2f}  ({many} runs)")
        if max(paid.values()) > 1:
            print("an effect happened twice")
            return 1
    return 0 if rates[2] >= LEAST_GAIN * rates[1] else 1
