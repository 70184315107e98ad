"""Where a thread stands, in a word for programs and in words for people. Pure."""

from collections.abc import Mapping
from typing import Literal

from evener.events import Finished, StopCause
from evener.loop.state import State

__all__ = ["WORDS", "Condition", "condition_of"]

Condition = StopCause | Literal["empty", "interrupted", "running", "unreadable"]

WORDS: Mapping[Condition, str] = {
    "empty": "nothing said yet",
    "running": "running",
    "interrupted": "interrupted",
    "done": "done",
    "approval": "waits for approval",
    "refusal": "declined",
    "length": "cut at its length",
    "limit": "stopped at a limit",
    "repeated": "went in circles",
    "tool_retries": "gave up on a tool",
    "output_retries": "gave up on its form",
    "provider_error": "failed",
    "cancelled": "stopped",
    "unexpected": "failed",
    "unreadable": "unreadable",
}


def condition_of(state: State, *, held: bool) -> Condition:
    """What became of the last run. `held`: somebody works on the log at this moment."""
    match state.finished:
        case Finished(cause=cause):
            return cause
    if not state.run:
        return "empty"
    if held:
        return "running"
    return "approval" if state.phase == "waiting" else "interrupted"
