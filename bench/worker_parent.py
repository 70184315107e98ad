"""The warmed-up parent of worker processes: it has loaded what a worker needs, and forks one for each line that it reads.

A worker is `evener worker` in all but that it starts in milliseconds: a campaign that kills hundreds of them spends its time on
deaths. `WorkerParent` is its front; when that is closed, what still runs is told to end.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

__all__ = ["WorkerParent"]

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 120.0
SOON = 0.01


class Birth(msgspec.Struct, frozen=True):
    """A worker that is wanted: the words of the command, its variables, and the file for what it says."""

    words: list[str]
    told: dict[str, str]
    log: str


class WorkerParent:
    """Starts worker processes, and signals them."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "bench.worker_parent"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def start(self, words: Sequence[str], told: Mapping[str, str], log: Path) -> int:
        """Start a worker; its id."""
        pipe, answers = self._process.stdin, self._process.stdout
        assert pipe is not None
        assert answers is not None
        pipe.write(msgspec.json.encode(Birth(list(words), dict(told), str(log))) + b"\n")
        pipe.flush()
        return int(answers.readline())

    def end(self, pid: int, *, how: signal.Signals) -> None:
        """Signal a worker, and wait until it is gone. One that takes too long is killed."""
        deadline = time.monotonic() + SECONDS
        send(pid, how)
        while send(pid, None):
            if time.monotonic() > deadline:
                send(pid, signal.SIGKILL)
            time.sleep(SOON)

    def close(self) -> None:
        """End the parent."""
        self._process.communicate(timeout=SECONDS)


def send(pid: int, how: signal.Signals | None) -> bool:
    """Signal a process, or only look; False when it is gone."""
    try:
        os.kill(pid, how or 0)
    except ProcessLookupError:
        return False
    return True


def _be_parent() -> None:
    _load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system buries the dead
    born = []
    while line := sys.stdin.buffer.readline():
        birth = msgspec.json.decode(line, type=Birth)
        child = os.fork()
        if child == 0:
            _be_worker(birth)
        born.append(child)
        os.write(1, f"{child}\n".encode())
    for child in born:
        send(child, signal.SIGTERM)


def _load() -> None:
    import psycopg_pool  # noqa: F401

    import evener.cli.commands.worker
    import evener.store.postgres
    import evener.testing.scripted_model

    try:
        import evener.cluster.temporal  # noqa: F401
    except ImportError:
        return  # it is not installed


def _be_worker(birth: Birth) -> None:
    from evener.cli import main

    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        said = os.open(birth.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.environ.update(birth.told)
        code = main(birth.words)
    finally:
        os._exit(code)


if __name__ == "__main__":
    _be_parent()
