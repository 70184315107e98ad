"""The index of a search finds what a look at every event finds, forgets what is erased, and is never needed."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from evener.events import CallFinished, Event
from evener.store import SqliteStore
from evener.store.protocol import Hits
from evener.store.sqlite import catalog, search_index
from evener.transcript import TextBlock
from tests.store.extras.stores import KEY
from tests.store.extras.toycipher import ToyCipher
from tests.store.stores import opened, run, said

MANY = 400
RARE = "zqxjkvw"
QUERIES = (
    "word77", "ORD77", '"word77 of"', "word1 nowhere", "of", "77 6", "straße", "İstan", 'quote"d', "back\\slash", "\u2028next",
    "a\0b", "ꯍ꯭ꯦ", RARE,
)  # fmt: skip


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (catalog, search_index):
        monkeypatch.setattr(module, "PART", 128)
    monkeypatch.setattr(search_index, "ROWS", 50)


def spoken(number: int) -> Event:
    text = (
        f"word{number} of {number % 7} Straße İstanbul" if number % 50 else f'quote"d back\\slash \u2028next a\0b ꯍ꯭ꯦ {number}'
    )
    return CallFinished(at=2.0, call=f"c{number}", ok=True, content=(TextBlock(text),))


async def filled(path: Path, many: int = MANY, *, cipher: ToyCipher | None = None) -> SqliteStore:
    store = SqliteStore(path, cipher=cipher)
    log = await store.create("t", opened(), holder="me")
    await log.append(*map(spoken, range(many)))
    other = await store.create("o", opened("o"), holder="me")
    await other.append(CallFinished(at=2.0, call="r", ok=True, content=(TextBlock(f"so {RARE} indeed"),)), said("x"))
    await log.append(*map(spoken, range(many)))
    await other.aclose()
    await log.aclose()
    return store


def places(hits: Hits) -> list[tuple[str, int, str]]:
    return [(hit.summary.log, hit.seq, hit.excerpt) for hit in hits]


async def looked(store: SqliteStore, queries: Sequence[str] = QUERIES, limit: int = 30) -> list[object]:
    return [places(await store.search(query, limit=limit)) for query in queries]


async def as_by_looking(store: SqliteStore, queries: Sequence[str] = QUERIES) -> None:
    """What is found with the index is what is found without one."""
    index, store._indexes = store._indexes, None
    expected = await looked(store, queries)
    store._indexes = index
    assert await looked(store, queries) == expected


def files(folder: Path, names: str = "*") -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.glob(names)) if not file.name.endswith("-shm"))


def knows(folder: Path) -> bool:
    """True if a file has the rare word, or the index a piece of it: it keeps pieces of three letters, with what they share.

    Other files have digests, in which three letters stand by chance.
    """
    index = files(folder, "*.search*")
    return RARE.encode() in files(folder) or any(piece in index for piece in (b"qxj", b"jkv", b"kvw", b"xjk"))


def test_the_index_finds_what_a_look_at_every_event_finds(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await filled(tmp_path / "evener.db")
        await as_by_looking(store)  # while it is made
        await store.index()
        assert (tmp_path / "evener.db.search").stat().st_mode & 0o777 == 0o600
        await as_by_looking(store)
        log, _ = await store.open("t", holder="me", after=MANY)
        await log.append(*map(spoken, range(300)))
        await as_by_looking(store)
        assert len(await store.search("word299", limit=100)) == 3
        assert [hit.summary.log for hit in await store.search(RARE)] == ["o"]
        await store.aclose()

    run(scenario())


def test_what_is_not_asked_for_is_not_read(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await filled(tmp_path / "evener.db")
        await store.index()
        read: list[str] = []

        def watch(connection: object) -> None:
            connection.set_trace_callback(read.append)  # type: ignore[attr-defined]

        await store._reader.run(watch)
        await store.search(RARE)
        looks = [line for line in read if "e.payload" in line]
        assert sum("e.id IN" in line for line in looks) == 1
        assert sum("e.id >=" in line for line in looks) <= 2  # the events that came last
        await store.aclose()

    run(scenario())


async def erase_event(store: SqliteStore) -> None:
    await store.erase("o", seqs=[2])


async def erase_thread(store: SqliteStore) -> None:
    await store.erase("o")


async def erase_unheard(store: SqliteStore) -> None:
    """As a process that is killed between the erasing and the index."""
    index, store._indexes = store._indexes, None
    await store.erase("o")
    store._indexes = index
    await store.search("word1")


@pytest.mark.parametrize("erase", [erase_event, erase_thread, erase_unheard])
def test_what_is_erased_is_in_no_file(tmp_path: Path, erase: Callable[[SqliteStore], object]) -> None:
    async def scenario() -> None:
        store = await filled(tmp_path / "evener.db")
        await store.index()
        assert knows(tmp_path)
        assert len(await store.search(RARE)) == 1
        await erase(store)  # type: ignore[misc]
        assert await store.search(RARE) == []
        await store.index()
        await as_by_looking(store)
        await store.aclose()

    run(scenario())
    assert not knows(tmp_path)


def restored(path: Path) -> None:
    shutil.copy(path.with_name("backup.db"), path)


def cut(path: Path) -> None:
    path.with_name(path.name + ".search").write_bytes(b"SQLite format 3\0")


def gone(path: Path) -> None:
    path.with_name(path.name + ".search").unlink()


@pytest.mark.parametrize("accident", [restored, cut, gone])
def test_an_index_that_does_not_fit_is_not_used(tmp_path: Path, accident: Callable[[Path], None]) -> None:
    path = tmp_path / "evener.db"

    async def scenario() -> None:
        store = await filled(path, 200)
        await store.backup(tmp_path / "backup.db")
        log, _ = await store.open("t", holder="me", after=200)
        await log.append(*(spoken(number + 10_000) for number in range(300)))
        await store.index()
        await store.aclose()
        accident(path)
        store = SqliteStore(path)
        log, _ = await store.open("t", holder="me", after=200)
        await log.append(*(spoken(number + 20_000) for number in range(300)))
        for _ in range(2):
            await as_by_looking(store, ["word77", "word10299", "word20299", RARE])
            await store.index()
        await store.aclose()

    run(scenario())


def test_an_encrypted_store_has_no_index(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await filled(tmp_path / "evener.db", 250, cipher=ToyCipher(KEY))
        assert len(await store.search(RARE)) == 1
        await store.index()
        await store.aclose()

    run(scenario())
    assert not list(tmp_path.glob("*.search*"))
    assert RARE.encode() not in files(tmp_path)  # whole: three letters of it stand somewhere in the ciphertext, by chance


def test_an_event_that_cannot_be_read_is_counted_with_the_index_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await filled(tmp_path / "evener.db", 250)

        def spoil(connection: object) -> None:
            connection.execute("UPDATE events SET payload = 'x' WHERE id IN (5, 6)")  # type: ignore[attr-defined]

        await store._writer.run(spoil)
        for _ in range(2):
            hits = await store.search("word241", limit=9)
            assert (len(hits), hits.unread) == (2, 2)
            await store.index()
        await store.aclose()

    run(scenario())
