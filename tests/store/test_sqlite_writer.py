"""The threads behind the SQLite store: groups that share a commit, requests that stand for themselves, and a clean end."""

import asyncio
import gc
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest

from evener.errors import StoreError
from evener.store import Note, SqliteStore
from evener.store.sqlite.file import StoreBusy, connect
from evener.store.sqlite.writer import QUICK, STALL, Group, WriterThread, perform_writes
from tests.patience import threads_end
from tests.store.stores import flaws, opened, run, said, texts


@contextmanager
def locked(path: Path) -> Iterator[sqlite3.Connection]:
    """The file as another process has it that is about to write."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other
        if other.in_transaction:
            other.execute("ROLLBACK")


def listed(connection: sqlite3.Connection) -> list[object]:
    return connection.execute("SELECT log FROM logs").fetchall()


async def until_all_wait(store: SqliteStore, first: "asyncio.Task[object]") -> None:
    """Let the first request reach the writer, so that what comes after it waits."""
    await asyncio.sleep(0)
    while not store._writer._queue.empty():
        await asyncio.sleep(0.001)
    assert not first.done()


def test_what_waits_shares_a_commit(tmp_path: Path) -> None:
    sizes: list[int] = []

    def counted(connection: sqlite3.Connection, group: Group, path: Path, *, wait: bool = True) -> bool:
        sizes.append(len(group))
        return perform_writes(connection, group, path, wait=wait)

    async def scenario() -> None:
        store = SqliteStore(tmp_path / "evener.db")
        store._writer._perform = counted
        logs = [await store.create(str(number), opened(), holder="me") for number in range(50)]
        sizes.clear()
        with locked(store.path) as other:
            first = asyncio.create_task(store.put_blob(b"first"))
            await until_all_wait(store, first)
            appends = [asyncio.create_task(log.append(said("x"))) for log in logs]
            await asyncio.sleep(0)
            other.execute("ROLLBACK")
            await asyncio.gather(first, *appends)
        assert sum(sizes) == 51
        assert len(sizes) <= 3
        await store.aclose()

    run(scenario())


def test_a_request_that_fails_does_not_fail_its_neighbours(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "evener.db")
        log = await store.create("a", opened(), holder="me")
        with locked(store.path) as other:
            first = asyncio.create_task(store.post("a", Note("0", "steer")))
            await until_all_wait(store, first)
            wanted = [
                log.append(said("one")),
                store.post("nowhere", Note("1", "steer")),  # refused before it writes
                log.append(said("two"), said("three")),
                store.post("a", Note("2", "steer", "\ud800")),  # fails while it writes
                log.settle(1, said("four")),
                store.create("a", opened(), holder="me"),
                log.append(said("five")),
            ]
            tasks = [asyncio.create_task(call) for call in wanted]
            await asyncio.sleep(0)
            other.execute("ROLLBACK")
            answers = await asyncio.gather(first, *tasks, return_exceptions=True)
        failed = [number for number, answer in enumerate(answers) if isinstance(answer, StoreError)]
        assert failed == [2, 4, 6]
        assert texts(await store.read("a")) == ["one", "two", "three", "four", "five"]
        assert (log.length, await log.notes()) == (6, [])
        await store.aclose()
        assert flaws(store.path) == []

    run(scenario())


def test_a_lock_held_for_too_long_is_told_and_then_all_is_well(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "evener.db", busy=0.05)
        log = await store.create("a", opened(), holder="me")
        with locked(store.path):
            answers = await asyncio.gather(log.append(said("x")), log.append(said("y")), return_exceptions=True)
            assert [type(answer) for answer in answers] == [StoreBusy, StoreBusy]
            assert await store.read("a") == [opened()]
        assert log.length == 1
        await log.append(said("z"))
        assert texts(await store.read("a")) == ["z"]
        await store.aclose()

    run(scenario())


def test_readers_see_whole_appends_while_a_writer_writes(tmp_path: Path) -> None:
    async def scenario() -> None:
        store, other = SqliteStore(tmp_path / "evener.db"), SqliteStore(tmp_path / "evener.db")
        log = await store.create("a", opened(), holder="me")

        async def write() -> None:
            for number in range(100):
                await log.append(said(f"{number}a"), said(f"{number}b"))

        writing, seen = asyncio.create_task(write()), 0
        while not writing.done():
            found = texts(await other.read("a"))
            assert found == [f"{number}{half}" for number in range(len(found) // 2) for half in "ab"]
            assert len(found) >= seen
            seen = len(found)
        await writing
        await store.aclose()
        await other.aclose()

    run(scenario())


def test_several_loops_use_one_store(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "evener.db")
    failures: list[BaseException] = []

    async def write(name: str) -> None:
        log = await store.create(name, opened(), holder=name)
        for number in range(30):
            await log.append(said(f"{name}.{number}"))
        await log.aclose()

    def work(name: str) -> None:
        try:
            run(write(name))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(str(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []
    for number in range(4):
        assert texts(run(store.read(str(number)))) == [f"{number}.{count}" for count in range(30)]
    run(store.aclose())


def test_a_loop_that_is_gone_stops_nobody(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "evener.db", lease=1.0)

    async def prepare() -> None:
        await store.create("a", opened(), holder="me")

    async def leave() -> None:
        task = asyncio.create_task(store.post("a", Note("k", "steer")))
        await until_all_wait(store, task)

    run(prepare())
    with locked(store.path):
        run(leave())
    log, _ = run(store.open("a", holder="you", patience=120))
    assert [note.key for note in run(log.notes())] == ["k"]
    run(store.aclose())


def test_closing_gives_leases_back_does_what_waits_and_leaves_nothing_of_sqlite_s_behind(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "evener.db")
        log = await store.create("a", opened(), holder="me")
        waiting = [asyncio.create_task(log.append(said(str(number)))) for number in range(20)]
        await asyncio.sleep(0)
        await store.aclose()
        await asyncio.gather(*waiting)
        again = SqliteStore(tmp_path / "evener.db")
        _, events = await again.open("a", holder="you")
        assert len(events) == 21
        await again.aclose()
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {"evener.db", "evener.db.lock", "evener.db.next", "evener.db.heads"}

    with threads_end():
        run(scenario())


def test_a_dropped_store_ends_its_threads(tmp_path: Path) -> None:
    async def scenario() -> list[threading.Thread]:
        store = SqliteStore(tmp_path / "evener.db")
        await store.create("a", opened(), holder="me")
        await store.read("a")
        return [thread for lane in (store._writer, store._reader) if (thread := lane._thread)]

    threads = run(scenario())
    gc.collect()
    for thread in threads:
        thread.join(120)
    assert [thread.is_alive() for thread in threads] == [False, False]


def test_a_lane_that_cannot_connect_says_so_each_time_and_then_works(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"
    path.write_text("not a database")
    lane = WriterThread(path, partial(connect, path, 1.0), perform_writes)

    async def scenario() -> None:
        for _ in range(2):
            with pytest.raises(StoreError, match="not a store of Evener"):
                await lane.run(listed)
        path.unlink()
        assert await lane.run(listed) == []
        await lane.end()

    run(scenario())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_forked_child_is_told_to_make_its_own(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "evener.db")
    for lane in (store._writer, store._reader):
        lane._process += 1  # as a child sees a store that its parent made
    with pytest.raises(StoreError, match="Make a new store in the child"):
        run(store.logs())
    run(store.aclose())


def test_a_lone_log_is_written_in_the_loops_thread_while_the_disk_is_quick(tmp_path: Path) -> None:
    """The thread does it where it must wait: for another process, for several logs, after a slow write if other tasks run."""
    by: list[bool] = []

    async def scenario() -> None:
        store = SqliteStore(tmp_path / "evener.db")
        log = await store.create("a", opened(), holder="me")
        perform = store._writer._perform

        def noting(connection: sqlite3.Connection, group: Group, path: Path, *, wait: bool = True) -> bool:
            by.append(threading.current_thread() is threading.main_thread())
            return perform(connection, group, path, wait=wait)

        store._writer._perform = noting

        async def append(lasted: float) -> list[bool]:
            by.clear()
            store._writer._lasts = lasted
            await log.append(said("x"))
            return list(by)

        assert await append(0.0) == [True]
        assert await append(QUICK * 2) == [True]  # nothing else in this loop could use the time
        assert await append(STALL * 2) == [False]
        beside = asyncio.create_task(asyncio.Event().wait())
        assert await append(QUICK * 2) == [False]
        beside.cancel()
        with locked(store.path) as other:
            waiting = asyncio.create_task(append(0.0))
            while by != [True, False]:  # it would wait here, so it was handed over
                await asyncio.sleep(0.001)
            other.execute("ROLLBACK")
        assert await waiting == [True, False]
        second = await store.create("b", opened(), holder="me")
        assert await append(0.0) == [False]
        await second.aclose()
        assert await append(0.0) == [True]
        assert [type(event).__name__ for event in await store.read("a")][1:] == ["Cancelled"] * 7
        assert await store.verify() == []
        await store.aclose()

    run(scenario())
