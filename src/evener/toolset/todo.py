"""The to-do list: the model sends the whole list each time, so the last call in the log is the list. It has no state."""

from typing import Annotated, Literal

import msgspec

from evener.tools.result import ModelRetry, ToolOutput
from evener.tools.tool import Tool, tool
from evener.toolset.labels import label

STEPS = "todo"
"""The name of the tool."""
MOST = 100
SIGNS = {"open": "[ ]", "doing": "[>]", "done": "[x]"}


class Todo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One item of the list."""

    text: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
    status: Literal["open", "doing", "done"] = "open"


def todo_tool() -> Tool:
    """Return the tool `todo`."""

    def todo(items: Annotated[list[Todo], "the whole list, in order"]) -> ToolOutput:
        """Write down the steps of a longer task and their state. Send the whole list each time; one item is being done."""
        if len(items) > MOST:
            raise ModelRetry(f"The list has {len(items)} items; at most {MOST} are allowed. Join some.")
        if sum(item.status == "doing" for item in items) > 1:
            raise ModelRetry("More than one item is marked as doing. Do one at a time.")
        lines = [f"{SIGNS[item.status]} {item.text}" for item in items]
        return ToolOutput("\n".join(lines) or "The list is empty.", {"todo": msgspec.to_builtins(items)})

    return label(tool(todo, name=STEPS, effect="idempotent", sequential=True), "private", source="todo")
