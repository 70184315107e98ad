"""Two processes and files that are removed, linked or put in another's place: what was acknowledged is there, or refused."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from evener.errors import StoreError
from evener.store import SqliteStore
from tests.store.children import child, line, say
from tests.store.stores import flaws, opened, run, said, texts


def beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def without_locks(path: Path) -> Path:
    beside(path, "-shm").unlink()
    return path


def without_log(path: Path) -> Path:
    beside(path, "-wal").unlink()
    return path


def with_other_locks(path: Path) -> Path:
    shutil.copy(beside(path, "-shm"), beside(path, "-copy"))
    os.replace(beside(path, "-copy"), beside(path, "-shm"))
    return path


def with_an_empty_log(path: Path) -> Path:
    beside(path, "-wal").unlink()
    beside(path, "-wal").touch()
    return path


def without_both(path: Path) -> Path:
    return without_log(without_locks(path))


def linked(path: Path) -> Path:
    other = path.with_name("other.db")
    os.link(path, other)
    return other


def linked_with_all_beside(path: Path) -> Path:
    folder = path.parent / "daily.0"
    folder.mkdir()
    for ending in ("", "-wal", "-shm"):
        os.link(beside(path, ending), folder / f"{path.name}{ending}")
    return folder / path.name


ACCIDENTS: dict[str, Callable[[Path], Path]] = {
    act.__name__: act
    for act in (
        without_locks, without_log, with_other_locks, with_an_empty_log, without_both, linked, linked_with_all_beside
    )
}  # fmt: skip


async def tried(path: Path, log: str, many: int) -> list[str]:
    """Append from this process; what was acknowledged."""
    done: list[str] = []
    store = SqliteStore(path, busy=0.5)
    try:
        held = await store.create(log, opened(log), holder="me")
        for number in range(many):
            await held.append(said(f"{log} {number}"))
            done.append(f"{log} {number}")
    except StoreError:
        pass
    finally:
        await store.aclose()
    return done


async def found(path: Path, log: str) -> list[str]:
    store = SqliteStore(path)
    try:
        return texts(await store.read(log))
    except StoreError:
        return []
    finally:
        await store.aclose()


@pytest.mark.parametrize("name", ["killed", "closed"])
@pytest.mark.parametrize("accident", ACCIDENTS)
def test_nothing_that_either_process_acknowledged_is_lost(tmp_path: Path, accident: str, name: str) -> None:
    path = tmp_path / "evener.db"
    acknowledged: list[str] = []
    with child("hold", path, name) as running:
        assert line(running) == "held"
        for number in range(12):
            if number == 3:
                other = ACCIDENTS[accident](path)
            if number in (4, 7):
                acknowledged += run(tried(other, f"ours{number}", 5))
            say(running, f"theirs {number}")
            if line(running) == "done":
                acknowledged.append(f"theirs {number}")
        if name == "closed":
            assert running.stdin is not None
            running.stdin.close()
            assert running.wait(timeout=120) == 0
    assert acknowledged[:3] == ["theirs 0", "theirs 1", "theirs 2"]
    assert not any(text.startswith("theirs 1") and text != "theirs 1" for text in acknowledged), "it was not refused"
    if "linked" in accident:
        shutil.copy(path, tmp_path / "single.db")
        if beside(path, "-wal").exists():
            shutil.copy(beside(path, "-wal"), beside(tmp_path / "single.db", "-wal"))
        path = tmp_path / "single.db"
    there = [text for log in (name, "ours4", "ours7") for text in run(found(path, log))]
    lost = set(acknowledged) - set(there)
    if accident == "with_an_empty_log" or (name == "killed" and accident in ("without_log", "without_both")):
        lost -= {"theirs 0", "theirs 1", "theirs 2"}  # the only file that had them was deleted, and then its last reader died
    assert not lost
    assert flaws(path) == []


@pytest.mark.parametrize("accident", ["without_locks", "without_log", "linked"])
def test_it_is_said_what_happened_and_what_to_do(tmp_path: Path, accident: str) -> None:
    path = tmp_path / "evener.db"

    async def scenario() -> None:
        store = SqliteStore(path)
        log = await store.create("a", opened(), holder="me")
        await log.append(said("kept"))
        ACCIDENTS[accident](path)
        for act in (log.append(said("lost")), store.read("a"), store.put_blob(b"x")):
            with pytest.raises(StoreError, match=r"this call stored nothing.*(Put that file back|make this one a file)"):
                await act
        await store.aclose()

    run(scenario())
    if accident == "linked":
        path.with_name("other.db").unlink()
    assert run(found(path, "a")) == ["kept"]
    assert flaws(path) == []


def test_a_link_to_the_store_is_the_store(tmp_path: Path) -> None:
    path, link = tmp_path / "real" / "evener.db", tmp_path / "link.db"
    link.symlink_to(path)
    path.parent.mkdir()
    with child("hold", link, "closed") as running:
        assert line(running) == "held"
        assert run(tried(path, "ours", 20)) == [f"ours {number}" for number in range(20)]
        say(running, "theirs")
        assert line(running) == "done"
        assert run(tried(link, "also ours", 5)) == [f"also ours {number}" for number in range(5)]
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith("link")] == ["link.db"]
    assert (run(found(link, "closed")), len(run(found(path, "ours")))) == (["theirs"], 20)
    assert flaws(path) == []


def test_a_link_that_leads_elsewhere_now_is_refused(tmp_path: Path) -> None:
    path, link = tmp_path / "evener.db", tmp_path / "link.db"

    async def scenario() -> None:
        store = SqliteStore(link)
        log = await store.create("a", opened(), holder="me")
        link.unlink()
        shutil.copy(path, tmp_path / "copy.db")
        link.symlink_to(tmp_path / "copy.db")
        with pytest.raises(StoreError, match="moved, deleted or replaced"):
            await log.append(said("lost"))
        await store.aclose()

    link.symlink_to(path)
    run(scenario())


def test_a_store_that_was_closed_well_or_died_is_opened_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"
    for turn in range(3):
        with child("hold", path, f"killed {turn}") as running:
            assert line(running) == "held"
        for ending in ("-shm", "-wal")[:turn]:
            beside(path, ending).unlink()  # of a process that is dead
        assert run(tried(path, f"ours {turn}", 2)) == [f"ours {turn} 0", f"ours {turn} 1"]
    assert flaws(path) == []


def test_a_process_that_is_stopped_while_it_closes_the_store_locks_no_other_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite has deleted its log by then, and the note of the connection still stands."""
    path = tmp_path / "evener.db"
    with monkeypatch.context() as stopped:
        stopped.setattr("evener.store.sqlite.identity.OpenNote.leave", lambda _: None)
        assert run(tried(path, "first", 2)) == ["first 0", "first 1"]
    assert not beside(path, "-wal").exists()
    assert run(tried(path, "second", 2)) == ["second 0", "second 1"]
