"""`evener trace`: prints the spans of a thread as JSON lines, or sends them to a collector. Changes nothing."""

import sys
from collections.abc import Sequence

from evener.cli.names import find_log
from evener.cli.terminal import count, escape_json, say
from evener.errors import UsageError
from evener.observe.export import redact_spans, trace_funnel
from evener.observe.lines import TraceSpan, encode_spans
from evener.observe.spans import fold_spans
from evener.store.protocol import Store


async def run(store: Store, id: str, *, otlp: str, content: bool, headers: Sequence[str]) -> int:
    """Print or send the spans."""
    given = dict(_parse_header(text) for text in headers)
    log = await store.head(await find_log(store, id))
    spans = await read_spans(store, log, content=content)
    if not otlp:
        sys.stdout.write(escape_json(encode_spans(spans)).decode())
        return 0
    from evener.observe.otlp import send_all

    if not send_all(spans, otlp, headers=given):
        say(f"evener: The collector at {otlp} did not take the spans. Check that it runs and speaks OTLP over HTTP.")
        return 1
    say(f"evener: Sent {count(len(spans), 'span')}.")
    return 0


async def read_spans(store: Store, log: str, *, content: bool) -> list[TraceSpan]:
    """Return the spans of a log and of the agents inside its calls, redacted. A span that is open ends with its log."""
    found: list[TraceSpan] = []
    for one in (log, *await store.inside(log)):
        events = await store.read(one if one == log else await store.head(one))
        spans = fold_spans(events, log=one, content=content)
        for span in spans:
            if not span.end:
                span.end, span.attributes["evener.open"] = max(span.start, events[-1].at), True
        found += spans
    return list(redact_spans(found, trace_funnel(), content=content))


def _parse_header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError("--header takes NAME=VALUE. (What was given is not shown, because it might be a key.)")
    return name.strip(), value.strip()
