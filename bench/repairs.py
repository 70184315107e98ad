"""Shows that each repair was needed: its tests fail on the tree before the repairs and pass on this one.

`bench/repairs.toml` names the tests of each repair. The old tree is laid out in a temporary folder, gets today's
`tests`, and an environment in which `evener` is the old one, so that child processes load the old code, too.
"""

import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import venv
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import msgspec

__all__ = ["Repair", "main", "read_repairs"]

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "bench" / "repairs.toml"

Outcome = Literal["passed", "failed", "error", "skipped"]
Outcomes = dict[str, Outcome]
"""Outcomes by test id, parameters included. A module that could not be imported stands under its own name."""


class Repair(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One repair and the tests that show it."""

    number: int
    title: str
    tests: tuple[str, ...]


class RepairList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The list as it is kept. `before` is the last commit without any of the repairs."""

    before: str
    repair: tuple[Repair, ...]


def read_repairs() -> RepairList:
    """Return the list of repairs."""
    return msgspec.convert(tomllib.loads(LIST.read_text()), RepairList)


def main() -> int:
    """Print the table; return 1 when a test did not fail before or does not pass now."""
    listed = read_repairs()
    files = sorted({test.partition("::")[0] for repair in listed.repair for test in repair.tests})
    with tempfile.TemporaryDirectory(prefix="evener-repairs-") as folder:
        before = _outcomes(*_old_tree(Path(folder), listed.before), files)
    now = _outcomes(Path(sys.executable), ROOT, files)
    wrong = 0
    print("| number | repair | test | before | now |\n|---|---|---|---|---|")
    for repair in sorted(listed.repair, key=lambda repair: repair.number):
        for test in repair.tests:
            was, found = _of(test, before), _of(test, now)
            good = any(one in ("failed", "error") for one in was) and set(found) == {"passed"}
            wrong += not good
            mark = "" if good else " **WRONG**"
            print(f"| {repair.number} | {repair.title} | {test} | {_count(was)} | {_count(found)}{mark} |")
    print(f"{sum(len(repair.tests) for repair in listed.repair)} tests of {len(listed.repair)} repairs, {wrong} wrong")
    return 1 if wrong else 0


def _old_tree(folder: Path, commit: str) -> tuple[Path, Path]:
    """Lay out the old tree with today's tests; return the Python to run them with, and the tree."""
    tree = folder / "old"
    tree.mkdir()
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive, check=True)
    for part in ("tests", "bench", "docs", "examples"):
        shutil.rmtree(tree / part)
        shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__", ".envs"))
    (folder / "shared").symlink_to(ROOT.parent / "shared")  # where the tests look for recordings
    venv.create(folder / "venv")
    python = folder / "venv" / "bin" / "python"
    packages = sysconfig.get_path("purelib", vars={"base": str(folder / "venv"), "platbase": str(folder / "venv")})
    # A path in a .pth file does not load the .pth files that lie there, so the editable install of this tree stays out.
    Path(packages, "old.pth").write_text(f"{tree / 'src'}\n{sysconfig.get_path('purelib')}\n")
    script = python.with_name("evener")
    script.write_text(f"#!{python}\nimport sys\nfrom evener.cli import main\nsys.exit(main())\n")
    script.chmod(0o755)
    return python, tree


def _outcomes(python: Path, tree: Path, files: Sequence[str]) -> Outcomes:
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        command = [str(python), "-m", "pytest", "-q", "-n", "2", "--continue-on-collection-errors", f"--junitxml={report.name}"]
        subprocess.run([*command, *files], cwd=tree, stdout=subprocess.DEVNULL)
        return dict(_read(ElementTree.parse(report.name).getroot()))


def _read(report: ElementTree.Element) -> Iterable[tuple[str, Outcome]]:
    for case in report.iter("testcase"):
        kinds: set[str] = {child.tag for child in case}
        outcome: Outcome = (
            "failed" if "failure" in kinds else "error" if "error" in kinds else "skipped" if "skipped" in kinds else "passed"
        )
        module, name = case.get("classname", ""), case.get("name", "")
        yield f"{module}::{name}" if module else name, outcome


def _of(test: str, outcomes: Outcomes) -> list[Outcome]:
    """Return the outcomes of a test with all its parameters, or of a file."""
    path, _, name = test.partition("::")
    module = path.removesuffix(".py").replace("/", ".")
    if module in outcomes:  # it could not be imported
        return [outcomes[module]]
    wanted = f"{module}::{name}"
    return [
        outcome
        for id, outcome in outcomes.items()
        if (id.startswith(wanted) if not name else id == wanted or id.startswith(f"{wanted}["))
    ]


def _count(outcomes: Sequence[Outcome]) -> str:
    return ", ".join(f"{count} {one}" for one, count in Counter(outcomes).most_common()) or "not found"
