"""Sends spans to a collector by OTLP over HTTP, with OpenTelemetry's SDK: the extra `otel`. Loaded only if it is used.

The batch processor has a bounded queue and its own thread, so a dead collector costs the caller nothing. The SDK reads
further headers from OTEL_EXPORTER_OTLP_HEADERS.
"""

import logging
from collections.abc import Mapping, Sequence
from threading import Thread
from typing import TYPE_CHECKING

from evener import __version__
from evener.errors import UsageError
from evener.observe.export import attributes_of
from evener.observe.lines import TraceSpan

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

QUEUE = 4_096
BATCH = 256
EVERY_MS = 1_000
TIMEOUT = 5.0
"""Seconds for one request of a live run to the collector, retries included."""
AT_LEISURE = 30.0
"""The same where a user waits for it: a collector that has just started takes its time."""
INSTALL = "OpenTelemetry is not installed. Install it with: pip install 'evener[otel]'."
PATH = "/v1/traces"
NANOSECONDS = 1_000_000_000
LATEST = 2**63 / NANOSECONDS


def traces_url(given: str) -> str:
    """Return the address for traces: of a collector, `/v1/traces` is added to it."""
    if not given.startswith(("http://", "https://")):
        raise UsageError(f"{given[:100]!r} is no address of a collector. It begins with http:// or https://.")
    return given if given.rstrip("/").endswith(PATH) else given.rstrip("/") + PATH


class OtlpSink:
    """A collector for live runs. `send` only puts spans into a bounded queue."""

    def __init__(self, url: str) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError:
            raise UsageError(INSTALL) from None
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # a dead collector is no news on a user's terminal
        self._exporter = OTLPSpanExporter(endpoint=traces_url(url), timeout=TIMEOUT)
        self._processor = BatchSpanProcessor(
            self._exporter, max_queue_size=QUEUE, max_export_batch_size=BATCH, schedule_delay_millis=EVERY_MS
        )

    def send(self, spans: Sequence[TraceSpan]) -> None:
        """Queue the spans; what does not fit is dropped."""
        for span in spans:
            self._processor.on_end(_readable(span))

    def close(self, seconds: float) -> None:
        """Send what waits, for at most so long."""
        flushing = Thread(target=self._processor.force_flush, daemon=True)  # it heeds no timeout of its own
        flushing.start()
        flushing.join(seconds)
        self._exporter.shutdown()  # type: ignore[no-untyped-call] # ends a retry that is under way


def send_all(spans: Sequence[TraceSpan], url: str, *, headers: Mapping[str, str] | None = None) -> bool:
    """Send the spans now. True if the collector accepted all of them."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import SpanExportResult
    except ImportError:
        raise UsageError(INSTALL) from None
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    exporter = OTLPSpanExporter(endpoint=traces_url(url), timeout=AT_LEISURE, headers=dict(headers or {}))
    try:
        batches = (spans[place : place + BATCH] for place in range(0, len(spans), BATCH))
        return all(exporter.export([_readable(span) for span in batch]) is SpanExportResult.SUCCESS for batch in batches)
    finally:
        exporter.shutdown()  # type: ignore[no-untyped-call] # it has no types


def _readable(span: TraceSpan) -> "ReadableSpan":
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
    from opentelemetry.trace.status import Status, StatusCode

    trace, flags = int(span.trace, 16), TraceFlags(TraceFlags.SAMPLED)
    parent = SpanContext(trace, int(span.parent, 16), is_remote=False, trace_flags=flags) if span.parent else None
    return ReadableSpan(
        name=span.name,
        context=SpanContext(trace, int(span.span, 16), is_remote=False, trace_flags=flags),
        parent=parent,
        resource=Resource({"service.name": "evener", "service.version": __version__}),
        attributes=attributes_of(span),
        kind=SpanKind.CLIENT if span.kind == "model" else SpanKind.INTERNAL,
        instrumentation_scope=InstrumentationScope("evener", __version__),
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
        start_time=_nanoseconds(span.start),
        end_time=_nanoseconds(span.end or span.start),
    )


def _nanoseconds(at: float) -> int:
    """Return a time as OTLP has it: an imported log can hold any."""
    return int(min(max(at, 0.0), LATEST) * NANOSECONDS)
