"""Observing runs: cost, spans (computed from the log), exporters of spans, metrics. Nothing here changes what a run does."""

from evener.observe.cost import Cost, price
from evener.observe.trace_context import TraceContext, current_trace, join_trace

__all__ = ["Cost", "TraceContext", "current_trace", "join_trace", "price"]
