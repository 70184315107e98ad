"""A running command: its guard, and its output, of which the beginning and the end are kept. Uses threads, because it may
outlive a run.

When this process ends, the connection to the guard closes, and the guard ends the command and all of its processes.
"""

import marshal
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable

import msgspec

from evener.toolset.shell import guard
from evener.toolset.shell.sandbox import Sandbox, SandboxRefused

HEAD, TAIL = 16_000, 32_000
PIECE = 65_536
STOP_SECONDS = 15.0
START = "import sys; sys.path.append(sys.argv[1]); import guard; guard.main(int(sys.argv[2]))"
"""A module is compiled once, a script at each start, which would be a quarter of the time that the guard takes."""


class CommandEnd(msgspec.Struct, frozen=True):
    """How a command ended. `why` is empty, `deadline` or `cancelled`; `exit` is negative for a signal.

    `strays` is how many processes were still running then and were ended; `full`: it tried to start more than it may.
    `killed` is when it was killed, and `seconds` when none of its processes was left, in seconds after its start.
    """

    refused: str = ""
    why: str = ""
    exit: int = 0
    strays: int = 0
    full: bool = False
    killed: float = 0.0
    seconds: float = 0.0


class _Tape:
    """Keeps the beginning and the end of what is printed."""

    def __init__(self) -> None:
        self._head, self._tail = bytearray(), bytearray()
        self._total = 0
        self._lock = threading.Lock()

    def add(self, piece: bytes) -> None:
        with self._lock:
            self._total += len(piece)
            room = HEAD - len(self._head)
            self._head += piece[: max(0, room)]
            self._tail += piece[max(0, room) :]
            if len(self._tail) > 2 * TAIL:
                del self._tail[:-TAIL]

    def text(self) -> str:
        with self._lock:
            tail = bytes(self._tail[-TAIL:])
            left_out = self._total - len(self._head) - len(tail)
            head = bytes(self._head)
        if not left_out:
            return (head + tail).decode(errors="replace")
        gap = f"\n[{left_out:,} bytes are left out here]\n"
        return head.decode(errors="replace") + gap + tail.decode(errors="replace")


class RunningCommand:
    """One command from start to end. `feed` gets each piece of output instead of the tape; it returns True if that is
    enough.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        argv: list[str],
        *,
        seconds: float,
        searches: bool = False,
        feed: Callable[[bytes], bool | None] | None = None,
    ) -> None:
        self.argv, self.end = argv, None
        self.began = time.monotonic()
        self._tape = _Tape()
        self._feed = feed or self._tape.add
        self._done = threading.Event()
        self._closing = threading.Lock()
        self._temporary = os.path.realpath(tempfile.mkdtemp(prefix="evener-"))
        try:
            plan = sandbox.plan(argv, seconds=seconds, temporary=self._temporary, searches=searches)
            self._start(plan)
        except BaseException:
            remove_tree(self._temporary)
            raise
        threading.Thread(target=self._follow, name="evener-command", daemon=True).start()

    end: CommandEnd | None

    @property
    def text(self) -> str:
        """The output so far: its beginning and its end."""
        return self._tape.text()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the command has ended, at most `seconds`. True if it has."""
        return self._done.wait(seconds)

    def stop(self) -> None:
        """Kill the command with all of its processes, and wait until they are gone."""
        self._hang_up()
        if not self._done.wait(STOP_SECONDS):
            self._process.kill()
            self._done.wait(STOP_SECONDS)

    def _hang_up(self) -> None:
        """Close the connection to the guard, which then kills the command."""
        with self._closing:
            if self._process.stdin is not None and not self._process.stdin.closed:
                self._process.stdin.close()

    def _start(self, plan: dict[str, object]) -> None:
        self._status, theirs = os.pipe()
        told = guard.write_memory(marshal.dumps({**plan, "status": theirs}))
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", START, os.path.dirname(guard.__file__), str(told)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs, told),
                env={"PATH": os.defpath},
                cwd="/",
            )
        except OSError as error:
            os.close(self._status)
            raise SandboxRefused(f"The guard cannot be started: {error.strerror}.") from None
        finally:
            os.close(theirs)
            os.close(told)

    def _follow(self) -> None:
        """Read all output, then the exit status."""
        try:
            assert self._process.stdout is not None
            with self._process.stdout as output:
                while piece := os.read(output.fileno(), PIECE):
                    if self._feed(piece):
                        self._hang_up()
            with os.fdopen(self._status, "rb") as status:
                said = status.read()
            self._process.wait()
            self.end = msgspec.convert(marshal.loads(said), CommandEnd) if said else CommandEnd(why="lost", exit=-9)
        finally:
            self.end = self.end or CommandEnd(why="lost", exit=-9)
            self._hang_up()
            remove_tree(self._temporary)
            self._done.set()


def remove_tree(folder: str) -> None:
    """Remove the command's own folder, at any depth and with any modes."""
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):  # before Python 3.13 it calls itself once for each level
        script = 'chmod -R u+rwx "$1"; rm -rf "$1"'
        subprocess.run(["/bin/sh", "-c", script, "sh", folder], stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
