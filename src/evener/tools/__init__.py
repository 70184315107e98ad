"""Tools: functions that a model may call, checked before they run and never trusted while they do."""

from evener.tools.context import Cancellation, Progress, ToolContext
from evener.tools.problems import Problem
from evener.tools.result import Envelope, ModelRetry, Outcome, ToolOutput, envelope_of
from evener.tools.running import run_call, verify_call
from evener.tools.spill import Blobs, MemoryBlobs, read_output_tool, spill
from evener.tools.threads import Threads
from evener.tools.tool import Effect, Tool, tool
from evener.tools.toolbox import Toolbox
from evener.tools.validation import Validator

__all__ = [
    "Blobs",
    "Cancellation",
    "Effect",
    "Envelope",
    "MemoryBlobs",
    "ModelRetry",
    "Outcome",
    "Problem",
    "Progress",
    "Threads",
    "Tool",
    "ToolContext",
    "ToolOutput",
    "Toolbox",
    "Validator",
    "envelope_of",
    "read_output_tool",
    "run_call",
    "spill",
    "tool",
    "verify_call",
]
