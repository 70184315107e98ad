"""What users install: the wheel, beside the packages that it asks for and nothing else, runs the README's example."""

import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.shape.test_docs import script
from tests.shape.tree import ROOT

SECONDS = 300
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


def needed(package: Distribution, found: dict[str, Distribution]) -> dict[str, Distribution]:
    """Return the packages that a package asks for, and what those ask for."""
    for wish in map(Requirement, package.requires or []):
        if wish.name not in found and (wish.marker is None or wish.marker.evaluate({"extra": ""})):
            found[wish.name] = distribution(wish.name)
            needed(found[wish.name], found)
    return found


def copy(package: Distribution, target: Path) -> None:
    """Copy an installed package into another environment."""
    for file in package.files or []:
        source = Path(str(file.locate()))
        if ".." not in file.parts and source.is_file():
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target / file)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of an environment with our wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("installed")
    build = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, timeout=SECONDS)
    (wheel,) = folder.glob("evener-*.whl")
    venv.create(folder / "env")
    made = folder / "env" / "bin" / "python"
    subprocess.run([*PIP, "--python", str(made), "install", "--no-index", "--no-deps", str(wheel)], check=True, timeout=SECONDS)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder / "env"), "platbase": str(folder / "env")}))
    (ours,) = packages.glob("evener-*.dist-info")
    for package in needed(PathDistribution(ours), {}).values():
        copy(package, packages)
    return made


def test_the_example_of_the_readme_runs_as_installed(python: Path, tmp_path: Path) -> None:
    program = script((ROOT / "README.md").read_text(encoding="utf-8"))
    done = subprocess.run([python, "-I", "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stderr) == (0, "")
    assert "-3 degrees" in done.stdout


def test_the_command_starts_as_installed(python: Path, tmp_path: Path) -> None:
    command = [str(python.with_name("evener")), "--version"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("evener ")
