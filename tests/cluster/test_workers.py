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

from evener import Harness, MemoryStore, Tool, tool
from evener import events as ev
from evener.cluster import Worker
from evener.cluster.advance import Advancer
from evener.driver.slice import RunSlice
from evener.errors import UsageError
from evener.harness.approvals import Decision
from evener.harness.remote import tables_of
from evener.policy import Defaults, Policy, Rule
from evener.store.postgres import PostgresStore
from evener.testing.scripted_model import Line, ScriptedModel, calls
from evener.transcript.blocks import ToolCall
from tests.cluster import work_site
from tests.patience import PATIENCE, wait_until
from tests.store.stores import new_schema, postgres, run
from tests.view.client import get, post
from tests.view.stage import viewing

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
        with pytest.raises(UsageError, match="not finished"):
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


def test_a_thread_of_another_harness_is_performed_by_the_one_that_it_is_submitted_to(site: tuple[Harness, str]) -> None:
    harness, _ = site

    async def scenario() -> None:
        begun = await Harness(ScriptedModel(["hello"]), store=harness.store, name="laptop").run("hello")
        thread = await harness.submit("coffee", thread=begun.thread)
        await Worker({"site": harness}, harness.store).run(until_idle=True)
        assert (await thread.result()).stop == "done"

    run(scenario())


def test_a_worker_waits_for_a_database_that_can_only_be_read_for_a_while_and_says_so() -> None:
    name = f"frozen_{os.getpid()}"
    execute(f"CREATE DATABASE {name}")
    address = postgres().address.replace("/postgres?", f"/{name}?")

    async def scenario() -> None:
        harness = Harness(ScriptedModel(["x"]), store=PostgresStore(address), name="site")
        thread = await harness.submit("tea")
        said: list[str] = []
        worker = Worker({"site": harness}, harness.store, say=said.append)
        freeze(name, "on")
        working = asyncio.create_task(worker.run())
        while len(said) < 2:
            await asyncio.sleep(0.01)
        assert said[1].startswith("waiting: StoreBusy: The PostgreSQL store can only be read")
        freeze(name, "off")
        assert (await thread.result()).stop == "done"
        assert said[2] == "the store answers again"
        worker.drain()
        await working
        await harness.store.aclose()

    run(scenario())
    execute(f"DROP DATABASE {name}")


def execute(statement: str) -> None:
    import psycopg

    with psycopg.connect(postgres().address, autocommit=True) as connection:
        connection.execute(statement.encode())


def freeze(name: str, how: str) -> None:
    """Let a database be read only, or not, for all its connections."""
    execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {how}")
    execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")


def test_a_store_without_workers_says_so() -> None:
    with pytest.raises(UsageError, match="cannot take runs"):
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


def start(folder: Path, schema: str, *words: str) -> "subprocess.Popen[bytes]":
    """Start a command on the harness of the site, in a process of its own."""
    told = {"EVENER_TEST_SITE": str(folder), "EVENER_TEST_ADDRESS": postgres().address, "EVENER_TEST_SCHEMA": schema}
    command = [sys.executable, "-m", "evener", *words, "--harness", "tests.cluster.work_site:harness"]
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | told, stderr=subprocess.DEVNULL)


def start_worker(folder: Path, schema: str) -> "subprocess.Popen[bytes]":
    return start(folder, schema, "worker", "--slots", "2")


def test_a_worker_that_is_killed_in_mid_tool_is_replaced_and_the_effect_comes_once(
    site: tuple[Harness, str], tmp_path: Path
) -> None:
    harness, schema = site
    (tmp_path / "slow").touch()

    async def scenario() -> None:
        threads = await asyncio.gather(*(harness.submit(f"tea {number}") for number in range(6)))
        victim = start_worker(tmp_path, schema)
        await asyncio.to_thread(wait_until, lambda: effects(tmp_path))
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        other = start_worker(tmp_path, schema)
        try:
            results = [await thread.result() for thread in threads]
        finally:
            other.terminate()
            assert other.wait(PATIENCE) == 0  # it drains
        assert all(result.stop == "done" for result in results)
        found = effects(tmp_path)
        assert set(found.values()) == {1}
        for number, result in enumerate(results):  # a call that had started without an effect is not started again
            settled = result.records[0].result
            assert found[f"pay tea {number}"] == 1 or (settled is not None and settled.outcome == "unknown")
        assert await harness.store.verify() == []

    run(scenario())


