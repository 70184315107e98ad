"""A holder that lives and says nothing: stopped, or with a tool that blocks its event loop. No write happens twice."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from evener import Harness, MemoryStore, Thread, tool
from evener import events as ev
from evener.store import SqliteStore
from evener.store.protocol import LeaseHeld
from evener.store.sqlite.file import StoreBusy
from evener.testing import ScriptedModel, calls
from evener.tools.context import ToolContext
from evener.transcript.blocks import ToolCall
from tests import patience

LEASE = 0.4

HOLDER = """
import asyncio, os, sys, time
from pathlib import Path
from evener import Harness, tool
from evener.store import SqliteStore
from evener.store.protocol import LeaseLost
from evener.testing import ScriptedModel, calls
from evener.tools.context import ToolContext
from evener.transcript.blocks import ToolCall

folder, how, lease = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])

def act(context):
    (folder / "begun").touch()
    while not (folder / "gate").exists():
        time.sleep(0.005)
    with (folder / "ledger").open("a") as file:
        file.write(context.key + "\\n")

async def post(context: ToolContext[object]) -> str:
    act(context)  # blocks the event loop
    return "posted"

def post_in_a_thread(context: ToolContext[object]) -> str:
    act(context)
    return "posted"

def took_effect(context: ToolContext[object]) -> bool:
    return (folder / "ledger").exists()

@tool(effect="write")
def after() -> str:
    "Comes next."
    (folder / "after").touch()
    return "after"

async def main():
    act_so = post if how == "blocks" else post_in_a_thread
    made = tool(act_so, name="post", description="Posts.", effect="write", verify=took_effect)
    model = ScriptedModel([calls(ToolCall.of("c", "post", {})), calls(ToolCall.of("d", "after", {})), "Done."])
    store = SqliteStore(folder / "store.db", lease=lease)
    try:
        result = await Harness(model, tools=[made, after], store=store).run("Go.")
        stop = result.stop
    except LeaseLost:
        stop = "lost"
    while not (folder / "ledger").exists() or not (folder / "ledger").stat().st_size:
        await asyncio.sleep(0.005)  # a tool in a thread acts after its run has ended, too
    (folder / "ending").write_text(stop)
    (folder / "ending").rename(folder / "end")  # whole as soon as it is there
    await store.aclose()

