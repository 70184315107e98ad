"""Opens the store of a command, and closes it again. A command that only reads never creates a store."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from evener.errors import UsageError
from evener.store.sqlite.file import default_path
from evener.store.sqlite.store import SqliteStore

__all__ = ["exists", "open_store", "path_of", "same_store", "with_store"]


def path_of(given: str) -> Path:
    """Return the file that `--store` names; without one, the file in the data folder."""
    if given == "memory":
        raise UsageError("A store in memory ends with its command, so there is nothing to read. Name a file with --store.")
    return Path(given) if given else default_path()


def exists(given: str) -> bool:
    """True if the store exists."""
    return path_of(given).exists()


def open_store(given: str, *, make: bool = False) -> SqliteStore:
    """Open the store. It must exist, unless `make` is True."""
    path = path_of(given)
    if not make and not path.exists():
        raise UsageError(
            f"There is no store at {path} yet. `evener run` and `evener chat` create it; use --store to name another one."
        )
    return SqliteStore(path)


def with_store(given: str, work: Callable[[SqliteStore], Awaitable[int]], *, make: bool = False) -> int:
    """Run `work` on the opened store, close it, and return the exit code."""
    store = open_store(given, make=make)

    async def run() -> int:
        try:
            return await work(store)
        finally:
            await store.aclose()

    return asyncio.run(run())


def same_store(given: str) -> list[str]:
    """Return the words that make another command use the same store."""
    return ["--store", given] if given else []
