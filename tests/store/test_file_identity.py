"""The file is moved, deleted or replaced while the store is open: the next write says so, and goes into no wrong file."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from evener.store import SqliteStore
from evener.store.sqlite import identity
from evener.store.sqlite.identity import FileIdentity, Files, StoreGone, StoreLinked
from evener.store.sqlite.store import SqliteLog
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
                with pytest.raises(StoreGone, match=r"moved, deleted or replaced.*this call stored nothing"):
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


def without_its_locks(path: Path) -> None:
    path.with_name(path.name + "-shm").unlink()


def with_another_log(path: Path) -> None:
    shutil.copy(path.with_name(path.name + "-wal"), path.with_name("copy"))
    os.replace(path.with_name("copy"), path.with_name(path.name + "-wal"))


def linked_from_another_folder(path: Path) -> None:
    os.link(path, path.parent.parent / "other.db")


def moved_with_its_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


def moved_with_the_folder_above(path: Path) -> None:
    path.parent.parent.rename(path.parent.parent.with_name("elsewhere"))


LATER = ACCIDENTS | {
    act.__name__: act
    for act in (
        without_its_locks, with_another_log, linked_from_another_folder, moved_with_its_folder, moved_with_the_folder_above,
    )
}  # fmt: skip


def let_time_pass(folder: Path) -> None:
    """Return when the file system would give a change of this folder another time than it has."""
    probe = folder.parent / "probe"
    probe.touch()
    while probe.stat().st_ctime_ns <= folder.stat().st_ctime_ns:
        probe.touch()


def refuse_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no folder be opened but to be synced, as on Windows."""
    open_file = os.open

    def refuse(path: str | Path, flags: int, *more: int, **how: int) -> int:
        if Path(path).is_dir() and flags == getattr(os, "O_PATH", -1):
            raise PermissionError(path)
        return open_file(path, flags, *more, **how)

    monkeypatch.setattr(os, "open", refuse)


@pytest.mark.parametrize("accident", LATER)
@pytest.mark.parametrize("opens_folders", [True, False])
def test_accidents_are_noticed_when_the_folder_had_not_changed_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accident: str, *, opens_folders: bool
) -> None:
    path = tmp_path / "above" / "folder" / "evener.db"
    path.parent.mkdir(parents=True)
    if not opens_folders:
        refuse_folders(monkeypatch)
    monkeypatch.setattr(identity, "SETTLED", 0.0)
    store = SqliteStore(path)

    async def before() -> SqliteLog:
        log = await store.create("a", opened(), holder="me")
        let_time_pass(path.parent)
        for _ in range(3):
            await log.append(said("mine"))
        assert store._identity._found is not None
        assert isinstance(store._identity._folder, int) == opens_folders
        return log

    async def after(log: SqliteLog) -> None:
        for _ in range(2):
            with pytest.raises((StoreGone, StoreLinked), match="this call stored nothing"):
                await log.append(said("lost"))
        await store.aclose()

    log = run(before())
    LATER[accident](path)
    run(after(log))


def three_files(path: Path) -> tuple[FileIdentity, Files]:
    """Return the identity of a file with those of SQLite beside it."""
    for ending in ("", "-wal", "-shm"):
        path.with_name(path.name + ending).write_bytes(b"")
    files = identity._files(path)
    known = FileIdentity(path)
    known.opened()
    return known, files


def test_while_the_folder_does_not_change_each_check_looks_at_two_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "evener.db"
    known, files = three_files(path)
    looks: list[str] = []
    stat = os.stat

    def look(name: str | Path | int, **how: bool) -> os.stat_result:
        looks.append(str(tmp_path if name == known._folder else name))
        return stat(name, **how)

    monkeypatch.setattr(os, "stat", look)
    changed = clock = tmp_path.stat().st_ctime
    monkeypatch.setattr(identity, "time", lambda: clock)
    for age, least in ((1.0, [path, tmp_path, f"{path}-wal", f"{path}-shm"]), (1.5, [path, f"{path}-wal", f"{path}-shm"])):
        clock, looks[:] = changed + age, []
        known.check_beside(files)
        assert looks == list(map(str, least)), "it has changed lately"
    clock += identity.SETTLED
    known.check_beside(files)
    looks.clear()
    known.check_beside(files)
    assert looks == [str(path), str(tmp_path)]


def test_a_folder_that_has_just_changed_is_not_relied_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system may give two changes the same time."""
    path = tmp_path / "evener.db"
    known, files = three_files(path)
    rounded = SimpleNamespace(st_ctime_ns=int(tmp_path.stat().st_ctime) * 10**9)
    stat = os.stat
    monkeypatch.setattr(os, "stat", lambda name, **how: rounded if name == known._folder else stat(name, **how))
    for _ in range(3):
        known.check_beside(files)
    without_its_log(path)
    with pytest.raises(StoreGone):
        known.check_beside(files)