asyncio.run(main())
"""


@contextmanager
def holder(folder: Path, how: str, lease: float = LEASE) -> Iterator["subprocess.Popen[bytes]"]:
    running = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder), how, str(lease)])
    try:
        yield running
    finally:
        running.kill()
        running.wait()


async def until(found: Path) -> None:
    await patience.until(found.exists)


def successor(folder: Path, store: SqliteStore) -> Harness:
    def took_effect(context: ToolContext[object]) -> bool:
        del context
        (folder / "verified").touch()
        return (folder / "ledger").exists()

    def post(context: ToolContext[object]) -> str:
        with (folder / "ledger").open("a") as file:
            file.write(f"{context.key}\n")
        return "posted"

    made = tool(post, name="post", description="Posts.", effect="write", verify=took_effect)
    return Harness(ScriptedModel(["Done."]), tools=[made], store=store)


def effects(folder: Path) -> int:
    return len((folder / "ledger").read_text().split()) if (folder / "ledger").exists() else 0


async def resumed(harness: Harness, log: str) -> tuple[str, str]:
    """How the call ended, and why the run did, once the lease is over."""
    async with asyncio.timeout(patience.PATIENCE):
        while True:
            try:
                result = await harness.resume(log)
                return result.records[0].result.outcome, result.stop  # type: ignore[union-attr]
            except LeaseHeld:
                await asyncio.sleep(LEASE / 10)


async def taken_over(running: "subprocess.Popen[bytes]", harness: Harness, log: str) -> tuple[str, str]:
    """The same, with the holder stopped. One that was stopped while it renewed its lease has the file locked, and goes on."""
    async with asyncio.timeout(patience.PATIENCE):
        while True:
            os.kill(running.pid, signal.SIGSTOP)
            try:
                return await resumed(harness, log)
            except StoreBusy:
                os.kill(running.pid, signal.SIGCONT)
                await asyncio.sleep(0.002)


@pytest.mark.parametrize("how", ["blocks", "in a thread"])
def test_a_stopped_holder_is_taken_over_and_its_verified_write_is_not_run_again(how: str, tmp_path: Path) -> None:
    """It wakes up, its tool acts, and it starts nothing more."""

    async def scenario() -> None:
        with holder(tmp_path, how) as running:
            await until(tmp_path / "begun")
            store = SqliteStore(tmp_path / "store.db", lease=LEASE, busy=1.0)
            [log] = await store.logs()
            assert await taken_over(running, successor(tmp_path, store), log.log) == ("unknown", "done")
            assert (tmp_path / "verified").exists()
            assert effects(tmp_path) == 0
            rivals = [event.rival for event in await store.read(log.log) if isinstance(event, ev.Resumed)]
            assert rivals == ["holder"]
            (tmp_path / "gate").touch()
            os.kill(running.pid, signal.SIGCONT)
            await until(tmp_path / "end")
            assert (tmp_path / "end").read_text() == "lost"
            assert effects(tmp_path) == 1
            assert not (tmp_path / "after").exists()
            await store.aclose()

    asyncio.run(scenario())


def test_a_holder_that_was_killed_is_known_to_be_dead_and_verify_may_lead_to_a_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        with holder(tmp_path, "blocks") as running:
            await until(tmp_path / "begun")
            running.kill()
            running.wait()
        store = SqliteStore(tmp_path / "store.db", lease=LEASE)
        [log] = await store.logs()
        assert await resumed(successor(tmp_path, store), log.log) == ("done", "done")
        assert effects(tmp_path) == 1
        await store.aclose()

    asyncio.run(scenario())


def test_a_tool_that_blocks_the_event_loop_does_not_lose_the_lease(tmp_path: Path) -> None:
    """The lease is renewed by a thread of its own, for longer than it lasts."""

    async def scenario(folder: Path, lease: float) -> None:
        with holder(folder, "blocks", lease):
            await until(folder / "begun")
            store = SqliteStore(folder / "store.db", lease=lease)
            [log] = await store.logs()
            thread = successor(folder, store).thread(log.log)
            try:
                for _ in range(15):
                    assert await is_held(thread)
                    await asyncio.sleep(lease / 10)
                (folder / "gate").touch()
                await until(folder / "end")
                assert (folder / "end").read_text() == "done"
                assert effects(folder) == 1
            finally:
                await store.aclose()

    def attempt(pace: float) -> None:
        folder = tmp_path / f"{pace}"
        folder.mkdir()
        asyncio.run(scenario(folder, LEASE * 5 * pace))

    patience.at_some_pace(attempt)


async def is_held(thread: Thread) -> bool:
    """Whether another process has the lease, so that the run is not resumed."""
    try:
        await thread.resume()
    except LeaseHeld:
        return True
    return False


def renewing() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name == "evener-leases"}


def test_many_runs_share_one_thread_that_renews_and_it_ends_with_the_store(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "store.db", lease=LEASE)
        others = renewing()  # of stores that other tests left open
        seen: list[set[threading.Thread]] = []

        @tool(effect="read")
        async def look() -> str:
            """Look."""
            seen.append(renewing() - others)
            await asyncio.sleep(LEASE)
            return "seen"

        def agent() -> Harness:
            return Harness(ScriptedModel([calls(ToolCall.of("c", "look", {})), "Done."]), tools=[look], store=store)

        await asyncio.gather(*(agent().run("Go.") for _ in range(10)))
        assert max(map(len, seen)) == 1
        await store.aclose()
        await patience.until(lambda: not renewing() - others)

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_tool_that_goes_on_after_its_run_was_left_is_not_run_again(kind: str, tmp_path: Path) -> None:
    """A thread cannot be stopped: the lease is given back, and whoever takes over is told."""

    async def scenario() -> None:
        store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "store.db")
        begun, gate, acted = asyncio.Event(), threading.Event(), list[str]()
        loop = asyncio.get_running_loop()

        def post(context: ToolContext[object]) -> str:
            loop.call_soon_threadsafe(begun.set)
            gate.wait(patience.PATIENCE)
            acted.append(context.key)
            return "posted"

        made = tool(post, name="post", description="Posts.", effect="write", verify=lambda: bool(acted))
        model = ScriptedModel([calls(ToolCall.of("c", "post", {})), "Done."])
        thread = Harness(model, tools=[made], store=store).thread()
        async with thread.stream("Go."):
            await begun.wait()  # and leave
        result = await thread.resume()
        assert result.records[0].result is not None
        assert (result.records[0].result.outcome, acted) == ("unknown", [])
        gate.set()
        await patience.until(lambda: acted)
        assert len(acted) == 1
        await store.aclose()

    asyncio.run(scenario())
