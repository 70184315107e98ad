"""A full disk: a clear error, all that was acknowledged is there, and room is all that is needed to go on."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SIZE = "2m"
CHILD = (sys.executable, "-W", "error", "-m", "tests.store.proofs.full")


def told(*command: str) -> list[str]:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def check(lines: list[str]) -> None:
    *rooms, findings = lines
    assert findings == "findings []"
    assert len(rooms) == 12
    for line in rooms:
        assert "Free some space and try again" in line
        assert "Nothing was stored by this call" in line
    acknowledged = [int(line.split(": ")[1].split()[0]) for line in rooms]
    assert acknowledged[0] < acknowledged[-1]


def test_no_file_may_grow(tmp_path: Path) -> None:
    check(told(*CHILD, str(tmp_path), "files"))


def test_the_disk_is_full(tmp_path: Path) -> None:
    """A small disk of its own, that nobody else sees and that is gone with the process."""
    apart = ("unshare", "--map-root-user", "--mount", "sh", "-c")
    mount = f"mount -t tmpfs -o size={SIZE} tmpfs '{tmp_path}'"
    if shutil.which("unshare") is None or subprocess.run([*apart, mount], capture_output=True).returncode:
        pytest.skip("the system does not let us mount a small disk")
    check(told(*apart, f'{mount} && exec "$@"', "sh", *CHILD, str(tmp_path), "disk"))
