"""Local servers, seen from the parent: one for equal weights and settings, shared by all transports that borrow it.

Starts a server when it is first needed, again when it has died, and stops it when the last borrower returns it or this
process exits. Safe to use from several threads and event loops.
"""

import asyncio
import atexit
import os
import sys
import threading
from importlib.util import find_spec

from evener.errors import TimedOut, UsageError
from evener.local.keeper import ChildAddress, Keeper, LocalSettings
from evener.local.weights import Weights


class LocalServer:
    """A server that may be running. Get one from `borrow_server`."""

    def __init__(self, weights: Weights, settings: LocalSettings) -> None:
        self.weights = weights
        self.settings = settings
        self.borrowers = 0
        self._keeper: Keeper | None = None
        self._guard = threading.Lock()

    @property
    def pid(self) -> int | None:
        """Return the id of the process that runs now."""
        keeper = self._keeper
        return None if keeper is None or keeper.ended else keeper.pid

    async def address(self, *, seconds: float) -> ChildAddress:
        """Return the server's address; start the server if it does not run.

        Raises UsageError if it can never run, else TransportError.
        """
        keeper = self._keep()
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(keeper.started)
        except TimeoutError:
            raise TimedOut(
                f"Local model {self.weights.name!r} was not ready within {seconds:g} seconds. It is still loading: "
                "try again, or give the request more time (Deadlines.total)."
            ) from None

    def why_ended(self) -> str:
        """Return why the process ended; empty while it runs."""
        keeper = self._keeper
        return keeper.last_words() if keeper is not None and keeper.ended else ""

    def stop(self) -> None:
        """End the process. The next call of `address` starts another."""
        with self._guard:
            keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.stop()

    def forget(self) -> None:
        """Forget the process after a fork: it belongs to the original process."""
        keeper, self._keeper, self._guard = self._keeper, None, threading.Lock()
        if keeper is not None:
            keeper.forget()

    def _keep(self) -> Keeper:
        with self._guard:
            if self._keeper is None or self._keeper.ended:
                check_installed()
                self._keeper = Keeper(self.weights, self.settings)
            return self._keeper


def check_installed() -> None:
    """Raise UsageError if llama.cpp is not installed. Does not load it, because only the child needs it."""
    if find_spec("xllamacpp") is None:
        raise UsageError(
            f"Local models need llama.cpp, which is not installed for {sys.executable}. Run: pip install 'evener[local]'."
        )


_servers: dict[tuple[Weights, LocalSettings], LocalServer] = {}
_guard = threading.Lock()


def borrow_server(weights: Weights, settings: LocalSettings) -> LocalServer:
    """Return the one server of this process for these weights and settings. Starts nothing yet; return it when done."""
    with _guard:
        _look_after()
        server = _servers.setdefault((weights, settings), LocalServer(weights, settings))
        server.borrowers += 1
        return server


def return_server(server: LocalServer) -> None:
    """Return a borrowed server. The last borrower's return stops it."""
    with _guard:
        server.borrowers -= 1
        last = server.borrowers <= 0
        if last:
            _servers.pop((server.weights, server.settings), None)
    if last:
        server.stop()


def stop_servers() -> None:
    """Stop all servers, borrowed or not. Runs when the process exits."""
    for server in list(_servers.values()):
        server.stop()


_looked_after = False


def _look_after() -> None:
    """Register, once, that children are stopped at exit, and that a fork of this process does not stop them."""
    global _looked_after
    if not _looked_after:
        _looked_after = True
        atexit.register(stop_servers)
        if sys.platform != "win32":
            os.register_at_fork(after_in_child=_forget)


def _forget() -> None:
    global _guard
    _guard = threading.Lock()
    for server in _servers.values():
        server.forget()
    _servers.clear()
