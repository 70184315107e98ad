"""One at a time, across processes: a lock on a file. It is gone with the process that holds it, however that ends."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from evener.errors import TimedOut

__all__ = ["file_lock"]

PAUSE = 0.05
"""Seconds between two tries: a lock that another process holds cannot be waited for with a deadline."""


@contextmanager
def file_lock(path: Path, *, seconds: float) -> Iterator[None]:
    """Hold the lock of this file, which is made if need be and stays. Raises TimedOut after so many seconds."""
    deadline = time.monotonic() + seconds
    with path.open("ab") as file:
        while not _taken(file):
            if time.monotonic() > deadline:
                raise TimedOut(
                    f"Another process has held {path} for {seconds:g} seconds. Wait for it, or end it, and try again."
                )
            time.sleep(PAUSE)
        try:
            yield
        finally:
            _let_go(file)


if sys.platform == "win32":
    import msvcrt

    def _taken(file: IO[bytes]) -> bool:
        file.seek(0)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _let_go(file: IO[bytes]) -> None:
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _taken(file: IO[bytes]) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _let_go(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)
