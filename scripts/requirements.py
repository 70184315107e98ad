"""Writes docs/requirements.md: the requirements, and the tests that show each. `--check` only reports whether it is stale.

A test shows a requirement when it names its number: in its name (`test_s2_6_...`, `test_s2_51_to_54_...`), in its
docstring, or in a comment within it or right above it ("S2.6", "S2.68-S2.73"). A number in the docstring of a file must
exist, but covers nothing, because it names no test. docs/requirements.toml has the numbers and their meaning.

Reads the tests as text: imports none of them, runs none of them, changes no other file.
"""

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "requirements.md"
TABLE = ROOT / "docs" / "requirements.toml"
MUTANTS = ROOT / "bench" / "mutants.toml"
TESTS = ROOT / "tests"
SHOWN = 3

IN_TEXT = re.compile(r"\bS(\d)\.(\d+)(?:\s*(?:-|to)\s*S\1\.(\d+))?")
IN_NAME = re.compile(r"(?<![a-z0-9])s(\d)_(\d+)(?:_to_(\d+))?(?![0-9])")

Test = ast.FunctionDef | ast.AsyncFunctionDef


class Claim(NamedTuple):
    """One place that names a number; `test` is empty if the place is not in a test."""

    number: str
    file: str
    test: str


class Group(NamedTuple):
    """One source document: its title, and the text of each of its requirements by number."""

    name: str
    title: str
    asks: Mapping[str, str]


def main(arguments: Sequence[str]) -> int:
    """`requirements.py [--check] [DOCUMENT [TESTS]]`."""
    paths = [Path(one) for one in arguments if not one.startswith("-")]
    document, tests = (*paths, *(DOCUMENT, TESTS)[len(paths) :])
    new = page(claims(tests))
    if "--check" not in arguments:
        document.write_text(new, encoding="utf-8")
    elif not document.is_file() or document.read_text(encoding="utf-8") != new:
        print(f"{document.name} is stale. Run `make docs`.")
        return 1
    return 0


# What tests name.


def claims(folder: Path) -> list[Claim]:
    """Return every number that a file of tests names, in the order of files and lines."""
    return [claim for path in sorted(folder.rglob("*.py")) for claim in named(path.read_text("utf-8"), _place(path, folder))]


def named(source: str, file: str) -> Iterator[Claim]:
    """Yield the numbers that one file names, by test; those outside of tests come last."""
    if not IN_TEXT.search(source) and not IN_NAME.search(source):
        return  # true for most files, and reading comments is slow
    tree, comments = ast.parse(source), _comments(source)
    for test, name in _tests(tree):
        first = min([test.lineno, *(one.lineno for one in test.decorator_list)])
        while first - 1 in comments and source.splitlines()[first - 2].lstrip().startswith("#"):
            first -= 1
        said = [comments.pop(line, "") for line in range(first, (test.end_lineno or first) + 1)]
        text = "\n".join([ast.get_docstring(test) or "", *said])
        yield from (Claim(number, file, name) for number in sorted({*numbers(text), *numbers_in_name(test.name)}))
    rest = "\n".join([ast.get_docstring(tree) or "", *comments.values()])
    yield from (Claim(number, file, "") for number in sorted({*numbers(rest)}))


def numbers(text: str) -> Iterator[str]:
    """Yield the numbers that a text names; a range stands for all numbers in it."""
    for source, first, last in IN_TEXT.findall(text):
        yield from (f"S{source}.{one}" for one in range(int(first), int(last or first) + 1))


def numbers_in_name(name: str) -> Iterator[str]:
    """Yield the numbers in the name of a test, where `s2_6` is S2.6."""
    for source, first, last in IN_NAME.findall(name):
        yield from (f"S{source}.{one}" for one in range(int(first), int(last or first) + 1))


def unknown(found: Iterable[Claim]) -> list[str]:
    """Return the names of requirements that do not exist, with the tests that use them."""
    known = {number for group in groups() for number in group.asks}
    return [f"{claim.file}::{claim.test} names {claim.number}" for claim in found if claim.number not in known]


