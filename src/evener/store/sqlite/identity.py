"""Detects that the store's files were moved, deleted, replaced or linked while they were open: what is written then would be
lost.

SQLite stores acknowledged data in `-wal` and the locks on it in `-shm`, both found by the name of the file. A process that
finds other files there than the other processes would overwrite what they wrote. So every connection notes in `<store>.next`
which three files it uses, and holds a shared lock on that note while it is open. Another connection compares before it opens
anything; each write compares again when its turn has come, and once more before it is acknowledged.
"""

import os
import stat
import struct
import sys
from collections.abc import Callable
from math import inf
from pathlib import Path
from time import monotonic, sleep, time
from weakref import finalize

import msgspec

from evener.errors import StoreError

if sys.platform == "linux":
    import fcntl


Identity = tuple[int, int]
PRIVATE = 0o600
PAUSE = 0.01
LONGEST_WAIT = 2.0
"""Seconds in which another process may be about to open or to close the store."""
LONGEST_NOTE = 400
SETTLED = 3.0 if os.name == "posix" else inf
"""Seconds. Only if a folder has not changed for longer is its time sure to be another one after the next change: file systems
round their times, some to two seconds. Windows never changes this time."""


class StoreGone(StoreError):
    """The files are no longer those that were opened."""


class StoreLinked(StoreError):
    """The file has a second name. A process that uses it by that name does not see what is written by this one."""


class Files(msgspec.Struct, frozen=True, array_like=True):
    """The files that a connection uses: the store's own, SQLite's log, and the locks on that log."""

    main: Identity | None = None
    wal: Identity | None = None
    shm: Identity | None = None


class FileIdentity:
    """The file that a store uses from its first connection on. `given` is the path that the user gave; it may be a link."""

    def __init__(self, path: Path, given: Path | None = None) -> None:
        self._path = str(path)
        self._names = tuple({str(path), str(given or path)})
        self._wal, self._shm = f"{path}-wal", f"{path}-shm"
        self._folder: str | int = str(path.parent)  # its descriptor, while it is open: then no path must be resolved
        self._close_folder: Callable[[], object] | None = None
        self._file: Identity | None = None
        self._expected: tuple[int, ...] = ()  # inode, device and number of names of the file
        self._found: tuple[Files, int] | None = None  # which files lay beside it, and the time of the folder at that moment
        self._settles = 0.0  # until then there is no use in looking at the folder
        self._broken = ""

    def check(self) -> None:
        """Raise StoreGone when a path does not lead to the file that was opened first, StoreLinked when it has two names."""
        if self._broken:
            raise _gone_error(self._broken)
        for name in self._names:
            found = refuse_links(name)
            if self._file is not None and found != self._file:
                raise _gone_error(name)

    def opened(self) -> None:
        """Note the file of a connection that was opened."""
        if self._file is None:
            self._file = _identity(self._path)
        self.check()
        if self._file is not None and not self._expected:
            self._expected = (self._file[1], self._file[0], 1)
            self._open_folder(self._file)

    def check_beside(self, files: Files) -> None:
        """Check the file, and that SQLite's own files are still there: what was acknowledged may be nowhere else.

        Without them the file must not be opened again while another connection is open. This is done twice with each write, so
        it is kept cheap: creating, deleting or renaming a file changes the time of its folder. While that stays the same, the
        files beside the store are those that were found. A second name may be in another folder, so the store itself is looked
        at each time. Of what `stat` returns, `[1:4]` is the inode, the device and the number of names.
        """
        now, look, expected = time(), os.stat, self._expected
        try:
            for name in self._names:
                if look(name)[1:4] != expected:
                    break
            else:
                changed = look(self._folder).st_ctime_ns if now > self._settles else 0
                if (files, changed) == self._found:
                    return
                # `[2:0:-1]` is the device and the inode.
                if look(self._wal)[2:0:-1] == files.wal and look(self._shm)[2:0:-1] == files.shm:
                    if changed:
                        self._remember(files, changed, now)
                    return
        except OSError:
            pass
        self._find_fault(files)

    def _open_folder(self, file: Identity) -> None:
        """Open the folder of the file. Where that is not possible, the path of the folder is used.

        A file with one name is in one folder. So while the path of the store leads to the file, it leads to this folder.
        """
        try:
            folder = os.open(os.path.dirname(self._path), getattr(os, "O_PATH", os.O_RDONLY))
        except OSError:
            return
        self._close_folder = finalize(self, os.close, folder)
        if _identity(os.path.basename(self._path), folder) == file:
            self._folder = folder

    def close(self) -> None:
        """Close the folder. Checks that follow use its path."""
        self._folder = os.path.dirname(self._path)
        if self._close_folder is not None:
            self._close_folder()

    def _remember(self, files: Files, changed: int, now: float) -> None:
        """Remember that these files were there, if the time of the folder tells; else when it will tell."""
        settles = changed / 1e9 + SETTLED
        if now > settles:
            self._found = files, changed
        else:
            self._settles = settles

    def _find_fault(self, files: Files) -> None:
        """Raise for what is not as it was. Some of it may be missing from the start."""
        self.check()
        for ending, known in (("-wal", files.wal), ("-shm", files.shm)):
            if known is not None and _identity(self._path + ending) != known:
                self._broken, self._expected = self._path + ending, ()
                raise _gone_error(self._broken)


