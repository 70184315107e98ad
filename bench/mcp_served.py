"""A harness with tools named as the conformance suite of MCP calls them. No model is asked."""

from evener import Harness, ToolContext, tool
from evener.testing import ScriptedModel
from evener.transcript.blocks import ImageBlock, Inline

__all__ = ["harness"]

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="


@tool(effect="read")
def test_simple_text() -> str:
    """Return a text."""
    return "This is a simple text response for testing."


@tool(effect="read")
def test_image_content() -> ImageBlock:
    """Return an image."""
    return ImageBlock(Inline(PIXEL), "image/png")


@tool(effect="read")
def test_error_handling() -> str:
    """Fail."""
    raise ValueError("This tool intentionally returns an error for testing")


@tool(effect="read")
def test_tool_with_progress(context: ToolContext[object]) -> str:
    """Report progress three times."""
    for fraction in (0.0, 0.5, 1.0):
        context.progress("working", fraction=fraction)
    return "done"


@tool(effect="read")
def test_streaming_elicitation() -> str:
    """Answer without asking the caller anything."""
    return "done"


@tool(effect="read")
def test_logging_tool() -> str:
    """Answer without logging to the caller."""
    return "done"


harness = Harness(
    ScriptedModel([]),
    tools=[
        test_simple_text,
        test_image_content,
        test_error_handling,
        test_tool_with_progress,
        test_streaming_elicitation,
        test_logging_tool,
    ],
    store="memory",
    name="fixture",
)
