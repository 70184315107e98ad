"""The file itself: where it lies, who may read it, what is refused and left alone, and how older ones are brought forward."""

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from evener import Harness
from evener.errors import StoreError, UsageError
from evener.events import Opened
from evener.store import Damaged, LeaseHeld, SqliteStore, export_lines
from evener.store.sqlite import file, rows
from evener.store.sqlite.file import data_folder, default_path, store_error
from evener.testing import ScriptedModel
from tests.store.stores import flaws, opened, run, said


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


async def made(path: Path) -> None:
    store = SqliteStore(path)
    log = await store.create("a", opened(), holder="me")
    await log.append(said("one"), said("two"), said("three"))
    await store.put_blob(b"blob")
    await store.aclose()


def rewrite(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(statement)


@pytest.mark.parametrize("name", ["", ":memory:", Path(":memory:")])
def test_a_name_that_sqlite_takes_for_no_file_is_refused(
    name: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match='store="memory"'):
        SqliteStore(name)
    with pytest.raises(UsageError, match='store="memory"'):
        Harness(ScriptedModel(["Hello."]), store=name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_nobody_else_can_read_it_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "deep" / "er" / "evener.db")
        await store.create("a", opened(), holder="me")
        found = modes(tmp_path / "deep" / "er")
        assert set(found.values()) == {0o600}
        assert found.keys() - {"evener.db.heads"} == {f"evener.db{ending}" for ending in ("", "-wal", "-shm", ".lock", ".next")}
        assert modes(tmp_path) == {"deep": 0o700}
        assert modes(tmp_path / "deep") == {"er": 0o700}
        await store.aclose()
        assert modes(tmp_path / "deep" / "er") == {f"evener.db{ending}": 0o600 for ending in ("", ".lock", ".next", ".heads")}

    with umask(mask):
        run(scenario())


def test_a_file_that_others_could_read_is_made_private_and_a_folder_of_the_user_is_left(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    path = tmp_path / "evener.db"
    run(made(path))
    path.chmod(0o644)
    run(SqliteStore(path).logs())
    assert modes(tmp_path)["evener.db"] == 0o600
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"EVENER_HOME": "/here", "XDG_DATA_HOME": "/there"}, "/here"),
        ({"XDG_DATA_HOME": "/there"}, "/there/evener"),
        ({"XDG_DATA_HOME": "relative", "HOME": "/home/me"}, "/home/me/.local/share/evener"),
        ({"XDG_DATA_HOME": "", "HOME": "/home/me"}, "/home/me/.local/share/evener"),
    ],
)
def test_the_usual_place(environment: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("EVENER_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert data_folder() == Path(folder)
    assert SqliteStore().path == default_path() == Path(folder) / "evener.db"


def test_a_store_that_is_not_used_makes_no_file(tmp_path: Path) -> None:
    async def scenario() -> None:
        await SqliteStore(tmp_path / "x" / "evener.db").aclose()

    run(scenario())
    assert list(tmp_path.iterdir()) == []


def test_importing_the_store_does_not_load_sqlite() -> None:
    code = "import sys, evener.store; evener.store.SqliteStore('x'); sys.exit('sqlite3' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0


def setting(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def test_it_is_durable_at_each_commit_and_its_chain_holds(tmp_path: Path) -> None:
    async def scenario() -> tuple[object, ...]:
        store = SqliteStore(tmp_path / "evener.db")
        found = [
            await store._writer.run(partial(setting, name=name)) for name in ("journal_mode", "synchronous", "foreign_keys")
        ]
        await store.aclose()
        return tuple(found)

    run(made(tmp_path / "evener.db"))
    assert run(scenario()) == ("wal", 2, 1)
    assert flaws(tmp_path / "evener.db") == []


def test_a_log_remembers_its_parent(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "evener.db")
        log = await store.create("a", opened(), holder="me")
        await log.append(said("one"), said("two"))
        point = await store.link("a")
        first = Opened(at=1.0, thread="t", parent="a", parent_seq=point.seq, parent_hash=point.hash)
        await store.create("b", first, holder="me")
        await store.aclose()

    run(scenario())
    with closing(sqlite3.connect(tmp_path / "evener.db")) as connection:
        (head,) = connection.execute("SELECT head FROM logs WHERE log = 'a'").fetchone()
        row = connection.execute("SELECT thread, parent, parent_seq, parent_hash, base FROM logs WHERE log = 'b'").fetchone()
    assert row == ("t", "a", 3, head.hex(), 3)


@pytest.mark.parametrize("statement", ["PRAGMA user_version = 99", "UPDATE meta SET value = '99' WHERE key = 'schema'"])
def test_a_newer_file_is_refused_and_left_alone(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "evener.db"
    run(made(path))
    rewrite(path, statement)
    before, files = path.read_bytes(), modes(tmp_path)
    with pytest.raises(StoreError, match=r"schema version 99.*Update Evener"):
        run(SqliteStore(path).read("a"))
    assert path.read_bytes() == before
    assert modes(tmp_path) == files


def foreign_database(path: Path) -> None:
    rewrite(path, "CREATE TABLE notes (text TEXT); INSERT INTO notes VALUES ('mine')")


FOREIGN: dict[str, Callable[[Path], object]] = {
    "a database": foreign_database,
    "a numbered database": partial(rewrite, statement="PRAGMA user_version = 1"),
    "an empty database": partial(rewrite, statement="VACUUM"),
    "a text": partial(Path.write_text, data="Dear diary, " * 1000),
    "a short text": partial(Path.write_text, data="x"),
    "zeros": partial(Path.write_bytes, data=b"\0" * 8192),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_file_that_is_not_ours_is_refused_and_left_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "mine.db"
    FOREIGN[kind](path)
    path.chmod(0o644)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"not a store of Evener.*left alone"):
        run(SqliteStore(path).create("a", opened(), holder="me"))
    assert path.read_bytes() == before
    assert modes(tmp_path) == {"mine.db": 0o644}


def test_a_path_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"cannot be made.*EVENER_HOME"):
        run(SqliteStore(tmp_path / "file" / "evener.db").logs())
    with pytest.raises(StoreError, match="cannot be made: Is a directory"):
        run(SqliteStore(tmp_path).logs())


def test_an_older_file_is_brought_forward_in_one_step_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"
    run(made(path))
    now, next_one = file.VERSION, file.VERSION + 1
    good = (*file.STEPS, ("ALTER TABLE logs ADD COLUMN colour TEXT NOT NULL DEFAULT ''",))
    bad = (*good, ("CREATE TABLE colours (tag TEXT)", "CREATE TABLE colours (tag TEXT)"))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        with pytest.raises(sqlite3.OperationalError):
            file.upgrade(connection, path, bad)
        assert file.check(connection, path) == now
        file.upgrade(connection, path, good)
        file.upgrade(connection, path, good)
        assert file.check(connection, path, next_one) == next_one
        assert connection.execute("SELECT log, length, colour FROM logs").fetchall() == [("a", 4, "")]
        with pytest.raises(StoreError, match=f"schema version {next_one}"):
            file.check(connection, path)
    with pytest.raises(StoreError, match=f"schema version {next_one}"):
        run(SqliteStore(path).logs())


def test_many_stores_may_make_the_file_at_once(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\nfrom evener.store import SqliteStore\nfrom tests.store.stores import opened\n"
        "asyncio.run(SqliteStore(sys.argv[1]).create(sys.argv[2], opened(), holder='x'))"
    )
    path = tmp_path / "evener.db"
    started = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", code, str(path), str(number)], cwd=Path(__file__).parents[2])
        for number in range(4)
    ]
    assert [running.wait(timeout=120) for running in started] == [0] * 4
    assert {summary.log for summary in run(SqliteStore(path).logs())} == {"0", "1", "2", "3"}


DAMAGE = {
    "a changed payload": "UPDATE events SET payload = CAST(replace(payload, 'two', 'TWO') AS BLOB) WHERE seq = 3",
    "an erased payload": "UPDATE events SET payload = NULL WHERE seq = 3",
    "a changed digest": "UPDATE events SET digest = zeroblob(32) WHERE seq = 3",
    "a missing event": "DELETE FROM events WHERE seq = 3",
    "a missing tail": "DELETE FROM events WHERE seq = 4",
    "a swap": "; ".join(f"UPDATE events SET seq = {new} WHERE seq = {old}" for old, new in ((2, 99), (3, 2), (99, 3))),
    "another head": "UPDATE logs SET head = zeroblob(32)",
    "another version": "UPDATE events SET version = 0 WHERE seq = 3",
    "another kind": "UPDATE events SET kind = 'opened' WHERE seq = 3",
    "another time": "UPDATE events SET at = 7 WHERE seq = 3",
    "another rule": "UPDATE events SET rule = 1 WHERE seq = 3",
    "a spoiled link": "UPDATE events SET chain = zeroblob(32) WHERE seq = 3",
    "a feigned erasure": "UPDATE events SET erased = 1 WHERE seq = 3",
    "a new base": "UPDATE logs SET base = 1",
    "a payload as text": "UPDATE events SET payload = CAST(payload AS TEXT) WHERE seq = 3",
    "a time as text": "UPDATE events SET at = 'noon' WHERE seq = 3",
    "a version as text": "UPDATE events SET version = 'one' WHERE seq = 3",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_noticed_and_nobody_holds_the_log(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "evener.db"
    run(made(path))
    rewrite(path, DAMAGE[damage])

    async def scenario() -> None:
        store = SqliteStore(path)
        for _ in range(2):
            with pytest.raises(StoreError, match=r"damaged at event \d.*evener verify") as caught:
                await store.open("a", holder="me")
            assert not isinstance(caught.value, LeaseHeld)
        await store.aclose()

    run(scenario())


def test_a_log_under_another_name_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"
    run(made(path))
    rewrite(path, "UPDATE logs SET log = 'b'")
    with pytest.raises(StoreError, match="damaged"):
        run(SqliteStore(path).read("b"))


def test_an_event_of_a_newer_evener_is_not_guessed_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "evener.db"
    with monkeypatch.context() as newer:
        newer.setattr(rows, "VERSION", 99)
        run(made(path))
    with pytest.raises(StoreError, match=r"version 99.*Update Evener"):
        run(SqliteStore(path).read("a"))


def test_an_event_linked_by_a_newer_rule_is_not_guessed_at(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"
    run(made(path))
    rewrite(path, "UPDATE events SET rule = 3 WHERE seq = 4")
    with pytest.raises(StoreError, match=r"rule 3.*Update Evener"):
        run(SqliteStore(path).read("a"))


def test_a_damaged_blob_is_noticed_and_mended_by_putting_it_again(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"
    run(made(path))
    rewrite(path, "UPDATE blobs SET content = x'00'")

    async def scenario() -> None:
        store = SqliteStore(path)
        name = (await store._reader.run(lambda connection: connection.execute("SELECT digest FROM blobs").fetchone()))[0]
        with pytest.raises(StoreError, match="not what was stored"):
            await store.get_blob(name)
        assert await store.put_blob(b"blob") == name
        assert await store.get_blob(name) == b"blob"
        await store.aclose()

    run(scenario())


def test_a_damaged_file_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"
    run(made(path))
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"is damaged.*Copy the file away"):
        run(SqliteStore(path).read("a"))


def test_a_full_database_is_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"
    run(made(path))
    with closing(sqlite3.connect(path)) as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(sqlite3.Error) as caught:
            connection.execute("INSERT INTO blobs (digest, size, content) VALUES ('x', 1, zeroblob(100000))")
    error = store_error(caught.value, path)
    assert (error.retryable, "no room left (SQLITE_FULL)" in str(error), "is safe" in str(error)) == (True, True, True)


def test_a_sidecar_that_others_can_read_is_made_private(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"
    run(made(path))
    heads = tmp_path / "evener.db.heads"
    heads.chmod(0o644)
    run(made_again(path))
    assert stat.S_IMODE(heads.stat().st_mode) == 0o600


async def made_again(path: Path) -> None:
    store = SqliteStore(path)
    await store.logs()
    await store.aclose()


@contextmanager
def somebody() -> Iterator[None]:
    """The superuser may write anywhere, so that user is somebody else for a while."""
    if os.getuid() != 0:
        yield
        return
    os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


async def looked_through(path: Path) -> tuple[int, int, int]:
    """How many logs, events and lines of an export there are, in a store that must refuse to be written."""
    store = SqliteStore(path)
    assert await store.verify() == []
    lines = [line async for line in export_lines(store, "a")]
    counts = len(await store.logs()), len(await store.read("a")), len(lines)
    with pytest.raises(StoreError, match="can only be read"):
        await store.create("b", opened("b"), holder="me")
    await store.aclose()
    return counts


@pytest.mark.skipif(sys.platform == "win32", reason="modes of folders")
def test_a_store_that_nobody_can_write_is_read() -> None:
    """As on a disk that is mounted for reading only."""
    with TemporaryDirectory(prefix="evener-read-") as place:
        folder = Path(place)
        path = folder / "evener.db"
        run(made(path))
        names = {file.name for file in folder.iterdir()}
        for file in folder.iterdir():
            file.chmod(0o444)
        folder.chmod(0o555)
        try:
            with somebody():
                assert run(looked_through(path)) == (1, 4, 7)
                assert {file.name for file in folder.iterdir()} == names
        finally:
            folder.chmod(0o700)


@pytest.mark.parametrize("column", ["head = 'x'", "length = 'x'", "base = 'x'", "parent_seq = 'x', base = 1"])
def test_a_log_whose_row_makes_no_sense_is_damaged(tmp_path: Path, column: str) -> None:
    path = tmp_path / "evener.db"
    run(made(path))
    rewrite(path, f"UPDATE logs SET {column}")

    async def scenario() -> None:
        store = SqliteStore(path)
        with pytest.raises(Damaged, match="damaged at event"):
            await store.read("a")
        assert any(finding.damage for finding in await store.verify())
        await store.aclose()

    run(scenario())
