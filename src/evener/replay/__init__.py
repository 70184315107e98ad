"""A recorded log, made to happen again: the same replies, results and words, through the real driver and the real plan."""

from evener.replay.difference import Difference
from evener.replay.replay import Replayed, replay

__all__ = ["Difference", "Replayed", "replay"]
