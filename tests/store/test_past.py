"""Files of every past version open, keep what they have as it is, and go on with the newest rules."""

import shutil
import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from evener.events import Configured, Opened, Prompted
from evener.store import SqliteStore
from evener.store.sqlite import file
from tests.store.stores import flaws, run, said, texts

PAST = Path(__file__).parent / "past"
FILES = {1: PAST / "version1.db"}
LENGTHS = {"thread-a": 7, "thread-b": 301, "no opening": 1}


@pytest.fixture(params=FILES)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copy(FILES[request.param], tmp_path / "evener.db"))


def links(path: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT log, seq, version, digest, chain, payload FROM events ORDER BY id").fetchall()


def test_there_is_a_file_of_every_past_version() -> None:
    assert sorted(FILES) == list(range(1, file.VERSION))


def test_what_is_in_it_is_read_and_stays_as_it_is(path: Path) -> None:
    before = links(path)

    async def scenario() -> None:
        store = SqliteStore(path)
        assert {summary.log: summary.events for summary in await store.logs()} == LENGTHS
        events = await store.read("thread-a")
        assert isinstance(events[0], Opened)
        assert isinstance(events[1], Configured)
        assert isinstance(events[2], Prompted)
        assert texts(events) == ["lunch", "by note"]
        assert texts(await store.read("thread-b")) == [f"event {number}" for number in range(300)]
        assert await store.get_blob("0320ed257b8240942c4a510ce56d861f2460df4993acbf5bc2c72911528576ea") == b"an old blob"
        assert await store.verify() == []
        await store.aclose()

    run(scenario())
    assert links(path) == before
    with closing(sqlite3.connect(path)) as connection:
        assert file.check(connection, path) == file.VERSION


def test_it_goes_on_by_the_new_rules(path: Path) -> None:
    before = links(path)

    async def scenario() -> None:
        store = SqliteStore(path)
        log, events = await store.open("thread-a", holder="me")
        assert (len(events), log.lease.epoch) == (7, 2)
        assert [(note.key, note.body) for note in await log.notes()] == [("steer-2", '{"text":"waiting ä"}')]
        await log.settle(2, said("new"))
        point = await store.link("thread-b", 100)
        first = Opened(at=1.0, thread="thread-b", parent=point.log, parent_seq=point.seq, parent_hash=point.hash)
        fork = await store.create("fork", first, holder="me")
        await fork.append(said("branch"))
        assert texts(await store.read("fork")) == [*(f"event {number}" for number in range(99)), "branch"]
        await store.move_head("thread-b", "fork")
        assert await store.head("thread-b") == "fork"
        await store.aclose()
        again = SqliteStore(path)
        assert texts(await again.read("thread-a")) == ["lunch", "by note", "new"]
        assert await again.verify() == []
        await again.aclose()

    run(scenario())
    assert links(path)[: len(before)] == before
    assert flaws(path) == []
    with closing(sqlite3.connect(path)) as connection:
        rules = connection.execute("SELECT rule, count(*) FROM events GROUP BY rule").fetchall()
    assert rules == [(1, 309), (2, 3)]


def test_a_process_of_the_old_version_that_still_runs_does_no_harm(path: Path) -> None:
    """It was connected before the file was brought forward, and writes as it always did."""

    async def forward() -> None:
        store = SqliteStore(path)
        await store.logs()
        await store.aclose()

    run(forward())
    payload = b'{"kind":"cancelled","at":9.0,"why":"from the past"}'
    with closing(sqlite3.connect(path)) as connection, connection:
        number, length, head = connection.execute("SELECT number, length, head FROM logs WHERE log = 'thread-a'").fetchone()
        digest = sha256(payload).digest()
        chain = sha256(head + digest).digest()
        connection.execute(
            "INSERT INTO events (log, seq, version, at, kind, digest, chain, payload)"
            " VALUES (?, ?, 1, 9.0, 'cancelled', ?, ?, ?)",
            (number, length + 1, digest, chain, payload),
        )
        connection.execute("UPDATE logs SET length = length + 1, head = ?, changed = 9.0 WHERE number = ?", (chain, number))

    async def look() -> list[str]:
        store = SqliteStore(path)
        assert await store.verify() == []
        events = await store.read("thread-a")
        await store.aclose()
        return texts(events)

    assert run(look()) == ["lunch", "by note", "from the past"]
