"""A root folder, held by its descriptor: the kernel resolves every open beneath it, whatever changes meanwhile.

Linux resolves with `openat2(RESOLVE_BENEATH)`: `..`, absolute symlinks and races cannot leave the root; symlinks that stay
inside work. Elsewhere each step is opened from the descriptor of the one before it, and symlinks are refused. The fence
judges the given path and the path that the kernel found. Only regular files and folders are ever opened: first as a handle
without side effects, so that a device or a pipe is never touched.
"""

import ctypes
import errno
import os
import platform
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from secrets import token_hex

from evener.errors import UsageError
from evener.tools.result import ModelRetry
from evener.toolset.fence import Access, Fence

__all__ = ["PathRefused", "RootFolder"]

OPENAT2 = 437
BENEATH_NO_MAGIC = 0x08 | 0x02
HANDLE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC
QUIET = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
MOST_PATH = 4_000
TRIES = 64
SELF = "/proc/self/fd"
REMOVED = " (deleted)"


class PathRefused(ModelRetry):
    """A path that cannot be used. The message is for the model, and names only what the model gave."""


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class RootFolder:
    """The root. Paths are relative to it; an absolute path that begins with the root is taken, too."""

    def __init__(self, root: str | os.PathLike[str], fence: Fence | None = None) -> None:
        self.root = os.path.realpath(os.fspath(root))
        self.fence = fence or Fence()
        try:
            self._fd = os.open(self.root, HANDLE | os.O_DIRECTORY)
        except OSError as error:
            raise UsageError(f"The root {self.root} cannot be opened: {error.strerror}. Name an existing folder.") from None

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self._fd)

    @property
    def fd(self) -> int:
        """The descriptor of the root. The folder closes it."""
        return self._fd

    def relative(self, path: str) -> str:
        """Return a given path relative to the root. Refuse one that leads outside, or that is not a path."""
        if "\0" in path or len(os.fsencode(_encodable(path))) > MOST_PATH:
            raise PathRefused("The path has a NUL byte or is too long. Give a plain path.")
        if path.startswith("/"):
            inside = os.path.normpath(path)
            if inside != self.root and not inside.startswith(self.root.rstrip("/") + "/"):
                raise PathRefused(f"{path} is outside of the folder that you work in. Give a path relative to it.")
            path = os.path.relpath(inside, self.root)
        clean = "/".join(step for step in path.split("/") if step not in ("", "."))
        if os.path.normpath(clean or ".").split("/")[0] == "..":
            raise PathRefused(f"{path} leads out of the folder that you work in. Give a path inside it.")
        return clean or "."

    @contextmanager
    def opened(self, path: str, access: Access = "read") -> Iterator[tuple[int, str]]:
        """Open a regular file for reading. Yield its descriptor and its real path below the root."""
        with self._handle(path, access) as (handle, real):
            if not stat.S_ISREG(mode := os.fstat(handle).st_mode):
                raise PathRefused(f"{path} is {_kind(mode)}, not a file.")
            try:
                fd = os.open(f"{SELF}/{handle}", os.O_RDONLY | QUIET) if sys.platform == "linux" else os.dup(handle)
            except OSError as error:
                raise _refusal(path, error) from None
            try:
                yield fd, real
            finally:
                os.close(fd)

    @contextmanager
    def entered(self, path: str) -> Iterator[tuple[int, str]]:
        """Open a folder for listing. Yield its descriptor and its real path below the root."""
        with self._handle(path, "read") as (handle, real):
            if not stat.S_ISDIR(mode := os.fstat(handle).st_mode):
                raise PathRefused(f"{path} is {_kind(mode)}, not a folder.")
            try:
                fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | QUIET, dir_fd=handle)
            except OSError as error:
                raise _refusal(path, error) from None
            try:
                yield fd, real
            finally:
                os.close(fd)

    def real(self, path: str, access: Access = "read") -> str:
        """Return the real path below the root of an existing file or folder."""
        with self._handle(path, access) as (_, real):
            return real

    def mode(self, path: str) -> int:
        """Return the mode of an existing file or folder."""
        with self._handle(path, "read") as (handle, _):
            return stat.S_IMODE(os.fstat(handle).st_mode)

    def kind(self, path: str) -> str:
        """Return what is at a path: `file`, `folder`, another word, or an empty text for nothing."""
        try:
            with self._handle(path, "read") as (handle, _):
                mode = os.fstat(handle).st_mode
        except FileNotFoundError:
            return ""
        return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else _kind(mode)

    def read(self, path: str, *, most: int, access: Access = "read") -> tuple[bytes, str]:
        """Return the bytes of a file and its real path; refuse a file of more than `most` bytes."""
        with self.opened(path, access) as (fd, real), os.fdopen(os.dup(fd), "rb") as file:
            body = file.read(most + 1)
        if len(body) > most:
            raise PathRefused(
                f"{path} has more than {most:,} bytes, which is too large for this. Read it in pages, or search it."
            )
        return body, real

    def write(self, path: str, body: bytes, *, mode: int | None = None) -> str:
        """Replace or create a file atomically; return its real path. Missing folders are created.

        Mode and owner are kept; `mode` is that of a new file. A reader sees the old file or the new one, never a part. A
        symlink inside the root is followed, not replaced.
        """
        given = self.relative(path)
        self._judge(given, "write")
        try:
            real = self.real(given, "write")
        except FileNotFoundError:
            real = given
        above, _, name = real.rpartition("/")
        if name in ("", ".", ".."):
            raise PathRefused(f"{path} is no name for a file.")
        with self._make_folder(above or ".") as (parent, place):
            real = name if place == "." else f"{place}/{name}"
            self._judge(real, "write")
            _replace(parent, name, body, shown=path, fresh=mode)
        return real

    def remove(self, path: str) -> None:
        """Remove a file."""
        given = self.relative(path)
        above, _, name = self.real(given, "write").rpartition("/")
        with self._handle(above or ".", "write") as (parent, _):
            try:
                os.unlink(name, dir_fd=parent)
            except FileNotFoundError:
                raise
            except OSError as error:
                raise _refusal(path, error) from None

    @contextmanager
    def _make_folder(self, path: str) -> Iterator[tuple[int, str]]:
        """Open a folder. Create it and the folders above it if they are missing."""
        try:
            with self._handle(path, "write") as found:
                yield found
            return
        except FileNotFoundError:
            pass
        above, _, name = path.rpartition("/")
        if name in ("", ".", ".."):
            raise PathRefused(f"{path} is no name for a folder.")
        with self._make_folder(above or ".") as (parent, _):
            try:
                os.mkdir(name, dir_fd=parent)
            except FileExistsError:
                pass
            except OSError as error:
                raise _refusal(path, error) from None
        with self._handle(path, "write") as found:
            yield found

    @contextmanager
    def _handle(self, path: str, access: Access) -> Iterator[tuple[int, str]]:
        given = self.relative(path)
        self._judge(given, access)
        fd, real = self._find(path, given)
        try:
            if real != given:
                self._judge(real, access)
            yield fd, real
        finally:
            os.close(fd)

    def _find(self, path: str, given: str) -> tuple[int, str]:
        """Return a handle of the path, and its real path. If the file is replaced meanwhile, try again."""
        for _ in range(TRIES):
            try:
                fd = self._open(given)
            except FileNotFoundError:
                raise
            except OSError as error:
                raise _refusal(path, error) from None
            try:
                real = self._real(fd, given)
                if real == given or self._is_at(real, fd):
                    return fd, real
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)
        raise PathRefused(f"{path} kept changing while it was looked up. Try again.")

    def _is_at(self, real: str, fd: int) -> bool:
        """True if the path still leads to the handle. The kernel marks the name of a removed file."""
        if not real.endswith(REMOVED):
            return True
        try:
            other = self._open(real)
        except OSError:
            return False
        try:
            return os.path.samestat(os.fstat(fd), os.fstat(other))
        finally:
            os.close(other)

    def _open(self, path: str) -> int:
        """Return a handle of something beneath the root."""
        raw = os.fsencode(path)
        if openat2_works():
            for _ in range(TRIES):
                fd = _openat2(self._fd, raw)
                if fd >= 0:
                    return fd
                code = ctypes.get_errno()
                if code != errno.EAGAIN:  # a rename anywhere raced with `..`: the kernel asks to try again
                    raise OSError(code, os.strerror(code), path)
            raise OSError(errno.EAGAIN, "it kept changing while it was looked up", path)
        return _walk(self._fd, path)

    def _real(self, fd: int, given: str) -> str:
        if not openat2_works():
            return given  # no symlink was followed and there is no `..`: it is the path that was given
        found, root = os.readlink(f"{SELF}/{fd}"), os.readlink(f"{SELF}/{self._fd}")
        if found == root:
            return "."
        inside = root.rstrip("/") + "/"
        if not found.startswith(inside):
            raise PathRefused(f"{given} was moved out of the folder while it was looked up. Try again.")
        return found[len(inside) :]

    def _judge(self, path: str, access: Access) -> None:
        if why := self.fence.refuse(path, access):
            raise PathRefused(why)


