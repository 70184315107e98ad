"""Observing runs: cost, spans (a fold of the log), where spans go, metrics. Nothing here changes what a run does."""

from evener.observe.cost import Cost, price
from evener.observe.trace_context import TraceContext, current_trace, join_trace

__all__ = ["Cost", "TraceContext", "current_trace", "join_trace", "price"]
