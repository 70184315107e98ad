"""Follow the stream of a run, and send the run a message while it is busy.

Prints:
    ask scripted:model
    call dig({"metres":100})
    10 metres deep
    the user says: ten metres will do
    dig -> stopped at 10 metres
    ask scripted:model
    A hole of ten metres.
    done, 1 call
"""

import asyncio

from evener import Harness, ToolContext, streaming, tool
from evener.testing import ScriptedModel, calls
from evener.transcript import ToolCall

SCRIPT = [calls(ToolCall.of("call-1", "dig", {"metres": 100})), "A hole of ten metres."]
enough = asyncio.Event()


@tool(effect="write")
async def dig(metres: int, context: ToolContext[None]) -> str:
    """Dig a hole."""
    context.progress("10 metres deep", fraction=10 / metres)
    await enough.wait()
    return "stopped at 10 metres"


async def main() -> None:
    harness = Harness(ScriptedModel(SCRIPT), tools=[dig], store="memory")
    async with harness.stream("Dig.") as stream:
        async for event in stream:
            match event:
                case streaming.RequestStarted(model=model):
                    print("ask", model)
                case streaming.ToolStarted(call=call):
                    print(f"call {call.name}({call.raw})")
                case streaming.ToolProgressed(text=text):
                    print(text)
                    print("the user says: ten metres will do")
                    await stream.steer("Ten metres will do.")
                    enough.set()
                case streaming.ToolFinished(call=call, result=done):
                    print(call.name, "->", *(block.text for block in done.content))
                case streaming.TextStreamed(text=text):
                    print(text)
                case streaming.Retracted(why=why):
                    print("never mind:", why)
                case streaming.RunFinished(result=result):
                    print(f"{result.stop}, {len(result.records)} call")


if __name__ == "__main__":
    asyncio.run(main())
