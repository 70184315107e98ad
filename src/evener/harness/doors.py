"""Where a harness is entered from outside: what may stand for a store, and how callers without an event loop get in."""

import asyncio
import threading
from collections.abc import Coroutine
from contextvars import copy_context
from os import PathLike
from typing import TypeVar

from evener.store.log import Store
from evener.store.memory import MemoryStore
from evener.store.sqlite import SqliteStore

__all__ = ["store_of", "to_the_end"]

T = TypeVar("T")


def store_of(given: Store | str | PathLike[str] | None) -> Store:
    """The store that was given, or meant: a path, "memory", or none for the file of the platform's data folder."""
    match given:
        case None:
            return SqliteStore()
        case "memory":
            return MemoryStore()
        case str() | PathLike():
            return SqliteStore(given)
        case _:
            return given


def to_the_end(work: Coroutine[object, object, T]) -> T:
    """The one sync door. Inside a running loop the work goes on in a loop of its own, in another thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    done: list[T] = []
    failed: list[BaseException] = []

    def go() -> None:
        try:
            done.append(asyncio.run(work))
        except BaseException as error:
            failed.append(error)

    within = copy_context()  # a run inside a tool stays one, in another thread, too
    thread = threading.Thread(target=within.run, args=(go,), name="evener-run-sync", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return done[0]
