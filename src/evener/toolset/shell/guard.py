"""The guard: a small process that fences in one command, watches it, and leaves none of its processes behind.

Run by an interpreter of its own (`python -I -S`), with a descriptor that holds a plan as `marshal` writes it: command lines are
short, and other users can read them. It imports nothing of Evener: it is quick to start, and what it enforces can be read in
one file. It needs no privileges and no namespaces:

    Landlock    files: only the paths of the plan; signals and abstract sockets: only inside; TCP: none
    seccomp     no sockets, no new namespaces, no tracing, no mounting, no pushing input into a terminal; changes of modes and
                times of files are made by the guard, below the writable paths only (Landlock cannot restrict these)
    fork        each one is allowed by the guard, which counts: the limit holds for root, too
    rlimits     memory of each process, size of files, open files, no core dumps

It is the subreaper of the command: a child that forks twice or makes a session of its own is still its descendant, and ends
with it. Whatever cannot be set up means that the command is not started (`refused`). With `bwrap` in the plan, bubblewrap makes
the fence instead of Landlock; forks are counted in the same way.

Descriptor 0 is the line to the caller: when it closes, everything ends. The descriptor `status` takes a report on how it
ended.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import marshal
import os
import resource
import select
import stat
import struct
import time
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket, socketpair

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import NoReturn, TypedDict
else:  # the C parts: `json`, `signal`, `socket` and `typing` take longer to load than all the rest
    import _signal as signal

    TypedDict = dict

LIBC = ctypes.CDLL(None, use_errno=True)
NEEDED_ABI = 6
MOST_DESCRIPTORS = 4_096

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_SET_CHILD_SUBREAPER, PR_CAPBSET_DROP = 1, 38, 36, 24
KEPT_CAPABILITIES = (1, 3)  # root may go on to write files that belong to others: DAC_OVERRIDE, FOWNER


class GuardPlan(TypedDict):
    """What to run and where its fence is. Paths are absolute and resolved. Bytes and seconds."""

    argv: list[str]
    cwd: str
    env: dict[str, str]
    read: list[str]
    write: list[str]
    devices: list[str]
    bwrap: list[str]
    seconds: float
    processes: int
    memory: int
    file_size: int
    open_files: int
    status: int


class FenceRefused(Exception):
    """The fence cannot be set up, and why."""


# Landlock.

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
MAKE_CHAR, MAKE_BLOCK, TRUNCATE, IOCTL_DEV = 1 << 6, 1 << 11, 1 << 14, 1 << 15
ALL = (1 << 16) - 1
READ = EXECUTE | READ_FILE | READ_DIR
WRITE = ALL & ~(MAKE_CHAR | MAKE_BLOCK | IOCTL_DEV)
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
TCP, SCOPES = 3, 3  # bind and connect; abstract sockets and signals


def landlock_abi() -> int:
    """Return the version of Landlock; below 1 if there is none."""
    found: int = LIBC.syscall(444, None, ctypes.c_size_t(0), 1)
    return found


def confine_files(plan: GuardPlan) -> None:
    """Allow this process and its children only the paths of the plan."""
    abi = landlock_abi()
    if abi < NEEDED_ABI:
        raise FenceRefused(f"Landlock is too old (version {max(abi, 0)}, needed: {NEEDED_ABI}, with Linux 6.12)")
    attributes = struct.pack("=QQQ", ALL, TCP, SCOPES)
    rules = LIBC.syscall(444, attributes, ctypes.c_size_t(len(attributes)), 0)
    if rules < 0:
        raise FenceRefused(f"Landlock cannot be used: {os.strerror(ctypes.get_errno())}")
    devices = READ_FILE | WRITE_FILE
    for paths, access in ((plan["read"], READ), (plan["write"], WRITE), (plan["devices"], devices)):
        for path in paths:
            _allow(rules, path, access)
    if LIBC.syscall(446, rules, 0) != 0:
        raise FenceRefused(f"Landlock cannot be used: {os.strerror(ctypes.get_errno())}")
    os.close(rules)


def _allow(rules: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(os.fstat(fd).st_mode):
        access &= OF_FILES
    rule = struct.pack("=Qi", access, fd)
    if LIBC.syscall(445, rules, 1, rule, 0) != 0:
        raise FenceRefused(f"Landlock does not take {path}: {os.strerror(ctypes.get_errno())}")
    os.close(fd)


# seccomp, for x86-64.

AUDIT_ARCH, X32 = 0xC000003E, 0x40000000
KILL, ALLOW, NOTIFY = 0x80000000, 0x7FFF0000, 0x7FC00000
CLONE, FORK, VFORK, CLONE3, SOCKET, IOCTL = 56, 57, 58, 435, 41, 16
CHMOD, FCHMOD, FCHMODAT, FCHMODAT2, UTIMENSAT = 90, 91, 268, 452, 280
AT_SYMLINK_NOFOLLOW = 0x100
NAMESPACES = 0x7E020080  # CLONE_NEW...
PUSHING = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
FORBIDDEN = (
    101, 310, 311, 246, 320, 321, 298, 323, 425, 426, 427,  # ptrace, process_vm_*, kexec, bpf, perf, userfaultfd, io_uring
    165, 166, 155, 161, 272, 308, 428, 429, 430, 431, 432, 433, 442,  # mount, pivot_root, chroot, unshare, setns, fsopen ...
    248, 249, 250, 303, 304, 175, 313, 176, 169, 167, 168, 163, 179, 443,  # keys, handles, modules, reboot, swap, acct, quota
    164, 227, 159, 305, 170, 171, 172, 173, 312, 438, 103, 135, 153,  # clocks, host name, ports, kcmp, pidfd_getfd, syslog ...
    92, 93, 94, 260, 132, 235, 261, 256, 279, 440, 251, 300,  # chown, utime, move_pages, process_madvise, ioprio, fanotify
    29, 30, 31, 64, 66, 68, 240,  # shared memory, semaphores and queues of System V and POSIX
)  # fmt: skip
UNSUPPORTED = (188, 189, 190, 197, 198, 199, 463, 466)  # extended attributes: as on a file system without them
ONLY_SELF = (302, 203, 144, 142, 314)  # prlimit64, sched_set*: on other processes of the same user they would reach outside
SETPRIORITY = 141


def _statement(code: int, value: int) -> bytes:
    return struct.pack("=HBBI", code, 0, 0, value & 0xFFFFFFFF)


def _jump(value: int, if_true: int, if_false: int, test: int = 0x15) -> bytes:
    return struct.pack("=HBBI", test, if_true, if_false, value & 0xFFFFFFFF)


def _load(offset: int) -> bytes:
    return _statement(0x20, offset)


def _return(value: int) -> bytes:
    return _statement(0x06, value)


def _error(code: int) -> bytes:
    return _return(0x00050000 | code)


def _argument(number: int) -> int:
    return 16 + 8 * number  # the lower half


START = (_load(4), _jump(AUDIT_ARCH, 1, 0), _return(KILL), _load(0), _jump(X32, 0, 1, 0x35), _error(errno.ENOSYS))


def make_fork_filter() -> bytes:
    """Return the seccomp program that reports only forks to the guard. Used around bubblewrap, which needs the other calls."""
    program = [*START, _jump(CLONE3, 0, 1), _error(errno.ENOSYS)]
    for number in (CLONE, FORK, VFORK):
        program += [_jump(number, 0, 1), _return(NOTIFY)]
    return b"".join((*program, _return(ALLOW)))


def make_filter(notify: bool) -> bytes:
    """Return the complete seccomp program.

    `notify`: forks and changes of modes are reported to the guard; else they are allowed.
    """
    asks = _return(NOTIFY if notify else ALLOW)
    program = [*START]
    for number in FORBIDDEN:
        program += [_jump(number, 0, 1), _error(errno.EPERM)]
    for number in UNSUPPORTED:
        program += [_jump(number, 0, 1), _error(errno.ENOTSUP)]
    program += [_jump(CLONE3, 0, 1), _error(errno.ENOSYS)]  # its flags cannot be seen; programs fall back to clone
    program += [_jump(SOCKET, 0, 1), _error(errno.EACCES)]
    for number in (FORK, VFORK, CHMOD, FCHMOD, FCHMODAT, FCHMODAT2, UTIMENSAT):
        program += [_jump(number, 0, 1), asks]
    program += [_jump(CLONE, 0, 4), _load(_argument(0)), _jump(NAMESPACES, 0, 1, 0x45), _error(errno.EPERM), asks]
    for number in ONLY_SELF:
        program += [_jump(number, 0, 4), _load(_argument(0)), _jump(0, 0, 1), _return(ALLOW), _error(errno.EPERM)]
    program += [_jump(SETPRIORITY, 0, 6), _load(_argument(0)), _jump(0, 0, 3), _load(_argument(1))]
    program += [_jump(0, 0, 1), _return(ALLOW), _error(errno.EPERM)]
    program += [_jump(IOCTL, 0, 4), _load(_argument(1)), _jump(PUSHING[0], 1, 0), _jump(PUSHING[1], 0, 1), _error(errno.EPERM)]
    return b"".join((*program, _return(ALLOW)))


def install_filter(made: bytes) -> int:
    """Install a filter for this process and its children. Return the descriptor of the notifications."""
    if os.uname().machine != "x86_64":
        raise FenceRefused(f"the filter of system calls is made for x86_64, and this is {os.uname().machine}")
    program = ctypes.create_string_buffer(made)
    head = struct.pack("HxxxxxxP", (len(program) - 1) // 8, ctypes.addressof(program))
    listener: int = LIBC.syscall(317, 1, 1 << 3, head)
    if listener < 0:
        raise FenceRefused(f"seccomp cannot be used: {os.strerror(ctypes.get_errno())}")
    return listener


# The child, before it becomes the command.


def become_command(plan: GuardPlan, line: socket) -> NoReturn:
    """Set up the sandbox, in this order, and execute the command. Never returns."""
    try:
        os.setsid()
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.chdir(plan["cwd"])
        set_limits(plan)
        if LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise FenceRefused("no_new_privs cannot be set")
        os.closerange(3, line.fileno())
        os.closerange(line.fileno() + 1, MOST_DESCRIPTORS)
        if plan["bwrap"]:
            arguments = confine_by_bwrap(plan)
            listener = install_filter(make_fork_filter())
        else:
            arguments = plan["argv"]
            drop_capabilities()
            confine_files(plan)
            listener = install_filter(make_filter(True))
        line.sendmsg([b"+"], [(SOL_SOCKET, SCM_RIGHTS, struct.pack("i", listener))])
        os.close(listener)
        line.recv(1)  # the guard listens: from here on it is asked about forks
        restore_signals()
        os.execvpe(arguments[0], arguments, plan["env"])
    except FenceRefused as error:
        line.send(f"!{error}".encode())
    except OSError as error:
        line.send(f"!{error.strerror}: {error.filename or plan['argv'][0]}".encode())
    os._exit(126)


def restore_signals() -> None:
    """Restore the default signal handlers for the command."""
    for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def set_limits(plan: GuardPlan) -> None:
    """Set the resource limits of each process."""
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_DATA, plan["memory"]),
        (resource.RLIMIT_FSIZE, plan["file_size"]),
        (resource.RLIMIT_NOFILE, plan["open_files"]),
    ):
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def drop_capabilities() -> None:
    """Drop the capabilities of root that reach beyond files. A no-op for other users."""
    if os.geteuid() == 0:
        for number in range(64):
            if number not in KEPT_CAPABILITIES:
                LIBC.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)


def confine_by_bwrap(plan: GuardPlan) -> list[str]:
    """Return the command inside bubblewrap, which reads its arguments and the filter of system calls from descriptors."""
    program, *arguments = plan["bwrap"]
    options = "".join(f"{one}\0" for one in arguments)
    calls, given = write_memory(make_filter(False)), write_memory(os.fsencode(options))
    os.set_inheritable(calls, True)
    os.set_inheritable(given, True)
    return [program, "--seccomp", str(calls), "--args", str(given), "--", *plan["argv"]]


def write_memory(body: bytes) -> int:
    """Return a descriptor of an anonymous file with this content."""
    fd = os.memfd_create("evener", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write(body)
    os.lseek(fd, 0, 0)
    return fd


# The guard itself.


def family() -> dict[int, int]:
    """Return the processes below this one, with the number of threads of each."""
    parents: dict[int, list[tuple[int, bytes, int]]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append((int(name), fields[0], int(fields[17])))
    found: dict[int, int] = {}
    new = [os.getpid()]
    while new:
        for pid, state, threads in parents.get(new.pop(), ()):
            if pid not in found:
                found[pid] = 0 if state in (b"Z", b"X") else threads
                new.append(pid)
    return found


def kill_family() -> None:
    """Kill all processes below this one, until none is left."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        alive = [pid for pid, threads in family().items() if threads]
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if not reap() and not alive:
            return
        time.sleep(0.002)


