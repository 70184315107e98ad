"""One conversation on four wires: each turn uses another provider. What a provider could not get is printed as a loss.

The providers are fakes on loopback that answer, and refuse, as the real ones do.

Prints:
    anthropic: Let me think of a number: 7.
    openai: And mine is 8.
      dropped reasoning: it was made by another wire (anthropic_messages, not openai_responses)
    groq: Eight.
      dropped reasoning: it was made by another wire (anthropic_messages, not openai_chat)
      dropped fields of text: item: it was made by another wire (openai_responses, not openai_chat)
    google: Ours add up to 15.
      dropped reasoning: it was made by another wire (anthropic_messages, not gemini)
      dropped fields of text: item: it was made by another wire (openai_responses, not gemini)
"""

import asyncio

from evener import Harness, MemoryStore, open_model
from evener.testing import FakeServer, Text, Thinking, turn

TURNS = (
    ("anthropic:claude-opus-4-5", "Name a number.", turn(Thinking("Seven will do."), Text("Let me think of a number: 7."))),
    ("openai:gpt-5.1", "Name another.", turn(Text("And mine is 8."))),
    ("groq:openai/gpt-oss-120b", "Which is larger?", turn(Text("Eight."))),
    ("google:gemini-3-pro-preview", "And the sum?", turn(Text("Ours add up to 15."))),
)


async def main() -> None:
    store, thread = MemoryStore(), ""
    for name, question, answer in TURNS:
        wire = open_model(name, key="test").origin.wire
        async with FakeServer(wire, [answer], key="test") as server:
            harness = Harness(open_model(name, key="test", base_url=server.url), store=store)
            result = await harness.run(question, thread=thread)
        thread = result.thread
        print(f"{name.partition(':')[0]}: {result.text}")
        for loss in result.losses:
            print(f"  {loss.kind} {loss.what}: {loss.why}")


if __name__ == "__main__":
    asyncio.run(main())
