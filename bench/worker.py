"""The child process of the fuzzer: runs inputs one after the other under hard limits, and tells what came of them."""

import ctypes
import faulthandler
import signal
import traceback
from multiprocessing.connection import Connection
from time import monotonic, process_time

import msgspec

from bench.cases import Case, case_of, run
from bench.memory import limited

__all__ = ["HARD_SECONDS", "Finding", "Progress", "Tally", "work"]

MOST_SECONDS = 1.0
MOST_BYTES = 256 << 20
HARD_SECONDS = 5.0
"""CPU after which an input is stopped, wherever it is: by a signal that ends the process, in C code as in Python."""

SLACK = 64 << 20
"""Address space beyond the limit on memory: allocators reserve more than they use."""


class Progress(ctypes.Structure):
    """Where the child is, in memory that outlives it."""

    _fields_ = (("number", ctypes.c_uint64),)


class Finding(msgspec.Struct, frozen=True):
    """An input that did what no input may do."""

    number: int
    what: str


class Tally(msgspec.Struct):
    """What a number of inputs did. Counts are by target, wire and outcome."""

    counts: dict[str, int] = {}
    findings: list[Finding] = []
    slowest: float = 0.0
    slowest_number: int = 0
    memory: int = 0

    def run(self, number: int, case: Case) -> None:
        """Run one input and note what it did."""
        outcome = "failed"
        with limited(MOST_BYTES + SLACK) as peak:
            start = process_time()
            try:
                outcome = run(case)
            except Exception as error:  # anything at all is a finding here
                self.find(number, case, _place(error))
            cpu = process_time() - start
        name = f"{case.target} {case.wire} {outcome}"
        self.counts[name] = self.counts.get(name, 0) + 1
        self.memory = max(self.memory, peak.rise)
        if cpu > self.slowest:
            self.slowest, self.slowest_number = cpu, number
        if cpu > MOST_SECONDS:
            self.find(number, case, f"took {cpu:.1f} s of CPU")
        if peak.rise > MOST_BYTES:
            self.find(number, case, f"took {peak.rise >> 20} MB")

    def find(self, number: int, case: Case, what: str) -> None:
        """Note a finding; the same one is noted once."""
        what = f"{case.target} {case.wire}: {what}"
        if all(finding.what != what for finding in self.findings):
            self.findings.append(Finding(number, what))

    def joined(self, other: "Tally") -> "Tally":
        """Both."""
        names = {**self.counts, **other.counts}
        counts = {name: self.counts.get(name, 0) + other.counts.get(name, 0) for name in names}
        slower = max(self, other, key=lambda tally: tally.slowest)
        findings = [*self.findings, *other.findings]
        return Tally(counts, findings, slower.slowest, slower.slowest_number, max(self.memory, other.memory))


def work(seed: int, seconds: float, progress: Progress, pipe: Connection) -> None:
    """Run inputs from the given number on until the time is up."""
    faulthandler.enable()
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    tally = Tally()
    end = monotonic() + seconds
    while monotonic() < end:
        number = int(progress.number)
        case = case_of(seed, number)
        signal.setitimer(signal.ITIMER_PROF, HARD_SECONDS)
        tally.run(number, case)
        signal.setitimer(signal.ITIMER_PROF, 0)
        progress.number = number + 1
    pipe.send_bytes(msgspec.json.encode(tally))


def _place(error: Exception) -> str:
    """The error and where it was raised, the same for all inputs that find it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    name = last.filename.rpartition("/src/")[2].rpartition("/bench/")[2]
    return f"{type(error).__name__} in {name}:{last.lineno} {last.name} ({str(error)[:100]!r})"