def _place(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _comments(source: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}


def _tests(tree: ast.Module) -> Iterator[tuple[Test, str]]:
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test_"):
                yield node, name


# What is asked for.


@cache
def groups() -> list[Group]:
    """Return the source documents with their numbers, from docs/requirements.toml."""
    return [Group(name, one.pop("title"), one) for name, one in _table().items() if name not in ("themes", "partly")]


@cache
def themes() -> dict[str, str]:
    """Return the theme of each number that has one."""
    return {number: theme for theme, text in _table()["themes"].items() for number in numbers(text)}


@cache
def lacking() -> dict[str, str]:
    """Return the part of a requirement that is not built yet, by number."""
    return _table()["partly"]


@cache
def mutants() -> dict[str, int]:
    """Return how many behaviours `python -m bench mutants` removes for each number."""
    return dict(Counter(one["number"] for one in tomllib.loads(MUTANTS.read_text(encoding="utf-8"))["mutant"]))


def _table() -> dict[str, dict[str, str]]:
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


# The document.

HEAD = """\
# What Evener must do, and which tests show it

Five source documents (S0 to S4) define what Evener must do; each requirement has a number. A requirement is covered if a
test that uses the public API names its number. To check that such a test fails when the required behaviour is missing,
`make bench ARGS=mutants` removes behaviours from the code, one after the other. It fails if no test that names the number
fails. The column "mutants" says how many behaviours it removes for a number. If the column is empty, the test was read, but
not checked in this way. "Not yet" says what is missing, and to which theme it belongs. Paths are relative to `tests/`.
`make docs` generates this page from the tests, from `bench/mutants.toml` and from the phrases in `docs/requirements.toml`.
"""


def page(found: Sequence[Claim]) -> str:
    """Return the whole document."""
    if wrong := unknown(found):
        raise SystemExit("There is no such requirement. Correct the test or docs/requirements.toml.\n" + "\n".join(wrong))
    tests = covering(found)
    parts = [HEAD, _tally(groups(), tests), *(_section(group, tests) for group in groups())]
    return "\n".join(parts)


def covering(found: Sequence[Claim]) -> dict[str, list[str]]:
    """Return the tests of each number; tests that name few numbers come first, because they are the most specific."""
    claimed = [claim for claim in found if claim.test]
    width: dict[tuple[str, str], int] = {}
    for claim in claimed:
        width[claim.file, claim.test] = width.get((claim.file, claim.test), 0) + 1
    tests: dict[str, list[str]] = {}
    for claim in sorted(claimed, key=lambda one: (width[one.file, one.test], one.file)):
        tests.setdefault(claim.number, []).append(f"{claim.file}::{claim.test}")
    return tests


def _tally(asked: Sequence[Group], tests: Mapping[str, Sequence[str]]) -> str:
    planted = mutants()
    rows = [
        (
            f"{group.name}: {group.title}",
            sum(one in tests for one in group.asks),
            len(group.asks),
            sum(planted.get(one, 0) for one in group.asks),
        )
        for group in asked
    ]
    rows.append(("all", sum(row[1] for row in rows), sum(row[2] for row in rows), sum(row[3] for row in rows)))
    lines = [f"| {title} | {covered} | {total} | {taken} |\n" for title, covered, total, taken in rows]
    return "".join(["| Source | covered | of | mutants |\n| --- | --- | --- | --- |\n", *lines])


def _section(group: Group, tests: Mapping[str, Sequence[str]]) -> str:
    planted = mutants()
    rows = [
        f"| {number} | {phrase} | {_cell(number, tests)} | {planted.get(number, '')} |\n"
        for number, phrase in group.asks.items()
    ]
    head = "| Number | What | Shown by | Mutants |\n| --- | --- | --- | --- |\n"
    return "".join([f"## {group.name}: {group.title}\n\n{head}", *rows])


def _cell(number: str, tests: Mapping[str, Sequence[str]]) -> str:
    found = tests.get(number, ())
    if not found:
        theme = themes().get(number)
        if theme is None:
            raise SystemExit(f"No test names {number}, and docs/requirements.toml gives it no theme. Add one or the other.")
        return f"not yet: {theme}"
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    without = f"<br>not yet: {lacking()[number]}" if number in lacking() else ""
    return "<br>".join(f"`{one}`" for one in found[:SHOWN]) + more + without


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
