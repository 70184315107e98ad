"""Runs that other processes perform: submitted, taken once, followed, decided from elsewhere, resumed after a death."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from evener import Harness, MemoryStore
from evener import events as ev
from evener.errors import UsageError
from evener.harness.approvals import Decision
from evener.harness.remote import Worker
from evener.testing.scripted_model import ScriptedModel
from tests.harness import work_site
from tests.patience import wait_until
from tests.store.stores import new_schema, postgres, run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Harness, str]]:
    """A harness on a schema of its own, and the schema."""
    monkeypatch.setattr(work_site, "FOLDER", tmp_path)
    schema = new_schema()
    harness = work_site.make(postgres().address, schema)
    yield harness, schema
    run(harness.store.aclose())


def effects(folder: Path) -> Counter[str]:
    path = folder / "effects"
    return Counter(path.read_text().split("\n")[:-1]) if path.exists() else Counter()


def test_what_is_submitted_is_performed_by_a_worker_and_followed_from_here(site: tuple[Harness, str], tmp_path: Path) -> None:
    harness, _ = site

    async def scenario() -> None:
        thread = await harness.submit("tea")
        assert [type(event) for event in await harness.store.read(thread.log)][-1] is ev.Prompted
        with pytest.raises(UsageError, match="not over"):
            await harness.submit("more", thread=thread.id)
        assert effects(tmp_path) == {}
        worker = Worker({"site": harness}, harness.store)
        working = asyncio.create_task(worker.run())
        kinds = [type(event) async for event in thread.follow()]
        assert kinds[0] is ev.Opened
        assert kinds[-1] is ev.Finished
        result = await thread.result()
        assert (result.text, result.stop) == ("done tea", "done")
        again = await harness.submit("coffee", thread=thread.id)
        assert (await again.result()).stop == "done"
        worker.drain()
        await working
        assert effects(tmp_path) == {"pay tea": 1}

    run(scenario())


def test_a_store_without_workers_says_so() -> None:
    with pytest.raises(UsageError, match="keeps no work"):
        run(Harness(ScriptedModel(["x"]), store=MemoryStore()).submit("tea"))


def test_many_runs_over_four_workers_all_finish_and_each_acts_once(site: tuple[Harness, str], tmp_path: Path) -> None:
    first, schema = site

    async def scenario() -> None:
        others = [work_site.make(postgres().address, schema) for _ in range(3)]
        threads = await asyncio.gather(*(first.submit(f"tea {number}") for number in range(40)))
        workers = [Worker({"site": harness}, harness.store, slots=4) for harness in (first, *others)]
        working = [asyncio.create_task(worker.run()) for worker in workers]
        results = await asyncio.gather(*(thread.result() for thread in threads))
        assert [result.text for result in results] == [f"done tea {number}" for number in range(40)]
        for worker in workers:
            worker.drain()
        await asyncio.gather(*working)
        assert effects(tmp_path) == {f"pay tea {number}": 1 for number in range(40)}
        assert await first.store.verify() == []
        for harness in others:
            await harness.store.aclose()

    run(scenario())


@pytest.mark.parametrize("when", ["before it parks", "after"])
def test_a_decision_from_elsewhere_reaches_a_run_that_waits(site: tuple[Harness, str], tmp_path: Path, when: str) -> None:
    harness, schema = site

    async def scenario() -> None:
        elsewhere = work_site.make(postgres().address, schema)
        thread = await harness.submit("sign it")
        worker = Worker({"site": harness}, harness.store)
        if when == "before it parks":
            result = await harness.thread(thread.id).resume()  # it waits, and the table of work does not know yet
        else:
            await worker.run(until_idle=True)
            result = await thread.result()
        assert (result.stop, len(result.approvals)) == ("approval", 1)
        assert effects(tmp_path) == {}
        await elsewhere.decide(thread.id, {one.key: Decision("allow") for one in result.approvals})
        working = asyncio.create_task(worker.run())
        assert (await thread.result()).text == "done sign it"
        worker.drain()
        await working
        assert effects(tmp_path) == {"signed": 1}
        await elsewhere.store.aclose()

    run(scenario())


def start(folder: Path, schema: str) -> "subprocess.Popen[bytes]":
    told = {"EVENER_TEST_SITE": str(folder), "EVENER_TEST_ADDRESS": postgres().address, "EVENER_TEST_SCHEMA": schema}
    words = ["worker", "--harness", "tests.harness.work_site:harness", "--slots", "2"]
    command = [sys.executable, "-m", "evener", *words]
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | told, stderr=subprocess.DEVNULL)


def test_a_worker_that_is_killed_in_mid_tool_is_replaced_and_the_effect_comes_once(
    site: tuple[Harness, str], tmp_path: Path
) -> None:
    harness, schema = site
    (tmp_path / "slow").touch()

    async def scenario() -> None:
        threads = await asyncio.gather(*(harness.submit(f"tea {number}") for number in range(6)))
        victim = start(tmp_path, schema)
        await asyncio.to_thread(wait_until, lambda: effects(tmp_path))
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        other = start(tmp_path, schema)
        try:
            results = [await thread.result() for thread in threads]
        finally:
            other.terminate()
            assert other.wait(60) == 0  # it drains
        assert all(result.stop == "done" for result in results)
        assert effects(tmp_path) == {f"pay tea {number}": 1 for number in range(6)}
        assert await harness.store.verify() == []

    run(scenario())
