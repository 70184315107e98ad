"""Instructions of a request and of a turn of a loop, in memory and on SQLite, counted by valgrind.

They are the same on a busy machine as on a quiet one: for finding out whether a change helps. What is printed is thousands of
instructions, the cost of starting and of the first runs taken off; there is no socket in it. With a revision its figures stand
beside those of this tree, each tree measured by its own driver; exit code 1 if one of ours is more than 5 % above its.

A `plain` turn has no traces and no counting of tokens, which are on by default today. If the older tree knows neither, its only
turn stands beside both of ours: beside the plain one for the same work, beside the other for what users get by default.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.agent_speech import WIRES
from bench.instruction_driver import CALLS
from bench.revision import ROOT, compile_tree, tree_of

__all__ = ["compare_turns", "count_between", "main"]

KINDS = ("request", "turn", "durable")
PLAIN = "plain"
KINDS_BESIDE = ("request", "turn", PLAIN, "durable")
FEW, MANY = 4, 12
SECONDS = 3600
WORSE = 1.05
COLLECTED = re.compile(r"Collected : (\d+)")
TOTALS = re.compile(r"^totals: (\d+)", re.MULTILINE)
RUNS = 4


def main(wires: tuple[str, ...] = WIRES, before: str = "") -> int:
    """Print the table; the exit code."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        print("bench: instructions are counted by valgrind, and there is none. Install the package valgrind.", file=sys.stderr)
        return 1
    with ThreadPoolExecutor(2) as pool, ExitStack() as stack:
        compile_tree(ROOT)
        if not before:
            print(f"{'thousands of instructions':30}" + "".join(f"{kind:>10}" for kind in KINDS))
            for wire in wires:
                each = _count_all(pool, valgrind, wire, KINDS, ROOT)
                print(f"{wire:30}" + "".join(f"{one:10,.0f}" for one in each.values()), flush=True)
            return 0
        old = stack.enter_context(tree_of(before))
        compile_tree(old)
        kinds = _kinds_beside(old)
        heads = "".join(f"{kind + ' ' + before:>18}{'now':>10}{'ratio':>7}" for kind in kinds)
        print(f"{'thousands of instructions':30}{heads}")
        worst = 0.0
        for wire in wires:
            olds = _count_all(pool, valgrind, wire, kinds.values(), old)
            ours = _count_all(pool, valgrind, wire, kinds, ROOT)
            pairs = {kind: (olds[older], ours[kind]) for kind, older in kinds.items()}
            cells = (f"{then:18,.0f}{now:10,.0f}{now / then:7.2f}" for then, now in pairs.values())
            print(f"{wire:30}" + "".join(cells), flush=True)
            worst = max(worst, *(now / then for then, now in pairs.values()))
    return 1 if worst > WORSE else 0


def _kinds_beside(old: Path) -> dict[str, str]:
    """Return the kinds to count in this tree, and for each the kind of the older tree that stands beside it."""
    driver = (old / "bench" / "instruction_driver.py").read_text()
    known = {kind: kind for kind in KINDS_BESIDE if f'"{kind}"' in driver}
    beside = {PLAIN: "turn"} | known
    return {kind: beside[kind] for kind in KINDS_BESIDE if kind in beside}


def _count_all(pool: ThreadPoolExecutor, valgrind: str, wire: str, kinds: Iterable[str], tree: Path) -> dict[str, float]:
    """Return thousands of instructions of each kind, for one request or turn of the tree."""
    counts = {kind: [pool.submit(_counted, valgrind, kind, wire, runs, tree) for runs in (FEW, MANY)] for kind in set(kinds)}
    each = (MANY - FEW) * (CALLS + 1) * 1000
    return {kind: (counts[kind][1].result() - counts[kind][0].result()) / each for kind in kinds}


def _counted(valgrind: str, kind: str, wire: str, runs: int, tree: Path) -> int:
    """Return the instructions of so many runs of the tree, with all that comes before them."""
    driver = [sys.executable, "-W", "ignore", "-m", "bench.instruction_driver", kind, wire, str(runs)]
    command = [valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null", *driver]
    environment = {"PYTHONHASHSEED": "0", "PATH": "/usr/bin:/bin", "PYTHONPATH": str(tree / "src")}
    if kind == PLAIN:
        environment["EVENER_TRACES"] = "off"
    with TemporaryDirectory(prefix="evener-home-") as home:
        environment |= {"EVENER_HOME": home, "HOME": home}
        ended = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=SECONDS)
    found = COLLECTED.search(ended.stderr)
    if ended.returncode or found is None:
        raise RuntimeError(f"valgrind ended with {ended.returncode}: {ended.stderr[-500:]}")
    return int(found[1])


def compare_turns(valgrind: str, cases: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return thousands of instructions of a turn in the thread of the loop, by case. All are run in one process, one after the
    other, so that starting and importing are paid once. See `bench.instruction_driver.compare`.
    """
    counts = count_between(valgrind, "bench.instruction_driver", "compare", str(RUNS), *map(json.dumps, cases.values()))
    return {case: count / RUNS / (CALLS + 1) / 1000 for case, count in zip(cases, counts[1::2], strict=True)}


def count_between(valgrind: str, module: str, *words: str) -> list[int]:
    """Return the instructions of the first thread up to each mark that the module sets (`bench.instruction_driver.mark`)."""
    driver = [sys.executable, "-W", "ignore", "-m", module, *words]
    with TemporaryDirectory(prefix="evener-home-") as home:
        tool = [valgrind, "--tool=callgrind", "--separate-threads=yes", "--dump-before=getloadavg"]
        env = {
            "PYTHONHASHSEED": "0",
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(ROOT / "src"),
            "EVENER_HOME": home,
            "HOME": home,
        }
        command = [*tool, f"--callgrind-out-file={home}/count", *driver]
        ended = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=3 * SECONDS)
        if ended.returncode:
            raise RuntimeError(f"valgrind ended with {ended.returncode}: {ended.stderr[-500:]}")
        files = sorted(Path(home).glob("count.*-01"), key=lambda one: int(one.suffix[1:].partition("-")[0]))
        return [int(TOTALS.findall(one.read_text())[-1]) for one in files]
