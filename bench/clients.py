"""HTTP clients side by side on loopback, with and without TLS: what `docs/adr/0005-http-client.md` rests on.

Each client runs in an environment of its own against one server process. The column of ours is `HttpTransport`, deadlines,
caps and typed errors included. The floor is asyncio and httptools with none of that: no pool, no deadlines, no limits.

`compare` measures ours alone, in an older revision and in this tree, each with its own driver, against the server of this tree.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import msgspec

from bench.client_server import DELTA
from bench.peers import Missing, Peer, environment
from bench.revision import BEFORE, NOW, Side, sides_of
from bench.table import Figure, stand_beside

__all__ = ["CLIENTS", "compare", "figures"]

CLIENTS = (
    Peer("", "aiohttp", "3.14.5"),
    Peer("", "httptools", "0.9.0"),
    Peer("", "httpx2", "2.16.0"),
    Peer("", "pyreqwest", "0.15.1"),
)
MODULES = {
    "httptools": "asyncio, ssl, httptools",
    "pyreqwest": "asyncio, pyreqwest.client",
    "evener": "evener.transport.http",
}
BARS = {("aiohttp", "request, plain"): 2.0, ("aiohttp", "request, TLS"): 2.0}
REQUESTS = 100
SECONDS = 300
OURS = "evener"
DRIVER = Path(__file__).with_name("client_driver.py")
SERVER = Path(__file__).with_name("client_server.py")
DRIVEN = """
import resource, runpy, sys
runpy.run_path(sys.argv[1], run_name="__main__")
try:
    with open("/proc/self/status") as file:
        print(next(line.split()[1] for line in file if line.startswith("VmHWM:")))
except OSError:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
"""A driver, and then the most kilobytes of its process. On Linux `ru_maxrss` is at least what its parent had when it began."""
IMPORT = "import time; start = time.process_time(); import {}; print(time.process_time() - start)"


class Server(msgspec.Struct, frozen=True):
    """Where the server listens, and whom a client must trust."""

    bases: dict[str, str]
    authority: Path


class Size(msgspec.Struct, frozen=True):
    """How much a process measures."""

    deltas: int
    requests: int
    passes: int


def figures(deltas: int, passes: int) -> list[Figure]:
    """Ours against every client."""
    with TemporaryDirectory(prefix="evener-clients-") as folder, _server(Path(folder)) as server:
        size = Size(deltas, REQUESTS if passes > 1 else 1, passes)
        ours = _measured(OURS, Path(sys.executable), server, size)
        return [figure for client in CLIENTS for figure in _figures(client, ours, server, size)]


def compare(deltas: int, passes: int, before: str) -> list[Figure]:
    """Return our figures in an older revision and in this tree. Each pass is a new process, so that the trees take turns."""
    size = Size(deltas, REQUESTS if passes > 1 else 1, 1)
    with sides_of(before) as sides, TemporaryDirectory(prefix="evener-clients-") as folder, _server(Path(folder)) as server:
        try:
            runs = [
                {name: _measured(OURS, Path(sys.executable), server, size, side) for name, side in sides.items()}
                for _ in range(passes)
            ]
        except Missing as why:
            raise SystemExit(f"bench: our client could not be measured in both trees: {why}") from None
    then, now = (
        [Figure(what, _choice(what)(run[name][what] for run in runs), unit=_unit(what)) for what in runs[0][NOW]]
        for name in (BEFORE, NOW)
    )
    return stand_beside(then, now)


def _figures(client: Peer, ours: Mapping[str, float], server: Server, size: Size) -> list[Figure]:
    name = f"{client.package} {client.version}"
    try:
        theirs = _measured(client.package, environment(client), server, size)
    except Missing as why:
        return [Figure(name, note=f"not measured: {why}")]
    return [
        Figure(f"{name} {what}", ours[what], value, _unit(what), most=BARS.get((client.package, what), 0.0))
        for what, value in theirs.items()
    ]


def _choice(what: str) -> Callable[[Iterable[float]], float]:
    """Return how a figure is chosen from several. On a busy machine some paced deltas come together, and cost less."""
    return median if what.startswith("paced") else min


def _unit(what: str) -> str:
    return {"import": "ms", "peak memory": "MB"}.get(what, "us")


def _measured(client: str, python: Path, server: Server, size: Size, side: Side | None = None) -> dict[str, float]:
    """Return what a client costs. With `side` it is ours, in that tree, measured by its driver."""
    driver, variables = (side.tree / "bench" / DRIVER.name, side.variables) if side else (DRIVER, None)
    order = {
        "client": client,
        "authority": str(server.authority),
        "bases": server.bases,
        "deltas": max(size.deltas, 20),
        "delta_bytes": len(DELTA),
        "requests": size.requests,
        "passes": size.passes,
    }
    line, peak = _run(python, "-c", DRIVEN, driver, told=json.dumps(order), variables=variables).splitlines()
    said: dict[str, float] = json.loads(line)
    said["peak memory"] = int(peak) / 1024
    code = IMPORT.format(MODULES.get(client, f"asyncio, {client}"))
    said["import"] = min(float(_run(python, "-c", code, variables=variables)) for _ in range(min(size.passes, 5))) * 1e3
    return said


def _run(*command: Path | str, told: str = "", variables: Mapping[str, str] | None = None) -> str:
    try:
        done = subprocess.run(command, input=told, capture_output=True, text=True, timeout=SECONDS, env=variables)
    except subprocess.TimeoutExpired:
        raise Missing(f"it took more than {SECONDS} seconds") from None
    if done.returncode:
        raise Missing((done.stderr or f"it ended with code {done.returncode}").strip().splitlines()[-1])
    return done.stdout


@contextmanager
def _server(folder: Path) -> Iterator[Server]:
    """The server as a process of its own, for as long as it is needed."""
    _certify(folder)
    command = [sys.executable, str(SERVER), str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield Server(json.loads(server.stdout.readline()), folder / "authority.pem")
        finally:
            server.stdin.close()


def _certify(folder: Path) -> None:
    """An authority, and a certificate for loopback that it signed, for one day."""
    request = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1")
    authority = ("-keyout", "authority.key", "-out", "authority.pem", "-subj", "/CN=bench authority")
    leaf = (
        "-keyout",
        "key.pem",
        "-out",
        "cert.pem",
        "-subj",
        "/CN=localhost",
        "-CA",
        "authority.pem",
        "-CAkey",
        "authority.key",
    )
    extensions = ("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE")
    for command in ((*request, *authority), (*request, *leaf, *extensions)):
        try:
            subprocess.run(["openssl", *command], check=True, capture_output=True, cwd=folder, timeout=60)
        except (OSError, subprocess.SubprocessError) as error:
            raise SystemExit(f"The `openssl` command is needed to make a certificate and failed: {error}") from error
