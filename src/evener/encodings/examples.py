"""Worked examples of calls, made from the tools' own schemas, for models too small to do without. Pure.

A model of a hundred million parameters reads how a call is written and writes none; shown two that were made, it makes a third.
"""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from evener.transcript.ask import ToolSpec
from evener.transcript.blocks import ToolCall
from evener.transcript.message import Message
from evener.transcript.transcript import Transcript
from evener.wire.prefix import dict_of

__all__ = ["has_called_before", "with_examples", "worked_examples"]

EACH = 2
SUMS = (("8 * 9", "72"), ("41 + 5", "46"))
PLACES = (("Paris", "Paris"), ("Rome", "Rome"))
WORDS = (("blue", "blue"), ("green", "green"))
SAMPLES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "expression": SUMS, "formula": SUMS, "calculation": SUMS, "sum": SUMS, "city": PLACES, "place": PLACES, "location": PLACES,
}  # fmt: skip
"""Values and results for the names that arguments usually have."""


def worked_examples(tools: tuple[ToolSpec, ...]) -> tuple[Message, ...]:
    """Return two calls of the first tool with question, result and answer; none where its arguments cannot be made up."""
    if not tools:
        return ()
    tool, told = tools[0], []
    for number in range(EACH):
        sampled = _sample(tool, number)
        if sampled is None:
            return ()
        arguments, question, result = sampled
        call = ToolCall.of(f"example_{number}", tool.name, arguments)
        turn = (
            Message.user_text(question), Message.assistant_tool_call(call), Message.tool_result(call.id, result),
            Message.assistant_text(result),
        )  # fmt: skip
        told += [replace(one, id=f"example-{number}-{place}", created_at=None) for place, one in enumerate(turn)]
    return tuple(told)


def _sample(tool: ToolSpec, number: int) -> tuple[dict[str, object], str, str] | None:
    """Return arguments, a question that leads to them, and a result."""
    root = msgspec.json.decode(tool.schema, type=dict[str, object])
    properties, required = dict_of(root.get("properties")), root.get("required")
    names = [name for name in properties if isinstance(required, list) and name in required] or list(properties)[:1]
    arguments: dict[str, object] = {}
    result = "done"
    for name in names:
        schema = dict_of(properties[name])
        value, result = _value(name, schema, number)
        if value is None:
            return None
        arguments[name] = value
    if not arguments:
        return None
    if len(arguments) == 1:
        return arguments, f"What is {next(iter(arguments.values()))}?", result
    shown = " and ".join(f"{name} {value}" for name, value in arguments.items())
    return arguments, f"Use {tool.name} with {shown}.", result


def _value(name: str, schema: dict[str, object], number: int) -> tuple[object, str]:
    """Return a value that fits the schema, and what calling with it may give; None where the schema is not plain."""
    choices = schema.get("enum")
    if isinstance(choices, list) and choices:
        chosen = choices[number % len(choices)]
        return chosen, str(chosen)
    match schema.get("type"):
        case "string":
            value, result = SAMPLES.get(name.lower(), WORDS)[number]
            return value, result
        case "integer" | "number":
            return 3 + 4 * number, str(3 + 4 * number)
        case "boolean":
            return number == 0, "done"
        case _:
            return None, ""


def has_called_before(transcript: Transcript) -> bool:
    """True if a tool was called before the user spoke last: then the model has seen how."""
    node, spoken = transcript.head, False
    while node is not None:
        if spoken and node.message.calls:
            return True
        spoken = spoken or (node.message.role == "user" and bool(node.message.text))
        node = node.parent
    return False


def with_examples(examples: tuple[Message, ...], transcript: Transcript) -> Transcript:
    """Return the conversation after the examples."""
    said = tuple(replace(message, parent_id="") for message in transcript)
    return Transcript((*examples, *said), transcript.system_blocks)
