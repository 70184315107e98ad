"""One turn of a tool loop on a memory log, on SQLite, and the bare SQLite commits of the same rows, in one table.

All of them run in one process, in turns, many times, and the CPU time of all its threads counts: other work on the machine then
hurts all of them alike. The ratio is the median over the passes. Exit code 1 if a durable turn costs more than twice a memory
turn. After each wait for the disk a process finds its caches cold, so a memory turn with the bare commits in it stands in the
table, too: what is above that is the store's own. The model of these turns says its whole answer at once; the last rows have
one that says it piece by piece, as providers do.
"""

import sys
from statistics import median

from bench.agents import ANTHROPIC, CALLS, OURS, ROOT, Order, Said, drive, serve

__all__ = ["main"]

BURST, PACED = f"{CALLS}-5-1-burst", f"{CALLS}-5-1-paced"
ROWS = {
    "loop": "memory log, a tool that reads",
    "disk": "SQLite",
    "commits": "bare SQLite, the same rows and syncs",
    "between": "memory log, these commits in between",
    "loop-write": "memory log, a tool that writes",
    "disk-write": "SQLite",
    "commits-write": "bare SQLite, the same rows and syncs",
    "between-write": "memory log, these commits in between",
    "loop-paced": "memory log, reads, answer in pieces",
    "disk-paced": "SQLite",
    "loop-write-paced": "memory log, writes, answer in pieces",
    "disk-write-paced": "SQLite",
}
MOST = 2.0
BARRED = ("disk", "disk-write")


def main(passes: int) -> int:
    """Print the table; the exit code."""
    orders = {
        what: Order(OURS, what.removesuffix("-paced"), ANTHROPIC, PACED if what.endswith("-paced") else BURST) for what in ROWS
    }
    found: dict[str, list[Said]] = {what: [] for what in ROWS}
    command = [sys.executable, "-W", "ignore", "-m", "bench.agent_ours"]
    with serve() as base, drive(command, ROOT, base) as driven:
        for _ in range(passes):
            for what, order in orders.items():
                said = driven(order)
                if said.error:
                    print(f"bench: {ROWS[what]} failed: {said.error}", file=sys.stderr)
                    return 1
                found[what].append(said)
    return _print(found)


def _print(found: dict[str, list[Said]]) -> int:
    print(f"{'CPU of a turn':40}{'least us':>10}{'median us':>11}{'of memory':>11}{'commits':>9}")
    missed = 0
    memory: list[Said] = []
    for what, said in found.items():
        memory = said if what.startswith("loop") else memory
        cpu = [one.cpu / (CALLS + 1) * 1e6 for one in said]
        ratio = median(one.cpu / beside.cpu for one, beside in zip(said, memory, strict=True))
        missed += what in BARRED and ratio > MOST
        commits = f"{said[0].count / (CALLS + 1):9.1f}" if what.startswith("commits") else ""
        print(f"{ROWS[what]:40}{min(cpu):10,.0f}{median(cpu):11,.0f}{ratio:10.2f}x{commits}")
    met, passes = len(BARRED) - missed, len(memory)
    print(f"{met} of {len(BARRED)} durable turns cost at most {MOST:g}x of a memory turn ({passes} passes)")
    return 1 if missed else 0
