"""Time-boxed fuzzing: whatever comes in, only our own errors come out, within a second and 256 MB.

Inputs are made from a seed and a number, so every run can be repeated. They run in child processes: a child that dies, hangs or
eats memory is a finding, too, and the one that replaces it goes on after the input it died of.
"""

import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Mapping
from itertools import zip_longest
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic

import msgspec

from bench.cases import Case, case_from, case_of
from bench.worker import HARD_SECONDS, Finding, Progress, Tally, work

__all__ = ["FAILURES", "Report", "fuzz", "replay", "told"]

FAILURES = Path(__file__).with_name("failures")
SPELL = 20.0
"""Seconds a child works before a fresh one takes over: what one leaves behind in memory does not count against the next."""

GRACE = 30.0
"""Seconds a child may be late before it is taken for hung."""

MOST_FINDINGS = 20


class Report(msgspec.Struct):
    """What a run did."""

    seed: int
    seconds: float = 0.0
    tally: Tally = msgspec.field(default_factory=Tally)
    findings: list[Finding] = []
    saved: list[Path] = []


def fuzz(seconds: float, seed: int, folder: Path = FAILURES) -> Report:
    """Fuzz for so long. Every finding is saved below `folder`."""
    report = Report(seed)
    start = monotonic()
    number = 0
    while (left := seconds - (monotonic() - start)) > 0 and len(report.findings) < MOST_FINDINGS:
        number = _spell(report, number, min(left, SPELL))
    report.seconds = monotonic() - start
    for finding in report.findings:
        report.saved.append(_saved(case_of(seed, finding.number), folder))
    return report


def _spell(report: Report, number: int, seconds: float) -> int:
    """Let one child work; the number to go on from."""
    context = multiprocessing.get_context("spawn")
    progress = context.RawValue(Progress)
    progress.number = number
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=work, args=(report.seed, seconds, progress, theirs), daemon=True)
    child.start()
    theirs.close()
    tally = _heard(ours, seconds + GRACE)
    if tally is None:
        child.kill()
    child.join()
    if tally is None:
        report.findings.append(Finding(progress.number, _death(child.exitcode or 0)))
        return int(progress.number) + 1
    known = {finding.what for finding in report.findings}
    report.findings += (finding for finding in tally.findings if finding.what not in known)
    report.tally = report.tally.joined(tally)
    return int(progress.number)


def _heard(pipe: Connection, seconds: float) -> Tally | None:
    """What the child says at its end; None when it died or hangs."""
    try:
        return msgspec.json.decode(pipe.recv_bytes(), type=Tally) if pipe.poll(seconds) else None
    except EOFError:
        return None


def _death(code: int) -> str:
    if code == -signal.SIGKILL:
        return "it hung, or the system ended it"
    if code == -signal.SIGPROF:
        return f"it took more than {HARD_SECONDS} s of CPU"
    return f"the process died of {signal.Signals(-code).name}" if code < 0 else f"the process ended with code {code}"


def _saved(case: Case, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / case.file_name
    path.write_bytes(case.data)
    return path


def replay(path: Path) -> Report:
    """Run one saved input again, in this process."""
    report = Report(0)
    report.tally.run(0, case_from(path.name, path.read_bytes()))
    report.findings = list(report.tally.findings)
    return report


def told(report: Report) -> str:
    """The report in words."""
    tally = report.tally
    total = sum(tally.counts.values())
    lines = [f"{total:,} inputs in {report.seconds:.0f} s (seed {report.seed}): {_outcomes(tally.counts)}"]
    for name in sorted({name.rpartition(" ")[0] for name in tally.counts}):
        own = {key: count for key, count in tally.counts.items() if key.rpartition(" ")[0] == name}
        lines.append(f"  {name:<32} {sum(own.values()):>9,}: {_outcomes(own)}")
    lines.append(f"slowest: {tally.slowest * 1e3:.1f} ms of CPU, input {tally.slowest_number} (at most 1,000)")
    lines.append(f"memory:  {tally.memory / 1e6:.0f} MB for one input (at most 256)")
    for finding, path in zip_longest(report.findings, report.saved):
        lines.append(f"FAILED: input {finding.number}: {finding.what}")
        if path:
            lines.append(f"  again: python -m bench fuzz --replay {os.path.relpath(path)}")
    return "\n".join(lines)


def _outcomes(counts: Mapping[str, int]) -> str:
    by: Counter[str] = Counter()
    for name, count in counts.items():
        by[name.rpartition(" ")[2]] += count
    return ", ".join(f"{by[outcome]:,} {outcome}" for outcome in ("read", "refused", "failed") if by[outcome])


def main(seconds: float, seed: int, path: Path | None) -> int:
    """The command."""
    report = replay(path) if path else fuzz(seconds, seed)
    print(told(report))
    return 1 if report.findings else 0
