"""How properties are tried: the same examples every time in CI, fresh ones elsewhere. And bytecode is kept."""

import gc
import os
import signal
import sys
import threading

from hypothesis import settings

# Hundreds of tests start a process, and one that must compile what it imports takes three times as long to start
# (`from evener import Harness`: 0.45 s of CPU instead of 0.15). So bytecode is kept, even if the environment says otherwise.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell without job control ignores SIGINT in what it starts in the background, and children inherit that; tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("here", deadline=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


def pytest_collection_finish() -> None:
    """Put what was made so far out of the collector's sight: with it each `gc.collect()` of a test took a second and more."""
    gc.collect()
    gc.freeze()
