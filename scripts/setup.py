"""Makes .venv and installs Evener into it, with the extras that are named: `setup.py dev local`.

Run by the Makefile with the system's Python, so it uses the standard library only. Never installs anything outside
.venv: a system Python that its distribution manages (PEP 668) is left alone.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
QUIET = ("--quiet", "--disable-pip-version-check")

NO_ENSUREPIP = """\
{python} cannot make a virtual environment: its 'ensurepip' module is missing.
Debian and Ubuntu have it in a package of its own. Install that and run the same command again:
    apt install python{version}-venv
or name another Python, 3.11 or newer: make PYTHON=/path/to/python3 setup"""


def main(extras: list[str]) -> int:
    if not is_usable() and not make_venv():
        return 1
    target = f".[{','.join(extras)}]" if extras else "."
    print(f"installing {target} into .venv (once; later runs need no network)", flush=True)
    return run(VENV_PYTHON, "-m", "pip", "install", *QUIET, "--editable", target)


def is_usable() -> bool:
    """Whether .venv holds a Python that is new enough and has pip: it may be absent, half made or out of date."""
    probe = "import pip, sys; sys.exit(sys.version_info < (3, 11))"
    try:
        return subprocess.run([VENV_PYTHON, "-c", probe], stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def make_venv() -> bool:
    """Make .venv by whichever means this Python has: ensurepip, virtualenv, or a pip of its own."""
    print(f"making .venv with {sys.executable}", flush=True)
    if has("ensurepip"):
        return run(sys.executable, "-m", "venv", "--clear", VENV) == 0
    if has("virtualenv"):
        return run(sys.executable, "-m", "virtualenv", "--quiet", "--clear", VENV) == 0
    if has("pip"):
        bare = run(sys.executable, "-m", "venv", "--clear", "--without-pip", VENV)
        return bare == 0 and run(sys.executable, "-m", "pip", "--python", VENV_PYTHON, "install", *QUIET, "pip") == 0
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    print(NO_ENSUREPIP.format(python=sys.executable, version=version), file=sys.stderr)
    return False


def has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def run(*command: str | Path) -> int:
    return subprocess.run(command, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
