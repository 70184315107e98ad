"""Lease holders: claims that show other processes whether a holder is alive, and the thread that renews leases.

Renewing has its own thread, so that a tool that blocks the event loop does not lose the log of its run. One thread serves
all logs of a store. It runs while there are logs to renew, holds no reference to them, and never keeps a process alive. A
process that is stopped renews nothing: its leases expire, and others take over.
"""

import os
import platform
import sys
from functools import cache
from math import inf
from pathlib import Path
from secrets import token_hex
from threading import Event, Lock, Thread
from typing import Protocol, runtime_checkable
from weakref import WeakSet

from evener.errors import UsageError
from evener.events import Rival

COPY = "copy"

PROC = Path("/proc")
BOOT = PROC / "sys/kernel/random/boot_id"
SPACE = PROC / "self/ns/pid"
UNKNOWN = "-"
DEAD_STATES = frozenset("ZXx")
AFTER_NAME = 2  # in /proc/<pid>/stat the fields are counted from 1; after the name in brackets comes the third
START_FIELD = 22
_given_back: dict[str, bool] = {}
"""Claims of this process that it holds no more, though the store may not say so yet: a full disk takes no note of that.

True: something that was begun under the claim goes on.
"""


def new_claim() -> str:
    """Return a claim of this process, unlike any other."""
    ours = _ours(os.getpid())
    if ours.endswith(f" {UNKNOWN}"):
        _ours.cache_clear()  # a system that was short of files may tell the next time
    return f"{ours} {token_hex(8)}"


def give_back(claim: str, *, left: bool) -> None:
    """Hold the claim no more, whatever the store says. `left`: something that was begun under it goes on."""
    _given_back[claim] = left


def forget(claim: str) -> None:
    """Forget a claim that was given back: the store has noted it."""
    _given_back.pop(claim, None)


def deserted(claim: str) -> bool:
    """True if this process gave the claim back, or the process that made it ran on this machine and is dead for certain."""
    first = claim.partition(";")[0]
    return first in _given_back or _is_dead(first)


def may_act(claim: str) -> bool:
    """True if what was begun under an earlier claim may still go on."""
    return _given_back[claim] if claim in _given_back else not _is_dead(claim)


def _is_dead(claim: str) -> bool:
    match claim.split():
        case [machine, pid, start, _, *_] if machine == _machine() and pid.isdecimal():
            return _dead(int(pid), start)
    return False


def claims(stored: str) -> list[str]:
    """Return the holder's claim and those of earlier holders, the newest first."""
    return stored.split(";") if stored else []


def rival_of(earlier: list[str]) -> Rival:
    """Return which kind of earlier holder may still be running, given the claims of those that are not known to be dead."""
    if COPY in earlier:
        return "copy"
    return "holder" if earlier else ""


def seconds_of(claim: str, otherwise: float) -> float:
    """Return how long the lease of this claim lasts; what was given for one that does not say."""
    match claim.partition(";")[0].split():
        case [_, _, _, _, seconds]:
            return float(seconds)
    return otherwise


def _dead(pid: int, start: str) -> bool:
    state, started = _life(pid)
    if state != UNKNOWN:
        return state in DEAD_STATES or (UNKNOWN not in (start, started) and start != started)
    if sys.platform == "win32":
        return False  # there, asking by signal would end the process
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # another user's: it lives
    return False


def _life(pid: int) -> tuple[str, str]:
    """Return state and start time of a process, as far as the system reports them."""
    try:
        fields = (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return fields[0], fields[START_FIELD - AFTER_NAME - 1]
    except (OSError, IndexError):
        return UNKNOWN, UNKNOWN


@cache
def _ours(pid: int) -> str:
    """Return the beginning of all claims of this process. A fork finds out anew: its pid may be that of a dead ancestor."""
    _note_forks()
    return f"{_machine()} {pid} {_life(pid)[1]}"


@cache
def _note_forks() -> None:
    if sys.platform != "win32":
        os.register_at_fork(after_in_child=_ours.cache_clear)


@cache
def _machine() -> str:
    try:
        return f"{BOOT.read_text().strip()}/{os.readlink(SPACE)}"
    except OSError:
        return platform.node().replace(" ", "_") or UNKNOWN


PARTS = 3
"""A lease is renewed so often in its own length, so that it survives a thread that comes late."""


@runtime_checkable
class SelfRenewing(Protocol):
    """A log that renews its own lease. Other logs are renewed by their run, while the event loop is free."""

    def keep(self) -> None:
        """Renew the lease from now on, whatever the event loop does, until the log is closed or lost."""
        ...


class Renewable(Protocol):
    """A log whose lease is held."""

    def renew_soon(self, when_less_than: float) -> None:
        """Have the lease renewed if fewer seconds than this are left of it. Never waits, never raises."""
        ...


class Renewer:
    """`seconds` is how long a lease lasts."""

    def __init__(self, seconds: float) -> None:
        if type(seconds) not in (int, float) or not 0 < seconds < inf:
            raise UsageError(f"`lease` is a number of seconds above 0; not {seconds!r}.")
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
        """Check each log once. False if there is none: then the thread ends, and the next log starts another."""
        with self._lock:
            logs = list(self._logs)
            if not logs:
                self._thread = None
                return False
        for log in logs:
            log.renew_soon(enough)
        return True
