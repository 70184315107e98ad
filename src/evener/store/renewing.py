"""Renews leases from a thread of its own: a tool that blocks the event loop does not lose the log that it runs on.

One thread serves all logs of a store. It runs while there are logs to renew, holds on to none of them, and never keeps a
process alive. A process that is stopped renews nothing: its leases run out, and others take over.
"""

from threading import Event, Lock, Thread
from typing import Protocol, runtime_checkable
from weakref import WeakSet

__all__ = ["Renewer", "SelfRenewing"]

PARTS = 3
"""A lease is renewed so often in its own length, so that it survives a thread that comes late."""


@runtime_checkable
class SelfRenewing(Protocol):
    """A log that can renew its lease by itself. One that cannot is renewed by its run, while the event loop is free."""

    def keep(self) -> None:
        """Renew the lease from now on, whatever the event loop does, until the log is closed or lost."""
        ...


class Renewable(Protocol):
    """A log that is held."""

    def renew_soon(self, when_less_than: float) -> None:
        """Have the lease renewed if fewer seconds than this are left of it. Never waits, never raises."""
        ...


class Renewer:
    """`seconds` is how long a lease lasts."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = Lock()
        self._logs: WeakSet[Renewable] = WeakSet()
        self._thread: Thread | None = None
        self._stopped = Event()

    def add(self, log: Renewable) -> None:
        """Renew this log until it is discarded or dropped."""
        with self._lock:
            self._logs.add(log)
            if self._thread is None and not self._stopped.is_set():
                self._thread = Thread(target=self._serve, name="evener-leases", daemon=True)
                self._thread.start()

    def discard(self, log: Renewable) -> None:
        """Leave this log alone."""
        with self._lock:
            self._logs.discard(log)

    def stop(self) -> None:
        """Renew nothing more."""
        self._stopped.set()

    def _serve(self) -> None:
        pause = self._seconds / PARTS
        while not self._stopped.wait(pause):
            if not self._round(self._seconds - pause / 2):
                return

    def _round(self, enough: float) -> bool:
        """Look at each log once. False when there is none: then the thread ends, and the next log starts another."""
        with self._lock:
            logs = list(self._logs)
            if not logs:
                self._thread = None
                return False
        for log in logs:
            log.renew_soon(enough)
        return True
