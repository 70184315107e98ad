"""What leaves a process of its spans: redacted attributes, as lines of JSON. Pure but for the secrets that it takes out."""

from collections.abc import Iterable, Iterator

import msgspec

from evener.observe.conventions import Attribute
from evener.observe.spans import TraceSpan
from evener.store.redaction import Funnel

__all__ = ["attributes_of", "encode_spans", "redact_spans"]

CUT = 65_536
"""Characters of one attribute that are exported."""


def redact_spans(spans: Iterable[TraceSpan], funnel: Funnel, *, content: bool) -> Iterator[TraceSpan]:
    """Yield copies without secrets: names and attributes too, as a tool or an error may be called anything."""
    for span in spans:
        yield msgspec.structs.replace(
            span,
            name=funnel.text(span.name),
            error=funnel.text(span.error),
            attributes={name: _redact(value, funnel) for name, value in span.attributes.items()},
            content={name: funnel.text(value)[:CUT] for name, value in span.content.items()} if content else {},
        )


def _redact(value: Attribute, funnel: Funnel) -> Attribute:
    match value:
        case str():
            return funnel.text(value)[:CUT]
        case list():
            return [funnel.text(one)[:CUT] for one in value]
        case _:
            return value


def attributes_of(span: TraceSpan) -> dict[str, Attribute]:
    """Return all attributes of a span, those with content included."""
    return {**span.attributes, **span.content}


def encode_spans(spans: Iterable[TraceSpan]) -> bytes:
    """Return spans as lines of JSON."""
    return b"".join(msgspec.json.encode(span) + b"\n" for span in spans)
