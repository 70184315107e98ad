"""The name of a blob in an encrypted store tells nothing to a reader without the key, and finds its content all the same."""

import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from evener.events import CallFinished
from evener.store import SqliteStore, Store, export_lines, import_lines
from evener.store.cipher import Cipher
from evener.transcript import TextBlock
from tests.store.extras.stores import KEY
from tests.store.extras.toycipher import ToyCipher
from tests.store.stores import opened, run

CONTENT = b"a remarkable output\n" * 50
PLAIN = sha256(CONTENT).hexdigest()


async def filled(store: Store) -> str:
    log = await store.create("t", opened("t"), holder="me")
    name = await store.put_blob(CONTENT)
    shown = TextBlock(f'cut; read_output(id="{name}")')
    await log.append(CallFinished(at=2.0, call="c", ok=True, content=(shown,), metadata=f'{{"spilled":"{name}"}}'))
    await log.aclose()
    return name


def sealed(path: Path, key: bytes = KEY) -> SqliteStore:
    return SqliteStore(path, cipher=ToyCipher(key))


def columns(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [name for (name,) in connection.execute("SELECT digest FROM blobs")]


async def damage(store: SqliteStore) -> list[str]:
    return [finding.what for finding in await store.verify() if finding.damage]


def test_no_file_names_a_blob_by_its_content(tmp_path: Path) -> None:
    async def scenario() -> None:
        one, other, plain = sealed(tmp_path / "one.db"), sealed(tmp_path / "other.db"), SqliteStore(tmp_path / "plain.db")
        for store in (one, other, plain):
            assert await filled(store) == await store.put_blob(CONTENT) == PLAIN
            assert await store.get_blob(PLAIN) == CONTENT
            assert await damage(store) == []
        names = [name for store in (one, other, plain) for name in columns(store.path)]
        assert (len(names), len({*names}), names[2], [len(name) for name in names]) == (3, 3, PLAIN, [64] * 3)
        for store in (one, other, plain):
            await store.aclose()

    run(scenario())
    for file in tmp_path.glob("o*"):
        assert PLAIN.encode() not in file.read_bytes()
        assert bytes.fromhex(PLAIN) not in file.read_bytes()


def test_a_thread_that_moves_takes_its_blobs_along_and_erasing_takes_them_away(tmp_path: Path) -> None:
    async def scenario() -> None:
        first, second, plain = (
            sealed(tmp_path / "one.db"),
            sealed(tmp_path / "two.db", b"2" * 32),
            SqliteStore(tmp_path / "p.db"),
        )
        await filled(first)
        await import_lines(plain, export_lines(first, "t"))
        await import_lines(second, export_lines(plain, "t"))
        for store in (plain, second):
            assert await store.get_blob(PLAIN) == CONTENT
            assert await damage(store) == []
        assert columns(second.path) != columns(plain.path) == [PLAIN]
        for store in (first, second, plain):
            assert await store.erase("t") == 2
            assert columns(store.path) == []
            await store.aclose()

    run(scenario())


@pytest.mark.parametrize("change", ["DELETE FROM blobs", "UPDATE blobs SET digest = printf('%064x', 1)"])
def test_a_blob_that_is_gone_or_moved_is_told(tmp_path: Path, change: str) -> None:
    async def scenario() -> None:
        store = sealed(tmp_path / "evener.db")
        await filled(store)
        with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
            connection.execute(change)
        assert any("relies on the blob" in what for what in await damage(store))
        await store.aclose()

    run(scenario())


def test_a_store_of_before_is_read_and_its_new_blobs_have_keyed_names(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"

    async def scenario(cipher: Cipher) -> None:
        store = sealed(path)
        await filled(store)
        await store.aclose()
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:  # as it was made then
            connection.execute("DELETE FROM meta WHERE key = 'cipher_names'")
            connection.execute("DELETE FROM blobs")
            row = (PLAIN, len(CONTENT), cipher.seal(CONTENT, f"blob 0 {PLAIN}".encode()))
            connection.execute("INSERT INTO blobs (digest, size, content) VALUES (?, ?, ?)", row)
        store = sealed(path)
        assert await store.get_blob(PLAIN) == CONTENT
        assert await damage(store) == []
        new = await store.put_blob(b"new")
        assert await store.get_blob(new) == b"new"
        assert new not in columns(path)
        assert await store.erase("t") == 2
        assert PLAIN not in columns(path)
        await store.aclose()

    run(scenario(ToyCipher(KEY)))
