"""One scale of effort, and how a wire with fewer steps rounds it. Pure."""

from collections.abc import Sequence

from evener.transcript.ask import Effort
from evener.transcript.loss import Loss, loss_of

__all__ = ["BUDGETS", "SCALE", "effort_for", "nearest_effort"]

SCALE = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
BUDGETS = {
    "off": 1024,
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 32768,
    "max": 65536,
}
"""Thinking tokens for models that take a budget instead of an effort."""


def effort_for(budget: int) -> Effort:
    """The least effort whose thinking fits into a budget of tokens."""
    levels: tuple[Effort, ...] = ("minimal", "low", "medium", "high", "xhigh", "max")
    return next((level for level in levels if BUDGETS[level] >= budget), "max")


def nearest_effort(wanted: str, known: Sequence[str], losses: list[Loss]) -> str:
    """The level the model knows that is nearest to the one wanted; upwards when two are as near, but never past max."""
    if wanted in known:
        return wanted
    place = SCALE.index(wanted)
    found = min((level for level in known if level in SCALE), key=lambda level: _distance(place, SCALE.index(level)))
    losses.append(loss_of("degraded", "reasoning.effort", f"this model has no level {wanted!r}; sent as {found!r}"))
    return found


def _distance(wanted: int, level: int) -> tuple[int, int]:
    return abs(wanted - level), -level
