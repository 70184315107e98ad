"""The friendly front: `Harness("provider:model", tools=[...])`, then `run`."""

from evener.harness.approvals import Decision
from evener.harness.branches import Branch, Diff
from evener.harness.fan_out import Entry, fan_out, parallel_llm_tool
from evener.harness.harness import Harness, Subagent
from evener.harness.preview import Compiled
from evener.harness.stream import RunStream
from evener.harness.thread import Thread

__all__ = [
    "Branch",
    "Compiled",
    "Decision",
    "Diff",
    "Entry",
    "Harness",
    "RunStream",
    "Subagent",
    "Thread",
    "fan_out",
    "parallel_llm_tool",
]
