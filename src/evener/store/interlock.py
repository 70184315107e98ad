"""Whose turn it is to write, among processes: they queue up instead of knocking over and over.

Whoever writes holds `<store>.lock`; whoever is next holds `<store>.next` and waits for the other. So a process that writes all
the time cannot take another turn before the one that waits. That is all it is for: what keeps writers apart is SQLite's own
lock. Where the system has no such locks, or a wait lasts too long, nobody is refused here: SQLite is asked, and has its say.
"""

import os
from pathlib import Path
from threading import Event as Signal
from threading import Lock, Thread
from time import monotonic

try:
    import fcntl
except ImportError:  # not on this system
    fcntl = None  # type: ignore[assignment]

__all__ = ["Interlock"]

PRIVATE = 0o600
LONGEST_NUMBER = 20
DOUBT = 60.0
"""Seconds in which we do not queue again after a wait in vain: somebody who is next may have been stopped."""


class Turnstile:
    """The two lock files, open. Locks belong to what is open here, and the system frees them when the process dies."""

    def __init__(self, path: Path) -> None:
        self._next = _opened(path.with_name(path.name + ".next"))
        try:
            self._lock = _opened(path.with_name(path.name + ".lock"))
        except OSError:
            os.close(self._next)
            raise

    def try_now(self) -> bool:
        """Take the turn if nobody has it and nobody waits. If only the first is so, we are next."""
        try:
            fcntl.flock(self._next, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(self._next, fcntl.LOCK_UN)
        return True

    def wait(self) -> None:
        """Take the turn, however long that takes."""
        fcntl.flock(self._next, fcntl.LOCK_EX)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        fcntl.flock(self._next, fcntl.LOCK_UN)

    def sign(self, name: bytes) -> None:
        """Say who has the turn. Written only when it says something else."""
        if os.pread(self._lock, LONGEST_NUMBER, 0) != name:
            os.pwrite(self._lock, name, 0)

    def free(self) -> None:
        """Let others have their turn."""
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._lock)
        os.close(self._next)


class Wait:
    """One wait for a turn, in a thread of its own: a lock cannot be waited for with a time limit."""

    def __init__(self, turnstile: Turnstile) -> None:
        self._turnstile = turnstile
        self._guard = Lock()
        self._signal = Signal()
        self._given_up = False
        Thread(target=self._stand, name="evener store queue", daemon=True).start()

    def succeeds(self, seconds: float) -> bool:
        """Whether the turn came in time. If not, the lock files are closed when it comes."""
        self._signal.wait(seconds)
        with self._guard:
            self._given_up = not self._signal.is_set()
            return not self._given_up

    def _stand(self) -> None:
        self._turnstile.wait()
        with self._guard:
            self._signal.set()
            if self._given_up:
                self._turnstile.close()


class Interlock:
    """Take turns with `with interlock:`; one thread of a process at a time. `patience` is the longest wait, in seconds."""

    def __init__(self, path: Path, patience: float) -> None:
        self._path = path
        self._patience = patience
        self._turnstile: Turnstile | None = None
        self._ours = False
        self._doubtful_until = 0.0
        self._name = f"{os.getpid():<{LONGEST_NUMBER}}".encode()

    def __enter__(self) -> None:
        """Wait for our turn. Without lock files, or after too long a wait, go on without it."""
        if fcntl is None:
            return
        try:
            turnstile = self._turnstile = self._turnstile or Turnstile(self._path)
            self._ours = turnstile.try_now() or (monotonic() > self._doubtful_until and self._waited(turnstile))
            if self._ours:
                turnstile.sign(self._name)
        except OSError:
            self.close()  # a file system without locks, or without room for one more file

    def __exit__(self, *_: object) -> None:
        if self._ours and self._turnstile is not None:
            self._ours = False
            self._turnstile.free()

    def last(self) -> str:
        """The number of the process that had its turn last, if that is known."""
        try:
            return self._path.with_name(self._path.name + ".lock").read_text("ascii", "replace").strip()
        except OSError:
            return ""

    def close(self) -> None:
        """Close the lock files; the next turn opens them again."""
        if self._turnstile is not None:
            self._turnstile.close()
        self._turnstile, self._ours = None, False

    def _waited(self, turnstile: Turnstile) -> bool:
        try:
            wait = Wait(turnstile)
        except RuntimeError:  # the interpreter ends, and no thread can be started
            self.close()
            return False
        if wait.succeeds(self._patience):
            return True
        self._turnstile = None  # the thread that still waits has it
        self._doubtful_until = monotonic() + DOUBT
        return False


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE)
