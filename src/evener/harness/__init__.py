"""The friendly front: `Harness("provider:model", tools=[...])`, then `run`."""

from evener.harness.harness import Harness
from evener.harness.running import RunStream
from evener.harness.thread import Thread

__all__ = ["Harness", "RunStream", "Thread"]
