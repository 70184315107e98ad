"""A collector for tests: takes OTLP over HTTP on loopback and keeps the spans. It can be slow, or refuse.

While it runs, senders of this process are patient: one that gives up a request loses its spans, or sends them twice.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from evener.observe import otlp
from tests.patience import PATIENCE


class Collector:
    """What came in. `status` is what it answers; requests wait while `hold` is not set."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.spans: list[Span] = []
        self.headers: list[dict[str, str]] = []
        self.hold = threading.Event()
        self.hold.set()
        self.came = threading.Event()
        self.url = ""

    def take(self, body: bytes, headers: dict[str, str]) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.spans += scope.spans
        self.headers.append(headers)
        self.came.set()


def attributes(span: Span) -> dict[str, object]:
    """Return the attributes of a span as plain values."""
    found: dict[str, object] = {}
    for one in span.attributes:
        kind = one.value.WhichOneof("value") or "string_value"
        value = getattr(one.value, kind)
        found[one.key] = [item.string_value for item in value.values] if kind == "array_value" else value
    return found


@contextmanager
def collecting(status: int = 200) -> Iterator[Collector]:
    """Run a collector for the length of the block."""
    collector = Collector(status)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.take(body, {name.lower(): value for name, value in self.headers.items()})
            collector.hold.wait(PATIENCE)
            self.send_response(collector.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("TIMEOUT", "AT_LEISURE"):
                patch.setattr(otlp, name, PATIENCE)
            yield collector
    finally:
        collector.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()
