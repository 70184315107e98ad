"""Takes a behaviour away, and looks whether a test that names its requirement fails. `bench/mutants.toml` lists what is taken.

A requirement is covered only if a test notices when what it asks for is gone. Each mutant is one replacement in one file of a
copy of the package; the tests that name the number run against the copy. This tree is not changed.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import msgspec

__all__ = ["Mutant", "main", "read_claims", "read_mutants", "tests_of"]

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "scripts"))
import requirements  # noqa: E402 # a script, not a package

LIST = ROOT / "bench" / "mutants.toml"
SECONDS = 300
AT_ONCE = 2
FAILED = re.compile(r"^FAILED (\S+)", re.MULTILINE)
SLOW = ("cli/", "local/", "store/", "bench/", "docs/", "driver/test_killed", "driver/test_wires")
"""Tests of these are left out where others name the number, too."""


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One behaviour that is taken away: `old` stands once in the file, and `new` takes its place.

    `test` is the test that notices; without one, all tests that name the number are run.
    """

    number: str
    file: str
    old: str
    new: str
    test: str = ""


def read_mutants() -> tuple[Mutant, ...]:
    """Return the list as it is kept."""
    return msgspec.convert(tomllib.loads(LIST.read_text("utf-8"))["mutant"], tuple[Mutant, ...])


def tests_of(number: str) -> tuple[str, ...]:
    """Return the tests that name a requirement, the quick ones if there are any."""
    named = [claim for claim in read_claims() if claim.number == number and claim.test]
    quick = [claim for claim in named if not claim.file.startswith(SLOW)]
    return tuple(f"tests/{claim.file}::{claim.test}" for claim in quick or named)


@cache
def read_claims() -> list[requirements.Claim]:
    """Return which tests name which requirement."""
    return requirements.claims(ROOT / "tests")


def main(only: Iterable[str] = ()) -> int:
    """Plant each mutant; print whether it was caught. Returns 1 if one was not."""
    wanted = set(only)
    missed = 0
    mutants = [mutant for mutant in read_mutants() if not wanted or mutant.number in wanted]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for mutant, caught in zip(mutants, pool.map(catcher, mutants), strict=True):
            missed += not caught
            what = f"{mutant.file}: {' '.join(mutant.old.split())[:60]}"
            print(f"{mutant.number:6} {'caught' if caught else 'MISSED'}  {what}  {caught}", flush=True)
    print(f"{len(mutants) - missed} of {len(mutants)} mutants caught")
    return int(bool(missed))


def catcher(mutant: Mutant) -> str:
    """Return the test that fails without the behaviour; empty if none does."""
    tests = (mutant.test,) if mutant.test else tests_of(mutant.number)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "evener"
        shutil.copytree(ROOT / "src" / "evener", copy, ignore=shutil.ignore_patterns("__pycache__"))
        path = copy / mutant.file
        text = path.read_text("utf-8")
        if text.count(mutant.old) != 1:
            raise ValueError(f"{mutant.file} has {mutant.old!r} {text.count(mutant.old)} times; a mutant needs one place.")
        path.write_text(text.replace(mutant.old, mutant.new), "utf-8")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            *tests,
        ]
        try:
            done = subprocess.run(
                command, cwd=ROOT, env={**os.environ, "PYTHONPATH": folder}, capture_output=True, timeout=SECONDS, check=False,
                text=True,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"{tests[0]} (it hung)"
        failed = FAILED.search(done.stdout)
        return failed.group(1).partition("[")[0] if done.returncode == 1 and failed else ""
