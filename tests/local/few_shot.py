"""Example turns with which a model of 135 million parameters calls a calculator and fills a schema, greedily decoded.

Two of each. Without them it mostly does sums in its head, and gets them wrong.
"""

import json

from evener.transcript import Message, ToolCall, ToolSpec

__all__ = ["CALCULATOR", "PERSON", "people", "sums"]


def closed(**properties: object) -> str:
    shape = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return json.dumps(shape)


CALCULATOR = ToolSpec("calculator", "Calculates.", closed(expression={"type": "string"}))
PERSON = closed(name={"type": "string"}, age={"type": "integer"}, city={"type": "string"})


def sums(question: str) -> list[Message]:
    """Two sums with call, result and answer, and a question."""
    turns: list[Message] = []
    for number, (expression, result) in enumerate((("8 * 9", "72"), ("41 + 5", "46"))):
        call = ToolCall(f"example_{number}", CALCULATOR.name, json.dumps({"expression": expression}))
        turns += [
            Message.user_text(f"What is {expression}?"),
            Message.assistant_tool_call(call),
            Message.tool_result(call.id, result),
            Message.assistant_text(f"{expression} = {result}"),
        ]
    return [*turns, Message.user_text(question)]


def people(sentence: str) -> list[Message]:
    """Two persons, and a sentence about a third."""
    return [
        Message.user_text("Peter is 28 years old and lives in Berlin."),
        Message.assistant_text('{"name":"Peter","age":28,"city":"Berlin"}'),
        Message.user_text("Sofia, who is 45, lives in Rome."),
        Message.assistant_text('{"name":"Sofia","age":45,"city":"Rome"}'),
        Message.user_text(sentence),
    ]
