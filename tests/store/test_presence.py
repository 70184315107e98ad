"""The file is moved, deleted or replaced while the store is open: the next write says so, and goes into no wrong file."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from evener.store import SqliteStore
from evener.store.sqlite.identity import StoreGone
from tests.store.stores import flaws, opened, run, said, texts


def deleted(path: Path) -> None:
    path.unlink()


def moved(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))


def replaced_by_a_copy(path: Path) -> None:
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    os.replace(copy, path)


def replaced_by_another_store(path: Path) -> None:
    other = path.with_name("other.db")

    async def make() -> None:
        store = SqliteStore(other)
        log = await store.create("a", opened(), holder="me")
        await log.append(said("theirs"))
        await store.aclose()

    run(make())
    os.replace(other, path)


def without_its_log(path: Path) -> None:
    path.with_name(path.name + "-wal").unlink()


def without_its_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


ACCIDENTS: dict[str, Callable[[Path], None]] = {
    act.__name__: act
    for act in (deleted, moved, replaced_by_a_copy, replaced_by_another_store, without_its_log, without_its_folder)
}


async def found(path: Path) -> list[str]:
    store = SqliteStore(path)
    events = await store.read("a")
    await store.aclose()
    return texts(events)


@pytest.mark.parametrize("accident", ACCIDENTS)
def test_the_next_write_says_that_the_file_is_gone(tmp_path: Path, accident: str) -> None:
    path = tmp_path / "folder" / "evener.db"
    kept: list[object] = []

    async def before() -> None:
        store = SqliteStore(path)
        log = await store.create("a", opened(), holder="me")
        await log.append(said("mine"))
        kept.extend((store, log))

    async def after() -> None:
        store, log = kept
        assert isinstance(store, SqliteStore)
        for _ in range(2):
            for call in (log.append(said("lost")), store.create("b", opened(), holder="me"), store.read("a")):  # type: ignore[attr-defined]
                with pytest.raises(StoreGone, match=r"moved, deleted or replaced.*nothing of this was stored"):
                    await call
        await store.aclose()

    run(before())
    there = ACCIDENTS[accident]
    there(path)
    content = path.read_bytes() if path.exists() else None
    run(after())
    assert (path.read_bytes() if path.exists() else None) == content or accident == "without_its_log"
    if accident == "without_its_log":
        assert run(found(path)) == ["mine"]


def test_a_file_that_is_put_back_is_used_again(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"

    async def scenario() -> None:
        store = SqliteStore(path)
        log = await store.create("a", opened(), holder="me")
        moved(path)
        with pytest.raises(StoreGone):
            await log.append(said("lost"))
        path.with_name("elsewhere.db").rename(path)
        await log.append(said("kept"))
        assert texts(await store.read("a")) == ["kept"]
        await store.aclose()

    run(scenario())
    assert flaws(path) == []


def test_a_new_store_begins_afresh_where_one_was_deleted(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"

    async def scenario() -> None:
        store = SqliteStore(path)
        log = await store.create("a", opened(), holder="me")
        await log.append(said("mine"))
        for ending in ("", "-wal", "-shm"):
            path.with_name(path.name + ending).unlink()
        other = SqliteStore(path)
        new = await other.create("a", opened(), holder="you")
        with pytest.raises(StoreGone):
            await log.append(said("lost"))
        await store.aclose()
        await new.append(said("theirs"))
        assert texts(await other.read("a")) == ["theirs"]
        assert [finding for finding in await other.verify() if finding.damage] == []
        await other.aclose()

    run(scenario())
    assert flaws(path) == []
