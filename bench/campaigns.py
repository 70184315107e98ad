"""What the campaigns of forks and of kills share: a tally of what they came to, and processes of their own to run them in."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Self, TypeVar

import msgspec

__all__ = ["Tally", "finished", "gathered", "note", "read", "share", "started"]

ROOT = Path(__file__).resolve().parents[1]
SHOWN = 20


class Tally(msgspec.Struct):
    """What a campaign came to. Those of one campaign have counts, and counts by name."""

    violations: list[str] = []

    def add(self, other: Self) -> None:
        """Both together."""
        for name in self.__struct_fields__:
            mine, more = getattr(self, name), getattr(other, name)
            setattr(self, name, dict(Counter(mine) + Counter(more)) if isinstance(mine, dict) else mine + more)


T = TypeVar("T", bound=Tally)


def note(journal: Path | None, tally: Tally) -> None:
    """Add a line to the journal of a campaign, if it has one: what was done since the last line."""
    if journal is not None:
        with open(journal, "ab", buffering=0) as file:
            file.write(msgspec.json.encode(tally) + b"\n")


def read(journal: Path | None, kind: type[T]) -> T:
    """Return all lines of a journal together. The line that a process died in does not count."""
    whole = kind()
    lines = journal.read_bytes().split(b"\n")[:-1] if journal is not None and journal.exists() else []
    for line in lines:
        whole.add(msgspec.json.decode(line, type=kind))
    return whole


def share(whole: int, number: int, parts: int) -> int:
    """Return how much of the whole this one of so many parts has."""
    return whole // parts + (number < whole % parts)


def started(module: str, *words: object, fault: str = "") -> "subprocess.Popen[str]":
    """Start a campaign; it writes its tally when it ends. `fault` is one of the campaign's FAULTS."""
    command = [sys.executable, "-W", "error", "-m", module, *map(str, words), *([fault] if fault else [])]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(running: "subprocess.Popen[str]", kind: type[T], *, seconds: float) -> T:
    """Wait for one campaign, and return its tally. One that takes longer is killed."""
    try:
        said, complaints = running.communicate(timeout=seconds)
    finally:
        if running.poll() is None:
            running.kill()
            running.wait()
    if running.returncode:
        raise RuntimeError(f"The campaign {running.args!r} failed: {complaints[-2000:]}")
    return msgspec.json.decode(said, type=kind)


def gathered(running: "Iterable[subprocess.Popen[str]]", kind: type[T]) -> T:
    """Wait for campaigns that run beside each other, print what went wrong, and return what they came to together."""
    whole = kind()
    for one in running:
        said, complaints = one.communicate()
        if one.returncode:
            whole.violations.append("a campaign failed")
        else:
            whole.add(msgspec.json.decode(said, type=kind))
        if whole.violations:
            print(complaints[-5000:], file=sys.stderr)
    for text in whole.violations[:SHOWN]:
        print(f"violation: {text}")
    return whole
