"""A research agent gives questions to two other agents. Two readers follow its stream: one gets all events, one only its own.

Prints:
    Report(question='Which is older?', answer='Rome, by centuries.', sources=2)
    one reader saw 3 runs, the other 1
"""

import asyncio
from dataclasses import dataclass

from evener import Harness, ModelSettings, RunStream, tool
from evener.harness import Subagent, Subscription
from evener.testing import ScriptedModel, calls
from evener.testing.scripted_model import Line
from evener.transcript import ToolCall


@dataclass(frozen=True)
class Report:
    """What the research came to."""

    question: str
    answer: str
    sources: int


@tool(effect="read")
def search(about: str) -> str:
    """Search the archive."""
    return {"Rome": "founded in 753 BC", "Oslo": "founded in 1049"}.get(about, "nothing")


def historian(city: str) -> Harness:
    script: list[Line] = [calls(ToolCall.of("call-1", "search", {"about": city})), f"{city} was {search(city)}."]
    return Harness(ScriptedModel(script), tools=[search], store="memory")


def researcher() -> Harness[object, Report]:
    script: list[Line] = [
        calls(ToolCall.of("a", "rome", {"task": "How old?"}), ToolCall.of("b", "oslo", {"task": "How old?"})),
        '{"question": "Which is older?", "answer": "Rome, by centuries.", "sources": 2}',
    ]
    brief = ModelSettings(max_output_tokens=500, tool_choices=("required",))
    return Harness(
        ScriptedModel(script),
        agents=[
            Subagent(name="rome", harness=historian("Rome"), description="Knows Rome.", settings=brief),
            Subagent(name="oslo", harness=historian("Oslo"), description="Knows Oslo.", settings=brief),
        ],
        output=Report,
        store="memory",
    )


async def runs_seen(stream: RunStream[Report] | Subscription) -> int:
    return len({event.place.run async for event in stream})


async def main() -> None:
    async with researcher().stream("Which is older, Rome or Oslo?") as stream:
        own = stream.subscribe(children=False)
        everything, alone = await asyncio.gather(runs_seen(stream), runs_seen(own))
        print((await stream.result()).require_output())
        print(f"one reader saw {everything} runs, the other {alone}")


if __name__ == "__main__":
    asyncio.run(main())
