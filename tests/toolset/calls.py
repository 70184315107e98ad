"""Calls a tool of a set by its name, for the tests."""

import json
from collections.abc import Iterable

from evener.tools import Envelope, Tool, Toolbox, ToolContext
from tests.tools.calls import call as run_one
from tests.tools.calls import run

__all__ = ["Caller"]


class Caller:
    """A box of tools whose calls are made by name; `run` says in which run."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self.box = Toolbox(tools)

    def call(self, tool: str, arguments: dict[str, object], *, run_id: str = "run-1") -> Envelope:
        context: ToolContext[object] = ToolContext(call_id="call-1", deps=None, run_id=run_id, key="key-1")
        return run(run_one(self.box[tool], json.dumps(arguments), within=context))
