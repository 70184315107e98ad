"""A read that is refused half way leaves nothing open: whoever reads next sees the store as it is now, not as it was then."""

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from evener.errors import EvenerError
from evener.events import Opened
from evener.store import SqliteStore, export_lines
from tests.store.stores import opened, run, said, texts

DAMAGE = "UPDATE events SET payload = x'7b7d' WHERE log = 1 AND seq = 2"
NEWER = "UPDATE events SET version = 9, rule = 1, chain = digest WHERE log = 1 AND seq = 2"


async def exported(store: SqliteStore) -> None:
    async for _ in export_lines(store, "bad"):
        pass


REFUSED: dict[str, Callable[[SqliteStore], Awaitable[object]]] = {
    "read": lambda store: store.read("bad"),
    "read of a part": lambda store: store.read("bad", after=1),
    "export": exported,
}


async def grown(store: SqliteStore, name: str, *words: str) -> None:
    log = await store.create(name, opened(name), holder="me")
    await log.append(*map(said, words))
    await log.aclose()


async def spoiled(path: Path, change: str) -> SqliteStore:
    store = SqliteStore(path)
    await grown(store, "bad", "one", "two", "three")
    await grown(store, "good", "one")
    await store.aclose()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(change)
    return SqliteStore(path)


@pytest.mark.parametrize("change", [DAMAGE, NEWER])
@pytest.mark.parametrize("how", REFUSED)
def test_after_a_refusal_everything_else_is_read_as_it_is_now(tmp_path: Path, how: str, change: str) -> None:
    async def scenario() -> None:
        store = await spoiled(tmp_path / "evener.db", change)
        with pytest.raises(EvenerError) as refused:
            await REFUSED[how](store)
        await grown(store, "new", "fresh")
        assert texts(await store.read("new")) == ["fresh"]
        log, events = await store.open("good", holder="me")
        await log.append(said("two"))
        assert (texts(events), texts(await store.read("good"))) == (["one"], ["one", "two"])
        assert refused.value is not None, "it is still held here, with all that it holds"
        await log.aclose()
        await store.aclose()

    run(scenario())


def test_a_reader_that_is_behind_is_noticed_when_a_log_is_taken_over(tmp_path: Path) -> None:
    """Whoever goes on from fewer events than there are starts a call a second time."""
    held: list[sqlite3.Cursor] = []

    def pin(connection: sqlite3.Connection) -> None:
        held.append(connection.execute("SELECT seq FROM events"))
        held[0].fetchone()

    async def scenario() -> None:
        store = SqliteStore(tmp_path / "evener.db")
        await grown(store, "a", "one", "two")
        await store._reader.run(pin)
        log, _ = await store.open("a", holder="me")
        await log.append(said("three"))
        await log.aclose()
        assert texts(await store.read("a")) == ["one", "two"], "the reader is behind"
        for after in (-1, 0, 2, 4, 9):
            log, events = await store.open("a", holder="me", after=after)
            assert texts(events) == ["one", "two", "three"][max(after - 1, 0) :]
            assert log.length == 4
            await log.aclose()
        await store._reader.run(lambda _: held.pop().close())
        await store.aclose()

    run(scenario())


def test_a_fork_is_taken_over_with_its_whole_path(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "evener.db")
        await grown(store, "a", "one", "two")
        link = await store.link("a", 2)
        first = Opened(at=3.0, thread="a", parent=link.log, parent_seq=link.seq, parent_hash=link.hash)
        await (await store.create("b", first, holder="me")).aclose()
        log, events = await store.open("b", holder="me")
        assert (len(events), log.length) == (3, 3)
        await log.aclose()
        await store.aclose()

    run(scenario())
