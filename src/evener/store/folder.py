"""Where the store's file lies, and that nobody else can read it: the folder is made with mode 0700, the files have 0600.

A folder that was there before is the user's: its mode is left as it is.
"""

import os
import stat
import sys
from errno import EISDIR
from pathlib import Path

from evener.errors import StoreError

__all__ = ["data_folder", "default_path", "made_private", "only_read", "prepared"]

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600
COMPANIONS = ("", "-wal", "-shm", ".heads")
OPENED = (*COMPANIONS, "-journal")
KINDS = {
    stat.S_IFDIR: os.strerror(EISDIR),
    stat.S_IFIFO: "It is a named pipe (FIFO)",
    stat.S_IFSOCK: "It is a socket",
    stat.S_IFCHR: "It is a device",
    stat.S_IFBLK: "It is a device",
}


def data_folder() -> Path:
    """The folder for what Evener keeps: EVENER_HOME if that is set, else `evener` in the platform's data folder."""
    if home := os.environ.get("EVENER_HOME"):
        return Path(home)
    given = Path(os.environ.get("XDG_DATA_HOME") or "")
    if given.is_absolute():  # the XDG specification: a relative one is invalid and to be ignored
        return given / "evener"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "evener"
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local) / "evener"
    return Path.home() / ".local" / "share" / "evener"


def default_path() -> Path:
    """The store's usual file."""
    return data_folder() / "evener.db"


def prepared(path: Path) -> None:
    """Make the file, empty, and the folders it needs, unless they are there. Refuse what is no file: it could hang us."""
    for ending in OPENED:
        _refuse_other_kinds(path.with_name(path.name + ending))
    try:
        _make_folder(path.parent)
        _make_file(path)
    except OSError as error:
        raise StoreError(
            f"The store {path} cannot be made: {error.strerror}. Nothing was written. "
            "Give a path that can be written, or set EVENER_HOME to a folder that can."
        ) from None


def only_read(path: Path) -> bool:
    """Whether there is a store that is whole without SQLite's log, and we can write neither it nor anything beside it."""
    beside = (path.with_name(path.name + ending) for ending in ("-wal", "-journal"))
    there = path.is_file() and not any(file.exists() for file in beside)
    return there and not os.access(path, os.W_OK) and not os.access(path.parent, os.W_OK)


def made_private(path: Path) -> None:
    """Take the rights of others away from the file and what SQLite keeps beside it."""
    for ending in COMPANIONS:
        beside = path.with_name(path.name + ending)
        try:
            if beside.stat().st_mode & 0o077:
                beside.chmod(PRIVATE_FILE)
        except OSError:
            continue  # not there, or another user's: then its mode is that user's decision


def _refuse_other_kinds(path: Path) -> None:
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except OSError:
        return  # not there, or not to be seen: opening it will tell
    if kind != stat.S_IFREG:
        raise StoreError(
            f"The store {path} cannot be made: {KINDS.get(kind, 'It is no regular file')}. A store is a regular file, and so "
            "is all that lies beside it under its name. Nothing was written. Give another path, or move that one away."
        )


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


def _make_file(path: Path) -> None:
    """SQLite gives its other files the mode of this one, whatever the umask. The folder is synced, so that the name stays."""
    try:
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, PRIVATE_FILE)
    except FileExistsError:
        return
    os.close(file)
    if sys.platform != "win32":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
