"""Hostile commands in both sandboxes, as this user and as one without privileges: what each of them reached, and how long after
its deadline the last of its processes was gone. Bounded: at most 40 processes, 256 MiB each, 64 MiB a file.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from evener.toolset.shell.command import RunningCommand
from evener.toolset.shell.sandbox import Sandbox, bwrap_works, landlock_works

__all__ = ["ATTACKS", "attack", "main"]

SECRET = "planted-secret-0123456789"
MARK = "evener-attack"
GRACE = 1.0
SECONDS = 1.5
ATTACKS = {
    "fork bomb": "b() { b | b & }; b; sleep 60",
    "fork bomb in C style": "python3 -c 'import os\nwhile True:\n  try: os.fork()\n  except OSError: pass'",
    "endless output": "yes",
    "endless output of children": "for i in 1 2 3 4 5 6; do yes $i & done; wait",
    "background children": "(setsid sleep 3600 &); (setsid setsid bash -c 'sleep 3600 & sleep 3600' &); sleep 3600",
    "signals ignored": "trap '' TERM INT HUP QUIT; while true; do :; done",
    "stopped children": "for i in 1 2 3; do sleep 3600 & kill -STOP $!; done; sleep 3600",
    "terminal": "exec 3<>/dev/tty && echo REACHED;"
    " python3 -c 'import fcntl; fcntl.ioctl(0, 0x5412, b\"x\")' && echo REACHED; sleep 60",
    "environment": "env; export -p; set; cat /proc/self/environ; cat /proc/$PPID/environ; sleep 60",
    "environments of others": "for p in /proc/[0-9]*; do tr '\\0' '\\n' < $p/environ; done 2>/dev/null; sleep 60",
    "network": "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 22), 1)' && echo REACHED;"
    " echo x > /dev/tcp/127.0.0.1/22 && echo REACHED; sleep 60",
    "signals outside": "kill -0 $OUTSIDE_PID && echo REACHED; kill -9 $OUTSIDE_PID && echo REACHED; sleep 60",
    "memory": "python3 -c 'x = bytearray(1 << 30); print(\"REACHED\")'; sleep 60",
    "disk": "head -c 200000000 /dev/zero > big; test $(stat -c %s big) -gt 67108864 && echo REACHED; sleep 60",
}


def attack(sandbox: Sandbox, command: str) -> tuple[str, float, int]:
    """Run one; return what it printed, how many seconds after its deadline it was gone, and how many processes were left."""
    argv = ["/bin/bash", "-c", f": {MARK}; {command}"]
    running = RunningCommand(sandbox, argv, seconds=SECONDS)
    running.wait()
    left = sum(1 for _ in left_over(sandbox.root))
    return running.text, (running.end.seconds if running.end else 0.0) - SECONDS, left


def left_over(root: str) -> Iterator[str]:
    """Yield the processes that work in the folder of a command."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.readlink(entry / "cwd") == root:
                    yield entry.name
            except OSError:
                continue


def campaign(prefer: str, root: str, outside: int) -> int:
    """Run all attacks in one sandbox, print a line for each; return how many were not contained."""
    limits = {"processes": 40, "memory": 256 << 20, "file_size": 64 << 20}
    sandbox = Sandbox(root=root, prefer=prefer, environment={"OUTSIDE_PID": str(outside)}, **limits)  # type: ignore[arg-type]
    failed = 0
    for name, command in ATTACKS.items():
        text, late, left = attack(sandbox, command)
        reached = SECRET in text or "REACHED" in text
        good = not reached and not left and late <= GRACE
        failed += not good
        told = "contained" if good else "REACHED" if reached else f"{left} LEFT" if left else "LATE"
        print(f"  {told:<10} {late:6.2f} s after the deadline  {name}", flush=True)
    return failed


def main(*, again: bool = True) -> int:
    """Attack in every sandbox that works here, then as another user; the exit code."""
    os.environ["PLANTED_API_KEY"] = SECRET
    failed = 0
    for prefer, lacking in (("landlock", landlock_works()), ("bwrap", bwrap_works())):
        print(f"{prefer}, as user {os.geteuid()}: {lacking or f'{len(ATTACKS)} attacks'}")
        if lacking:
            failed += not again  # both must work for a user without privileges, where they are installed
            continue
        with TemporaryDirectory(prefix=MARK) as folder:
            root = os.path.realpath(folder)
            witness = subprocess.Popen(["sleep", "600"])
            try:
                failed += campaign(prefer, root, witness.pid)
                failed += witness.poll() is not None
            finally:
                witness.kill()
                witness.wait()
    if again and os.geteuid() == 0 and shutil.which("runuser"):
        failed += attack_as_nobody()
    print("all contained" if not failed else f"{failed} not contained")
    return 1 if failed else 0


def attack_as_nobody() -> int:
    """Do the same as a user without privileges, with a Python that this user can start; return how often it failed."""
    here = Path(__file__).parents[1]
    paths = [str(here / "src"), str(here), *(path for path in sys.path if "site-packages" in path)]
    script = f"import sys; sys.path[:0] = {paths!r}\nfrom bench.shell_attacks import main\nsys.exit(main(again=False))"
    for python in (os.path.realpath(sys.executable), f"/usr/bin/python3.{sys.version_info.minor}", "/usr/bin/python3"):
        command = ["runuser", "-u", "nobody", "--", python, "-S", "-c"]
        if subprocess.run([*command, "pass"], capture_output=True, cwd="/").returncode == 0:
            return subprocess.run([*command, script], cwd="/tmp", timeout=600).returncode
    print("  no Python here can be started by that user")
    return 1