@lru_cache(1)
def openat2_works() -> bool:
    """True if the kernel resolves beneath a descriptor (Linux 5.6 and newer), and /proc names descriptors."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64") or not os.path.isdir(SELF):
        return False
    fd = os.open("/", HANDLE | os.O_DIRECTORY)
    try:
        found = _openat2(fd, b".")
        if found < 0:
            return False
        os.close(found)
        return True
    finally:
        os.close(fd)


@lru_cache(1)
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _openat2(root: int, path: bytes) -> int:
    how = _How(HANDLE, 0, BENEATH_NO_MAGIC)
    found: int = _libc().syscall(OPENAT2, root, path, ctypes.byref(how), ctypes.sizeof(how))
    return found


def _walk(root: int, path: str) -> int:
    """Open step by step without following any symlink."""
    steps = [step for step in path.split("/") if step not in ("", ".")]
    if ".." in steps:
        raise OSError(errno.EXDEV, "it leads upward", path)
    fd = os.dup(root)
    try:
        for number, step in enumerate(steps):
            last = number == len(steps) - 1
            flags = (HANDLE | os.O_NONBLOCK | os.O_NOCTTY) if last else (os.O_RDONLY | os.O_DIRECTORY | QUIET)
            deeper = os.open(step, flags | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = deeper
        if stat.S_ISLNK(os.fstat(fd).st_mode):
            raise OSError(errno.ELOOP, "it is a symlink", path)
        return fd
    except OSError:
        os.close(fd)
        raise


def _replace(parent: int, name: str, body: bytes, *, shown: str, fresh: int | None) -> None:
    temporary = f".evener-{token_hex(8)}"
    try:
        mode, owner = _read_owner(parent, name, shown) or (0o666 & ~_umask() if fresh is None else fresh & 0o777, (-1, -1))
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=parent)
    except OSError as error:
        raise _refusal(shown, error) from None
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(body)
            file.flush()
            with suppress(OSError):  # only root can give a file away; else it is this user's, as a new one is
                os.fchown(file.fileno(), *owner)
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except OSError as error:
        raise _refusal(shown, error) from None
    finally:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=parent)


def _read_owner(parent: int, name: str, shown: str) -> tuple[int, tuple[int, int]] | None:
    """Return mode and owner of the file that will be replaced; None if there is none."""
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise PathRefused(f"{shown} is {_kind(found.st_mode)}, not a file, so it cannot be written.")
    if not found.st_mode & 0o222:
        raise PathRefused(f"{shown} is read-only (mode {stat.S_IMODE(found.st_mode):o}). Ask the user to make it writable.")
    return stat.S_IMODE(found.st_mode) & 0o777, (found.st_uid, found.st_gid)


@lru_cache(1)
def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _encodable(path: str) -> str:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise PathRefused("The path has characters that no file name can have. Give a plain path.") from None
    return path


KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a symlink"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)


def _kind(mode: int) -> str:
    return next((word for test, word in KINDS if test(mode)), "a file")


WORDS = {
    errno.EXDEV: "{path} leads out of the folder that you work in. Give a path inside it.",
    errno.ELOOP: "{path} goes through a symlink that cannot be followed. Give the path of the file itself.",
    errno.ENOTDIR: "{path} goes through something that is not a folder. Check it with list.",
    errno.EACCES: "{path} cannot be accessed: the user who runs this has no permission.",
    errno.EPERM: "{path} cannot be accessed: the user who runs this has no permission.",
    errno.ENAMETOOLONG: "{path:.80}... has a name that is too long.",
    errno.ENOSPC: "{path} could not be written: the disk is full. Nothing was changed.",
    errno.EROFS: "{path} could not be written: the file system is read-only. Nothing was changed.",
}


def _refusal(path: str, error: OSError) -> PathRefused:
    words = WORDS.get(error.errno or 0)
    return PathRefused(words.format(path=path) if words else f"{path} cannot be used: {error.strerror}.")
