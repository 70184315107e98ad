"""Servers that are none at all, or not ours: ports that refuse, swallow, speak another protocol or cannot be trusted."""

import socket
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path


@contextmanager
def refused() -> Iterator[str]:
    """A port on which nobody listens. It is held, so that nobody else takes it meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


@contextmanager
def blackhole() -> Iterator[str]:
    """A port whose queue is full: a further connection never stands."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def ssh() -> Iterator[str]:
    """A port where another protocol is spoken."""

    def greet(link: socket.socket) -> None:
        link.sendall(b"SSH-2.0-Greeting\r\n")
        link.recv(65536)

    with _greeting(greet) as port:
        yield f"http://127.0.0.1:{port}"


@contextmanager
def untrusted() -> Iterator[str]:
    """A port with a certificate that nobody vouches for."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "server.pem")
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        command += ["-keyout", str(made), "-out", str(made), "-days", "2", "-subj", "/CN=127.0.0.1"]
        subprocess.run([*command, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True, timeout=120)
        written = made.read_text()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(made)
    assert "PRIVATE KEY" in written

    def greet(link: socket.socket) -> None:
        with suppress(ssl.SSLError, OSError), context.wrap_socket(link, server_side=True):
            pass

    with _greeting(greet) as port:
        yield f"https://127.0.0.1:{port}"


@contextmanager
def _greeting(greet: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port where everybody who comes is greeted, one after the other."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):  # the listener is closed when the test is over
                while True:
                    link, _ = listener.accept()
                    link.settimeout(120)
                    with link, suppress(OSError):
                        greet(link)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(120)


PLACES: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "refused": refused,
    "blackhole": blackhole,
    "ssh": ssh,
    "untrusted": untrusted,
}
