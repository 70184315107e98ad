"""HTTP clients side by side on loopback, with and without TLS: what `docs/adr/0005-http-client.md` rests on.

Each client runs in an environment of its own against one server process. The column of ours is `HttpTransport`, deadlines,
caps and typed errors included. The floor is asyncio and httptools with none of that: no pool, no deadlines, no limits.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from bench.client_server import DELTA
from bench.peers import Missing, Peer, environment
from bench.table import Figure

__all__ = ["CLIENTS", "figures"]

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
DRIVER = Path(__file__).with_name("client_driver.py")
SERVER = Path(__file__).with_name("client_server.py")
IMPORT = "import time; start = time.process_time(); import {}; print(time.process_time() - start)"


class Server(msgspec.Struct, frozen=True):
    """Where the server listens, and whom a client must trust."""

    bases: dict[str, str]
    authority: Path


def figures(deltas: int, passes: int) -> list[Figure]:
    """Ours against every client."""
    with TemporaryDirectory(prefix="evener-clients-") as folder, _server(Path(folder)) as server:
        ours = _measured("evener", Path(sys.executable), server, (deltas, passes))
        return [figure for client in CLIENTS for figure in _figures(client, ours, server, (deltas, passes))]


def _figures(client: Peer, ours: Mapping[str, float], server: Server, size: tuple[int, int]) -> list[Figure]:
    name = f"{client.package} {client.version}"
    try:
        theirs = _measured(client.package, environment(client), server, size)
    except Missing as why:
        return [Figure(name, note=f"not measured: {why}")]
    return [
        Figure(f"{name} {what}", ours[what], value, _unit(what), most=BARS.get((client.package, what), 0.0))
        for what, value in theirs.items()
    ]


def _unit(what: str) -> str:
    return {"import": "ms", "peak memory": "MB"}.get(what, "us")


def _measured(client: str, python: Path, server: Server, size: tuple[int, int]) -> dict[str, float]:
    deltas, passes = size
    order = {
        "client": client,
        "authority": str(server.authority),
        "bases": server.bases,
        "deltas": max(deltas, 20),
        "delta_bytes": len(DELTA),
        "requests": REQUESTS if passes > 1 else 1,
        "passes": passes,
    }
    said: dict[str, float] = json.loads(_run(python, DRIVER, told=json.dumps(order)))
    code = IMPORT.format(MODULES.get(client, f"asyncio, {client}"))
    said["import"] = min(float(_run(python, "-c", code)) for _ in range(min(passes, 5))) * 1e3
    return said


def _run(*command: Path | str, told: str = "") -> str:
    try:
        done = subprocess.run(command, input=told, capture_output=True, text=True, timeout=SECONDS)
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
