"""The socket of a server on this machine."""

import socket

import pytest

from evener.errors import UsageError
from evener.transport.loopback import open_socket


def test_a_client_can_connect_before_the_server_accepts() -> None:
    with open_socket() as listening:
        assert listening.getsockname()[0] == "127.0.0.1"
        socket.create_connection(listening.getsockname()).close()


def test_a_port_that_is_taken_or_none_is_refused() -> None:
    with open_socket() as taken:
        port = taken.getsockname()[1]
        for given in (port, 80_000):
            with pytest.raises(UsageError, match=f"Port {given} cannot be used"):
                open_socket(given)
