"""Worked examples of calls, made from the tools' own schemas, for models that are too small to call tools without them.
Pure.

A model of a hundred million parameters can read how a call is written and still write none; after two examples, it writes a
third.
"""

import re

import msgspec
from msgspec.structs import replace

from evener.transcript.ask import ToolSpec
from evener.transcript.blocks import Origin, ToolCall
from evener.transcript.message import Message
from evener.transcript.transcript import Transcript
from evener.wire.prefix import dict_of

MOST = 2
SUMS = (("8 * 9", "72"), ("41 + 5", "46"))
PLACES = (("Paris", "rain in Paris, 9 degrees"), ("Rome", "sun in Rome, 20 degrees"))
WORDS = (("blue", "sky at noon"), ("green", "12"))
NUMBERS = (("3", "25"), ("7", "58"))
PLAIN = ("sky at noon", "12")
IS_SUM = re.compile(r"calc|math|arithm|expression|formula|\bexpr|comput|evaluat", re.IGNORECASE)
IS_PLACE = re.compile(r"city|cities|town|place|location", re.IGNORECASE)


def worked_examples(tools: tuple[ToolSpec, ...]) -> tuple[Message, ...]:
    """Return two example calls, each with question, result and answer, of the first two tools, or both of the only tool.

    A tool has none if no arguments can be made up for it.
    """
    samples: list[tuple[ToolSpec, Sample]] = []
    for number, tool in enumerate((*tools[:MOST], *tools[:1] * (MOST - len(tools)))):
        sampled = _sample(tool, number)
        samples += [] if sampled is None else [(tool, sampled)]
    told: list[Message] = []
    for number, (tool, (arguments, question, result)) in enumerate(samples):
        call = ToolCall.of(f"example_{number}", tool.name, arguments)
        turn = (
            Message.user_text(question), Message.assistant_tool_call(call), Message.tool_result(call.id, result),
            Message.assistant_text(result),
        )  # fmt: skip
        told += [replace(one, id=f"example-{number}-{place}", created_at=None) for place, one in enumerate(turn)]
    return tuple(told)


Sample = tuple[dict[str, object], str, str]


def _sample(tool: ToolSpec, number: int) -> Sample | None:
    """Return arguments, a question that leads to them, and a result that the answer repeats.

    The result is not in the question.
    """
    root = msgspec.json.decode(tool.schema, type=dict[str, object])
    properties, required = dict_of(root.get("properties")), root.get("required")
    names = [name for name in properties if isinstance(required, list) and name in required] or list(properties)[:1]
    arguments: dict[str, object] = {}
    result = PLAIN[number]
    for place, name in enumerate(names):
        value, result = _value(f"{tool.name} {tool.description} {name}", dict_of(properties[name]), number, place)
        if value is None:
            return None
        arguments[name] = value
    if not arguments:
        return arguments, f"Use {tool.name}.", result
    if len(arguments) == 1:
        return arguments, f"What is {next(iter(arguments.values()))}?", result
    shown = " and ".join(f"{name} {value}" for name, value in arguments.items())
    return arguments, f"Use {tool.name} with {shown}.", result


def _value(about: str, schema: dict[str, object], number: int, place: int) -> tuple[object, str]:
    """Return a value that fits the schema, and a plausible result; None if the schema is not simple."""
    choices = schema.get("enum")
    if isinstance(choices, list) and choices:
        return choices[number % len(choices)], PLAIN[number]
    match schema.get("type"):
        case "string":
            return (SUMS if IS_SUM.search(about) else PLACES if IS_PLACE.search(about) else WORDS)[number]
        case "integer" | "number":
            value, result = NUMBERS[number]
            return int(value) + place, result
        case "boolean":
            return number == 0, PLAIN[number]
        case _:
            return None, ""


def must_call(transcript: Transcript) -> bool:
    """True if no tool was called since the user's last message."""
    node = transcript.head
    while node is not None and not (node.message.role == "user" and node.message.text):
        if node.message.calls:
            return False
        node = node.parent
    return True


def has_called_before(transcript: Transcript, target: Origin) -> bool:
    """True if the first call of the conversation was made by another model than the target, so that it serves as an example.

    The target's own calls do not count: they were made after the examples. Removing the examples then would invalidate the
    cached prefix.
    """
    first = None
    node = transcript.head
    while node is not None:
        if node.message.calls:
            first = node.message
        node = node.parent
    made = first.origin if first is not None else target
    return made is None or (made.provider, made.model) != (target.provider, target.model)


def with_examples(examples: tuple[Message, ...], transcript: Transcript) -> Transcript:
    """Return the conversation after the examples."""
    said = tuple(replace(message, parent_id="") for message in transcript)
    return Transcript((*examples, *said), transcript.system_blocks)
