"""With a cipher nothing that was said can be read from the files; without the right one nothing is opened or changed."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from evener.errors import StoreError
from evener.store import MemoryStore, Note, SqliteStore
from evener.store.cipher import Cipher, WrongCipher
from evener.store.redaction import UNREADABLE
from evener.store.transfer.jsonl import export_lines
from tests.store.extras.samples import EVENTS
from tests.store.extras.stores import KEY, asked, leftovers
from tests.store.extras.toycipher import ToyCipher
from tests.store.stores import opened, run

WORDS = b"remarkable"


class Other(ToyCipher):
    """The same by another name."""

    name = "another"


async def fill(path: Path, cipher: Cipher | None) -> str:
    store = SqliteStore(path, cipher=cipher)
    log = await store.create("a", opened("t"), holder="me")
    await log.append(asked("a remarkable question"), *EVENTS[1:])
    await store.post("a", Note("k", "steer", '{"text":"a remarkable note"}'))
    await store.describe("t", title="A remarkable title", tags=["remarkable"])
    name = await store.put_blob(b"a remarkable blob")
    await store.aclose()
    return name


def test_what_was_said_lies_in_no_file(tmp_path: Path) -> None:
    """And comes back as it was, from a store with the same key."""

    async def scenario() -> None:
        name = await fill(tmp_path / "evener.db", ToyCipher(KEY))
        for secret in (WORDS, WORDS.title(), b"web_search", b"c2lnbmF0dXJl"):
            assert secret not in leftovers(tmp_path)
        store = SqliteStore(tmp_path / "evener.db", cipher=ToyCipher(KEY))
        log, events = await store.open("a", holder="me")
        assert events == [opened("t"), asked("a remarkable question"), *EVENTS[1:]]
        assert [note.body for note in await log.notes()] == ['{"text":"a remarkable note"}']
        [summary] = await store.logs()
        assert (summary.title, summary.tags) == ("A remarkable title", ("remarkable",))
        assert await store.get_blob(name) == b"a remarkable blob"
        assert [hit.seq for hit in await store.search("remarkable")] == [0, 2]
        assert not [one for one in await store.verify() if one.damage]
        await store.aclose()

    run(scenario())


def test_without_a_cipher_it_would_all_be_there(tmp_path: Path) -> None:
    run(fill(tmp_path / "evener.db", None))
    assert leftovers(tmp_path).count(WORDS) >= 4


@pytest.mark.parametrize(
    ("made", "given", "told"),
    [
        (ToyCipher(KEY), None, "opened without one"),
        (ToyCipher(KEY), ToyCipher(b"another key"), "another key"),
        (ToyCipher(KEY), Other(KEY), "opened with 'another'"),
        (None, ToyCipher(KEY), "not encrypted"),
    ],
)
def test_a_store_is_opened_with_the_cipher_it_was_made_with(
    tmp_path: Path, made: Cipher | None, given: Cipher | None, told: str
) -> None:
    async def scenario() -> None:
        path = tmp_path / "evener.db"
        await fill(path, made)
        before = path.read_bytes()
        store = SqliteStore(path, cipher=given)
        for call in (store.read("a"), store.create("b", opened(), holder="me"), store.logs(), store.backup(tmp_path / "copy")):
            with pytest.raises(WrongCipher, match=told):
                await call
        await store.aclose()
        assert path.read_bytes() == before
        again = SqliteStore(path, cipher=made)
        assert len(await again.read("a")) == len(EVENTS) + 1
        await again.aclose()

    run(scenario())


def test_an_empty_store_becomes_whose_it_is_first_used_with(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "evener.db"
        store = SqliteStore(path)
        assert await store.logs() == []
        await store.aclose()
        await fill(path, ToyCipher(KEY))
        with pytest.raises(WrongCipher):
            await SqliteStore(path).logs()

    run(scenario())


def test_two_processes_may_make_one_store_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        stores = [SqliteStore(tmp_path / "evener.db", cipher=ToyCipher(KEY)) for _ in range(8)]
        made = [store.create(f"log {number}", opened(f"t{number}"), holder="me") for number, store in enumerate(stores)]
        await asyncio.gather(*made)
        assert len(await stores[0].logs()) == 8
        for store in stores:
            await store.aclose()

    run(scenario())


CHANGES = {
    "a changed byte": "UPDATE events SET payload = changed(payload) WHERE seq = 2",
    "nothing left": "UPDATE events SET payload = x'' WHERE seq = 2",
    "another event's": "UPDATE events SET payload = (SELECT payload FROM events WHERE seq = 3) WHERE seq = 2",
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("covered", [False, True])
def test_changed_bytes_are_noticed_even_by_someone_who_mends_the_digest(tmp_path: Path, change: str, covered: bool) -> None:
    """Without the chain, too: the cipher binds each payload to its place."""

    async def scenario() -> None:
        path = tmp_path / "evener.db"
        await fill(path, ToyCipher(KEY))
        with closing(sqlite3.connect(path)) as connection:
            connection.create_function("changed", 1, lambda sealed: sealed[:40] + bytes([sealed[40] ^ 1]) + sealed[41:])
            connection.execute(CHANGES[change])
            connection.commit()
        store = SqliteStore(path, cipher=ToyCipher(KEY))
        with pytest.raises(StoreError, match=r"damaged|cannot be opened"):
            await store.read("a")
        if covered:
            hits = await store.search("remarkable question")
            assert (list(hits), hits.unread) == ([], 1)
        assert any(finding.damage for finding in await store.verify())
        await store.aclose()

    run(scenario())


@pytest.mark.parametrize(
    ("what", "change"),
    [("title", "UPDATE logs SET title = x'0011'"), ("tag", "UPDATE tags SET tag = x'0011'")],
)
def test_a_label_that_was_changed_is_told_and_hides_nothing(tmp_path: Path, what: str, change: str) -> None:
    async def scenario() -> None:
        path = tmp_path / "evener.db"
        await fill(path, ToyCipher(KEY))
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(change)
            connection.commit()
        store = SqliteStore(path, cipher=ToyCipher(KEY))
        [summary] = await store.logs()
        assert UNREADABLE in (summary.title, *summary.tags)
        assert summary.title != "" != summary.tags[0]
        assert [finding.what for finding in await store.verify() if finding.damage] == [f"A {what} of it cannot be read."]
        await store.aclose()

    run(scenario())


def test_a_blob_that_was_changed_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "evener.db"
        name = await fill(path, ToyCipher(KEY))
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("UPDATE blobs SET content = zeroblob(100)")
            connection.commit()
        store = SqliteStore(path, cipher=ToyCipher(KEY))
        with pytest.raises(StoreError, match="cannot be opened by the cipher"):
            await store.get_blob(name)
        await store.aclose()

    run(scenario())


def test_an_export_is_plain_whatever_the_store_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        await fill(tmp_path / "evener.db", ToyCipher(KEY))
        store = SqliteStore(tmp_path / "evener.db", cipher=ToyCipher(KEY))
        lines = [line async for line in export_lines(store, "t")]
        assert any(b"a remarkable question" in line for line in lines)
        await store.aclose()

    run(scenario())


def test_the_same_words_never_lie_there_twice_the_same() -> None:
    cipher = ToyCipher(KEY)
    assert cipher.seal(b"words", b"a") != cipher.seal(b"words", b"a")
    assert cipher.open(cipher.seal(b"", b"a"), b"a") == b""
    assert MemoryStore().encrypted is False
