"""An agent with a tool, on a scripted model. To use a real model, name it: `python tools.py local:smollm2`.

Prints:
    It is -3 degrees in Oslo, with snow.
    weather({"city":"Oslo"}) -> snow, -3
    2 requests, 20 tokens in, 10 out
"""

import sys

from evener import Harness, tool
from evener.testing import ScriptedModel, calls
from evener.transcript import ToolCall


@tool(effect="read")
def weather(city: str) -> str:
    """The weather in a city."""
    return {"Oslo": "snow, -3", "Rome": "sun, 18"}.get(city, "no such station")


SCRIPT = [calls(ToolCall.of("call-1", "weather", {"city": "Oslo"})), "It is -3 degrees in Oslo, with snow."]


def main(model: str = "") -> None:
    harness = Harness(model or ScriptedModel(SCRIPT), tools=[weather], system="Be brief.", store="memory")
    result = harness.run_sync("What is the weather in Oslo?")
    print(result.text)
    for record in result.records:
        content = record.result.content if record.result else ()
        print(f"{record.call.name}({record.call.raw}) ->", *(block.text for block in content))
    print(f"{len(result.requests)} requests, {result.usage.input_total} tokens in, {result.usage.output_total} out")


if __name__ == "__main__":
    main(*sys.argv[1:])
