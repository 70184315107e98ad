"""Memory of this process, in bytes. Linux tells what is held now and can forget an old peak; elsewhere the greatest must do."""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["Peak", "limited", "most_resident", "resident"]

PAGE = resource.getpagesize()
STATM = Path("/proc/self/statm")
STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")
FORGET_PEAK = "5"


class Peak:
    """How far resident memory rose above where it was: known once the block has ended."""

    def __init__(self) -> None:
        self.rise = 0


@contextmanager
def limited(most: int) -> Iterator[Peak]:
    """Let the block take so many more bytes of address space: beyond that it gets a MemoryError. Tells its peak."""
    peak = Peak()
    addressed, before = _now()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with suppress(OSError):  # not allowed: then the peak is that of the whole process
        CLEAR.write_text(FORGET_PEAK)
    if addressed:
        resource.setrlimit(resource.RLIMIT_AS, (addressed + most, hard))
    try:
        yield peak
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        peak.rise = max(0, most_resident() - before)


def resident() -> int:
    """What is resident now."""
    return _now()[1]


def _now() -> tuple[int, int]:
    """Address space (0 where it is not told) and resident memory."""
    if not STATM.exists():
        return 0, _greatest()
    addressed, held, *_ = STATM.read_text().split()
    return int(addressed) * PAGE, int(held) * PAGE


def most_resident() -> int:
    """The most that was resident at once. Of a child, `getrusage` tells what its parent held."""
    if not STATUS.exists():
        return _greatest()
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def _greatest() -> int:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
