"""Erasing, for both stores: what was said is gone from every file, the numbers and the chain stay, the rest goes on."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from evener.errors import StoreError
from evener.events import Opened
from evener.store import Damaged, Erased, LeaseHeld, LeaseLost, NoLog, Note, SqliteStore, Store
from evener.store.tombstones import ERASED
from tests.store.stores import STORES, Clock, opened, run, said, texts

SECRET = "the moon is made of cheese"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Store]:
    made = STORES[request.param](tmp_path, clock)
    yield made
    run(made.aclose())


async def forked(store: Store, name: str, log: str, seq: int | None = None) -> None:
    point = await store.link(log, seq)
    first = Opened(at=3.0, thread="a", parent=point.log, parent_seq=point.seq, parent_hash=point.hash)
    fork = await store.create(name, first, holder="me")
    await fork.append(said(f"{name} {SECRET}"))
    await fork.aclose()


async def thread(store: Store) -> None:
    """Thread `a` with a fork; thread `b`; a blob of `a` and one that both name."""
    alone, shared = await store.put_blob(b"only a"), await store.put_blob(b"both")
    log = await store.create("a", opened("a"), holder="me")
    await log.append(said(f"one {SECRET}"), said(f"{alone} two"), said(f"three {shared}"))
    await log.aclose()
    await store.post("a", Note("k", "steer", f'{{"text":"{SECRET}"}}'))
    await forked(store, "fork", "a", 3)
    other = await store.create("b", opened("b"), holder="me")
    await other.append(said(f"{shared}"))
    await other.aclose()


def remains(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if SECRET.encode() in path.read_bytes()]


DAMAGE = {
    "bytes": f"UPDATE events SET payload = CAST('{SECRET}' AS BLOB)",
    "text": f"UPDATE events SET payload = '{SECRET}'",
    "nothing": "UPDATE events SET payload = NULL",
    "a number": "UPDATE events SET payload = 5",
    "no event": f"UPDATE events SET payload = CAST('{SECRET}' AS BLOB), digest = zeroblob(32)",
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("where", ["log < 3", "log = 1 AND seq = 1", "log = 1 AND seq = 3", "log = 2"])
def test_a_damaged_thread_can_be_erased(tmp_path: Path, damage: str, where: str) -> None:
    """What cannot be read goes, too; what is wrong with the links is still told."""

    async def scenario() -> None:
        store = SqliteStore(tmp_path / "evener.db")
        await thread(store)
        await store.aclose()
        with closing(sqlite3.connect(store.path)) as connection, connection:
            connection.execute(f"{DAMAGE[damage]} WHERE {where}")
        store = SqliteStore(tmp_path / "evener.db")
        assert [finding for finding in await store.verify("a") if finding.damage]
        assert await store.erase("a") == 6
        with pytest.raises(Erased):
            await store.read("a")
        left = [finding for finding in await store.verify("a") if finding.damage]
        assert bool(left) == (damage == "no event")
        assert all("chain" in finding.what for finding in left)
        await store.aclose()

    run(scenario())
    assert remains(tmp_path) == []


def test_one_event_of_a_damaged_thread_is_not_touched(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "evener.db")
        await thread(store)
        await store.aclose()
        with closing(sqlite3.connect(store.path)) as connection, connection:
            connection.execute(DAMAGE["bytes"] + " WHERE log = 1 AND seq = 3")
        store = SqliteStore(tmp_path / "evener.db")
        with pytest.raises(Damaged):
            await store.erase("a", seqs=[3])
        assert await store.erase("a", seqs=[2]) == 1
        await store.aclose()

    run(scenario())


def test_one_event_is_erased_and_the_rest_is_read_as_before(store: Store) -> None:
    async def scenario() -> None:
        await thread(store)
        before = [(await store.link("a", seq)).hash for seq in range(1, 5)]
        assert await store.erase("a", seqs=[2]) == 1
        assert await store.erase("a", seqs=[2]) == 0
        events = await store.read("a")
        assert texts(events)[0] == ERASED
        assert [text.split()[-1] for text in texts(events)[1:2]] == ["two"]
        assert texts(await store.read("fork"))[0] == ERASED
        assert [(await store.link("a", seq)).hash for seq in range(1, 5)] == before
        assert await store.verify() == []
        log, _ = await store.open("a", holder="me")
        await log.append(said("goes on"))
        assert texts(await store.read("a"))[-1] == "goes on"
        await log.aclose()

    run(scenario())


def test_events_of_the_path_are_erased_where_they_lie(store: Store) -> None:
    async def scenario() -> None:
        await thread(store)
        assert await store.erase("fork", seqs={2, 5}) == 2
        assert [text == ERASED for text in texts(await store.read("fork"))] == [True, False, True]
        assert [text == ERASED for text in texts(await store.read("a"))] == [True, False, False]
        for wrong in (0, 6, -1):
            with pytest.raises(StoreError, match=f"no event {wrong}"):
                await store.erase("fork", seqs=[3, wrong])
        assert [text == ERASED for text in texts(await store.read("a"))] == [True, False, False]
        assert await store.verify() == []

    run(scenario())


def test_a_thread_is_erased_with_all_that_is_its_own(store: Store, clock: Clock) -> None:
    async def scenario() -> None:
        await thread(store)
        await store.describe("a", title=SECRET, tags=["cheese"])
        clock.now = 86_400.0 * 365
        assert await store.erase("a") == 6
        for call in (
            store.read("a"),
            store.read("fork"),
            store.open("a", holder="me"),
            store.link("a"),
            store.post("a", Note("n", "steer")),
        ):
            with pytest.raises(Erased, match=r"erased on 1971-01-01"):
                await call
        summaries = {summary.log: summary for summary in await store.logs()}
        assert (summaries["a"].title, summaries["a"].tags, summaries["a"].events) == ("", (), 4)
        blobs = {name: (name in texts(await store.read("b"))) for name in texts(await store.read("b"))}
        assert [await store.get_blob(name) for name in blobs] == [b"both"]
        assert await store.verify() == []
        assert await store.erase("a") == 0
        with pytest.raises(StoreError, match="exists already"):
            await store.create("a", opened("a"), holder="me")

    run(scenario())


def test_a_blob_goes_with_the_last_event_that_names_it(store: Store) -> None:
    async def scenario() -> None:
        await thread(store)
        (alone,) = {word for text in texts(await store.read("a")) for word in text.split()[:1] if len(word) == 64}
        (shared,) = texts(await store.read("b"))
        await store.erase("a", seqs=[2, 4])
        assert (await store.get_blob(alone), await store.get_blob(shared)) == (b"only a", b"both")
        await store.erase("a", seqs=[3])
        with pytest.raises(StoreError, match="no blob"):
            await store.get_blob(alone)
        await store.erase("b")
        with pytest.raises(StoreError, match="no blob"):
            await store.get_blob(shared)

    run(scenario())


def test_a_branch_is_erased_and_the_thread_stays(store: Store) -> None:
    async def scenario() -> None:
        await thread(store)
        await forked(store, "twig", "fork", 4)
        assert await store.erase("fork") == 2
        with pytest.raises(Erased):
            await store.read("fork")
        with pytest.raises(Erased):
            await forked(store, "new", "fork")
        assert len(await store.read("a")) == 4
        assert [text == ERASED for text in texts(await store.read("twig"))] == [False, False, False]
        assert await store.verify() == []

    run(scenario())


def test_what_somebody_runs_is_not_erased_and_a_late_holder_writes_nothing(store: Store, clock: Clock) -> None:
    async def scenario() -> None:
        await thread(store)
        log, _ = await store.open("a", holder="me")
        with pytest.raises(LeaseHeld, match="'me'"):
            await store.erase("a")
        assert len(await store.read("a")) == 4
        clock.now += 1000
        assert await store.erase("a") == 6
        with pytest.raises(LeaseLost):
            await log.append(said("late"))

    run(scenario())


def test_nobody_s_log_is_not_erased(store: Store) -> None:
    async def scenario() -> None:
        for seqs in (None, [1]):
            with pytest.raises(NoLog):
                await store.erase("nowhere", seqs=seqs)

    run(scenario())


@pytest.mark.parametrize("whole", [True, False])
def test_no_file_has_what_was_erased(tmp_path: Path, whole: bool) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "evener.db")
        await thread(store)
        log = await store.create("long", opened("long"), holder="me")
        await log.append(said(SECRET * 1000))
        await log.aclose()
        assert remains(tmp_path) != []
        for name in ("a", "fork", "long") if whole else ():
            await store.erase(name)
        if not whole:
            await store.erase("fork", seqs=[2, 5])
            await store.erase("long", seqs=[2])
            held, _ = await store.open("a", holder="me")
            (note,) = await held.notes()
            await held.settle(note.number)
            await held.aclose()
        assert (remains(tmp_path) == []) is whole  # a note that was settled stays
        await store.aclose()

    run(scenario())


def test_a_sealed_tombstone_is_one_too(tmp_path: Path) -> None:
    class Backwards:
        name = "backwards"

        def seal(self, content: bytes, about: bytes) -> bytes:
            return about + content[::-1]

        def open(self, content: bytes, about: bytes) -> bytes:
            assert content.startswith(about)
            return content[len(about) :][::-1]

    async def scenario() -> None:
        store = SqliteStore(tmp_path / "evener.db", cipher=Backwards())
        await thread(store)
        await store.erase("a", seqs=[2])
        assert texts(await store.read("a"))[0] == ERASED
        assert await store.verify() == []
        await store.erase("a")
        assert await store.verify() == []
        await store.aclose()

    run(scenario())
