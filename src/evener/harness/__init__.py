"""The friendly front: `Harness("provider:model", tools=[...])`, then `run`. Names are loaded when they are first used."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evener.harness.approvals import Decision
    from evener.harness.branches import Branch, Diff
    from evener.harness.harness import Harness, Subagent
    from evener.harness.parallel import Entry, fan_out, parallel_llm_tool
    from evener.harness.preview import Compiled
    from evener.harness.stream import RunStream, Subscription
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
    "Subscription",
    "Thread",
    "fan_out",
    "parallel_llm_tool",
]

_HOMES = {
    "Branch": "branches",
    "Compiled": "preview",
    "Decision": "approvals",
    "Diff": "branches",
    "Entry": "parallel",
    "Harness": "harness",
    "RunStream": "stream",
    "Subagent": "harness",
    "Subscription": "stream",
    "Thread": "thread",
    "fan_out": "parallel",
    "parallel_llm_tool": "parallel",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'evener.harness' has no attribute {name!r}")
    return getattr(import_module(f"evener.harness.{home}"), name)
