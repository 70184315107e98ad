"""A call that needs approval. The run stops at this call. A user may decide later, in another process; then the run continues.

Prints:
    stop: approval
    asked: pay({"amount":500}), because the tool 'pay' asks before each call
    refused: The decision about 'call-1' has another digest than the call that waits. Check the call.
    paid 50
    I paid 50, as you wanted.
"""

import asyncio

from evener import Harness, tool
from evener.errors import ApprovalStale
from evener.harness import Decision
from evener.testing import ScriptedModel, calls
from evener.transcript import ToolCall

SCRIPT = [calls(ToolCall.of("call-1", "pay", {"amount": 500})), "I paid 50, as you wanted."]


@tool(effect="write", approval=True)
def pay(amount: int) -> str:
    """Pay."""
    print("paid", amount)
    return "paid"


async def main() -> None:
    harness = Harness(ScriptedModel(SCRIPT), tools=[pay], store="memory")
    result = await harness.run("Pay what we owe.")
    print("stop:", result.stop)
    [asked] = result.approvals
    print(f"asked: {asked.call.name}({asked.call.raw}), because {asked.why}")
    try:
        await harness.decide(result.thread, {asked.key: Decision("allow", digest="of something else")})
    except ApprovalStale as error:
        print("refused:", error)
    edited = Decision("allow", arguments={"amount": 50}, digest=asked.digest, by="the owner")
    await harness.decide(result.thread, {asked.key: edited})
    print((await harness.resume(result.thread)).text)


if __name__ == "__main__":
    asyncio.run(main())
