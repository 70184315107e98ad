"""Metrics of runs in Prometheus' text format: tokens, cost, latency, time to first token, errors. Computed from events; no
I/O.
"""

from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal

from evener import events as ev
from evener.observe.conventions import provider_name
from evener.transcript.reply import Usage

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

Labels = tuple[tuple[str, str], ...]

HELP = {
    "evener_requests_total": ("counter", "Requests to models that were answered."),
    "evener_errors_total": ("counter", "Requests to models that failed, by the class of the error."),
    "evener_tokens_total": ("counter", "Tokens, by their kind."),
    "evener_cost_usd_total": ("counter", "Cost in US dollars; a lower bound where prices are not known."),
    "evener_tool_calls_total": ("counter", "Calls of tools, by their outcome."),
    "evener_compactions_total": ("counter", "Summaries of conversations that grew too long, by their outcome."),
    "evener_runs_total": ("counter", "Runs that ended, by their cause."),
    "evener_request_seconds": ("histogram", "How long an answer took."),
    "evener_first_token_seconds": ("histogram", "How long the first piece of an answer took."),
    "evener_tool_seconds": ("histogram", "How long a call took."),
}


class Metrics:
    """Sums over events. Add each log in its order: a request belongs to the answer that follows it."""

    def __init__(self) -> None:
        self._counters: dict[tuple[str, Labels], float | Decimal] = defaultdict(int)
        self._times: dict[tuple[str, Labels], list[int]] = {}
        self._sums: dict[tuple[str, Labels], float] = defaultdict(float)

    def add(self, events: Iterable[ev.Event]) -> None:
        """Count the events of one log, or of a part of it that begins before a request."""
        model, tools = "", dict[str, str]()
        for event in events:
            match event:
                case ev.ModelCalled():
                    model = event.model
                case ev.Replied():
                    self._count_reply(event, _who(model))
                case ev.ModelFailed(error=error):
                    self._count("evener_errors_total", (*_who(model), ("error_type", error)))
                case ev.Compacted() | ev.CompactionFailed():
                    self._count_compaction(event, _who(event.model or model))
                case ev.CallStarted(call=call, tool=tool):
                    tools[call] = tool
                case ev.CallFinished(call=call, outcome=outcome, seconds=seconds) if call in tools:
                    named = (("tool", tools.pop(call)),)
                    self._count("evener_tool_calls_total", (*named, ("outcome", outcome)))
                    self._time("evener_tool_seconds", named, seconds)
                case ev.Finished(cause=cause):
                    self._count("evener_runs_total", (("cause", cause),))

    def _count_reply(self, event: ev.Replied, who: Labels) -> None:
        self._count("evener_requests_total", who)
        self._count_usage(event.message.usage or Usage(), event.cost, who)
        self._time("evener_request_seconds", who, event.seconds)
        self._time("evener_first_token_seconds", who, event.first)

    def _count_compaction(self, event: ev.Compacted | ev.CompactionFailed, who: Labels) -> None:
        outcome = "done" if isinstance(event, ev.Compacted) else "failed"
        self._count("evener_compactions_total", (*who, ("outcome", outcome)))
        self._count_usage(event.usage, event.cost, who)

    def _count_usage(self, usage: Usage, cost: Decimal, who: Labels) -> None:
        self._count("evener_cost_usd_total", who, cost)
        kinds = (
            ("input", usage.input_total),
            ("output", usage.output_total),
            ("cache_read", usage.cache_read),
            ("cache_write", usage.cache_write),
            ("reasoning", usage.reasoning),
        )
        for kind, tokens in kinds:
            self._count("evener_tokens_total", (*who, ("kind", kind)), tokens)

    def _count(self, name: str, labels: Labels, amount: float | Decimal = 1) -> None:
        self._counters[name, labels] += amount  # type: ignore[operator] # one name has one kind of number

    def _time(self, name: str, labels: Labels, seconds: float) -> None:
        counts = self._times.setdefault((name, labels), [0] * (len(SECONDS) + 1))
        for place, most in enumerate(SECONDS):
            counts[place] += seconds <= most
        counts[-1] += 1
        self._sums[name, labels] += seconds

    def text(self) -> str:
        """Return all metrics in the text format of Prometheus."""
        lines: list[str] = []
        for name, (kind, help) in HELP.items():
            found = [
                f"{name}{_format_labels(labels)} {value}" for (one, labels), value in self._counters.items() if one == name
            ]
            for (one, labels), counts in self._times.items():
                if one == name:
                    found += self._histogram(name, labels, counts)
            if found:
                lines += [f"# HELP {name} {help}", f"# TYPE {name} {kind}", *found]
        return "\n".join(lines) + "\n"

    def _histogram(self, name: str, labels: Labels, counts: list[int]) -> list[str]:
        bounds = (*(f"{most:g}" for most in SECONDS), "+Inf")
        lines = [
            f"{name}_bucket{_format_labels((*labels, ('le', bound)))} {count}"
            for bound, count in zip(bounds, counts, strict=True)
        ]
        total = self._sums[name, labels]
        return [*lines, f"{name}_sum{_format_labels(labels)} {total}", f"{name}_count{_format_labels(labels)} {counts[-1]}"]


def _who(model: str) -> Labels:
    return (("provider", provider_name(model)), ("model", model.partition(":")[2] or model))


def _format_labels(labels: Labels) -> str:
    escaped = ((name, value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")) for name, value in labels)
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}" if labels else ""
