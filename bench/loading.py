"""What the first lines of a program cost in a fresh interpreter: CPU and modules, in an older revision and now."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.revision import ROOT, compile_tree, tree_of

__all__ = ["main"]

HELP = """
import contextlib, io
from evener.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main(["--help"])
"""
LINES = {"import evener": "import evener", "from evener import Harness": "from evener import Harness", "evener --help": HELP}
PROBE = """
import sys, time
sys.path.insert(0, {source!r})
start = time.process_time()
{code}
print((time.process_time() - start) * 1e3, len(sys.modules))
"""


class Load(msgspec.Struct, frozen=True, order=True):
    """Milliseconds of CPU, and how many modules there are."""

    cpu: float
    modules: int


def main(before: str, passes: int = 7) -> int:
    """Print the table; the exit code."""
    with tree_of(before) as old:
        compile_tree(old)
        compile_tree(ROOT)
        rows = [(name, _measure(code, (old / "src", ROOT / "src"), passes)) for name, code in LINES.items()]
    print(f"{'':28}{before:>12}{'now':>10}{'ratio':>8}{'modules':>10}{'now':>8}{'ratio':>8}")
    for name, (then, now) in rows:
        print(
            f"{name:28}{then.cpu:9.1f} ms{now.cpu:7.1f} ms{now.cpu / then.cpu:8.2f}"
            f"{then.modules:10}{now.modules:8}{now.modules / then.modules:8.2f}"
        )
    return 0


def _measure(code: str, sources: Sequence[Path], passes: int) -> list[Load]:
    """Return the least of each tree, measured in turns."""
    runs = [[_probe(code, source) for source in sources] for _ in range(passes)]
    return [min(loads) for loads in zip(*runs, strict=True)]


def _probe(code: str, source: Path) -> Load:
    command = [sys.executable, "-W", "ignore", "-c", PROBE.format(source=str(source), code=code)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    cpu, modules = done.stdout.split()
    return Load(float(cpu), int(modules))
