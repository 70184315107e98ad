"""Starts children of the store tests, and ends them whatever happens."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 120.0


@contextmanager
def child(act: str, *words: object) -> Iterator["subprocess.Popen[str]"]:
    """A running child with pipes to it; it is dead after the block."""
    command = [sys.executable, "-W", "error", "-m", "tests.store.child", act, *map(str, words)]
    running = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield running
    finally:
        running.kill()
        running.wait(timeout=SECONDS)
        for pipe in (running.stdin, running.stdout):
            if pipe is not None:
                pipe.close()


def finished(act: str, *words: object) -> list[str]:
    """The lines that a child says, which must end well by itself."""
    command = [sys.executable, "-W", "error", "-m", "tests.store.child", act, *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def line(running: "subprocess.Popen[str]") -> str:
    """The next line that it says; empty when it says no more."""
    assert running.stdout is not None
    return running.stdout.readline().strip()


def say(running: "subprocess.Popen[str]", text: str) -> None:
    assert running.stdin is not None
    running.stdin.write(f"{text}\n")
    running.stdin.flush()
