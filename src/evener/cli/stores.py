"""The store that a command looks into: found, opened and closed again. To look into one that is not there never makes it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from evener.errors import UsageError
from evener.store.sqlite.file import default_path
from evener.store.sqlite.store import SqliteStore

__all__ = ["inside", "is_there", "opened", "option", "path_of"]


def path_of(given: str) -> Path:
    """The file that `--store` names; without one, that of the data folder."""
    if given == "memory":
        raise UsageError("A store in memory ends with its command, so there is nothing to look at. Name a file with --store.")
    return Path(given) if given else default_path()


def is_there(given: str) -> bool:
    """Whether there is such a store."""
    return path_of(given).exists()


def opened(given: str, *, make: bool = False) -> SqliteStore:
    """The store, which must be there unless it may be made."""
    path = path_of(given)
    if not make and not path.exists():
        raise UsageError(
            f"There is no store at {path}: nothing was kept there yet. `evener run` and `evener chat` begin one; "
            "--store names another."
        )
    return SqliteStore(path)


def inside(given: str, work: Callable[[SqliteStore], Awaitable[int]], *, make: bool = False) -> int:
    """Do something with the store, and let go of it; the exit code."""
    store = opened(given, make=make)

    async def done() -> int:
        try:
            return await work(store)
        finally:
            await store.aclose()

    return asyncio.run(done())


def option(given: str) -> list[str]:
    """The words that lead another command to the same store."""
    return ["--store", given] if given else []
