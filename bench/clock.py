"""CPU time of small actions. Minima of alternating passes: what else runs on the machine then hurts all of them alike."""

import gc
from collections.abc import Callable, Sequence
from time import process_time

__all__ = ["cheapest"]

LEAST = 0.002
"""Seconds one pass takes at least; a shorter action is repeated within it."""


def cheapest(actions: Sequence[Callable[[], object]], passes: int) -> list[float]:
    """The least CPU seconds that each action took."""
    repeats = [_repeats(action) for action in actions]
    best = [float("inf")] * len(actions)
    for _ in range(passes):
        gc.collect()
        for number, action in enumerate(actions):
            best[number] = min(best[number], _cpu(action, repeats[number]))
    return best


def _repeats(action: Callable[[], object]) -> int:
    return max(1, round(LEAST / max(_cpu(action, 1), 1e-6)))


def _cpu(action: Callable[[], object], repeats: int) -> float:
    start = process_time()
    for _ in range(repeats):
        action()
    return (process_time() - start) / repeats
