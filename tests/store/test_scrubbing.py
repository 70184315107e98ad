"""What was erased leaves SQLite's own log, too: at once, or with a later write when somebody was reading; that is told."""

import sqlite3
from contextlib import closing
from pathlib import Path

from evener.store import SqliteStore
from tests.store.stores import opened, run, said

SECRET = "the moon is made of cheese"


def remains(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if SECRET.encode() in path.read_bytes()}


def test_what_a_reader_keeps_in_the_log_goes_with_a_later_write(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"

    async def scenario() -> None:
        store = SqliteStore(path, busy=0.2)
        log = await store.create("a", opened("a"), holder="me")
        await log.append(said(SECRET))
        await log.aclose()
        other = await store.create("b", opened("b"), holder="me")
        with closing(sqlite3.connect(path)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM events").fetchone()
            assert await store.erase("a") == 2
            assert "evener.db-wal" in remains(tmp_path)
            [finding] = await store.verify()
            assert (finding.damage, "evener.db-wal" in finding.what) == (False, True)
            await other.append(said("in the way still"))
            assert "evener.db-wal" in remains(tmp_path)
        await other.append(said("nobody is in the way"))
        assert remains(tmp_path) == set()
        assert await store.verify() == []
        assert len(await store.read("b")) == 3
        await other.aclose()
        await store.aclose()

    run(scenario())


def test_with_nobody_in_the_way_it_is_gone_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "evener.db")
        log = await store.create("a", opened("a"), holder="me")
        await log.append(said(SECRET))
        await log.aclose()
        await store.erase("a")
        assert remains(tmp_path) == set()
        assert await store.verify() == []
        await store.aclose()

    run(scenario())
