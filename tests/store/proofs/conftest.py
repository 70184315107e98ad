"""A folder that is quick to sync: in these proofs the recording decides what was synced, not the machine."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.store.stores import QUICK


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    with TemporaryDirectory(dir=QUICK, prefix="evener-proofs-") as folder:
        yield Path(folder)
