"""Processes that write to one file take turns: none is refused, whichever of them dies or hangs in between."""

import fcntl
import os
import signal
import stat
from contextlib import ExitStack
from pathlib import Path

import pytest

from evener.errors import StoreError
from evener.store import SqliteStore
from evener.store.sqlite.file import StoreBusy
from evener.store.sqlite.writer import Interlock
from tests.patience import PATIENCE
from tests.store.children import child, line, say
from tests.store.stores import flaws, opened, run, said, texts

MANY = 6
TURNS = 40


def test_many_processes_write_and_each_gets_its_turn(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"
    with ExitStack() as stack:
        running = [stack.enter_context(child("contend", path, number, TURNS)) for number in range(MANY)]
        assert [line(each) for each in running] == ["ready"] * MANY
        for each in running:
            say(each, "go")
        told = [line(each).split() for each in running]
        assert [each.wait(timeout=120) for each in running] == [0] * MANY
    assert told == [["done"]] * MANY

    async def look() -> list[list[str]]:
        store = SqliteStore(path)
        found = [texts(await store.read(str(number))) for number in range(MANY)]
        await store.aclose()
        return found

    assert run(look()) == [[f"{name}.{number}" for number in range(TURNS)] for name in range(MANY)]
    assert flaws(path) == []


def test_a_process_that_writes_all_the_time_does_not_keep_another_out(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"

    async def beside() -> list[str]:
        store = SqliteStore(path, busy=PATIENCE)
        log = await store.create("quiet", opened(), holder="me")
        for number in range(40):
            await log.append(said(str(number)))
        found = texts(await store.read("quiet"))
        await store.aclose()
        return found

    with child("flood", path, "loud") as loud:
        assert line(loud) == "ready"
        assert run(beside()) == [str(number) for number in range(40)]
        assert loud.poll() is None, "it has ended, so it was in no one's way"


def test_a_process_that_was_killed_in_its_turn_holds_nobody_up(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"

    async def write(name: str) -> None:
        store = SqliteStore(path)
        await store.create(name, opened(), holder="me")
        await store.aclose()

    for turn in range(5):
        with child("flood", path, turn) as loud:
            assert line(loud) == "ready"
            loud.kill()
        run(write(f"after {turn}"))
    assert flaws(path) == []


def test_a_process_that_was_stopped_in_its_turn_is_named_and_then_all_is_well(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"

    async def write(name: str) -> None:
        store = SqliteStore(path, busy=0.2)
        try:
            await store.create(name, opened(), holder="me")
        finally:
            await store.aclose()

    with child("stop_in_turn", path) as stopped:
        seen = os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        assert seen is not None
        assert seen.si_code == os.CLD_STOPPED
        with pytest.raises(StoreBusy, match=f"process {stopped.pid}") as refused:
            run(write("refused"))
        assert refused.value.retryable
        stopped.send_signal(signal.SIGCONT)
        assert stopped.wait(timeout=PATIENCE) == 0
    run(write("at last"))
    assert flaws(path) == []


def test_a_wait_that_is_too_long_ends_and_does_not_take_the_turn_later(tmp_path: Path) -> None:
    one, other = Interlock(tmp_path / "store", 10.0), Interlock(tmp_path / "store", 0.05)
    with one, other:
        assert not other._ours
    with one, other:
        pass
    with other:
        assert other._ours
        assert other.last() in ("", str(os.getpid()))


def test_one_who_is_next_and_never_comes_refuses_no_append(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"

    async def scenario() -> None:
        store = SqliteStore(path, busy=0.3)
        log = await store.create("a", opened(), holder="me")
        with open(tmp_path / "evener.db.next", "rb") as next_one:
            fcntl.flock(next_one, fcntl.LOCK_EX)
            for number in range(4):
                await log.append(said(str(number)))
        assert texts(await store.read("a")) == ["0", "1", "2", "3"]
        await store.aclose()

    run(scenario())


def test_the_last_writer_queues_when_another_process_waits(tmp_path: Path) -> None:
    """The one who had the last turn takes the next without queueing, as long as none waits."""
    one = Interlock(tmp_path / "store", PATIENCE)
    with one:
        pass
    with open(tmp_path / "store.next", "rb") as next_one, open(tmp_path / "store.lock", "r+b", buffering=0) as lock:
        fcntl.flock(next_one, fcntl.LOCK_EX)
        assert one.enter(wait=False), "none waits: whoever holds the place in the queue has not asked"
        one.leave()
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not one.enter(wait=False)
        fcntl.flock(next_one, fcntl.LOCK_UN)
        assert not one.enter(wait=False), "it is another's turn, and now this one is next"
        with pytest.raises(BlockingIOError):
            fcntl.flock(next_one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert one.enter(wait=False)
        one.leave()
        other = Interlock(tmp_path / "store", PATIENCE)
        with one:
            assert not other.enter(wait=False), "it is next from now on"
        assert not one.enter(wait=False), "one had the last turn, and another waits"
        with other:
            assert other.last() == str(os.getpid())
        with one:
            pass


def test_only_the_owner_may_touch_the_lock_files(tmp_path: Path) -> None:
    with Interlock(tmp_path / "store", 1.0):
        pass
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"store.lock": 0o600, "store.next": 0o600}


@pytest.mark.parametrize("ending", [".lock", ".next"])
def test_without_lock_files_sqlite_waits_by_itself(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"evener.db{ending}").mkdir()

    async def scenario() -> list[str]:
        store = SqliteStore(tmp_path / "evener.db")
        log = await store.create("a", opened(), holder="me")
        await log.append(said("one"))
        found = texts(await store.read("a"))
        await store.aclose()
        return found

    assert run(scenario()) == ["one"]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the system does not list open files")
def test_a_closed_store_leaves_no_file_open(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "evener.db")
        await store.create("a", opened(), holder="me")
        await store.verify()
        await store.aclose()
        with pytest.raises(StoreError, match="closed"):
            await store.verify()

    def held() -> list[str]:
        links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
        return [target for link in links if str(tmp_path) in (target := os.readlink(link))]

    run(scenario())
    assert held() == []
