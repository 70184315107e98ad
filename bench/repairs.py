"""Shows that each repair was needed: its tests fail on the tree before the repairs and pass on this one.

`bench/repairs.toml` names the tests of each repair. The old tree is laid out in a temporary folder, gets the tests of the
commit in which they were written, since a later test fails there by names alone, and an environment in which `evener` is the
old one, so that child processes load the old code, too.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import venv
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import msgspec

from bench.revision import ROOT, lay_out

__all__ = ["Repair", "main", "read_repairs"]

LIST = ROOT / "bench" / "repairs.toml"

HUNG = 60
"""Seconds after which a test on the old tree is taken for one that hangs."""
PATIENCE = 15
"""Seconds that a test on the old tree waits for what may never come true there."""
WAITS = Path("tests", "patience.py")
"""Taken as it is today: it knows nothing of the tree, and lets the environment say how long a wait may take."""

Outcome = Literal["passed", "failed", "hung", "error", "skipped"]
Outcomes = dict[str, Outcome]
"""Outcomes by test id, parameters included. A module that could not be imported stands under its own name. An `error` did not
come as far as the repair: a name could not be imported, or what the test needs could not be made."""


class Repair(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One repair and the tests that show it."""

    number: int
    title: str
    tests: tuple[str, ...]


class RepairList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The list as it is kept.

    `before` is the last commit without any of the repairs, `written` the one with the tests as they are listed. `moved` names
    what is called otherwise today: a file, or a test of one.
    """

    before: str
    written: str
    repair: tuple[Repair, ...]
    moved: dict[str, str] = {}

    @property
    def tests(self) -> list[str]:
        """Every listed test once."""
        return sorted({test for repair in self.repair for test in repair.tests})

    def today(self, test: str) -> str:
        """Return what a listed test is called today."""
        path, _, name = test.partition("::")
        path = self.moved.get(path, path)
        return self.moved.get(test, f"{path}::{name}" if name else path)


def read_repairs() -> RepairList:
    """Return the list of repairs."""
    return msgspec.convert(tomllib.loads(LIST.read_text()), RepairList)


def main() -> int:
    """Print the table; return 1 when a test did not fail before or does not pass now."""
    listed = read_repairs()
    with tempfile.TemporaryDirectory(prefix="evener-repairs-") as folder:
        impatient = os.environ | {"EVENER_PATIENCE": str(PATIENCE), "PYTHONPATH": ""}  # which may name today's tree
        bound = ("-o", f"faulthandler_timeout={HUNG}", "-o", "faulthandler_exit_on_timeout=true", "--max-worker-restart=1000")
        before = _outcomes(*_old_tree(Path(folder), listed), listed.tests, bound, impatient)
    now = _outcomes(Path(sys.executable), ROOT, [listed.today(test) for test in listed.tests])
    wrong = 0
    print("| number | repair | test | before | now |\n|---|---|---|---|---|")
    for repair in sorted(listed.repair, key=lambda repair: repair.number):
        for test in repair.tests:
            was, found = _of(test, before), _of(listed.today(test), now)
            good = not {"failed", "hung", "error"}.isdisjoint(was) and set(found) == {"passed"}
            wrong += not good
            mark = "" if good else " **WRONG**"
            print(f"| {repair.number} | {repair.title} | {listed.today(test)} | {_count(was)} | {_count(found)}{mark} |")
    print(f"{sum(len(repair.tests) for repair in listed.repair)} tests of {len(listed.repair)} repairs, {wrong} wrong")
    return 1 if wrong else 0


def _old_tree(folder: Path, listed: RepairList) -> tuple[Path, Path]:
    """Lay out the old tree with the tests of the repairs; return the Python to run them with, and the tree."""
    tree = folder / "old"
    tree.mkdir()
    lay_out(listed.before, tree)
    parts = ("tests", "bench", "docs", "examples")
    for part in parts:
        shutil.rmtree(tree / part)
    lay_out(listed.written, tree, *parts)
    shutil.copy(ROOT / WAITS, tree / WAITS)
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


def _outcomes(
    python: Path, tree: Path, tests: Sequence[str], options: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Outcomes:
    """Run those of the tests that exist; a module that cannot be imported would end the run of all others."""
    files = sorted({test.partition("::")[0] for test in tests})
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        command = [str(python), "-m", "pytest", f"--junitxml={report.name}", *options]
        look = [*command, "--collect-only", "--continue-on-collection-errors", *files]
        said = subprocess.run(look, cwd=tree, stdout=subprocess.PIPE, text=True, env=environment).stdout.splitlines()
        found = _read(ElementTree.parse(report.name).getroot())
        there = {id for line in said for id in (line, line.partition("[")[0], line.partition("::")[0])}
        subprocess.run(
            [*command, "-n", "2", *(test for test in tests if test in there)], cwd=tree, stdout=sys.stderr, env=environment
        )
        return found | _read(ElementTree.parse(report.name).getroot())


def _read(report: ElementTree.Element) -> Outcomes:
    found: Outcomes = {}
    for case in report.iter("testcase"):
        module, name = case.get("classname", ""), case.get("name", "")
        found.setdefault(f"{module}::{name}" if module else name, _outcome(case))  # what went wrong afterwards stands below
    return found


def _outcome(case: ElementTree.Element) -> Outcome:
    said = {child.tag: child.get("message", "") for child in case}
    if said.get("failure", "").startswith(("ImportError", "ModuleNotFoundError")):
        return "error"
    if "crashed while running" in said.get("error", ""):
        return "hung"
    kinds: tuple[tuple[str, Outcome], ...] = (("failure", "failed"), ("error", "error"), ("skipped", "skipped"))
    return next((outcome for kind, outcome in kinds if kind in said), "passed")


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
