"""A process that writes to a store and says what was acknowledged: `python -m tests.store.child <act> <path> [more]`."""

import asyncio
import gc
import os
import resource
import signal
import sqlite3
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from evener.errors import StoreError
from evener.store import LeaseLost, Log, NoLog, SqliteStore
from tests.store.stores import opened, said

ROUNDS = 100_000


def tell(*words: object) -> None:
    """In one piece, so that a line is there or it is not, whenever this process is killed."""
    os.write(sys.stdout.fileno(), f"{' '.join(map(str, words))}\n".encode())


async def write(path: str, logs: str, turn: str) -> None:
    """Append to several logs at once, one to three events at a time, until somebody ends this process."""
    store = SqliteStore(path)

    async def fill(name: str) -> None:
        try:
            log = (await store.open(name, holder=turn))[0]
        except NoLog:  # those before were killed before they made it
            log = await store.create(name, opened(), holder=turn)
        tell(name, log.length)
        for number in range(ROUNDS):
            await asyncio.sleep(0)  # on a quick disk a log that is alone does not wait: let the others begin
            size = 1 + number % 3
            await log.append(*(said(f"{turn}.{number} {piece}/{size} " + "x" * 300) for piece in range(size)))
            tell(name, log.length)

    await asyncio.gather(*(fill(f"log{number}") for number in range(int(logs))))


async def hold(path: str, name: str) -> None:
    """Take a log, say so, and append whenever a line comes in; say how that went."""
    store = SqliteStore(path)
    log = await store.create(name, opened(), holder="child")
    tell("held")
    for line in sys.stdin:
        try:
            await log.append(said(line.strip()))
            tell("done")
        except LeaseLost:
            tell("lost")
        except StoreError as error:
            tell("refused", type(error).__name__)
    if name.endswith("closed"):
        await store.aclose()


async def share(path: str, name: str, turns: str) -> None:
    """Take the log, append two events, give it back, again and again; others do the same."""
    store = SqliteStore(path, busy=120.0)
    for number in range(int(turns)):
        log, events = await store.open(name, holder="child", patience=120)
        await log.append(said(f"{len(events)} a"))
        await log.append(said(f"{len(events)} b {number}"))
        await log.aclose()
    await store.aclose()


async def fill_up(path: str, most: str) -> None:
    """Append until there is no room, then get room and go on."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = SqliteStore(path)
    log = await store.create("a", opened(), holder="child")
    others = [await store.create(f"b{number}", opened(), holder="child") for number in range(3)]
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(most), hard))
    try:
        for number in range(ROUNDS):
            await log.append(said(f"{number} " + "x" * 5000))
    except StoreError as error:
        tell("full", log.length, type(error).__name__, error.retryable, str(error).replace("\n", " "))
    answers = await asyncio.gather(*(other.append(said("x" * 500_000)) for other in others), return_exceptions=True)
    tell("others", *(type(answer).__name__ for answer in answers), *(other.length for other in others))
    tell("read", len(await store.read("a")))
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await log.append(said("room again"))
    tell("again", log.length)
    await store.aclose()


async def full_and_again(path: str, room: str) -> None:
    """Meet a full disk, give everything back, get room, and take the log again, here and from another process."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = SqliteStore(path, lease=1_000.0)
    log = await store.create("a", opened(), holder="child")
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for way in ("closed", "dropped", "taken"):
        largest = max(file.stat().st_size for file in Path(path).parent.iterdir())
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest + int(room), hard))
        try:
            for number in range(ROUNDS):
                await log.append(said(f"{number} " + "x" * 5000))
        except StoreError as error:
            tell("full", type(error).__name__)
        if way == "closed":
            await log.aclose()
        if way == "taken":
            for holder in "xy":
                try:
                    await store.open("a", holder=holder)
                except StoreError as error:
                    tell("not taken", type(error).__name__)
            await log.aclose()
        log = None  # type: ignore[assignment]  # whoever held it has failed
        gc.collect()
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        log, events = await store.open("a", holder="again", patience=60)  # far less than a lease
        await log.append(said(f"again after {way}"))
        tell("again", way, log.length == len(events) + 1)
    await log.aclose()
    other = SqliteStore(path)
    tell("others", [log.held for log in await other.logs()])
    await other.aclose()
    await store.aclose()


async def contend(path: str, name: str, turns: str) -> None:
    """Append to a log of its own, one after the other, as fast as it goes; say when all are in."""
    store = SqliteStore(path, busy=120.0)
    log = await store.create(name, opened(), holder=name)
    tell("ready")
    sys.stdin.readline()
    for number in range(int(turns)):
        await log.append(said(f"{name}.{number}"))
    tell("done")
    await store.aclose()


async def flood(path: str, name: str) -> None:
    """Append from many tasks at once, without a pause, until somebody ends this process."""
    store = SqliteStore(path, busy=120.0)
    logs = [await store.create(f"{name}.{number}", opened(), holder=name) for number in range(10)]
    tell("ready")

    async def fill(log: Log) -> None:
        for number in range(ROUNDS):
            await log.append(said(str(number)))

    await asyncio.gather(*map(fill, logs))


async def stop_in_turn(path: str) -> None:
    """Stop this process in the middle of an append: before its commit, with its turn and SQLite's lock taken."""
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect

    def watch(*words: Any, **more: Any) -> sqlite3.Connection:
        connection = connect(*words, **more)
        connection.set_trace_callback(lambda said: stop() if armed and said == "COMMIT" else None)
        return connection

    def stop() -> None:
        """Stop in this thread: a signal to the process may be taken by another one, and this one commits meanwhile."""
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    armed = False
    sqlite3.connect = watch  # type: ignore[assignment]
    store = SqliteStore(path)
    log = await store.create("stopped", opened(), holder="child")
    armed = True
    await log.append(said("one"))
    armed = False
    await store.aclose()


async def leave(path: str, many: str) -> None:
    """Queue appends and end without waiting for them or closing anything."""
    store = SqliteStore(path)
    log = await store.create("a", opened(), holder="child")
    globals()["kept"] = (store, log)
    tasks = [asyncio.create_task(log.append(said(str(number)))) for number in range(int(many))]
    await asyncio.sleep(0)
    tell("leaving", len(tasks))


ACTS: dict[str, Callable[..., Awaitable[None]]] = {
    "write": write,
    "hold": hold,
    "share": share,
    "fill_up": fill_up,
    "full_and_again": full_and_again,
    "leave": leave,
    "contend": contend,
    "flood": flood,
    "stop_in_turn": stop_in_turn,
}


async def main(act: str, *words: str) -> None:
    await ACTS[act](*words)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
