"""What holds for every test: how properties are tried, kept bytecode, and marks that are true.

Properties are tried on the same examples every time in CI, on fresh ones elsewhere; `make bench ARGS=fuzz` tries many.
"""

import gc
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from evener.transport import limiter
from tests.each import pytest_generate_tests, pytest_pyfunc_call
from tests.leftovers import pytest_sessionfinish, pytest_sessionstart, pytest_terminal_summary
from tests.marks import WATCH, marks_of

__all__ = [  # hooks that are defined elsewhere
    "pytest_generate_tests",
    "pytest_pyfunc_call",
    "pytest_sessionfinish",
    "pytest_sessionstart",
    "pytest_terminal_summary",
]

# Hundreds of tests start a process, and one that must compile what it imports takes three times as long to start
# (`from evener import Harness`: 0.45 s of CPU instead of 0.15). So bytecode is kept, even if the environment says otherwise.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Most of what a test of the store waits for is the disk: a sync took 4 ms there, and 5 us in memory. No test needs a disk for
# what it shows: a killed process leaves what it has written to the system, and cuts of power are simulated. Folders of tests
# that passed are deleted at once. On a disk: `PYTEST_DEBUG_TEMPROOT=/tmp make test`. Tests write programs there and run them,
# which a container may forbid in memory.
MEMORY = Path("/dev/shm")
ROOM = 4 << 30
RUNS = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
if RUNS and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# A shell without job control ignores SIGINT in what it starts in the background, and children inherit that; tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Runs of tests leave no traces in the folder of the user who runs them; tests of traces name a folder.
os.environ["EVENER_TRACES"] = "off"

PATIENT = settings(max_examples=50, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", PATIENT, derandomize=True)
settings.register_profile("here", PATIENT)
settings.load_profile("ci" if os.environ.get("CI") else "here")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Use one process more than there are cores, for `-n auto`: many tests wait for a deadline or for a child process."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests as `tests/marks.py` says, before `-m` chooses among them."""
    marks: dict[str, list[pytest.MarkDecorator]] = {}
    for item in items:
        name = item.nodeid.partition("[")[0]
        if name not in marks:
            marks[name] = [getattr(pytest.mark, mark) for mark in marks_of(name)]
        for mark in marks[name]:
            item.add_marker(mark)


def pytest_runtest_logstart() -> None:
    """Forget what was opened and started before the next test."""
    WATCH.seen = set()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test that opened a socket or started a process, itself or in its set-up, without the mark for it."""
    yield
    wrong = WATCH.unmarked(mark.name for mark in item.iter_markers())
    if wrong:
        pytest.fail(wrong, pytrace=False)


@pytest.fixture(autouse=True)
def rates_of_this_process() -> Iterator[None]:
    """Fail a test that leaves a store open whose tables count the calls of every later test."""
    yield
    if (store := limiter._sharing._store()) is not None:
        limiter.unshare_rates(store)
        pytest.fail("It left a store open that several machines use: close it with aclose().", pytrace=False)


def pytest_collection_finish() -> None:
    """Put what was made so far out of the collector's sight: with it each `gc.collect()` of a test took a second and more."""
    gc.collect()
    gc.freeze()
