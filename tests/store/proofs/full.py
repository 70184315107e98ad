"""A process that meets a full disk, again and again, and says how that went.

`python -m tests.store.proofs.full <folder> disk`: the folder is a small disk, and something else fills it. With `files` instead
no file may grow beyond a size.
"""

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from evener.errors import StoreError
from evener.events import Event
from evener.store import Log, SqliteStore
from evener.store.sqlite.file import StoreFull
from tests.store.stores import opened, said

ROOMS = tuple(range(0, 72_000, 6_000))
"""How much room is left each time: from none to enough for some appends."""
TRIES = 60
TEXT = "x" * 3000
Room = Callable[[int | None], None]
"""Leaves so many bytes of room; None for all there is."""


def room_on_disk(folder: Path) -> Room:
    ballast = folder / "ballast"

    def leave(room: int | None) -> None:
        ballast.unlink(missing_ok=True)
        if room is None:
            return
        state = os.statvfs(folder)
        free = state.f_bavail * state.f_frsize - room
        with ballast.open("wb") as file:
            file.write(bytes(max(free, 0)))

    return leave


def room_in_files(folder: Path) -> Room:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def leave(room: int | None) -> None:
        largest = max((file.stat().st_size for file in folder.iterdir()), default=0)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard if room is None else largest + room, hard))

    return leave


WAYS: dict[str, Callable[[Path], Room]] = {"disk": room_on_disk, "files": room_in_files}


async def filled(log: Log, number: int) -> tuple[int, str]:
    """Append until there is no room: how many were acknowledged, and what was said then."""
    for done in range(TRIES):
        try:
            await log.append(said(f"{number}.{done} {TEXT}"))
        except StoreFull as error:
            return done, str(error)
    raise AssertionError(f"there was room for {TRIES} appends")


async def refused_anew(path: Path) -> str:
    """What somebody is told who opens the store now."""
    store = SqliteStore(path)
    try:
        return f"read {len(await store.read('a'))}"
    except StoreError as error:
        return str(error)
    finally:
        await store.aclose()


async def main(folder: Path, way: str) -> None:
    leave = WAYS[way](folder)
    path = folder / "evener.db"
    store = SqliteStore(path)
    log = await store.create("a", opened(), holder="h")
    others = [await store.create(f"b{number}", opened(), holder="h") for number in range(3)]
    expected: list[Event] = [opened()]
    for number, room in enumerate(ROOMS):
        leave(room)
        done, message = await filled(log, number)
        answers = await asyncio.gather(*(other.append(said("y" * 100_000)) for other in others), return_exceptions=True)
        assert all(isinstance(answer, StoreFull) for answer in answers), answers
        expected += [said(f"{number}.{piece} {TEXT}") for piece in range(done)]
        assert await store.read("a") == expected
        anew = await refused_anew(path)
        leave(None)
        await log.append(said(f"{number} room again"))
        expected.append(said(f"{number} room again"))
        assert await store.read("a") == expected
        print(f"room {room}: {done} acknowledged. {message} | anew: {anew}")
    await log.aclose()
    await store.aclose()
    store = SqliteStore(path)
    assert await store.read("a") == expected
    assert [await store.read(f"b{number}") for number in range(3)] == [[opened()]] * 3
    print("findings", [finding for finding in await store.verify() if finding.damage])
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
