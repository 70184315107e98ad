"""`make demo`: a real model on this machine, no key. One conversation over three wires with a tool, and a schema filled.

What a turn cannot say on its wire is shown beside it, as the loss report that every caller gets.
"""

import asyncio
import operator
import re
import sys
from collections.abc import Iterator, Sequence
from time import perf_counter

from evener.errors import EvenerError
from evener.harness import Harness
from evener.local import BUNDLES, LocalTransport, fetch_weights
from evener.model import Model, open_model
from evener.result import RunResult
from evener.store.memory import MemoryStore
from evener.tools import Tool, tool
from evener.transcript.ask import OutputSchema
from evener.transcript.blocks import TextBlock, ToolCall
from evener.transcript.loss import Loss
from evener.transcript.message import Message
from evener.transcript.transcript import Transcript

__all__ = ["main"]

MODEL = "smollm2"
SUM = re.compile(r"\s*(-?\d+)\s*([-+*])\s*(-?\d+)\s*")
SIGNS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
TURNS = (
    ("local", "What is 17 * 23?"),
    ("local-responses", "What is 25 * 4?"),
    ("local-anthropic", "Say hello."),
)
PERSON = (
    '{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"},"city":{"type":"string"}},'
    '"required":["name","age","city"],"additionalProperties":false}'
)
PEOPLE = (
    ("Peter is 28 years old and lives in Berlin.", '{"name":"Peter","age":28,"city":"Berlin"}'),
    ("Sofia, who is 45, lives in Rome.", '{"name":"Sofia","age":45,"city":"Rome"}'),
)


@tool(effect="read")
def calculator(expression: str) -> str:
    """Calculate the value of an expression."""
    found = SUM.fullmatch(expression)
    if found is None:
        return f"{expression!r} is no sum of two numbers."
    return str(SIGNS[found[2]](int(found[1]), int(found[3])))


def main() -> int:
    """Fetch missing weights, run the demo, and print how long it took."""
    try:
        fetched = fetch_weights(BUNDLES[MODEL])
        print(f"weights of {MODEL}: {'fetched now' if fetched.fresh else 'already here'}", flush=True)
        began = perf_counter()
        asyncio.run(_demonstrate())
    except EvenerError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    print(f"\n{perf_counter() - began:.0f} seconds, no key, no cost. This model is tiny; larger models answer better.")
    return 0


async def _demonstrate() -> None:
    async with LocalTransport(MODEL) as transport:
        await _converse(transport)
        await _fill(transport)


async def _converse(transport: LocalTransport) -> None:
    """Run one thread in one store. Each turn uses another harness, on another wire."""
    store, thread = MemoryStore(), ""
    for row, question in TURNS:
        model = _model(row, transport)
        harness = Harness(model, tools=_tools(), store=store, page_output=False)
        print(f"\n=== {row}: the {model.origin.wire} wire", flush=True)
        held = harness.thread(thread, history=() if thread else tuple(_examples()))
        result = await held.run(question)
        thread = held.id
        _show(question, result)


def _model(row: str, transport: LocalTransport) -> Model:
    return open_model(f"{row}:{MODEL}", transport=transport, temperature=0.0, max_output_tokens=60)


def _tools() -> Sequence[Tool]:
    return (calculator,)


def _examples() -> Iterator[Message]:
    """Yield two solved sums: a model this small needs examples."""
    for number, (expression, result) in enumerate((("8 * 9", "72"), ("41 + 5", "46"))):
        call = ToolCall.of(f"example_{number}", "calculator", {"expression": expression})
        yield Message.user_text(f"What is {expression}?")
        yield Message.assistant_tool_call(call)
        yield Message.tool_result(call.id, result)
        yield Message.assistant_text(f"{expression} = {result}")


def _show(question: str, result: RunResult) -> None:
    print(f"  user       {question}")
    for record in result.records:
        content = record.result.content if record.result else ()
        came = " ".join(block.text for block in content if isinstance(block, TextBlock))
        print(f"  tool       {record.call.name}({record.call.raw}) -> {came}")
    print(f"  assistant  {' '.join(result.text.split())}")
    usage = result.usage
    print(f"  usage      {usage.input_total} in, of which {usage.cache_read} from the cache; {usage.output_total} out")
    _report(result.losses)


def _report(losses: Sequence[Loss]) -> None:
    for loss in losses:
        print(f"  loss       {loss}")
    if not losses:
        print("  loss       none")


async def _fill(transport: LocalTransport) -> None:
    """Ask for an object of a given schema, made from a sentence."""
    sentence = "Maria is 34 years old and lives in Lisbon."
    told = [message for said, filled in PEOPLE for message in (Message.user_text(said), Message.assistant_text(filled))]
    model = _model("local", transport)
    answer = await model.complete(
        model.ask(Transcript([*told, Message.user_text(sentence)]), output=OutputSchema(PERSON, name="person"))
    )
    print(f"\n=== local: a schema filled\n  user       {sentence}\n  output     {answer.output}")
    _report(answer.losses)


if __name__ == "__main__":
    raise SystemExit(main())
