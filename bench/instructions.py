"""Instructions of a request and of a turn of a loop, in memory and on SQLite, counted by valgrind.

They are the same on a busy machine as on a quiet one: for finding out whether a change helps. What is printed is thousands of
instructions, the cost of starting and of the first runs taken off; there is no socket in it.
"""

import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.agent_speech import WIRES
from bench.instruction_driver import CALLS

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("request", "turn", "durable")
FEW, MANY = 4, 12
SECONDS = 600
COLLECTED = re.compile(r"Collected : (\d+)")


def main(wires: tuple[str, ...] = WIRES) -> int:
    """Print the table; the exit code."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        print("bench: instructions are counted by valgrind, and there is none. Install the package valgrind.", file=sys.stderr)
        return 1
    print(f"{'thousands of instructions':30}" + "".join(f"{kind:>10}" for kind in KINDS))
    with ThreadPoolExecutor(2) as pool:
        for wire in wires:
            counts = [[pool.submit(_counted, valgrind, kind, wire, runs) for runs in (FEW, MANY)] for kind in KINDS]
            each = [(many.result() - few.result()) / ((MANY - FEW) * (CALLS + 1)) / 1000 for few, many in counts]
            print(f"{wire:30}" + "".join(f"{one:10,.0f}" for one in each), flush=True)
    return 0


def _counted(valgrind: str, kind: str, wire: str, runs: int) -> int:
    """The instructions of so many runs, with all that comes before them."""
    driver = [sys.executable, "-W", "ignore", "-m", "bench.instruction_driver", kind, wire, str(runs)]
    command = [valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null", *driver]
    ended = subprocess.run(
        command, cwd=ROOT, env={"PYTHONHASHSEED": "0", "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=SECONDS
    )
    found = COLLECTED.search(ended.stderr)
    if ended.returncode or found is None:
        raise RuntimeError(f"valgrind ended with {ended.returncode}: {ended.stderr[-500:]}")
    return int(found[1])
