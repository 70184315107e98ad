"""Search over many files: the tool, with sandbox and fence, against plain ripgrep on the same files."""

import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from evener.toolset.fence import PRIVATE, Fence
from evener.toolset.searching import SearchTools
from evener.toolset.shell.sandbox import find_program

__all__ = ["main"]

LIMIT = 1.3
LINES = 12
PATTERN = r"needle_\d+"


def plant(root: Path, files: int) -> None:
    """Write files in folders of a hundred; every thousandth holds what is searched for."""
    text = "".join(f"value_{line} = compute({line}) + offset\n" for line in range(LINES))
    for number in range(files):
        folder = root / f"part{number // 10_000}" / f"group{number // 100 % 100}"
        if number % 100 == 0:
            folder.mkdir(parents=True)
        found = f"needle_{number} = 1\n" if number % 1_000 == 0 else ""
        (folder / f"file{number}.py").write_text(text + found)


def measure(work: Callable[[], object]) -> tuple[float, float]:
    """Return the processor time, that of children included, and the time on the clock."""
    used, start = os.times(), perf_counter()
    work()
    now = os.times()
    return sum(now[:4]) - sum(used[:4]), perf_counter() - start


def main(files: int, passes: int = 7) -> int:
    """Plant a tree, search it both ways in turns, and print the medians; the exit code."""
    program = find_program("rg")
    if not program:
        print("ripgrep is not installed: pip install 'evener[shell]'.")
        return 1
    with tempfile.TemporaryDirectory(prefix="evener-search-") as folder:
        root = Path(folder)
        plant(root, files)
        tool = SearchTools(root, fence=Fence(deny=PRIVATE))
        plain = [program, "--hidden", "--glob=!.git", "--line-number", PATTERN, "./"]

        def by_ripgrep() -> int:
            return subprocess.run(plain, cwd=root, capture_output=True, check=True).stdout.count(b"\n")

        def by_tool() -> int:
            return len(tool.search(PATTERN, limit=1_000).splitlines())

        if by_ripgrep() != by_tool():
            print("They do not find the same lines.")
            return 1
        pairs = [(measure(by_ripgrep), measure(by_tool)) for _ in range(passes)]
    print(f"{files:,} files, medians of {passes} passes in turns:")
    for number, what in enumerate(("processor time", "on the clock")):
        plain, ours = (statistics.median(one[number] for one in times) for times in zip(*pairs, strict=True))
        print(f"  {what}: ripgrep {plain:.3f} s, the tool {ours:.3f} s, {ours / plain:.2f} times as much")
    ratio = statistics.median(tool[0] / plain[0] for plain, tool in pairs)
    print(f"of processor time, which a busy machine hardly changes, at most {LIMIT}: {'met' if ratio <= LIMIT else 'missed'}")
    return 0 if ratio <= LIMIT else 1
