"""Copies the store's file while others write: the copy is the store at one moment, complete or not at all.

The copy is a file with mode 0600 that opens as a store, with its own sidecar. It is written under another name, synced, and
renamed at the end. An existing file is never overwritten. The copy has no leases, and a process that opens a log of it
learns that it is a copy.
"""

import os
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from evener.errors import StoreError
from evener.store.integrity.digests import Sidecar, sidecar_entries
from evener.store.sqlite.file import PRIVATE_FILE, disconnect, store_error
from evener.store.sqlite.leases import COPY

if TYPE_CHECKING:
    import sqlite3


FREED = (
    f"UPDATE logs SET holder = '', claim = '{COPY}', lease_until = 0",
    "DELETE FROM inbox WHERE kind = 'decide' AND settled = 0",  # it was decided there: the copy asks again
)
BESIDE = ("", "-journal", "-wal", "-shm", ".heads", ".lock", ".next")


def write_copy(connect: "Callable[[], sqlite3.Connection]", goal: Path) -> None:
    """Copy the store that `connect` opens to `goal`. Takes as long as reading it does; call it in a thread."""
    import sqlite3

    free_goal(goal)
    part = part_of(goal)
    try:
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, PRIVATE_FILE))
        with closing(sqlite3.connect(part, isolation_level=None)) as copy:
            source = connect()
            try:
                source.backup(copy)
            finally:
                disconnect(source)
            _settle(copy, goal)
            entries = list(sidecar_entries(copy))
        name_it(part, goal)
        Sidecar(goal).add(entries)
    except sqlite3.Error as error:
        raise store_error(error, goal) from None
    except OSError as error:
        raise _refuse_goal(goal, error.strerror or type(error).__name__) from None
    finally:
        remove_part(part)


def free_goal(goal: Path) -> None:
    """Refuse a goal that cannot be written, before anything is."""
    for path in (goal, Sidecar(goal).path):
        if os.path.lexists(path):
            raise StoreError(f"{path} exists, and a backup overwrites nothing. Give another path, or move that file away.")
    if not goal.parent.is_dir():
        raise _refuse_goal(goal, f"there is no folder {goal.parent}")


def part_of(goal: Path) -> Path:
    """Return where a copy lies until it is whole."""
    return goal.with_name(f".{goal.name}.{token_hex(6)}.part")


def name_it(part: Path, goal: Path) -> None:
    """Sync the copy and rename it to its final name, unless another process has taken that name meanwhile."""
    _sync(part, os.O_RDWR)
    try:
        os.link(part, goal)
    except FileExistsError:
        free_goal(goal)
    except OSError:  # a file system without links
        free_goal(goal)
        part.rename(goal)
    if sys.platform != "win32":
        _sync(goal.parent, os.O_RDONLY)


def remove_part(part: Path) -> None:
    """Leave nothing behind but the copy."""
    for ending in BESIDE:
        with suppress(OSError):
            part.with_name(part.name + ending).unlink()


def _settle(copy: "sqlite3.Connection", goal: Path) -> None:
    """Turn the copy into one consistent file without leases."""
    copy.execute("PRAGMA journal_mode = DELETE")
    copy.execute("PRAGMA synchronous = FULL")
    for statement in FREED:
        copy.execute(statement)
    [(verdict,), *_] = copy.execute("PRAGMA quick_check").fetchall()
    if verdict != "ok":
        raise StoreError(
            f"The copy for {goal} is damaged, and so most likely is the store; no copy was kept. Copy the store's files away "
            "before anything else, and run `evener verify`."
        )


def _sync(path: Path, flags: int) -> None:
    file = os.open(path, flags)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _refuse_goal(goal: Path, why: str) -> StoreError:
    return StoreError(
        f"The backup {goal} could not be written: {why}. Nothing was left there. Give a path that can be written."
    )
