"""A listening socket for programs on this machine. Never listens on another address."""

import socket

from evener.errors import UsageError


def open_socket(port: int = 0) -> socket.socket:
    """Listen on loopback, on this port or on a free one. The caller closes the socket."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(("127.0.0.1", port))
        made.listen()  # at once: a client that gets the address may connect before the server accepts
    except (OSError, OverflowError) as error:
        made.close()
        why = error.strerror if isinstance(error, OSError) else "ports end at 65535"
        raise UsageError(f"Port {port} cannot be used: {why}. Choose another one; 0 is a free one.") from None
    return made
