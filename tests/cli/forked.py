"""Runs commands in processes that are forked from one which has loaded Evener: `python -m tests.cli.forked DESCRIPTOR`.

Most of what a command costs is the start of its interpreter. A forked one has its own environment, folder, streams and exit
code, and warnings are errors. Tests of what the interpreter does at its start take a fresh one: `tests/cli/run.py` decides.
"""

import atexit
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from select import select
from typing import Any, NoReturn

from tests.patience import PATIENCE

ROOT = Path(__file__).parents[2]
LOADED = (
    *("asyncio", "concurrent.futures.thread", "sqlite3", "ssl", "subprocess", "rich.console", "evener.cli.chat.app"),
    *("evener.cli.glance", "evener.cli.parser", "evener.cli.stores", "evener.cli.terminal", "evener.cli.commands.run"),
    *("evener.cli.commands.stored.store", "evener.cli.commands.stored.threads", "evener.harness.harness", "evener.model.open"),
    *("evener.store.sqlite.search_index", "evener.tools", "evener.transport.http"),
    *(
        "evener.mcp.connection",
        "evener.mcp.oauth",
        "evener.mcp.servers",
        "evener.mcp.stdio",
    ),  # their SDK takes a second to load
)
MOST = 100_000
NUMBER = 8


def serve(orders: socket.socket) -> NoReturn:
    """Fork for each order, until the process that started this one is gone."""
    for name in LOADED:
        importlib.import_module(name)
    gc.freeze()  # so that no child copies pages only to collect what it shares
    while True:
        said, descriptors, _, _ = socket.recv_fds(orders, MOST, 4)
        if not said:
            os._exit(0)
        if os.fork() == 0:
            orders.close()
            _attend(json.loads(said), descriptors)
        for one in descriptors:
            os.close(one)
        os.waitpid(-1, os.WNOHANG)  # some earlier one, so that few are left


def _attend(order: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """Fork the command; answer with its process id, then with its exit code."""
    *streams, answers = descriptors
    if (child := os.fork()) == 0:
        os.close(answers)
        _become(order, streams)
    for one in streams:
        os.close(one)
    os.write(answers, child.to_bytes(NUMBER, "big"))
    ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # its number is no other process's until its end was told
    assert ended is not None
    code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
    os.write(answers, code.to_bytes(NUMBER, "big", signed=True))
    os.waitpid(child, 0)
    os._exit(0)


def _become(order: dict[str, Any], streams: list[int]) -> NoReturn:
    """Run the command as `python -W error -m evener` would."""
    for target, (name, stream) in enumerate(zip(("stdin", "stdout", "stderr"), streams, strict=True)):
        os.dup2(stream, target)
        os.close(stream)
        before = getattr(sys, name)
        opened = open(target, before.mode, encoding=before.encoding, errors=before.errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, opened)
        setattr(sys, f"__{name}__", opened)
    if order["session"]:
        os.setsid()
    os.environ.clear()
    os.environ.update(order["environ"])
    time.tzset()
    os.chdir(order["folder"])
    sys.path[0] = os.getcwd()
    sys.argv[1:] = order["words"]
    importlib.invalidate_caches()
    from evener.cli import main

    sys.exit(main())


@cache
def _orders() -> socket.socket:
    """Start the process to fork from, once, and return where it takes orders. It ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.cli.forked", str(theirs.fileno())], cwd=ROOT, pass_fds=[theirs.fileno()]
    )
    theirs.close()

    def end() -> None:
        ours.close()
        server.wait()

    atexit.register(end)
    return ours


class Forked:
    """A command under way, on these three descriptors: what tests use of a `subprocess.Popen`. None of them is closed."""

    def __init__(self, order: bytes, streams: Sequence[int]) -> None:
        self._answers, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(_orders(), [order], [*streams, theirs.fileno()])
        self.pid = int.from_bytes(self._answers.recv(NUMBER), "big")
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, if it has ended."""
        return self._code if self._code is not None or not select([self._answers], [], [], 0)[0] else self.wait(PATIENCE)

    def wait(self, timeout: float) -> int:
        """Wait for its end; return the exit code."""
        if self._code is None:
            self._answers.settimeout(timeout)
            try:
                self._code = int.from_bytes(self._answers.recv(NUMBER), "big", signed=True)
            except TimeoutError:
                raise subprocess.TimeoutExpired(str(self.pid), timeout) from None
            self._answers.close()
        return self._code

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


def order_of(words: tuple[str, ...], environ: dict[str, str], folder: Path, *, session: bool = False) -> bytes | None:
    """Return what to tell the process that forks. None if it is too long, or needs an interpreter that starts anew."""
    order = json.dumps({"words": words, "environ": environ, "folder": str(folder), "session": session}).encode()
    return order if len(order) <= MOST and hasattr(os, "memfd_create") else None


def run_forked(order: bytes, words: tuple[str, ...], stdin: bytes) -> "subprocess.CompletedProcess[bytes]":
    """Run the command to its end, as `subprocess.run` does. Its input must fit into a pipe."""
    with ExitStack() as stack:
        out, err = (stack.enter_context(os.fdopen(os.memfd_create(name), "rb")).fileno() for name in ("stdout", "stderr"))
        given, giving = os.pipe()
        with os.fdopen(given, "rb"):
            with os.fdopen(giving, "wb") as pipe:
                pipe.write(stdin)
            running = Forked(order, [given, out, err])
        try:
            code = running.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            running.kill()
            raise
        return subprocess.CompletedProcess(words, code, os.pread(out, 1 << 30, 0), os.pread(err, 1 << 30, 0))


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
