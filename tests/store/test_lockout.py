"""What must not lock a process out: a disk that was full, and a path that is no file."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from evener.errors import StoreError
from evener.store import SqliteStore
from tests.store.children import finished
from tests.store.stores import opened, run, said, texts


@pytest.mark.parametrize("room", [0, 20_000])
def test_after_a_full_disk_the_log_is_taken_again_at_once(tmp_path: Path, room: int) -> None:
    told = finished("full_and_again", tmp_path / "evener.db", room)
    assert [line for line in told if line.startswith("again")] == [
        "again closed True",
        "again dropped True",
        "again taken True",
    ]
    assert told.count("full StoreFull") == 3
    assert told[-1] == "others [False]"


def fifo(path: Path) -> None:
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.mkdir()


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        before = Path.cwd()
        os.chdir(path.parent)  # the name of a socket must be short
        try:
            made.bind(path.name)
        finally:
            os.chdir(before)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link_to_fifo(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to(path.with_name("pipe"))


@pytest.mark.parametrize("ending", ["", "-wal", "-shm", "-journal", ".heads"])
@pytest.mark.parametrize("make", [fifo, folder, listening, device, link_to_fifo])
def test_what_is_no_file_is_refused_at_once_and_other_stores_go_on(
    tmp_path: Path, make: Callable[[Path], None], ending: str
) -> None:
    make(tmp_path / f"evener.db{ending}")

    async def scenario() -> None:
        other = SqliteStore(tmp_path / "other.db")
        bad = SqliteStore(tmp_path / "evener.db")
        for act in (bad.logs(), bad.create("a", opened(), holder="me"), bad.verify(), bad.put_blob(b"x")):
            with pytest.raises(StoreError, match=r"cannot be made: .*Give another path"):
                await act
        log = await other.create("a", opened(), holder="me")
        await log.append(said("fine"))
        assert texts(await other.read("a")) == ["fine"]
        await bad.aclose()
        await other.aclose()

    run(scenario())