def kill_group(leader: int) -> None:
    """Kill the command's process group first, which is most of its processes.

    The leader is not collected yet, so its id is not reused.
    """
    try:
        os.killpg(leader, signal.SIGKILL)
    except OSError:
        return


def reap(main: int = 0) -> bool:
    """Collect ended children, and keep the status of the main one. True if there are others."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        if pid == main:
            ENDED.append(status)


ENDED: list[int] = []
"""The status of the command, as soon as it has ended."""


class Asked:
    """Answers the questions of the filter: may this process fork, may it change that mode."""

    def __init__(self, listener: int, plan: GuardPlan) -> None:
        self.listener, self.most, self.writable = listener, plan["processes"], plan["write"]
        self.left = 0
        self.full = False

    def answer(self) -> None:
        question = bytearray(80)
        try:
            fcntl.ioctl(self.listener, 0xC0502100, question)
        except OSError:
            return  # the process that asked is gone
        id, pid, _flags, number = struct.unpack_from("=QIIi", question)
        arguments = struct.unpack_from("=6Q", question, 32)
        flags = 0
        if number in (CLONE, FORK, VFORK):
            code = 0 if self.has_room() else errno.EAGAIN
            flags = 0 if code else 1  # continue
        else:
            code = self.change(id, pid, number, arguments)
        try:
            fcntl.ioctl(self.listener, 0xC0182101, struct.pack("=QqiI", id, 0, -code, flags))
        except OSError:
            return

    def has_room(self) -> bool:
        """True if one more process is allowed. Processes are counted only when the room of the last count may be used up."""
        if self.left <= 0:
            self.left = self.most - sum(family().values())
        self.left -= 1
        self.full = self.full or self.left < 0
        return self.left >= 0

    def change(self, id: int, pid: int, number: int, arguments: tuple[int, ...]) -> int:
        """Change mode or times of a file on behalf of the process that asked. Return the error number, 0 for success."""
        try:
            path = "" if number == FCHMOD else self.path_of(pid, number, arguments)
            times = self.times_at(pid, arguments[2]) if number == UTIMENSAT else None
            fcntl.ioctl(self.listener, 0x40082102, struct.pack("=Q", id))  # still the same process
            link = number == UTIMENSAT and bool(arguments[3] & AT_SYMLINK_NOFOLLOW)
            fd = self.open_inside(path, link=link) if path else self.open_held(pid, arguments[0])
            try:
                place = f"/proc/self/fd/{fd}"
                if number == UTIMENSAT:
                    if LIBC.utimensat(-1, place.encode(), times, 0) != 0:
                        raise OSError(ctypes.get_errno(), "")
                else:
                    mode = arguments[{CHMOD: 1, FCHMOD: 1}.get(number, 2)]
                    os.chmod(place, mode & 0o777)
            finally:
                os.close(fd)
        except OSError as error:
            return error.errno or errno.EPERM
        return 0

    def path_of(self, pid: int, number: int, arguments: tuple[int, ...]) -> str:
        folder, pointer = (None, arguments[0]) if number == CHMOD else (ctypes.c_int(arguments[0]).value, arguments[1])
        path = b"" if pointer == 0 else self.text_at(pid, pointer)
        if path.startswith(b"/"):
            return os.fsdecode(path)
        base = f"/proc/{pid}/cwd" if folder in (None, -100) else f"/proc/{pid}/fd/{folder}"
        return os.path.join(os.readlink(base), os.fsdecode(path)).rstrip("/")

    def text_at(self, pid: int, pointer: int) -> bytes:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            found = b""
            while len(found) < 4096:
                size = 4096 - (pointer + len(found)) % 4096
                memory.seek(pointer + len(found))
                piece = memory.read(size)
                found += piece
                if b"\0" in piece or not piece:
                    break
        return found.partition(b"\0")[0]

    def times_at(self, pid: int, pointer: int) -> bytes | None:
        if pointer == 0:
            return None
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(pointer)
            return memory.read(32).ljust(32, b"\0")

    def open_held(self, pid: int, held: int) -> int:
        """Open a file that a process has open, if it is below a writable path. It may have been removed."""
        fd = os.open(f"/proc/{pid}/fd/{held}", os.O_PATH | os.O_CLOEXEC)
        path = os.readlink(f"/proc/self/fd/{fd}")
        if any(path == root or path.startswith(root.rstrip("/") + "/") for root in self.writable):
            return fd
        os.close(fd)
        raise PermissionError(errno.EPERM, "outside")

    def open_inside(self, path: str, *, link: bool) -> int:
        """Open a path below a writable path; the kernel resolves it. `link`: open a symlink itself."""
        path = os.path.normpath(path)
        for root in self.writable:
            if path == root or path.startswith(root.rstrip("/") + "/"):
                base = os.open(root, os.O_PATH | os.O_CLOEXEC)
                try:
                    how = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC | (os.O_NOFOLLOW if link else 0), 0, 0x0A)
                    fd: int = LIBC.syscall(437, base, os.fsencode(os.path.relpath(path, root)), how, ctypes.c_size_t(24))
                    if fd < 0:
                        code = ctypes.get_errno()
                        raise OSError(errno.EPERM if code == errno.EXDEV else code, "")
                    return fd
                finally:
                    os.close(base)
        raise PermissionError(errno.EPERM, "outside")


def watch(plan: GuardPlan, child: int, asked: Asked) -> str:
    """Wait until the command ends, its time is up, or the caller is gone.

    Return why it was killed; empty if it ended itself.
    """
    wakes, waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    end = time.monotonic() + plan["seconds"]
    waiting = [0, wakes, asked.listener]
    reap(child)
    while not ENDED:
        left = end - time.monotonic()
        if left <= 0:
            return "deadline"
        ready = select.select(waiting, [], [], left)[0]
        if 0 in ready:
            return "cancelled"
        if asked.listener in ready:
            asked.answer()
        if wakes in ready:
            os.read(wakes, 4096)
        reap(child)
    return ""


def main(told: int) -> None:
    """Run the command of the plan in this descriptor, watch it, clean up, and report."""
    with open(told, "rb") as file:
        plan: GuardPlan = marshal.load(file)
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    ours, theirs = socketpair(AF_UNIX, SOCK_STREAM)
    child = os.fork()
    if child == 0:
        ours.close()
        become_command(plan, theirs)
    theirs.close()
    os.dup2(os.open("/dev/null", os.O_WRONLY), 1)  # only the command writes there, so that its end is seen
    os.dup2(1, 2)
    refused, asked = greet(plan, ours)
    began = time.monotonic()
    why = "" if refused or asked is None else watch(plan, child, asked)
    if asked:
        os.close(asked.listener)  # from here on no fork succeeds
    strays = 0
    if not ENDED:
        kill_group(child)
    elif not plan["bwrap"]:
        strays = sum(1 for threads in family().values() if threads)
    killed = time.monotonic()
    kill_family()
    reap(child)
    status = ENDED[0] if ENDED else 0
    report = {
        "refused": refused,
        "why": why,
        "exit": os.waitstatus_to_exitcode(status),
        "strays": strays,
        "full": bool(asked and asked.full),
        "killed": round(killed - began, 3),
        "seconds": round(time.monotonic() - began, 3),
    }
    os.write(plan["status"], marshal.dumps(report))


def greet(plan: GuardPlan, line: socket) -> tuple[str, Asked | None]:
    """Take the filter's descriptor from the child, and let the child continue.

    Return an error, or the object that answers the filter.
    """
    said, more, _flags, _address = line.recvmsg(2000, 64)
    if not said.startswith(b"+") or not more:
        return said[1:].decode(errors="replace") or "the fence could not be set up", None
    asked = Asked(struct.unpack("i", more[0][2][:4])[0], plan)
    line.send(b"+")
    said = line.recv(2000)  # closed by a successful exec; else the reason
    return said[1:].decode(errors="replace"), asked
