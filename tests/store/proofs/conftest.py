"""A folder that is quick to sync: in these proofs the recording decides what was synced, not the machine."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

IN_MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    with TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None, prefix="evener-proofs-") as folder:
        yield Path(folder)
