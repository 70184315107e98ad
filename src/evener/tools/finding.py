"""Tools behind a search: a large catalogue costs a prompt one tool, and each tool that the model finds is declared from then
on. Pure.

Policy, approval and validation apply to a hidden tool like to any other.
"""

import re
from collections.abc import Iterable, Mapping
from math import log

from msgspec.structs import replace

from evener.tools.result import Envelope, ModelRetry
from evener.tools.tool import Tool
from evener.transcript.blocks import TextBlock

FIND_TOOLS = "find_tools"
MOST_FOUND = 8
MOST_WORDS = 300
WORD = re.compile(r"[a-z]+|[0-9]+")
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
NAMED = 3.0
"""How much more a word counts in a name than in a description."""


def hide_tools(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    """Return the tools hidden, with one more that finds them."""
    hidden = tuple(replace(one, hidden=True) for one in tools)
    return (*hidden, find_tools_tool(hidden)) if hidden else ()


def find_tools_tool(tools: Iterable[Tool]) -> Tool:
    """Return the tool `find_tools`. For given words it lists the tools that match best, and reveals these to the model."""
    known = {one.name: one for one in tools}
    weights = {name: _weigh(one) for name, one in known.items()}
    rare = _rarity(weights)

    def find_tools(arguments: dict[str, str]) -> Envelope:
        asked = [word for word in _words(arguments["query"]) if word in rare]
        scores = {name: sum(own.get(word, 0.0) * rare[word] for word in asked) for name, own in weights.items()}
        found = sorted((name for name, score in scores.items() if score), key=lambda name: (-scores[name], name))[:MOST_FOUND]
        if not found:
            raise ModelRetry("No tool matches these words. Use other words: say what is to be done, and with what.")
        lines = [f"- {name}: {' '.join(known[name].description.split()).partition('. ')[0][:200]}" for name in found]
        text = "\n".join(("These tools can be called now:", *lines))
        return Envelope(True, (TextBlock(text),), reveals=tuple(found))

    groups = sorted({name.rpartition("__")[0].removeprefix("mcp__") for name in known} - {""})
    among = f" They are about: {', '.join(groups)[:500]}." if groups else ""
    return Tool.of(
        FIND_TOOLS,
        {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "words for what is to be done, and with what"}},
            "required": ["query"],
        },
        function=find_tools,
        description=f"Find tools among {len(known)} that are not listed here.{among} What is found can be called afterwards.",
        effect="read",
    )


def _words(text: str) -> list[str]:
    return WORD.findall(CAMEL.sub(" ", text).lower())[:MOST_WORDS]


def _weigh(tool: Tool) -> Mapping[str, float]:
    """Return how much each word says of a tool: those of its name most, then description and arguments."""
    found: dict[str, float] = {}
    fields = tool.spec.input_schema.get("properties", {})
    for text, weight in (
        (tool.name, NAMED),
        (f"{tool.description} {' '.join(fields if isinstance(fields, dict) else ())}", 1.0),
    ):
        for word in _words(text):
            found[word] = max(found.get(word, 0.0), weight)
            found.setdefault(word.rstrip("s"), weight)
    return found


def _rarity(weights: Mapping[str, Mapping[str, float]]) -> Mapping[str, float]:
    """Return how well each word distinguishes tools: rare words count most."""
    counted: dict[str, int] = {}
    for own in weights.values():
        for word in own:
            counted[word] = counted.get(word, 0) + 1
    return {word: log(1 + len(weights) / times) for word, times in counted.items()}
