"""Ports of this machine for servers that another process starts."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["reserved_port"]


@contextmanager
def reserved_port() -> Iterator[int]:
    """Hold a port of loopback: the system gives it to no other process, and a server that is told of it may listen there.

    Two sockets may have one port if both allow that (`SO_REUSEADDR`, as servers do) and only one of them listens. A port that
    is merely looked up and let go may be another's before the server is up.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])
