"""Print how many lines each package has, in this tree and in an older revision: `python scripts/size.py d55e461`."""

import io
import subprocess
import sys
import tokenize
from collections import defaultdict
from pathlib import PurePosixPath

SOURCE = "src/evener"
SKIPPED = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
)


def git(*words: str) -> bytes:
    """Return what a git command prints."""
    return subprocess.run(["git", *words], check=True, capture_output=True).stdout


def code_lines(text: str) -> int:
    """Count the lines that hold code: no blanks, comments or docstrings."""
    lines: set[int] = set()
    begins = True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in SKIPPED:
            begins = begins or token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
            continue
        if not (begins and token.type == tokenize.STRING):
            lines.update(range(token.start[0], token.end[0] + 1))
        begins = False
    return len(lines)


def package_of(path: str) -> str:
    """Return the package that a file belongs to; the files beside the packages are one."""
    parts = PurePosixPath(path).relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else "(top)"


def sizes(revision: str) -> dict[str, tuple[int, int]]:
    """Return lines and lines of code for each package. Data files count as they are."""
    found: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for path in git("ls-tree", "-r", "--name-only", revision, SOURCE).decode().splitlines():
        text = git("show", f"{revision}:{path}").decode(errors="replace")
        lines = text.count("\n")
        code = code_lines(text) if path.endswith(".py") else sum(1 for line in text.splitlines() if line.strip())
        before = found[package_of(path)]
        found[package_of(path)] = (before[0] + lines, before[1] + code)
    return found


def main(older: str) -> None:
    """Print the table."""
    before, now = sizes(older), sizes("HEAD")
    print(f"{'package':<14}{'lines before':>14}{'now':>9}{'code before':>14}{'now':>9}")
    for name in sorted({*before, *now}):
        row = (*before.get(name, (0, 0)), *now.get(name, (0, 0)))
        print(f"{name:<14}{row[0]:>14,}{row[2]:>9,}{row[1]:>14,}{row[3]:>9,}")
    totals = [sum(row[place] for row in table.values()) for place in (0, 1) for table in (before, now)]
    print(f"{'all':<14}{totals[0]:>14,}{totals[1]:>9,}{totals[2]:>14,}{totals[3]:>9,}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "HEAD~1")
