"""A home of its own for the tests that run a command."""

from pathlib import Path

import pytest

from tests.cli.run import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)
