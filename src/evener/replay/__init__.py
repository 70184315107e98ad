"""Replays a recorded log: the same replies, results and messages, through the real driver and the real plan."""

from evener.replay.difference import Difference
from evener.replay.replay import Replayed, replay

__all__ = ["Difference", "Replayed", "replay"]
