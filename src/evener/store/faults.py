"""SQLite's errors as ours: what happened, what is safe, what to do. A message never holds what was to be stored."""

from pathlib import Path

from evener.errors import StoreError
from evener.store.log import Damaged

__all__ = ["StoreBusy", "StoreFull", "told"]

SAFE = "Nothing of this was stored; what was acknowledged before is safe."
PRIMARY = 0xFF
IOERR_WRITE = 778


class StoreBusy(StoreError):
    """Another process kept the file locked for longer than we wait."""

    retryable = True


class StoreFull(StoreError):
    """There was no room to write."""

    retryable = True


# By SQLite's primary result code; one extended code stands before its primary.
TABLE: dict[int, tuple[type[StoreError], str, str]] = {
    IOERR_WRITE: (StoreFull, "could not be written, most likely for want of space", "Free some space and try again."),
    3: (StoreError, "may not be accessed", "Check the owner and the mode of the file and its folder."),
    5: (StoreBusy, "was locked by another process for too long", "Try again; if it stays so, find what holds it open."),
    6: (StoreBusy, "was locked by another connection for too long", "Try again."),
    8: (
        StoreError,
        "can only be read",
        "Check the mode of the file and its folder, and how the disk is mounted.",
    ),
    10: (StoreError, "could not be read or written by the system", "Check the disk, then try again."),
    11: (Damaged, "is damaged", "Copy the file away before anything else, run `evener verify`, restore a backup if needed."),
    13: (StoreFull, "has no room left", "Free some space and try again."),
    14: (StoreError, "cannot be opened", "Check that its folder exists and can be written."),
    18: (StoreError, "cannot hold a value that large", "Keep the content as a file and store its name."),
    26: (StoreError, "is no database, so not a store of Evener, and was left alone", "Give another path."),
}
OTHER = (StoreError, "could not do what was asked", "Try again; if it stays so, run `evener verify`.")


def told(error: Exception, path: Path) -> StoreError:
    """The error for whoever asked. One of ours passes as it is."""
    if isinstance(error, StoreError):
        return error
    code, name = _code(error)
    kind, happened, advice = TABLE.get(code) or TABLE.get(code & PRIMARY) or OTHER
    return kind(f"The store {path} {happened} ({name}). {SAFE} {advice}")


def _code(error: Exception) -> tuple[int, str]:
    import sqlite3

    if isinstance(error, sqlite3.Error) and "sqlite_errorcode" in vars(error):
        return error.sqlite_errorcode, error.sqlite_errorname
    if isinstance(error, sqlite3.DataError | OverflowError):
        return 18, type(error).__name__
    return 0, type(error).__name__