@pytest.mark.parametrize("who", ["command line", "viewer"])
def test_an_approval_from_the_command_line_or_the_viewer_reaches_a_run_on_a_worker(
    site: tuple[Harness, str], tmp_path: Path, who: str
) -> None:
    harness, schema = site
    elsewhere = work_site.make(postgres().address, schema)

    async def approve(thread: str) -> None:
        if who == "command line":
            assert await asyncio.to_thread(start(tmp_path, schema, "approve", thread).wait) == 0
            return
        async with viewing(elsewhere.store) as url:  # it has no harness: the log says what is asked
            while not (found := (await get(url, "api/approvals"))["waiting"]):  # until the viewer has read the log
                await asyncio.sleep(0)
            (waiting,) = found
            (asked,) = waiting["asked"]
            decision = {"verdict": "allow", "digest": asked["approval"]["digest"]}
            made = await post(url, "api/decide", {"log": thread, "decisions": {asked["approval"]["key"]: decision}})
            assert made.status == 200, made.body

    async def scenario() -> None:
        worker = Worker({"site": harness}, harness.store)
        working = asyncio.create_task(worker.run())
        thread = await harness.submit("sign it")
        assert (await thread.result()).stop == "approval"
        await approve(thread.id)
        assert (await thread.result()).text == "done sign it"
        assert effects(tmp_path) == {"signed": 1}
        worker.drain()
        await working
        await elsewhere.store.aclose()

    run(scenario())


def test_a_worker_whose_tool_has_changed_asks_again(site: tuple[Harness, str], tmp_path: Path) -> None:
    """A new version is deployed while a run waits: what was allowed was another tool."""
    old, schema = site
    schema_of_new = {"type": "object", "properties": {"twice": {"type": "boolean"}}}
    changed = Tool.of("sign", schema_of_new, function=work_site.sign, description="Sign, maybe twice.", approval=True)
    store = PostgresStore(postgres().address, schema=schema)
    new = Harness(ScriptedModel(work_site.answer), tools=[work_site.pay, changed], store=store, name="site")

    async def scenario() -> None:
        thread = await old.submit("sign it")
        await Worker({"site": old}, old.store).run(until_idle=True)
        first = (await thread.result()).approvals[0]
        await old.decide(thread.id, {first.key: Decision("allow")})
        await Worker({"site": new}, new.store).run(until_idle=True)
        again = await thread.result()
        assert (again.stop, again.approvals[0].key) == ("approval", first.key)
        assert again.approvals[0].id != first.id
        assert effects(tmp_path) == {}
        await new.decide(thread.id, {first.key: Decision("allow")})
        await Worker({"site": new}, new.store).run(until_idle=True)
        assert effects(tmp_path) == {"signed": 1}
        await store.aclose()

    run(scenario())


def test_a_prompt_that_is_submitted_while_a_worker_ends_the_last_run_is_not_lost(site: tuple[Harness, str]) -> None:
    harness, _ = site

    async def scenario() -> None:
        tables = tables_of(harness.store)
        thread = await harness.submit("tea")
        (taken,) = await tables.take_work(["site"], seconds=60.0)
        done = await Advancer({"site": harness}, harness.store).advance(taken, RunSlice())
        assert done.stop == "done"
        await harness.submit("coffee", thread=thread.id)
        await tables.drop_work(taken.log, taken.turn)  # the worker says so late
        await Worker({"site": harness}, harness.store).run(until_idle=True)
        assert len((await thread.result()).transcript) == 6

    run(scenario())


def test_a_run_that_a_call_submits_needs_the_policy_of_the_run_around_it() -> None:
    """A worker knows the harness that it performs, and not the run that asked for it."""
    deny = Policy((Rule(tool="pay", verdict="deny"),), Defaults.all("allow"))
    own = Policy((Rule(tool="send", verdict="ask"),), Defaults.all("allow"))

    async def hired(policy: Policy | None) -> tuple[str, bool]:
        store = PostgresStore(postgres().address, schema=new_schema())
        payer = Harness(ScriptedModel([]), name="payer", store=store, policy=policy)

        @tool(effect="read")
        async def hire() -> str:
            """Have another agent pay, elsewhere."""
            await payer.submit("Pay 5")
            return "hired"

        script: list[Line] = [calls(ToolCall.of("c", "hire", {})), "Done."]
        boss = Harness(ScriptedModel(script), tools=[hire], name="boss", store=store, policy=deny)
        result = await boss.run("Pay 5")
        logs = {one.harness for one in await store.logs()}
        await store.aclose()
        return str(result.records[0].result), "payer" in logs

    async def scenario() -> None:
        for policy in (None, own):
            told, begun = await hired(policy)
            assert "Give that harness the same policy" in told
            assert not begun
        for policy in (deny, own.under(deny), deny.under(own)):
            told, begun = await hired(policy)
            assert begun

    run(scenario())
