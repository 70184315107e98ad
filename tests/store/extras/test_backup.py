"""A backup is the store of one moment: whole, private, never over another file, and nothing is left of one that failed."""

import asyncio
import os
import sqlite3
import stat
from pathlib import Path

import pytest

from evener.errors import StoreError
from evener.events import encode_event
from evener.store import MemoryStore, SqliteStore
from evener.store.sqlite import backup as backups
from tests.store.extras.stores import KEY, answered, asked, fork_of
from tests.store.extras.toycipher import ToyCipher
from tests.store.stores import opened, run, said, texts


def test_a_backup_made_while_four_tasks_append_is_whole(tmp_path: Path) -> None:
    copies = [tmp_path / f"copy{number}.db" for number in range(3)]

    async def write(store: SqliteStore, number: int, stop: asyncio.Event) -> int:
        log = await store.create(f"log {number}", opened(f"t{number}"), holder="me")
        turn = 0
        while not stop.is_set():
            await log.append(said(f"{turn}a"), said(f"{turn}b"))
            turn += 1
        return turn

    async def scenario() -> list[int]:
        store = SqliteStore(tmp_path / "evener.db")
        stop = asyncio.Event()
        tasks = [asyncio.create_task(write(store, number, stop)) for number in range(4)]
        while len(await store.logs()) < 4:
            await asyncio.sleep(0)
        for copy in copies:
            await store.backup(copy)
        stop.set()
        turns = await asyncio.gather(*tasks)
        await store.aclose()
        return turns

    turns = run(scenario())

    async def check(path: Path) -> int:
        store = SqliteStore(path)
        seen = 0
        assert await store.verify() == []
        for number, most in enumerate(turns):
            found = texts(await store.read(f"log {number}"))
            assert found == [f"{turn}{half}" for turn in range(most) for half in "ab"][: len(found)]
            assert len(found) % 2 == 0
            log, _ = await store.open(f"log {number}", holder="you")  # nobody holds it there
            await log.append(said("on"))
            seen += len(found)
        await store.aclose()
        return seen

    lengths = [run(check(copy)) for copy in copies]
    assert lengths == sorted(lengths)


def test_a_backup_is_private_and_has_everything_in_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "evener.db")
        log = await store.create("a", opened("t"), holder="me")
        await log.append(asked("question"))
        await fork_of(store, "a", 2, "b")
        await store.move_head("t", "b")
        await store.describe("t", title="A title", tags=["tag"])
        name = await store.put_blob(b"content")
        old = os.umask(0)
        try:
            await store.backup(str(tmp_path / "copy.db"))
        finally:
            os.umask(old)
        copied = sorted(tmp_path.glob("*copy*"))
        assert [path.name for path in copied] == ["copy.db", "copy.db.heads"]
        assert {stat.S_IMODE(path.stat().st_mode) for path in copied} == {0o600}
        copy = SqliteStore(tmp_path / "copy.db")
        assert [await copy.read(id) for id in ("a", "b")] == [await store.read(id) for id in ("a", "b")]
        assert (await copy.head("t"), await copy.get_blob(name)) == ("b", b"content")
        assert {(summary.title, summary.tags, summary.held) for summary in await copy.logs()} == {("A title", ("tag",), False)}
        assert await copy.verify() == []
        await copy.aclose()
        await store.aclose()

    run(scenario())


def test_a_sealed_store_has_a_sealed_backup(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "evener.db", cipher=ToyCipher(KEY))
        log = await store.create("a", opened("t"), holder="me")
        await log.append(asked("a telling question"))
        await store.backup(tmp_path / "copy.db")
        await store.aclose()
        assert b"telling" not in (tmp_path / "copy.db").read_bytes()
        copy = SqliteStore(tmp_path / "copy.db", cipher=ToyCipher(KEY))
        assert len(await copy.read("a")) == 2
        await copy.aclose()

    run(scenario())


@pytest.mark.parametrize("there", ["a file", "the store itself", "a dead link", "a folder"])
def test_a_backup_writes_over_nothing(tmp_path: Path, there: str) -> None:
    goal = tmp_path / "goal.db"
    match there:
        case "a file":
            goal.write_bytes(b"precious")
        case "the store itself":
            goal = tmp_path / "evener.db"
        case "a dead link":
            goal.symlink_to(tmp_path / "nowhere")
        case "a folder":
            goal.mkdir()

    async def scenario() -> None:
        store = SqliteStore(tmp_path / "evener.db")
        log = await store.create("a", opened("t"), holder="me")
        before = sorted(tmp_path.iterdir())
        with pytest.raises(StoreError, match="overwrites nothing"):
            await store.backup(goal)
        assert sorted(tmp_path.iterdir()) == before
        await log.aclose()
        assert len(await store.read("a")) == 1
        await store.aclose()

    run(scenario())
    if there == "a file":
        assert goal.read_bytes() == b"precious"


def test_a_goal_that_somebody_takes_meanwhile_stays_theirs(tmp_path: Path) -> None:
    goal, part = tmp_path / "goal", tmp_path / ".goal.part"
    part.write_bytes(b"copy")
    goal.write_bytes(b"theirs")
    with pytest.raises(StoreError, match="overwrites nothing"):
        backups.name_it(part, goal)
    assert goal.read_bytes() == b"theirs"


def test_a_backup_into_nowhere_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "evener.db")
        with pytest.raises(StoreError, match="no folder"):
            await store.backup(tmp_path / "missing" / "copy.db")
        await store.aclose()

    run(scenario())


def test_nothing_is_left_of_a_backup_that_failed(tmp_path: Path) -> None:
    class Full(sqlite3.Connection):
        def backup(self, target: sqlite3.Connection, **_: object) -> None:
            target.execute("CREATE TABLE half (done)")
            raise sqlite3.OperationalError("disk I/O error")

    async def fill() -> None:
        store = SqliteStore(tmp_path / "evener.db")
        await store.create("a", opened("t"), holder="me")
        await store.aclose()

    run(fill())
    before = sorted(tmp_path.iterdir())
    with pytest.raises(StoreError, match=r"copy\.db"):
        backups.write_copy(lambda: sqlite3.connect(tmp_path / "evener.db", factory=Full), tmp_path / "copy.db")
    assert sorted(tmp_path.iterdir()) == before


def test_a_damaged_store_gives_no_backup(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"

    async def fill() -> None:
        store = SqliteStore(path)
        log = await store.create("a", opened("t"), holder="me")
        await log.append(*(answered("x" * 2_000) for _ in range(200)))
        await store.aclose()

    run(fill())
    content = bytearray(path.read_bytes())
    content[8192:40960] = b"\xff" * 32768
    path.write_bytes(content)
    with pytest.raises(StoreError):
        backups.write_copy(lambda: sqlite3.connect(path), tmp_path / "copy.db")
    assert [path.name for path in tmp_path.glob("*copy*")] == []


def test_a_backup_of_what_is_in_memory_is_a_file(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        log = await store.create("t", opened("t"), holder="me")
        await log.append(asked("question"))
        await fork_of(store, "t", 2, "b")
        await store.create("t2", opened("t2"), holder="me")
        await store.backup(tmp_path / "copy.db")
        with pytest.raises(StoreError, match="overwrites nothing"):
            await store.backup(tmp_path / "copy.db")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.db", "copy.db.heads"]
        copy = SqliteStore(tmp_path / "copy.db")
        for id in ("t", "b", "t2"):
            assert list(map(encode_event, await copy.read(id))) == list(map(encode_event, await store.read(id)))
        await copy.aclose()

    run(scenario())
