"""How properties are tried: the same examples every time in CI, fresh ones elsewhere. And bytecode is kept."""

import os
import sys

from hypothesis import settings

# Hundreds of tests start a process, and one that must compile what it imports takes three times as long to start
# (`from evener import Harness`: 0.45 s of CPU instead of 0.15). So bytecode is kept, even if the environment says otherwise.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("here", deadline=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")
