"""Writes into docs/context.md what only a command may state: the picture of a window, and how far estimates are from reports.

Without recorded traffic the table of errors stays as it is.
"""

import asyncio
import re
from pathlib import Path

from bench.estimate import BARS, describe, judge, samples
from evener import Harness, tool
from evener.cli.commands.stored.context import draw_context
from evener.context import ContextRules
from evener.events import Limits
from evener.testing import ScriptedModel, calls, says
from evener.transcript import Ask
from evener.transcript.blocks import ImageBlock, Inline, TextBlock, ToolCall
from evener.transcript.reply import Reply, Usage
from tests.corpus import CORPUS

__all__ = ["PAGE", "draw", "main", "tabulate", "write_between"]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "context.md"
MODEL = "anthropic:claude-sonnet-4-5"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@tool(effect="read", output_limit=200_000)
def fetch(n: int) -> str:
    """Fetch a page."""
    return f"Page {n}. " + "words and words " * 1_500


@tool(effect="read")
def look(n: int) -> list[TextBlock | ImageBlock]:
    """Take a picture of the screen."""
    return [TextBlock(f"screen {n}"), ImageBlock(Inline(PIXEL), "image/png")]


def draw() -> str:
    """Return table and picture of a thread that was shortened twice, as `evener context` prints them."""

    def script(ask: Ask) -> Reply:
        number = len(ask.transcript) // 2 + 1
        if number >= 40:
            return says("Here is what I found.", usage=Usage())
        name = "look" if number % 4 == 0 else "fetch"
        return calls(ToolCall(f"call_{number}", name, f'{{"n":{number}}}'), text=f"Step {number}.", usage=Usage())

    async def run() -> str:
        rules = ContextRules(window=200_000)
        limits = Limits(requests=None, tool_calls=None)
        harness = Harness(
            ScriptedModel(script), tools=[fetch, look], system="You read pages.", store="memory", context=rules, limits=limits
        )
        thread = harness.thread()
        await thread.run("Read all pages about the harbour, and say which of them name a ship.")
        return "\n".join(draw_context(await thread.context(MODEL)))

    return asyncio.run(run())


def tabulate() -> str:
    """Return the table of errors, in Markdown."""
    lines = ["| wire | first request | request after an answer | at most |", "|---|---|---|---|"]
    for wire, bar in BARS.items():
        found = judge(wire, samples(wire))
        lines.append(f"| {wire} | {describe(found.first)} | {describe(found.following)} | {bar:.0%} |")
    return "\n".join(lines)


def write_between(page: str, name: str, text: str) -> str:
    """Return the page with this text between the two comments of that name."""
    begin, end = f"<!-- {name}: by python -m bench.context_page -->\n", f"\n<!-- end of {name} -->"
    found = re.search(re.escape(begin) + ".*?" + re.escape(end), page, re.DOTALL)
    if found is None:
        raise SystemExit(f"docs/context.md has no place for {name!r}.")
    return page[: found.start()] + begin + text + end + page[found.end() :]


def main() -> None:
    """Write both."""
    page = PAGE.read_text("utf-8")
    page = write_between(page, "picture", f"```text\n{draw()}\n```")
    if CORPUS is not None:
        page = write_between(page, "errors", tabulate())
    PAGE.write_text(page, "utf-8")


if __name__ == "__main__":
    main()
