"""Tools: functions that a model may call. Calls are validated before they run."""

from evener.tools.call import Threads, run_call, verify_call
from evener.tools.context import Cancellation, Progress, ToolContext
from evener.tools.result import Envelope, ModelRetry, Outcome, ToolOutput, envelope_of
from evener.tools.schema import Problem
from evener.tools.spill import Blobs, MemoryBlobs, read_output_tool, spill
from evener.tools.tool import Effect, Tool, Toolbox, tool
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
