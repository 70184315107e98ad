"""Opens the store of a command, and closes it again. A command that only reads never creates a store."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from evener.errors import UsageError
from evener.store.sqlite import file
from evener.store.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from evener.store.postgres.store import PostgresStore

    KeptStore = SqliteStore | PostgresStore


ADDRESS = re.compile(r"postgres(ql)?://")
PASSWORD = re.compile(r"(://[^/@:]*):[^/]*@|([?&]([^=&]*)=)[^&]*")
"""What libpq takes for a password, up to the first slash, and the parameters."""


def is_address(given: str) -> bool:
    """True if `--store` names a PostgreSQL database."""
    return ADDRESS.match(given) is not None


def without_password(given: str) -> str:
    """Return what `--store` names as it may be shown."""
    if not is_address(given):
        return given
    from evener.store.postgres.connection import PASSWORDS

    def shown(found: re.Match[str]) -> str:
        if found[1] is not None:
            return f"{found[1]}@"
        return found[2] if unquote(found[3]) in PASSWORDS else found[0]

    return PASSWORD.sub(shown, given)


def path_of(given: str) -> Path:
    """Return the file that `--store` names; without one, the file in the data folder."""
    if given == "memory":
        raise UsageError("A store in memory ends with its command, so there is nothing to read. Name a file with --store.")
    return file.path_of(given or None)


def exists(given: str) -> bool:
    """True if the store exists; a database is taken to."""
    return is_address(given) or path_of(given).exists()


def open_store(given: str, *, make: bool = False) -> "KeptStore":
    """Open the store. A file must exist, unless `make` is True."""
    if is_address(given):
        from evener.store.postgres.store import PostgresStore

        return PostgresStore(given)
    path = path_of(given)
    if not make and not path.exists():
        raise UsageError(f"There is no store at {path} yet. `evener run` and `evener chat` create it; or name another store.")
    return SqliteStore(path)


def with_store(given: str, work: "Callable[[KeptStore], Awaitable[int]]", *, make: bool = False) -> int:
    """Run `work` on the opened store, close it, and return the exit code."""
    store = open_store(given, make=make)

    async def run() -> int:
        try:
            return await work(store)
        finally:
            await store.aclose()

    return asyncio.run(run())


def same_store(given: str) -> list[str]:
    """Return the words that make another command use the same store. They are shown, so without a password."""
    return ["--store", without_password(given)] if given else []