class OpenNote:
    """The note of one connection that it has the store open, with its `files`. Leaving the context releases its lock."""

    def __init__(self, path: Path, descriptor: int | None, *, alone: bool) -> None:
        self._path = path
        self._descriptor = descriptor
        self._alone = alone
        self.files = Files()

    def note(self) -> None:
        """Note the files of a connection that was opened, for others to compare."""
        self.files = _files(self._path)
        if self._descriptor is not None:
            _write(self._descriptor, self.files)
            if self._alone:
                _lock(self._descriptor, "F_RDLCK")

    def displaced(self) -> bool:
        """True if another file lies in the place of `-wal` or `-shm`: closing SQLite's way would delete it."""
        found = _files(self._path)
        pairs = ((self.files.wal, found.wal), (self.files.shm, found.shm))
        return any(known is not None and there is not None and there != known for known, there in pairs)

    def part(self) -> None:
        """Take the note back before SQLite lets go of its files, if no other connection has them open.

        SQLite deletes them with the last connection. A process that is stopped right after that would seem to have lost them.
        """
        if self._descriptor is not None and _lock(self._descriptor, "F_WRLCK"):
            _write(self._descriptor, Files())

    def leave(self) -> None:
        """Free the lock of a connection that is closed. Called once SQLite has let go of its files."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        if _identity(_beside(self._path, "-wal")) is None:
            _write(descriptor, Files())  # SQLite took it away with the last connection
        _lock(descriptor, "F_UNLCK")  # for a fork of this process, too
        os.close(descriptor)


def enter(path: Path, patience: float) -> OpenNote:
    """Ask to open the store. Raise StoreGone when a process that has it open works on other files than those that are there.

    Where the system has no such locks, nothing is compared.
    """
    refuse_links(path)
    descriptor = _open_note(_beside(path, ".next"))
    deadline = monotonic() + min(patience, LONGEST_WAIT)
    while descriptor is not None:
        if _lock(descriptor, "F_WRLCK"):
            return OpenNote(path, descriptor, alone=True)
        shared = _lock(descriptor, "F_RDLCK")
        strange = _strange(_read(descriptor), _files(path)) if shared else ""
        if shared and not strange:
            return OpenNote(path, descriptor, alone=False)
        if monotonic() > deadline:
            os.close(descriptor)
            if strange:
                raise _gone_error(_beside(path, strange))
            break  # a process that was about to open it has been stopped
        if shared:
            _lock(descriptor, "F_UNLCK")
        sleep(PAUSE)
    return OpenNote(path, None, alone=False)


def refuse_links(path: Path | str) -> Identity | None:
    """Raise StoreLinked when the file has more than one name. Return which file it is, if there is one."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    links = found.st_nlink
    if links > 1 and stat.S_ISREG(found.st_mode):
        name = Path(path).name
        raise StoreLinked(
            f"The store {path} has {links} names (hard links), so this call stored nothing: two processes that open it "
            "by different names do not see what the other one writes. What was acknowledged before is safe. Stop the processes "
            "that use it, then delete the other name, or make this one a file of its own: "
            f"`cp {name} copy && mv copy {name}`. "
            "Make backups with `evener backup`."
        )
    return found.st_dev, found.st_ino


def _strange(known: Files, found: Files) -> str:
    """Return the ending of the file that is not the one that others work on; empty when there is none."""
    if known.main is None:
        return ""
    if known.main != found.main:  # another store has been put there: it must not get the log of the old one
        return "-wal" if known.wal is not None and known.wal == found.wal else ""
    if known.wal != found.wal:
        return "-wal"
    return "-shm" if known.shm != found.shm else ""


def _gone_error(path: Path | str) -> StoreGone:
    return StoreGone(
        f"The file {path} was moved, deleted or replaced while the store was open, so this call stored nothing. What was "
        "acknowledged before went into the file that was there. Put that file back; or end every process that has the store "
        "open, then open it again; or make a new store to begin afresh."
    )


def _files(path: Path) -> Files:
    return Files(_identity(path), _identity(_beside(path, "-wal")), _identity(_beside(path, "-shm")))


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _identity(path: Path | str, folder: int | None = None) -> Identity | None:
    """Return the identity of the file at the path, or of that name in the folder; None if there is none."""
    try:
        found = os.stat(path, dir_fd=folder)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _open_note(path: Path) -> int | None:
    """Open the file with the note. None on a system without locks that belong to an open file."""
    if sys.platform != "linux":
        return None
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE)
    except OSError:
        return None
    try:
        _lock(descriptor, "F_UNLCK")
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _lock(descriptor: int, kind: str) -> bool:
    """Lock the note so, without waiting. True if it is locked. Not by `flock`: the queue of writers uses that on this file."""
    if sys.platform == "linux":
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", getattr(fcntl, kind), os.SEEK_SET, 0, 1, 0))
        except (BlockingIOError, PermissionError):
            return False
    return True


def _read(descriptor: int) -> Files:
    try:
        return msgspec.json.decode(os.pread(descriptor, LONGEST_NOTE, 0).rstrip(), type=Files)
    except (OSError, msgspec.MsgspecError):
        return Files()


def _write(descriptor: int, files: Files) -> None:
    """Write the note in one piece, if it has changed."""
    if _read(descriptor) == files:
        return
    try:
        os.pwrite(descriptor, msgspec.json.encode(files).ljust(LONGEST_NOTE), 0)
    except OSError:
        return  # no room for it: then nothing is compared
